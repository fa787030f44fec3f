"""Who keeps the others waiting? A thread in every rank says where its rank is, and one rank names those that hang.

It works while the main thread is in user code, in a C call or asleep. A process that is stopped, or that never lets
go of Python's lock, says nothing: that too is noticed, by the others.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from determined.core.ranks.peers import Member
from determined.core.ranks.pulse import (
    EXCHANGES,
    WAITS,
    WORKS,
    Pulse,
    describe_blame,
    exchanges_tensors,
    find_blame,
    find_stuck,
    pulse_path,
    read_pulse,
    seal_pulse,
)
from determined.core.ranks.stacks import stack_of
from determined.core.ranks.wire import Call
from determined.errors import CollectiveError, CollectiveTimeout

if TYPE_CHECKING:
    from determined.core.ranks.participant import Participant

logger = logging.getLogger("determined.core")

T = TypeVar("T")

_UNKNOWN = (lambda: -1), (lambda: None)  # the progress of a rank that does not train
ANSWER_SECONDS = 5.0
LOOKS = 8
"""How often each rank says where it is in the time in which one that hangs is to be named."""
NAMED = 3
"""Of how many ranks an error tells where they are."""


class Watch:
    """Watches over the ranks of one session, from a thread.

    Args:
        participant: This rank.
        notice: Seconds after which a rank that keeps others waiting is named, at the latest; 0 for never.
        timeout: Seconds after which a store that does not answer is given up.
    """

    def __init__(self, participant: Participant, notice: float, timeout: float) -> None:
        self._one = participant
        self._trainer = threading.get_ident()
        self._interval, self._patience = notice / LOOKS, notice / 2
        self._timeout = timeout
        self._began = self._looked = time.monotonic()
        self._over = threading.Event()
        self._position: object = None
        self._still = 0.0
        self._known: dict[int, Pulse] = {}  # what others have last been seen to say
        self._said: dict[int, tuple[object, float, float]] = {}  # by rank: where it was, and when to say so again
        self._progress: tuple[Callable[[], int], Callable[[], object]] = _UNKNOWN
        if notice > 0:
            threading.Thread(target=self._run, name="determined-watch", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()

    @contextlib.contextmanager
    def showing(self, batches: Callable[[], int], steps: Callable[[], object]) -> Iterator[None]:
        """Inside, `batches` says how many this rank has trained, and `steps` something that changes as it gets on."""
        self._progress = batches, steps
        try:
            yield
        finally:
            self._progress = _UNKNOWN

    def describe(self, members: list[Member]) -> str:
        """Where these ranks are, in sentences; nothing if that cannot be learnt."""
        if self._interval <= 0:
            return ""
        pulses = _in_time(self._read_all) or self._known
        return "".join(
            f" R{str(member)[1:]} {self._describe(member, pulses)}"
            for member in members[:NAMED]
            if member.rank in pulses
        )

    def stuck(self) -> str:
        """Where those are that neither wait nor get on, in sentences. To be asked once this rank has given up."""
        pulses = _in_time(self._read_all) or self._known
        stuck = find_stuck(pulses, self._silent(pulses), self._patience)
        return self.describe([member for member in self._others() if member.rank in stuck]).strip()

    def everyone(self) -> str:
        """Where the other ranks are, in sentences."""
        return self.describe(self._others()).strip()

    def _others(self) -> list[Member]:
        return [member for member in self._one.session.members if member.rank != self._one.me.rank]

    # The thread.

    def _run(self) -> None:
        while not self._over.is_set():
            started = time.monotonic()
            look = threading.Thread(target=self._look, name="determined-watch-look", daemon=True)
            look.start()  # by itself: to ask a store whose process is stopped takes for ever
            look.join(self._interval)
            unanswered = self._interval
            while look.is_alive() and not self._over.wait(self._interval):
                unanswered += self._interval
                if look.is_alive():
                    self._unanswered(unanswered)
            self._over.wait(max(0.0, started + self._interval - time.monotonic()))

    def _look(self) -> None:
        try:
            own = self._feel()
            rank = self._one.me.rank
            self._one.connection.set(pulse_path(self._one.session, rank), seal_pulse(self._one.session, rank, own))
            if all(self._is_silent(self._read(other)) for other in range(rank)):
                self._judge(self._read_all())
        except CollectiveError as error:  # the session is over; whoever makes a call is told why
            logger.debug("The watch of rank %s ends: %s", self._one.me.rank, error)
            self.stop()

    def _feel(self) -> Pulse:
        """Where this rank is now."""
        one, now = self._one, time.monotonic()
        waiting, (count, steps) = one.waiting, self._progress
        batches = count()
        position = (tuple(one.calls.items()), waiting, batches, steps())
        passed = min(now - self._looked, 2 * self._interval)  # not the hours for which the whole job was stopped
        self._still = self._still + passed if position == self._position else 0.0
        self._position, self._looked = position, now
        stack = stack_of(self._trainer) if self._still >= self._patience else []
        if waiting is not None:
            state, needs = WAITS, [member.rank for member in waiting.missing()]
        else:
            state, needs = (EXCHANGES if exchanges_tensors(stack) else WORKS), []
        call = "" if one.last_call is None else str(one.last_call)
        return Pulse(now - self._began, self._still, state, call, needs, batches, stack)

    def _judge(self, pulses: Mapping[int, Pulse]) -> None:
        silent = self._silent(pulses)
        blame = find_blame(pulses, silent, self._patience)
        if not blame.waiting:
            return
        # One that hangs is about to say where; if it does not, it gets on, slowly.
        waits_long = any(pulses[rank].still > 1.5 * self._patience for rank in blame.waiting)
        for member in self._one.session.members:
            pulse = pulses[member.rank]
            is_due = pulse.stack or member.rank in silent or waits_long
            if member.rank in blame.ranks and is_due and not self._one.absence(member):
                self._say(
                    member,
                    (pulse.call, pulse.batches),
                    f"{member} {describe_blame(blame, pulses)}. It {self._describe(member, pulses)}",
                )

    def _unanswered(self, seconds: float) -> None:
        """The store has not answered for so long."""
        one, chief = self._one, self._one.session.members[0]
        hosts = f"{chief}, whose process hosts it" if one.connection.ends_with_chief else "the launcher's process"
        text = f"{one.connection.place[0].upper()}{one.connection.place[1:]}, where the ranks meet, does not answer"
        last = f" It {self._describe(chief, self._known, asks=False)}" if one.connection.ends_with_chief else ""
        text = f"{text} rank {one.me.rank} since {seconds:.0f} s: look at {hosts}.{last}"
        if seconds >= self._patience and (one.me.rank == 1 or one.me.local_rank == 0):
            self._say(chief, "unanswered", text)
        if seconds >= self._timeout:
            one.verdict = CollectiveTimeout(text)
            one.connection.hang_up()

    def _say(self, member: Member, position: object, text: str) -> None:
        """Say it once, and again after twice the time for as long as nothing changes."""
        now = time.monotonic()
        before, due, gap = self._said.get(member.rank, (None, 0.0, 0.0))
        if before != position:
            due, gap = now, LOOKS * self._interval
        if now < due:
            return
        self._said[member.rank] = (position, now + 2 * gap, 2 * gap)
        logger.warning(
            "%s\nRanks wait %g s for each other; if this takes longer, raise DET_COLLECTIVE_TIMEOUT, in seconds.",
            text,
            self._timeout,
        )

    # What others say.

    def _read(self, rank: int) -> Pulse:
        session = self._one.session
        self._known[rank] = read_pulse(session, rank, self._one.connection.get(pulse_path(session, rank)))
        return self._known[rank]

    def _read_all(self) -> dict[int, Pulse]:
        session = self._one.session
        records = self._one.connection.get_all([pulse_path(session, member.rank) for member in session.members])
        self._known = {rank: read_pulse(session, rank, record) for rank, record in enumerate(records)}
        return self._known

    def _age(self, pulse: Pulse) -> float:
        """How long ago that was said; all ranks count from when they met."""
        return max(0.0, time.monotonic() - self._began - pulse.elapsed)

    def _is_silent(self, pulse: Pulse) -> bool:
        return self._age(pulse) > self._patience

    def _silent(self, pulses: Mapping[int, Pulse]) -> set[int]:
        return {rank for rank, pulse in pulses.items() if self._is_silent(pulse)}

    def _describe(self, member: Member, pulses: Mapping[int, Pulse], *, asks: bool = True) -> str:
        """The last call of this rank and where it is: sentences, the first without its subject."""
        pulse = pulses.get(member.rank, Pulse())
        call = (self._last_call(member) if asks else "") or self._one.last_met or pulse.call
        said = f"last called {call}." if call else "has made no call yet."
        if pulse.batches >= 0:
            said += f" It has trained {pulse.batches} batches."
        if member.is_stopped(self._one.me):
            return f"{said} Its process is stopped; `kill -CONT {member.pid}` lets it go on."
        if self._is_silent(pulse):
            return (
                f"{said} It does not answer since {self._age(pulse):.0f} s: its process is stopped, cut off, or in a "
                f"call that keeps Python's lock. Look at process {member.pid} on {member.host}."
            )
        if pulse.stack:
            return f"{said} It is at (most recent call first):\n  " + "\n  ".join(pulse.stack)
        return said

    def _last_call(self, member: Member) -> str:
        """The last call that its slot shows, which is newer than what it has said itself."""
        header = _in_time(lambda: self._one.slot("job", member.rank))
        return "" if header is None or not header.call else str(Call("job", header.call, header.operation))


def _in_time(work: Callable[[], T]) -> T | None:
    """What `work` returns, or None if the store does not answer in time, or no longer."""
    outcome: list[T] = []

    def run() -> None:
        with contextlib.suppress(CollectiveError):
            outcome.append(work())

    thread = threading.Thread(target=run, name="determined-watch-ask", daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return outcome[0] if outcome else None
