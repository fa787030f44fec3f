"""One rank in a session: it watches over the others while it waits, and leaves without leaving anyone waiting.

Waiting is done by looking again, not by blocking in torch: between two looks a rank can notice that another one called
something else, failed, left or died.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn, TypeVar

from determined.core.ranks.meeting import Connection, ConnectionLost
from determined.core.ranks.peers import Member, name_ranks
from determined.core.ranks.rollcall import Session, find_abort, post_abort, slots
from determined.core.ranks.watch import Watch
from determined.core.ranks.wire import Call, Header, describe, mismatch, read
from determined.errors import CollectiveError, CollectiveTimeout

logger = logging.getLogger("determined.core")

WATCH_SECONDS = 0.25
SPIN_SECONDS = 0.002
LINGER_SECONDS, LINGER_SECONDS_IF_READ = 10.0, 1.0
GOING_SECONDS = 3.0
"""How long a process may take to end after its connections have, on a machine with much else to do."""
CHIEF_FACTOR = 6
"""How much longer others wait for what the chief does alone: one process evaluates or uploads for all."""
STEP_SECONDS = 5.0
"""As much of the time between two looks counts as waiting; a job that was stopped for the night has not waited."""

T = TypeVar("T")

_inherited: list[object] = []  # what a forked child has of its parent's; torch would hang on letting go of it there


class Waiting(NamedTuple):
    """For whom a rank waits, and in which call."""

    call: Call
    missing: Callable[[], list[Member]]


class Participant:
    """One rank in a session.

    Args:
        connection: The store in which the ranks have met.
        session: What came of that.
        me: This rank.
        timeout: Seconds to wait for another rank.
        notice: Seconds after which a rank that keeps others waiting is named; 0 for never.
    """

    def __init__(self, connection: Connection, session: Session, me: Member, timeout: float, notice: float) -> None:
        self.connection = connection
        self.session = session
        self.me = me
        self.turn = threading.RLock()  # two threads that share a context take turns
        self.scopes = {scope: _in_scope(scope, session) for scope, _ in slots(me)}  # each scope's chief comes first
        self.calls = dict.fromkeys(self.scopes, 0)
        self._timeout = timeout
        self._process = os.getpid()
        self.reason = ""  # why it leaves, if something went wrong
        self._is_leaving = False
        self._broken: CollectiveError | None = None
        self.verdict: CollectiveTimeout | None = None  # why the watch has broken the connection
        self.last_call: Call | None = None
        self.last_met: Call | None = None  # the last to which those came for whom this rank waited
        self.waiting: Waiting | None = None
        self.watch = Watch(self, notice, timeout)

    def next_call(self, scope: str, operation: str) -> Call:
        """Begin a call, if calls can still be made."""
        if self._is_leaving:
            raise CollectiveError(f"{operation}() was called on a closed DistributedContext. Call it before close().")
        if self._broken is not None:
            raise type(self._broken)(f"{operation}() cannot work since an earlier call failed: {self._broken}")
        self.calls[scope] += 1
        self.last_call = Call(scope, self.calls[scope], operation)
        return self.last_call

    def slot(self, scope: str, rank: int) -> Header:
        """Where this rank is in this scope."""
        path = self.session.path(scope, rank)
        return read(self.session, path, self.connection.get(path), rank).header

    @contextlib.contextmanager
    def hurried(self, seconds: float) -> Iterator[None]:
        """Inside, wait no longer than this for another rank."""
        usual, self._timeout = self._timeout, min(seconds, self._timeout)
        try:
            yield
        finally:
            self._timeout = usual

    # When a call cannot end well.

    @contextlib.contextmanager
    def all_or_none(self, call: Call) -> Iterator[None]:
        """Around the part of a call that others depend on: whatever goes wrong there ends the session for all."""
        try:
            yield
        except ConnectionLost as error:
            self._lost(error)
        except CollectiveError as error:
            self._tell(error)
            raise
        except BaseException as error:  # an interrupt, for example: the others must not wait for the rest of it
            self._tell(CollectiveError(f"rank {self.me.rank} left {call}, before its end: {describe(error)}."))
            raise

    def raise_if_aborted(self) -> None:
        """Raise what ended the session, if it has ended."""
        if error := find_abort(self.connection, self.session):
            raise error

    def _tell(self, error: CollectiveError) -> None:
        if self._broken is None:
            self._broken = error
            with contextlib.suppress(CollectiveError):
                if not self._host_is_gone():
                    post_abort(self.connection, self.session, error)

    def _lost(self, error: ConnectionLost) -> NoReturn:
        """Say it was the chief that died, if that can be seen: a connection ends a moment before its process does."""
        self._broken = self.verdict or error
        if self.verdict is not None:
            raise self.verdict from error
        deadline = time.monotonic() + GOING_SECONDS
        while self.connection.ends_with_chief and self._chief.pid != self.me.pid and time.monotonic() < deadline:
            if self._host_is_gone():
                self._broken = self._ended(self._chief)
                raise self._broken from error
            time.sleep(0.02)
        raise error

    @property
    def _chief(self) -> Member:
        return self.session.members[0]

    def _host_is_gone(self) -> bool:
        """Whether the store has ended. To ask it could block: a child of its process may still hold the socket."""
        return self.connection.ends_with_chief and self._chief.is_gone(self.me)

    def _ended(self, member: Member) -> CollectiveError:
        return CollectiveError(f"{member} is gone: its process has ended. See its own output for the reason.")

    def _missed(self, member: Member, call: Call) -> CollectiveError:
        return CollectiveError(f"{self._ended(member)} Rank {self.me.rank} waited for it in {call}.")

    # Waiting.

    def wait(
        self, ready: Callable[[], T | None], missing: Callable[[], list[Member]], call: Call, *, patient: bool = False
    ) -> T:
        """What `ready` returns as soon as it is not None, unless there is no hope for that."""
        limit = self._timeout * (CHIEF_FACTOR if patient else 1)
        watched = seen = time.monotonic()
        waited = 0.0
        self.waiting = Waiting(call, missing)
        try:
            while (found := ready()) is None:
                now = time.monotonic()
                waited, seen = waited + min(now - seen, STEP_SECONDS), now
                if now > watched + WATCH_SECONDS:
                    watched = now
                    if problem := self._problem(missing(), call, waited, limit):
                        # Whoever failed or left may have done so after it gave us what we wait for.
                        if (found := ready()) is not None:
                            break
                        raise problem
                if waited > SPIN_SECONDS:
                    time.sleep(min(waited / 16, 0.02 if waited < 2 else 0.05))
                    if self._host_is_gone():
                        raise self._missed(self._chief, call)
            self.last_met = call
            return found
        finally:
            self.waiting = None

    def _problem(self, missing: list[Member], call: Call, waited: float, limit: float) -> CollectiveError | None:
        """Why `missing` will not come to `call`, if that can be seen."""
        if self._is_leaving:
            return CollectiveError(f"rank {self.me.rank} closed its context while it was in {call}.")
        if error := find_abort(self.connection, self.session):
            return error
        anyone_left = self.connection.has(self.session.path("left"))
        for member in missing:
            if anyone_left and self.connection.has(self.session.path("left", member.rank)):
                # It may have said what went wrong and left since we looked for that.
                return find_abort(self.connection, self.session) or CollectiveError(
                    f"{self._departure(member)}, but rank {self.me.rank} waits for it in {call}. "
                    "Every rank must make the same calls before it closes; if it failed, see its own output."
                )
            if member.is_gone(self.me):
                return self._missed(member, call)
        for member in missing[:8]:
            if other := self._crossed(member, call):
                return CollectiveError(mismatch(member.rank, other, self.me.rank, call))
        return self._late(missing, call, limit) if waited > limit else None

    def absent(self, patience: float) -> list[str]:
        """Who has left or ended, in words, for a rank whose own connection to another has broken.

        Connections end a moment before the process does, so wait up to `patience` for the first.
        """
        deadline = time.monotonic() + patience
        while not (found := [text for member in self.session.members if (text := self.absence(member))]):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return found

    def absence(self, member: Member) -> str | None:
        """How this rank left or ended, in words, if it has."""
        if member.rank == self.me.rank:
            return None
        if member.is_gone(self.me):
            return f"{member} is gone: its process has ended"
        with contextlib.suppress(CollectiveError):
            if not self._host_is_gone() and self.connection.has(self.session.path("left", member.rank)):
                return self._departure(member)
        return None

    def _departure(self, member: Member) -> str:
        """How a rank left that is known to have done so."""
        reason = self.connection.get(self.session.path("left", member.rank)).decode(errors="replace")
        return f"rank {member.rank} " + ("has closed its context" if reason == "-" else f"failed with {reason}")

    def _crossed(self, member: Member, call: Call) -> Call | None:
        """The call in another scope in which `member` waits for us, while we wait for it."""
        for scope, rank in slots(member):
            if scope != call.scope and scope in self.scopes:
                theirs = self.slot(scope, rank)
                needs_us = theirs.waits_for_all or self.scopes[scope][0].rank == self.me.rank
                if theirs.call > self.calls[scope] and not theirs.is_done and needs_us:
                    return Call(scope, theirs.call, theirs.operation)
        return None

    def _late(self, missing: list[Member], call: Call, limit: float) -> CollectiveTimeout:
        absent = [m for m in self.scopes[call.scope] if self.slot(call.scope, m.rank).call < call.number] or missing
        plural = "ranks" if len(absent) > 1 else "rank"
        return CollectiveTimeout(
            f"{plural} {name_ranks(m.rank for m in absent)} did not come to {call}, within {limit:g} s (seen by rank "
            f"{self.me.rank}). If they need longer, raise timeout= or DET_COLLECTIVE_TIMEOUT, in seconds."
            f"{self.watch.describe(absent)}"
        )

    # Leaving.

    def leave(self) -> None:
        """Tell the others, wait a little for those who still read here, and let go. Never raises, never hangs."""
        if os.getpid() != self._process:
            _inherited.append(self)
            return
        self._is_leaving = True
        self.watch.stop()
        try:
            if not self._host_is_gone() and self.connection.answers():
                self.connection.set(self.session.path("left", self.me.rank), self.reason[:1000].encode() or b"-")
                self.connection.set(self.session.path("left"), b"-")
                self.connection.has(self.session.path("left"))  # so it has arrived
                if self.connection.ends_with_chief and self.me.rank == 0:
                    self._linger()
        except Exception as error:  # noqa: BLE001  # leaving is what one does after a failure of any kind
            logger.debug("Rank %s left without goodbye: %s", self.me.rank, error)
        finally:
            self.connection.close()

    def _linger(self) -> None:
        """The store ends with us: stay until the others have left, not long if they have read everything."""
        others = list(self.session.members[1:])
        started = looked = time.monotonic()
        while not self.connection.has(*(self.session.path("left", member.rank) for member in others)):
            now = time.monotonic()
            if now > looked + WATCH_SECONDS:
                looked, waited = now, now - started
                others = [member for member in others if not member.is_gone(self.me)]
                if not others or waited > LINGER_SECONDS or (waited > LINGER_SECONDS_IF_READ and self._all_have_read()):
                    return
            time.sleep(0.005)

    def _all_have_read(self) -> bool:
        last_read: dict[str, set[int]] = {}
        for member in self.session.members:
            for scope, rank in slots(member):
                last_read.setdefault(scope, set()).add(self.slot(scope, rank).last_read)
        return all(len(calls) == 1 for calls in last_read.values())


def _in_scope(scope: str, session: Session) -> list[Member]:
    members = [member for member in session.members if (scope, member.rank) in slots(member)]
    return sorted(members, key=lambda member: member.rank if scope == "job" else member.local_rank)
