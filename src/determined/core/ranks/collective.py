"""What ranks do together once they have met: gather and broadcast, in one scope (the job, or one machine).

Every rank has a slot that shows which call it is in, with its contribution; the chief of the scope publishes one
outcome per call. So a call costs each rank a few round trips to the store, however many ranks there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from determined.core.ranks.participant import Participant
from determined.core.ranks.peers import Member
from determined.core.ranks.wire import (
    CHUNK_BYTES,
    Call,
    Header,
    Message,
    describe,
    dump,
    fetch,
    join,
    load,
    mismatch,
    read,
    split,
    unsent,
    write,
)
from determined.errors import CollectiveError

SLOT_BYTES = 8 << 10  # a slot is read at every look, so a larger contribution goes beside it
LARGE_BYTES = 256 << 10  # an outcome of this size is deleted as soon as it may be
UNREAD_CALLS = 32  # outcomes kept before the chief asks who has read them


class Channel:
    """The collectives of one scope.

    Args:
        participant: This rank.
        scope: One of the scopes it belongs to.
    """

    def __init__(self, participant: Participant, scope: str) -> None:
        self._one = participant
        self._connection = participant.connection
        self._session = participant.session
        self.watch = participant.watch
        self._scope = scope
        self._members = participant.scopes[scope]
        self.chief, *self._others = self._members
        self.is_chief = self.chief.rank == participant.me.rank
        self._unread: dict[int, list[str]] = {}  # call: the keys of its outcome
        self._large: set[int] = set()
        self._ask_at = UNREAD_CALLS

    def gather(self, operation: str, stuff: Any) -> list[Any] | None:
        """Every rank's object on the chief, None elsewhere; on no rank before all have contributed."""
        with self._one.turn:
            call = self._one.next_call(self._scope, operation)
            if self.is_chief:
                return [stuff, *self._load(self._collect(call), call, first=1)]
            self._contribute(call, stuff)
            return None

    def allgather(self, operation: str, stuff: Any) -> list[Any]:
        """Every rank's object on every rank."""
        with self._one.turn:
            call = self._one.next_call(self._scope, operation)
            if self.is_chief:
                return [stuff, *self._load(self._collect(call, dump(stuff)), call, first=1)]
            return self._load(split(self._contribute(call, stuff)), call)

    def broadcast(self, operation: str, stuff: Any, *, patient: bool = False) -> Any:
        """The chief's object on every rank. The chief does not wait; others do so longer if they are `patient`."""
        with self._one.turn:
            call = self._one.next_call(self._scope, operation)
            if self.is_chief:
                self._send(call, stuff)
                return stuff
            with self._one.all_or_none(call):
                self._show(Header(call.number, operation, waits_for_all=False))
                outcome = self._await_outcome(call, patient=patient)
            return load(_value(outcome), call, self.chief.rank)

    def meet(self, operation: str, seconds: float) -> None:
        """Wait until every rank is here, no longer than this."""
        with self._one.turn, self._one.hurried(seconds):
            self.allgather(operation, None)

    def absent(self, patience: float) -> list[str]:
        """Who has left or ended, in words."""
        return self._one.absent(patience)

    def say_why(self, error: BaseException) -> None:
        """Why this rank is about to leave, for those who wait for it."""
        self._one.reason = describe(error).splitlines()[0]

    # The chief's part.

    def _send(self, call: Call, stuff: Any) -> None:
        payload, failure = dump(stuff)
        text = "" if failure is None else unsent({self.chief.rank: describe(failure)}, call)
        with self._one.all_or_none(call):
            self._one.raise_if_aborted()
            if self._large or len(self._unread) >= self._ask_at:  # nobody answers a broadcast, so look who has read it
                self._delete_read(min(self._one.slot(self._scope, member.rank).last_read for member in self._others))
            self._publish(Header(call.number, call.operation, waits_for_all=False, failure=text), payload)
        if failure is not None:
            raise failure

    def _collect(self, call: Call, own: tuple[bytes, Exception | None] | None = None) -> list[bytes]:
        """The others' objects, still pickled. With `own`, which is the chief's, all of them go to everyone."""
        payload, failure = own or (b"", None)
        with self._one.all_or_none(call):
            self._show(Header(call.number, call.operation, waits_for_all=True))
            messages = self._await_all(call)
            failures = {rank: said.header.failure for rank, said in messages.items() if said.header.failure}
            if failure is not None:
                failures[self.chief.rank] = describe(failure)
            text = unsent(failures, call) if failures else ""
            blobs = [said.payload for said in messages.values()]
            together = join([payload, *blobs]) if own and not failures else b""
            self._publish(Header(call.number, call.operation, waits_for_all=True, failure=text), together)
            self._delete_read(call.number - 1)  # who came to this call has read those before
        if failure is not None:
            raise failure
        if text:
            raise CollectiveError(text)
        return blobs

    def _await_all(self, call: Call) -> dict[int, Message]:
        """Wait until everyone's slot shows this call."""
        paths = {member.rank: self._session.path(self._scope, member.rank) for member in self._others}
        seen: dict[int, bytes] = {}
        arrived: dict[int, Message] = {}

        def look() -> bool | None:
            for member, record in zip(self._others, self._connection.get_all(list(paths.values())), strict=True):
                if seen.get(member.rank) != record:
                    seen[member.rank] = record
                    said = read(self._session, paths[member.rank], record, member.rank)
                    if said.header.call >= call.number:
                        self._check(said.header, member, call)
                        arrived[member.rank] = said
            return len(arrived) == len(paths) or None

        self._one.wait(look, lambda: [member for member in self._others if member.rank not in arrived], call)
        return {rank: fetch(self._connection, path, arrived[rank], delete=True) for rank, path in paths.items()}

    def _publish(self, header: Header, payload: bytes) -> None:
        path = self._outcome_path(header.call)
        message = Message(header, payload)
        self._unread[header.call] = write(self._connection, self._session, path, message, limit=CHUNK_BYTES)
        if len(payload) > LARGE_BYTES:
            self._large.add(header.call)
        self._show(Header(header.call, header.operation, header.waits_for_all, is_done=True))

    def _delete_read(self, last: int) -> None:
        for call in [call for call in self._unread if call <= last]:
            self._connection.delete(*self._unread.pop(call))
            self._large.discard(call)
        self._ask_at = len(self._unread) + UNREAD_CALLS

    # The part of the others.

    def _contribute(self, call: Call, stuff: Any) -> bytes:
        """Give the chief this rank's object; what comes of the call, once everyone has done so."""
        payload, failure = dump(stuff)
        try:
            with self._one.all_or_none(call):
                self._show(Header(call.number, call.operation, waits_for_all=True, failure=describe(failure)), payload)
                outcome = self._await_outcome(call)
        except CollectiveError as error:
            if failure is None:
                raise
            raise failure from error
        if failure is not None:
            raise failure
        return _value(outcome)

    def _await_outcome(self, call: Call, *, patient: bool = False) -> Message:
        """Wait until the chief has published what came of this call."""
        path = self._outcome_path(call.number)
        record = self._one.wait(lambda: self._connection.find(path), lambda: [self.chief], call, patient=patient)
        said = read(self._session, path, record, self.chief.rank)
        self._check(said.header, self.chief, call)
        said = fetch(self._connection, path, said, delete=False)
        self._show(Header(call.number, call.operation, said.header.waits_for_all, is_done=True))
        return said

    # The part of both.

    def _show(self, header: Header, payload: bytes = b"") -> None:
        """Let the others see where this rank is."""
        path = self._session.path(self._scope, self._one.me.rank)
        write(self._connection, self._session, path, Message(header, payload), limit=SLOT_BYTES)

    def _check(self, theirs: Header, member: Member, call: Call) -> None:
        if (theirs.call, theirs.operation) != (call.number, call.operation):
            other = Call(self._scope, theirs.call, theirs.operation)
            raise CollectiveError(mismatch(member.rank, other, self._one.me.rank, call))

    def _load(self, blobs: Iterable[bytes], call: Call, first: int = 0) -> list[Any]:
        return [load(blob, call, member.rank) for member, blob in zip(self._members[first:], blobs, strict=True)]

    def _outcome_path(self, call: int) -> str:
        return self._session.path(self._scope, "outcome", call)


def _value(outcome: Message) -> bytes:
    if outcome.header.failure:
        raise CollectiveError(outcome.header.failure)
    return outcome.payload
