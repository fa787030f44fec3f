"""Who keeps the others waiting? A thread in every rank reports where its rank is, and one rank names those that hang.

It works while the main thread is in user code, in a C call or asleep. A process that is stopped, or that never lets
go of Python's lock, reports nothing: that too is noticed, by the others.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from determined.core.ranks.connection import in_thread
from determined.core.ranks.members import Member, name_ranks
from determined.core.ranks.session import NOTHING_YET, Call
from determined.errors import CollectiveError, CollectiveTimeout

if TYPE_CHECKING:
    from determined.core.ranks.participant import Participant

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


FRAMES = 8


def stack_of(thread: int) -> list[str]:
    """Return where the thread with this ident is in Python, innermost first, a line per frame.

    Safe while it runs, unlike a walk over its frames: the interpreter writes it down without letting go of its lock.
    """
    try:
        with tempfile.TemporaryFile() as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    _, _, found = text.partition(f"hread 0x{thread:016x}")  # "Thread", or "Current thread"
    return [line.strip() for line in found.partition("\n\n")[0].splitlines()[1 : 1 + FRAMES]]


class StackSignal:
    """SIGUSR1 prints stacks to stderr, and training goes on.

    The main thread's is printed at once, even if the process is stuck. Those of the others follow when the main thread
    is back in Python: to look at threads while they run would crash the process now and then.
    """

    def __init__(self) -> None:
        self._before: Any = None
        self._is_installed = False

    def install(self) -> None:
        """Begin to answer; a handler that was there before is called too."""
        if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGUSR1"):
            return
        faulthandler.unregister(signal.SIGUSR1)  # else one whose handler was replaced since would make ours do nothing
        self._before = signal.signal(signal.SIGUSR1, self._show_others)
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=False, chain=True)
        self._is_installed = True

    def restore(self) -> None:
        """Put back the handler that was there before."""
        if not self._is_installed or threading.current_thread() is not threading.main_thread():
            return
        self._is_installed = False
        if signal.getsignal(signal.SIGUSR1) == self._show_others:  # else somebody came after us: leave theirs alone
            faulthandler.unregister(signal.SIGUSR1)
            signal.signal(signal.SIGUSR1, signal.SIG_DFL if self._before is None else self._before)

    def _show_others(self, number: int, frame: types.FrameType | None) -> None:
        frames = sys._current_frames()
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and thread.ident in frames:
                stack = "".join(traceback.format_stack(frames[thread.ident]))
                with contextlib.suppress(OSError):  # stderr may be closed, or a pipe that nobody reads
                    os.write(2, f"\nThread {thread.name} (most recent call last):\n{stack}".encode(errors="replace"))
        if callable(self._before):
            self._before(number, frame)


logger = logging.getLogger("determined.core")

T = TypeVar("T")

_NO_PROGRESS = (lambda: -1), (lambda: None)  # of a rank that does not train
ANSWER_SECONDS = 5.0
REPORTS = 8
"""How often each rank reports where it is in the time in which one that hangs is to be named."""
NAMED = 3
"""How many ranks an error describes."""


class Watch:
    """Watches the ranks of one session, from a thread.

    A rank that keeps others waiting is named within `notice` seconds (0 for never); a store that does not answer is
    given up after `timeout` seconds.
    """

    def __init__(self, participant: Participant, notice: float, timeout: float) -> None:
        self._participant = participant
        self._me = participant.me
        self._session = participant.session
        self._connection = participant.session.connection
        self._trainer = threading.get_ident()
        self._interval, self._patience = notice / REPORTS, notice / 2
        self._timeout = timeout
        self._began = self._reported = time.monotonic()
        self._over = threading.Event()
        self._position: object = None
        self._still = 0.0
        self._known: dict[int, Status] = {}  # what others have last been seen to report
        self._warned: dict[int, tuple[object, float, float]] = {}  # by rank: where it was, and when to warn again
        self._progress: tuple[Callable[[], int], Callable[[], object]] = _NO_PROGRESS
        if notice > 0:
            threading.Thread(target=self._run, name="determined-watch", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()

    @contextlib.contextmanager
    def showing(self, batches: Callable[[], int], steps: Callable[[], object]) -> Iterator[None]:
        """Inside, `batches` returns how many this rank has trained, and `steps` something that changes as it moves."""
        self._progress = batches, steps
        try:
            yield
        finally:
            self._progress = _NO_PROGRESS

    def describe(self, members: list[Member]) -> str:
        """Return where these ranks are, in sentences; nothing if that cannot be learnt."""
        if self._interval <= 0:
            return ""
        statuses = _in_time(self._read_all) or self._known
        return "".join(
            f" R{str(member)[1:]} {self._describe(member, statuses)}"
            for member in members[:NAMED]
            if member.rank in statuses
        )

    def describe_others(self, *, stuck: bool) -> str:
        """Return where the other ranks are, in sentences.

        With `stuck`, only those that neither wait nor move; for a rank that has given up waiting.
        """
        others = [member for member in self._session.members if member.rank != self._me.rank]
        if stuck:
            statuses = _in_time(self._read_all) or self._known
            ranks = find_stuck(statuses, self._silent(statuses), self._patience)
            others = [member for member in others if member.rank in ranks]
        return self.describe(others).strip()

    # The thread.

    def _run(self) -> None:
        while not self._over.is_set():
            started = time.monotonic()
            report = threading.Thread(target=self._report, name="determined-watch-report", daemon=True)
            report.start()  # by itself: to ask a store whose process is stopped takes for ever
            report.join(self._interval)
            unanswered = self._interval
            while report.is_alive() and not self._over.wait(self._interval):
                unanswered += self._interval
                if report.is_alive():
                    self._warn_of_store(unanswered)
            self._over.wait(max(0.0, started + self._interval - time.monotonic()))

    def _report(self) -> None:
        """Report where this rank is; if no lower rank does so, warn of those that hang."""
        try:
            path = self._session.path("status", self._me.rank)
            self._session.write(path, json.dumps(asdict(self._own_status())).encode())
            if all(self._silent(self._read([rank])) for rank in range(self._me.rank)):
                self._warn_of_suspects(self._read_all())
        except CollectiveError as error:  # the session is over; whoever makes a call is told why
            logger.debug("The watch of rank %s ends: %s", self._me.rank, error)
            self.stop()

    def _own_status(self) -> Status:
        participant, now = self._participant, time.monotonic()
        waiting_for, (count, steps) = participant.waiting_for, self._progress
        batches = count()
        position = (tuple(participant.calls.items()), waiting_for, batches, steps())
        passed = min(now - self._reported, 2 * self._interval)  # not the hours for which the whole job was stopped
        self._still = self._still + passed if position == self._position else 0.0
        self._position, self._reported = position, now
        stack = stack_of(self._trainer) if self._still >= self._patience else []
        needs = [] if waiting_for is None else [member.rank for member in waiting_for()]
        state = (EXCHANGES if exchanges_tensors(stack) else WORKS) if waiting_for is None else WAITS
        call = "" if participant.last_call is None else str(participant.last_call)
        return Status(now - self._began, self._still, state, call, needs, batches, stack)

    def _warn_of_suspects(self, statuses: Mapping[int, Status]) -> None:
        silent = self._silent(statuses)
        suspects = find_suspects(statuses, silent, self._patience)
        # One that hangs is about to report its stack; if it does not, it moves, slowly.
        waits_long = any(statuses[rank].still > 1.5 * self._patience for rank in suspects.waiting)
        for member in [self._session.members[rank] for rank in suspects.ranks if suspects.waiting]:
            status = statuses[member.rank]
            is_due = status.stack or member.rank in silent or waits_long
            if is_due and not self._participant.find_absence(member):
                text = f"{member} {describe_wait(suspects, statuses)}. It {self._describe(member, statuses)}"
                self._warn(member, (status.call, status.batches), text)

    def _warn_of_store(self, seconds: float) -> None:
        """Warn that the store has not answered for so long; break the connection once the time is up."""
        chief, place, hosted = self._session.members[0], self._connection.place, self._connection.ends_with_chief
        host = f"{chief}, whose process hosts it" if hosted else "the launcher's process"
        text = (
            f"{place[0].upper()}{place[1:]}, where the ranks meet, does not answer rank {self._me.rank} since "
            f"{seconds:.0f} s: look at {host}."
        )
        if hosted:
            text += f" It {self._describe(chief, self._known, asks=False)}"
        if seconds >= self._patience and (self._me.rank == 1 or self._me.local_rank == 0):
            self._warn(chief, "unanswered", text)
        if seconds >= self._timeout:
            self._participant.hang_up_reason = CollectiveTimeout(text)
            self._connection.hang_up()

    def _warn(self, member: Member, position: object, text: str) -> None:
        """Warn once, and again after twice the time for as long as nothing changes."""
        now = time.monotonic()
        before, due, gap = self._warned.get(member.rank, (None, 0.0, 0.0))
        if before != position:
            due, gap = now, REPORTS * self._interval
        if now < due:
            return
        self._warned[member.rank] = (position, now + 2 * gap, 2 * gap)
        logger.warning(
            "%s\nRanks wait %g s for each other; if this takes longer, raise DET_COLLECTIVE_TIMEOUT, in seconds.",
            text,
            self._timeout,
        )

    # What ranks have reported.

    def _read_all(self) -> dict[int, Status]:
        return self._read(range(self._me.size))

    def _read(self, ranks: Sequence[int]) -> dict[int, Status]:
        paths = [self._session.path("status", rank) for rank in ranks]
        found = {}
        for rank, path, record in zip(ranks, paths, self._connection.get_all(paths), strict=True):
            reported = {} if record == NOTHING_YET else json.loads(self._session.verify(path, record, rank))
            found[rank] = Status(**reported)
        self._known = {**self._known, **found}
        return found

    def _age(self, status: Status) -> float:
        """Return how long ago this was reported; all ranks count from when the session began."""
        return max(0.0, time.monotonic() - self._began - status.elapsed)

    def _silent(self, statuses: Mapping[int, Status]) -> set[int]:
        return {rank for rank, status in statuses.items() if self._age(status) > self._patience}

    def _describe(self, member: Member, statuses: Mapping[int, Status], *, asks: bool = True) -> str:
        """Return the last call of this rank and where it is: sentences, the first without its subject."""
        status = statuses.get(member.rank, Status())
        call = (self._last_call(member) if asks else "") or self._participant.last_complete or status.call
        text = f"last called {call}." if call else "has made no call yet."
        if status.batches >= 0:
            text += f" It has trained {status.batches} batches."
        if member.is_stopped(self._me):
            return f"{text} Its process is stopped; `kill -CONT {member.pid}` lets it go on."
        if (age := self._age(status)) > self._patience:
            return (
                f"{text} It does not answer since {age:.0f} s: its process is stopped, cut off, or in a call that "
                f"keeps Python's lock. Look at process {member.pid} on {member.host}."
            )
        if status.stack:
            return f"{text} It is at (most recent call first):\n  " + "\n  ".join(status.stack)
        return text

    def _last_call(self, member: Member) -> str:
        """Return the last call that its slot shows, which is newer than what it has reported."""
        slot = _in_time(lambda: self._participant.read_slot("job", member.rank))
        return "" if slot is None or not slot.call else str(Call("job", slot.call, slot.operation))


def _in_time(work: Callable[[], T]) -> T | None:
    """Return what `work` returns, or None if the store does not answer in time, or no longer."""
    with contextlib.suppress(CollectiveError, futures.TimeoutError):
        return in_thread(work, ANSWER_SECONDS)
    return None
