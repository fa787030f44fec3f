"""What a rank reports about itself now and then, and what follows from it: who keeps the others waiting."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from determined.core.ranks.members import name_ranks

WORKS, WAITS, EXCHANGES = "works", "waits", "exchanges"
# Where a thread is in Python while torch exchanges tensors with other ranks: in backward, or in a call of its own.
_EXCHANGE = re.compile(r'File "[^"]*[/\\]torch[/\\](autograd|distributed|nn[/\\]parallel)[/\\]')


@dataclass(frozen=True)
class Status:
    """What one rank has last reported about itself."""

    elapsed: float = 0.0  # seconds since the session began, by its clock
    still: float = 0.0  # seconds since it last made a call or finished a batch
    state: str = WORKS
    call: str = ""  # the last collective that it made, in words
    needs: list[int] = field(default_factory=list)  # ranks for which it waits
    batches: int = -1  # how many it has trained, if it trains
    stack: list[str] = field(default_factory=list)  # once it has been still for a while


@dataclass(frozen=True)
class Suspects:
    """Ranks that keep others waiting, and those others."""

    ranks: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)


def exchanges_tensors(stack: Sequence[str]) -> bool:
    """Whether a thread with this stack is in a call in which torch waits for other ranks."""
    return bool(stack) and _EXCHANGE.match(stack[0]) is not None


def find_suspects(statuses: Mapping[int, Status], silent: set[int], patience: float) -> Suspects:
    """Find who keeps others waiting that have not moved for `patience` seconds. `silent` ranks report nothing any more.

    A rank in one of our calls reports for whom it waits. One that exchanges tensors waits for all, so it is for those
    that do something else and do not move. Where torch waits out of sight, as with GPUs, it is for those that have
    trained fewer batches than others.
    """
    waits = {r for r, status in statuses.items() if r not in silent and status.state == WAITS}
    exchanges = {r for r, status in statuses.items() if r not in silent and status.state == EXCHANGES}
    still = {r for r, status in statuses.items() if r in silent or status.still >= patience}
    patient = still - silent
    suspects = {needed for rank in waits & patient for needed in statuses[rank].needs} - waits
    if exchanges & patient:
        suspects |= still - waits - exchanges
    batches = {status.batches for status in statuses.values()}
    if len(still) == len(statuses) and len(batches) > 1 and min(batches) >= 0:
        suspects |= {r for r, status in statuses.items() if status.batches == min(batches)} - waits - exchanges
    waiting = patient - suspects
    return Suspects(sorted(suspects), sorted(waiting & (waits | exchanges) or waiting) if suspects else [])


def find_stuck(statuses: Mapping[int, Status], silent: set[int], patience: float) -> set[int]:
    """Find who neither waits nor has moved for `patience` seconds, for a rank that has given up waiting."""
    return {r for r, status in statuses.items() if r in silent or (status.state == WORKS and status.still >= patience)}


def describe_wait(suspects: Suspects, statuses: Mapping[int, Status]) -> str:
    """Return who is kept waiting, where and for how long, for a sentence."""
    longest = max((statuses[rank] for rank in suspects.waiting), key=lambda status: status.still)
    where = f"in {longest.call}" if longest.state == WAITS else "in an exchange of tensors"
    return f"keeps {name_ranks(suspects.waiting)} waiting {where}, for {longest.still:.0f} s"
