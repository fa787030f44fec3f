"""What a rank says about itself now and then, and what follows from it: who keeps the others waiting."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from determined.core.ranks import signing
from determined.core.ranks.peers import name_ranks
from determined.core.ranks.rollcall import SILENT, Session

WORKS, WAITS, EXCHANGES = "works", "waits", "exchanges"
# Where a thread is in Python while torch exchanges tensors with other ranks: in backward, or in a call of its own.
_EXCHANGE = re.compile(r'File "[^"]*[/\\]torch[/\\](autograd|distributed|nn[/\\]parallel)[/\\]')


@dataclass(frozen=True)
class Pulse:
    """What one rank has last said about itself."""

    elapsed: float = 0.0  # seconds since the ranks met, by its clock
    still: float = 0.0  # seconds since it last made a call or finished a batch
    state: str = WORKS
    call: str = ""  # the last collective that it made, in words
    needs: list[int] = field(default_factory=list)  # ranks for which it waits
    batches: int = -1  # how many it has trained, if it trains
    stack: list[str] = field(default_factory=list)  # once it has been still for a while


def exchanges_tensors(stack: Sequence[str]) -> bool:
    """Whether a thread with this stack is in a call in which torch waits for other ranks."""
    return bool(stack) and _EXCHANGE.match(stack[0]) is not None


def pulse_path(session: Session, rank: int) -> str:
    return session.path("pulse", rank)


def seal_pulse(session: Session, rank: int, pulse: Pulse) -> bytes:
    path = pulse_path(session, rank)
    return signing.seal(session.key, path, json.dumps(asdict(pulse)).encode())


def read_pulse(session: Session, rank: int, record: bytes) -> Pulse:
    """What was said in this record; of a rank that has not said anything, that it has just begun."""
    if record == SILENT:
        return Pulse()
    return Pulse(**json.loads(signing.unseal(session.key, pulse_path(session, rank), record, f"rank {rank}")))


@dataclass(frozen=True)
class Blame:
    """Ranks that keep others waiting, and those others."""

    ranks: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)


def find_blame(pulses: Mapping[int, Pulse], silent: set[int], patience: float) -> Blame:
    """Who keeps others waiting that have not moved for `patience` seconds. `silent` ranks no longer say anything.

    A rank in one of our calls says for whom it waits. One that exchanges tensors waits for all, so it is for those that
    do something else and do not move. Where torch waits out of sight, as with GPUs, it is for those that have trained
    fewer batches than others.
    """
    waits = {r for r, pulse in pulses.items() if r not in silent and pulse.state == WAITS}
    exchanges = {r for r, pulse in pulses.items() if r not in silent and pulse.state == EXCHANGES}
    still = {r for r, pulse in pulses.items() if r in silent or pulse.still >= patience}
    patient = still - silent
    blamed = {needed for rank in waits & patient for needed in pulses[rank].needs} - waits
    if exchanges & patient:
        blamed |= still - waits - exchanges
    batches = {pulse.batches for pulse in pulses.values()}
    if len(still) == len(pulses) and len(batches) > 1 and min(batches) >= 0:
        blamed |= {r for r, pulse in pulses.items() if pulse.batches == min(batches)} - waits - exchanges
    waiting = patient - blamed
    return Blame(sorted(blamed), sorted(waiting & (waits | exchanges) or waiting) if blamed else [])


def find_stuck(pulses: Mapping[int, Pulse], silent: set[int], patience: float) -> set[int]:
    """Who neither waits nor has moved for `patience` seconds; for a rank that has given up waiting, as others may."""
    return {r for r, pulse in pulses.items() if r in silent or (pulse.state == WORKS and pulse.still >= patience)}


def describe_blame(blame: Blame, pulses: Mapping[int, Pulse]) -> str:
    """Whom it keeps waiting, where and for how long, for a sentence."""
    pulse = max((pulses[rank] for rank in blame.waiting), key=lambda pulse: pulse.still)
    plural = "ranks" if len(blame.waiting) > 1 else "rank"
    where = f"in {pulse.call}" if pulse.state == WAITS else "in an exchange of tensors"
    return f"keeps {plural} {name_ranks(blame.waiting)} waiting {where}, for {pulse.still:.0f} s"
