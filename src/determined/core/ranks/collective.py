"""What ranks do together in a session: gather and broadcast, in one scope (the job, or one machine).

Every rank has a slot in the store that shows which call it is in, with its object; the chief of the scope writes one
outcome per call. So a call costs each rank a few round trips to the store, however many ranks there are.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from determined.core.ranks.members import Member
from determined.core.ranks.participant import Participant
from determined.core.ranks.session import (
    CHUNK_BYTES,
    Call,
    Message,
    describe,
    describe_unsent,
    dump,
    fetch_chunks,
    load,
    mismatch,
    read,
    write,
)
from determined.errors import CollectiveError

T = TypeVar("T")

SLOT_BYTES = 8 << 10  # a slot is read at every look, so a larger object goes beside it
LARGE_BYTES = 256 << 10  # an outcome of this size is deleted as soon as it may be
UNREAD_CALLS = 32  # outcomes kept before the chief asks who has read them
CHIEF_FACTOR = 6
"""How much longer others wait for what the chief does alone: one process evaluates or uploads for all."""


class Channel:
    """The collectives of one scope. Where they take a `limit`, it is in seconds and replaces the usual timeout."""

    def __init__(self, participant: Participant, scope: str) -> None:
        self.participant = participant
        self.session = participant.session
        self._connection = participant.session.connection
        self._scope = scope
        self._slot = self.session.path(scope, participant.me.rank)
        self._members = participant.scopes[scope]
        self._chief, *self._others = self._members
        self._is_chief = self._chief.rank == participant.me.rank
        self._unread: dict[int, list[str]] = {}  # call: the keys of its outcome
        self._large: set[int] = set()
        self._ask_at = UNREAD_CALLS

    def gather(self, operation: str, stuff: Any) -> list[Any] | None:
        """Return every rank's object on the chief, None elsewhere; on no rank before all have called."""
        with self.participant.lock:
            call = self.participant.next_call(self._scope, operation)
            if self._is_chief:
                return [stuff, *self._load(self._collect(call), call, first=1)]
            self._contribute(call, stuff)
            return None

    def allgather(self, operation: str, stuff: Any, limit: float | None = None) -> list[Any]:
        """Return every rank's object on every rank."""
        with self.participant.lock:
            call = self.participant.next_call(self._scope, operation)
            if self._is_chief:
                return [stuff, *self._load(self._collect(call, dump(stuff), limit), call, first=1)]
            return self._load(pickle.loads(self._contribute(call, stuff, limit)), call)  # noqa: S301  # it is signed

    def broadcast(self, operation: str, stuff: Any, limit: float | None = None) -> Any:
        """Return the chief's object on every rank. The chief does not wait for the others."""
        with self.participant.lock:
            call = self.participant.next_call(self._scope, operation)
            if self._is_chief:
                self._send(call, stuff)
                return stuff
            with self.participant.all_or_none(call):
                self._show(Message(call.number, operation, waits_for_all=False))
                outcome = self._await_outcome(call, limit)
            return load(_payload(outcome), call, self._chief.rank)

    def run_on_chief(self, operation: str, function: Callable[[], T]) -> T:
        """Return or raise on every rank what `function` does on the chief, for which others wait long."""
        if not self._is_chief:
            value, failure = self.broadcast(operation, None, CHIEF_FACTOR * self.participant.timeout)
            if failure is not None:
                raise failure
            return value  # type: ignore[no-any-return]  # it was a T on the chief
        try:
            value = function()
        except BaseException as error:
            with contextlib.suppress(CollectiveError):
                where = f"rank {self._chief.rank} failed in {operation}()"
                self.broadcast(operation, (None, _picklable(error, where)))
            raise
        self.broadcast(operation, (value, None))
        return value

    # On the chief.

    def _send(self, call: Call, stuff: Any) -> None:
        payload, failure = dump(stuff)
        text = "" if failure is None else describe_unsent({self._chief.rank: describe(failure)}, call)
        with self.participant.all_or_none(call):
            if error := self.session.find_abort():
                raise error
            if self._large or len(self._unread) >= self._ask_at:  # nobody answers a broadcast, so look who has read it
                slots = [self.participant.read_slot(self._scope, member.rank) for member in self._others]
                self._delete_read(min(slot.last_read for slot in slots))
            self._publish(Message(call.number, call.operation, waits_for_all=False, failure=text, payload=payload))
        if failure is not None:
            raise failure

    def _collect(
        self, call: Call, own: tuple[bytes, Exception | None] | None = None, limit: float | None = None
    ) -> list[bytes]:
        """Return the others' objects, still pickled. With `own`, which is the chief's, send all of them to everyone."""
        payload, failure = own or (b"", None)
        with self.participant.all_or_none(call):
            self._show(Message(call.number, call.operation, waits_for_all=True))
            messages = self._await_all(call, limit)
            failures = {rank: message.failure for rank, message in messages.items() if message.failure}
            if failure is not None:
                failures[self._chief.rank] = describe(failure)
            text = describe_unsent(failures, call)
            blobs = [message.payload for message in messages.values()]
            together = pickle.dumps([payload, *blobs]) if own and not failures else b""
            self._publish(Message(call.number, call.operation, waits_for_all=True, failure=text, payload=together))
            self._delete_read(call.number - 1)  # who came to this call has read those before
        if failure is not None:
            raise failure
        if text:
            raise CollectiveError(text)
        return blobs

    def _await_all(self, call: Call, limit: float | None) -> dict[int, Message]:
        """Wait until everyone's slot shows this call. Return the messages in them."""
        paths = {member.rank: self.session.path(self._scope, member.rank) for member in self._others}
        seen: dict[int, bytes] = {}
        arrived: dict[int, Message] = {}

        def look() -> bool | None:
            for member, record in zip(self._others, self._connection.get_all(list(paths.values())), strict=True):
                if seen.get(member.rank) != record:
                    seen[member.rank] = record
                    message = read(self.session, paths[member.rank], record, member.rank)
                    if message.call >= call.number:
                        self._check(message, member, call)
                        arrived[member.rank] = message
            return len(arrived) == len(paths) or None

        self.participant.wait(look, lambda: [m for m in self._others if m.rank not in arrived], call, limit)
        return {rank: fetch_chunks(self.session, path, arrived[rank], delete=True) for rank, path in paths.items()}

    def _publish(self, outcome: Message) -> None:
        self._unread[outcome.call] = write(self.session, self._outcome(outcome.call), outcome, limit=CHUNK_BYTES)
        if len(outcome.payload) > LARGE_BYTES:
            self._large.add(outcome.call)
        self._show(Message(outcome.call, outcome.operation, outcome.waits_for_all, is_done=True))

    def _delete_read(self, last: int) -> None:
        for call in [call for call in self._unread if call <= last]:
            self._connection.delete(*self._unread.pop(call))
            self._large.discard(call)
        self._ask_at = len(self._unread) + UNREAD_CALLS

    # On the other ranks.

    def _contribute(self, call: Call, stuff: Any, limit: float | None = None) -> bytes:
        """Give the chief this rank's object. Return the payload of the outcome, once everyone has done so."""
        payload, failure = dump(stuff)
        try:
            with self.participant.all_or_none(call):
                self._show(Message(call.number, call.operation, True, failure=describe(failure), payload=payload))
                outcome = self._await_outcome(call, limit)
        except CollectiveError as error:
            if failure is None:
                raise
            raise failure from error
        if failure is not None:
            raise failure
        return _payload(outcome)

    def _await_outcome(self, call: Call, limit: float | None) -> Message:
        """Wait until the chief has written the outcome of this call."""
        path = self._outcome(call.number)
        record = self.participant.wait(lambda: self._connection.find(path), lambda: [self._chief], call, limit)
        outcome = read(self.session, path, record, self._chief.rank)
        self._check(outcome, self._chief, call)
        outcome = fetch_chunks(self.session, path, outcome, delete=False)
        self._show(Message(call.number, call.operation, outcome.waits_for_all, is_done=True))
        return outcome

    # On both.

    def _show(self, message: Message) -> None:
        """Show the others where this rank is."""
        write(self.session, self._slot, message, limit=SLOT_BYTES)

    def _check(self, theirs: Message, member: Member, call: Call) -> None:
        if (theirs.call, theirs.operation) != (call.number, call.operation):
            other = Call(self._scope, theirs.call, theirs.operation)
            raise mismatch(member.rank, other, self.participant.me.rank, call)

    def _load(self, blobs: Iterable[bytes], call: Call, first: int = 0) -> list[Any]:
        return [load(blob, call, member.rank) for member, blob in zip(self._members[first:], blobs, strict=True)]

    def _outcome(self, call: int) -> str:
        return self.session.path(self._scope, "outcome", call)


def _payload(outcome: Message) -> bytes:
    if outcome.failure:
        raise CollectiveError(outcome.failure)
    return outcome.payload


def _picklable(error: BaseException, where: str) -> Exception:
    """Return the error itself if it can be pickled and read back, else one with its text."""
    if isinstance(error, Exception):
        try:
            copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
        except Exception:  # noqa: BLE001  # users' exceptions may raise anything here
            copy = None
        if type(copy) is type(error):
            return error
    return CollectiveError(f"{where} with {type(error).__name__}: {error}")
