"""One rank in a session: it waits for others, ends the session for all when a call fails, and leaves it.

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
from typing import NoReturn, TypeVar

from determined.core.ranks.connection import ConnectionLost
from determined.core.ranks.members import Member, name_members
from determined.core.ranks.session import Call, Message, Session, describe, mismatch, read, slots
from determined.core.ranks.watch import Watch
from determined.errors import CollectiveError, CollectiveTimeout

logger = logging.getLogger("determined.core")

CHECK_SECONDS = 0.25
SPIN_SECONDS = 0.002
LINGER_SECONDS, LINGER_SECONDS_IF_READ = 10.0, 1.0
GOING_SECONDS = 3.0
"""How long a process may take to end after its connections have, on a machine with much else to do."""
STEP_SECONDS = 5.0
"""As much of the time between two looks counts as waiting; a job that was stopped for the night has not waited."""

T = TypeVar("T")

_inherited: list[object] = []  # contexts of a forked child's parent; torch would hang on letting go of them there


class Participant:
    """This rank, `me`, in a session. It waits `timeout` seconds for others; after `notice` seconds it names them."""

    def __init__(self, session: Session, me: Member, timeout: float, notice: float) -> None:
        self.session = session
        self.me = me
        self.timeout = timeout
        self.lock = threading.RLock()  # two threads that share a context take turns
        self.scopes = {scope: _in_scope(scope, session) for scope, _ in slots(me)}  # each scope's chief comes first
        self.calls = dict.fromkeys(self.scopes, 0)
        self.last_call: Call | None = None
        self.last_complete: Call | None = None  # the last to which all came for whom this rank waited
        self.waiting_for: Callable[[], list[Member]] | None = None  # while it waits
        self.leave_reason = ""  # if something went wrong
        self.hang_up_reason: CollectiveTimeout | None = None  # why the watch has broken the connection
        self._connection = session.connection
        self._chief = session.members[0]
        self._process = os.getpid()
        self._is_leaving = False
        self._broken: CollectiveError | None = None
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

    def read_slot(self, scope: str, rank: int) -> Message:
        """Return what a rank has last written about its calls in this scope."""
        path = self.session.path(scope, rank)
        return read(self.session, path, self._connection.get(path), rank)

    # When a call fails.

    @contextlib.contextmanager
    def all_or_none(self, call: Call) -> Iterator[None]:
        """Around the part of a call that others depend on: an error there ends the session for all."""
        try:
            yield
        except ConnectionLost as error:
            self._raise_lost(error)
        except CollectiveError as error:
            self._abort(error)
            raise
        except BaseException as error:  # an interrupt, for example: the others must not wait for the rest of it
            self._abort(CollectiveError(f"rank {self.me.rank} left {call}, before its end: {describe(error)}."))
            raise

    def _abort(self, error: CollectiveError) -> None:
        if self._broken is None:
            self._broken = error
            with contextlib.suppress(CollectiveError):
                if not self._host_is_gone():
                    self.session.abort(error)

    def _raise_lost(self, error: ConnectionLost) -> NoReturn:
        """Raise that the chief died, if that can be seen: a connection ends a moment before its process does."""
        self._broken = self.hang_up_reason or error
        deadline = time.monotonic() + GOING_SECONDS
        while self._broken is error and self._connection.ends_with_chief and self._chief.pid != self.me.pid:
            if self._host_is_gone():
                self._broken = CollectiveError(_ended(self._chief))
            elif time.monotonic() > deadline:
                break
            else:
                time.sleep(0.02)
        if self._broken is error:
            raise error
        raise self._broken from error

    def _host_is_gone(self) -> bool:
        """Whether the store has ended. To ask it could block: a child of its process may still hold the socket."""
        return self._connection.ends_with_chief and self._chief.is_gone(self.me)

    def _missed(self, member: Member, call: Call) -> CollectiveError:
        return CollectiveError(f"{_ended(member)} Rank {self.me.rank} waited for it in {call}.")

    # Waiting.

    def wait(
        self, ready: Callable[[], T | None], missing: Callable[[], list[Member]], call: Call, limit: float | None
    ) -> T:
        """Return what `ready` returns as soon as it is not None; raise if `missing` ranks will not come to `call`."""
        limit = limit or self.timeout
        checked = seen = time.monotonic()
        waited = 0.0
        self.waiting_for = missing
        try:
            while (found := ready()) is None:
                now = time.monotonic()
                waited, seen = waited + min(now - seen, STEP_SECONDS), now
                if now > checked + CHECK_SECONDS:
                    checked = now
                    if problem := self._find_problem(missing(), call, waited, limit):
                        # Whoever failed or left may have done so after it gave us what we wait for.
                        if (found := ready()) is not None:
                            break
                        raise problem
                if waited > SPIN_SECONDS:
                    time.sleep(min(waited / 16, 0.02 if waited < 2 else 0.05))
                    if self._host_is_gone():
                        raise self._missed(self._chief, call)
            self.last_complete = call
            return found
        finally:
            self.waiting_for = None

    def _find_problem(self, missing: list[Member], call: Call, waited: float, limit: float) -> CollectiveError | None:
        """Return why `missing` will not come to `call`, if that can be seen."""
        if self._is_leaving:
            return CollectiveError(f"rank {self.me.rank} closed its context while it was in {call}.")
        if error := self.session.find_abort():
            return error
        anyone_left = self._connection.has(self.session.path("left"))
        for member in missing:
            if anyone_left and (left := self._find_departure(member)):
                # It may have written what went wrong and left since we looked for that.
                return self.session.find_abort() or CollectiveError(
                    f"{left}, but rank {self.me.rank} waits for it in {call}. "
                    "Every rank must make the same calls before it closes; if it failed, see its own output."
                )
            if member.is_gone(self.me):
                return self._missed(member, call)
        for member in missing[:8]:
            if other := self._find_crossing(member, call):
                return mismatch(member.rank, other, self.me.rank, call)
        return self._late(missing, call, limit) if waited > limit else None

    def find_absent(self, patience: float) -> list[str]:
        """Return who has left or ended, in words, for a rank whose own connection to another has broken.

        Connections end a moment before the process does, so wait up to `patience` for the first.
        """
        deadline = time.monotonic() + patience
        while not (found := [text for member in self.session.members if (text := self.find_absence(member))]):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return found

    def find_absence(self, member: Member) -> str | None:
        """Return how this rank left or ended, in words, if it has."""
        if member.rank == self.me.rank:
            return None
        if member.is_gone(self.me):
            return f"{member} is gone: its process has ended"
        with contextlib.suppress(CollectiveError):
            return None if self._host_is_gone() else self._find_departure(member)
        return None

    def _find_departure(self, member: Member) -> str | None:
        """Return how a rank has left, in words, if it has."""
        record = self._connection.find(self.session.path("left", member.rank))
        if record is None:
            return None
        how = "has closed its context" if record == b"-" else f"failed with {record.decode(errors='replace')}"
        return f"rank {member.rank} {how}"

    def _find_crossing(self, member: Member, call: Call) -> Call | None:
        """Return the call in another scope in which `member` waits for us, while we wait for it."""
        for scope, rank in slots(member):
            if scope != call.scope and scope in self.scopes:
                theirs = self.read_slot(scope, rank)
                needs_us = theirs.waits_for_all or self.scopes[scope][0].rank == self.me.rank
                if theirs.call > self.calls[scope] and not theirs.is_done and needs_us:
                    return Call(scope, theirs.call, theirs.operation)
        return None

    def _late(self, missing: list[Member], call: Call, limit: float) -> CollectiveTimeout:
        scope = self.scopes[call.scope]
        late = [member for member in scope if self.read_slot(call.scope, member.rank).call < call.number] or missing
        return CollectiveTimeout(
            f"{name_members(late)} did not come to {call}, within {limit:g} s (seen by rank {self.me.rank}). If they "
            "need longer, raise timeout= or DET_COLLECTIVE_TIMEOUT, in seconds."
            f"{self.watch.describe(late)}"
        )

    # Leaving.

    def leave(self) -> None:
        """Tell the others, wait a little for those who still read here, and let go. Never raises, never hangs."""
        if os.getpid() != self._process:
            _inherited.append(self)
            return
        self._is_leaving = True
        self.watch.stop()
        connection, path = self._connection, self.session.path("left")
        try:
            if not self._host_is_gone() and connection.answers():
                connection.set(f"{path}/{self.me.rank}", self.leave_reason[:1000].encode() or b"-")
                connection.set(path, b"-")
                connection.has(path)  # so it has arrived
                if connection.ends_with_chief and self.me.rank == 0:
                    self._wait_for_readers()
        except Exception as error:  # noqa: BLE001  # leaving is what one does after a failure of any kind
            logger.debug("Rank %s left without telling the others: %s", self.me.rank, error)
        finally:
            connection.close()

    def _wait_for_readers(self) -> None:
        """Stay until the others have left, since the store ends with us; not long if they have read everything."""
        others = list(self.session.members[1:])
        started = looked = time.monotonic()
        while not self._connection.has(*(self.session.path("left", member.rank) for member in others)):
            now = time.monotonic()
            if now > looked + CHECK_SECONDS:
                looked, waited = now, now - started
                others = [member for member in others if not member.is_gone(self.me)]
                if not others or waited > LINGER_SECONDS or (waited > LINGER_SECONDS_IF_READ and self._all_have_read()):
                    return
            time.sleep(0.005)

    def _all_have_read(self) -> bool:
        last_read: dict[str, set[int]] = {}
        for member in self.session.members:
            for scope, rank in slots(member):
                last_read.setdefault(scope, set()).add(self.read_slot(scope, rank).last_read)
        return all(len(calls) == 1 for calls in last_read.values())


def _ended(member: Member) -> str:
    return f"{member} is gone: its process has ended. See its own output for the reason."


def _in_scope(scope: str, session: Session) -> list[Member]:
    members = [member for member in session.members if (scope, member.rank) in slots(member)]
    return sorted(members, key=lambda member: member.rank if scope == "job" else member.local_rank)
