"""What ranks say to each other once they have met: gather and broadcast, over the keys of a store.

In each scope (the job, or one machine) every rank has a slot that shows which call it is in, with its contribution,
and the chief of the scope publishes one outcome per call. Waiting is done by looking again, not by blocking in torch:
between two looks a rank can notice that another one called something else, failed, left or died.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn, TypeVar

from determined.core import _secret
from determined.core._meeting import Connection, ConnectionLost
from determined.core._peers import Member, name_ranks
from determined.core._rollcall import Session, find_abort, post_abort, slots
from determined.errors import CollectiveError, CollectiveTimeout

logger = logging.getLogger("determined.core")

SLOT_BYTES = 8 << 10  # a slot is read at every look, so a larger contribution goes beside it
CHUNK_BYTES = 4 << 20  # torch's server takes 8 MiB at once
WATCH_SECONDS = 0.25
UNREAD_CALLS = 32  # outcomes kept before the chief of the scope asks who has read them
LINGER_SECONDS, LINGER_SECONDS_IF_READ = 10.0, 1.0

T = TypeVar("T")


@dataclass(frozen=True)
class Header:
    """What is said about a call, before the object that goes with it."""

    call: int
    operation: str
    waits_for_all: bool  # false for a broadcast, which needs the chief only
    is_done: bool = False
    failure: str = ""  # why there is no object
    chunks: int = 0
    digest: str = ""

    @property
    def last_read(self) -> int:
        """The last call whose outcome a rank with this slot has read."""
        return self.call if self.is_done else self.call - 1


NOT_YET = Header(0, "", waits_for_all=False, is_done=True)


@dataclass(frozen=True)
class Message:
    header: Header
    payload: bytes = b""


class Participant:
    """One rank in a session: watches over the others while it waits, and leaves without leaving anyone waiting."""

    def __init__(self, connection: Connection, session: Session, me: Member, timeout: float) -> None:
        self.connection = connection
        self.session = session
        self.me = me
        self.timeout = timeout
        self.turn = threading.RLock()  # two threads that share a context take turns
        self._process = os.getpid()
        self._is_leaving = False
        self._broken: CollectiveError | None = None
        scopes = {scope: [m for m in session.members if (scope, m.rank) in slots(m)] for scope, _ in slots(me)}
        self.channels = {scope: Channel(self, scope, members) for scope, members in scopes.items()}

    def enter(self, what: str) -> None:
        if self._is_leaving:
            raise CollectiveError(f"{what} was called on a closed DistributedContext. Call it before close().")
        if self._broken is not None:
            raise type(self._broken)(f"{what} cannot work since an earlier call failed: {self._broken}")

    @property
    def is_broken(self) -> bool:
        return self._broken is not None

    def fail(self, error: CollectiveError) -> NoReturn:
        """Raise `error` here and, as soon as they look, on every other rank."""
        self._broken = self._broken or error
        try:
            post_abort(self.connection, self.session, error)
        except CollectiveError:
            logger.debug("Could not tell the other ranks: %s", error)
        raise error

    def interrupted(self, what: str, error: BaseException) -> None:
        """Something else than our own errors came out of a call: the others must not wait for the rest of it."""
        with contextlib.suppress(CollectiveError):  # the caller raises the original
            self.fail(CollectiveError(f"Rank {self.me.rank} left {what} before its end: {_say(error)}."))

    def lost(self, error: ConnectionLost) -> NoReturn:
        """Say it was the chief that died, if that can be seen: the connection ends a moment before the process does."""
        self._broken = error
        chief = self.session.members[0]
        deadline = time.monotonic() + (0.5 if chief.machine == self.me.machine and chief.pid != self.me.pid else 0)
        while not chief.is_gone(self.me):
            if time.monotonic() > deadline:
                raise error
            time.sleep(0.02)
        self._broken = CollectiveError(f"{_capital(chief)} is gone: its process ended. {error}")
        raise self._broken from error

    def raise_if_aborted(self) -> None:
        if error := find_abort(self.connection, self.session):
            self._broken = error
            raise error

    def wait(self, ready: Callable[[], T | None], missing: Callable[[], list[Member]], call: Call) -> T:
        """What `ready` returns as soon as it is not None, unless there is no hope for that."""
        started = watched = time.monotonic()
        while (found := ready()) is None:
            now = time.monotonic()
            waited = now - started
            if now > watched + WATCH_SECONDS:
                watched = now
                if problem := self._watch(missing(), call, waited):
                    # Whoever failed or left may have done so after it gave us what we wait for.
                    if (found := ready()) is not None:
                        return found
                    self.fail(problem)
            if waited > 0.002:
                time.sleep(min(waited / 16, 0.02 if waited < 2 else 0.05))
        return found

    def _watch(self, missing: list[Member], call: Call, waited: float) -> CollectiveError | None:
        if self._is_leaving:
            return CollectiveError(f"Rank {self.me.rank} closed its context while it was in {call}.")
        if error := find_abort(self.connection, self.session):
            return error
        anyone_left = self.connection.has(self.session.path("left"))
        for member in missing:
            if anyone_left and self.connection.has(self.session.path("left", member.rank)):
                return CollectiveError(
                    f"Rank {member.rank} has closed its context, but rank {self.me.rank} waits for it in {call}. "
                    "Every rank must make the same calls before it closes; if it failed, see its own output."
                )
            if member.is_gone(self.me):
                return CollectiveError(
                    f"{_capital(member)} is gone: its process ended while rank {self.me.rank} waited for it in "
                    f"{call}. See its own output for the reason."
                )
        for member in missing[:8]:
            if other := self._crossed(member, call):
                return CollectiveError(_mismatch(member.rank, other, self.me.rank, call))
        if waited > self.timeout:
            late = self.channels[call.scope].not_in(call.number) or missing
            plural = "s" if len(late) > 1 else ""
            return CollectiveTimeout(
                f"Rank{plural} {name_ranks(m.rank for m in late)} did not come to {call} within {self.timeout:g} s "
                f"(seen by rank {self.me.rank}). Raise timeout= or DET_COLLECTIVE_TIMEOUT, in seconds, if that "
                "is not long enough."
            )
        return None

    def _crossed(self, member: Member, call: Call) -> Call | None:
        """The call in another scope in which `member` waits for us, while we wait for it."""
        for scope, rank in slots(member):
            if scope != call.scope and (channel := self.channels.get(scope)):
                theirs = channel.slot(rank)
                needs_us = theirs.waits_for_all or channel.is_chief
                if theirs.call > channel.calls and not theirs.is_done and needs_us:
                    return Call(scope, theirs.call, theirs.operation)
        return None

    def leave(self) -> None:
        """Tell the others, wait a little for those who still read here, and let go. Never raises, never hangs."""
        if os.getpid() != self._process:
            return  # a forked copy: the session belongs to the parent
        self._is_leaving = True
        try:
            if self.connection.answers():
                self.connection.set(self.session.path("left", self.me.rank), b"-")
                self.connection.set(self.session.path("left"), b"-")
                self.connection.has(self.session.path("left"))  # it has arrived
                if self.connection.hosts:
                    self._linger()
        except Exception as error:  # noqa: BLE001  # leaving is what one does after a failure of any kind
            logger.debug("Rank %s left without goodbye: %s", self.me.rank, error)
        finally:
            self.connection.close()

    def _linger(self) -> None:
        """The store ends with us: stay until the others have left, not long if they have read everything."""
        others = [member for member in self.session.members if member.rank != self.me.rank]
        started = looked = time.monotonic()
        while not self.connection.has(*(self.session.path("left", member.rank) for member in others)):
            now = time.monotonic()
            if now > looked + WATCH_SECONDS:
                looked = now
                others = [m for m in others if not m.is_gone(self.me)]
                waited = now - started
                if not others or waited > LINGER_SECONDS or (waited > LINGER_SECONDS_IF_READ and self._all_have_read()):
                    return
            time.sleep(0.005)

    def _all_have_read(self) -> bool:
        scopes: dict[str, set[int]] = {}
        paths = [pair for member in self.session.members for pair in slots(member)]
        records = self.connection.get_all([self.session.path(*pair) for pair in paths])
        for (scope, rank), record in zip(paths, records, strict=True):
            scopes.setdefault(scope, set()).add(read_slot(self.session, scope, rank, record).header.last_read)
        return all(len(last_read) == 1 for last_read in scopes.values())


@dataclass(frozen=True)
class Call:
    """One collective call, as messages name it."""

    scope: str
    number: int
    operation: str

    def __str__(self) -> str:
        where = "" if self.scope == "job" else " on its machine"
        return f"{self.operation}() (call {self.number}{where})"


class Channel:
    """The collectives of one scope. Its first member is its chief."""

    def __init__(self, participant: Participant, scope: str, members: Sequence[Member]) -> None:
        self._one = participant
        self._scope = scope
        self._members = sorted(members, key=lambda m: m.rank if scope == "job" else m.local_rank)
        self._chief = self._members[0]
        self._others = self._members[1:]
        self.is_chief = self._chief.rank == participant.me.rank
        self.calls = 0
        self._unread: dict[int, list[str]] = {}  # call: the keys of its outcome
        self._ask_at = UNREAD_CALLS

    # The three things one can do here.

    def gather(self, operation: str, stuff: Any) -> list[Any] | None:
        """Every rank's object on the chief, None elsewhere; on no rank before all have contributed."""
        return self._collect(operation, stuff, to_all=False)

    def allgather(self, operation: str, stuff: Any) -> list[Any]:
        """Every rank's object on every rank."""
        found = self._collect(operation, stuff, to_all=True)
        assert found is not None
        return found

    def broadcast(self, operation: str, stuff: Any) -> Any:
        """The chief's object on every rank. The chief does not wait."""
        with self._one.turn:
            call = self._next(operation)
            if not self.is_chief:
                with _Guard(self._one, call):
                    self._show(Header(call.number, operation, waits_for_all=False))
                    outcome = self._await_outcome(call)
                return _load(_value(outcome), call, self._chief.rank)
            payload, failure = _dump(stuff)
            with _Guard(self._one, call):
                self._one.raise_if_aborted()
                self._publish(call, Message(self._header(call, failure), payload), waits_for_all=False)
                self._forget()
            if failure is not None:
                raise failure
            return stuff

    def _collect(self, operation: str, stuff: Any, *, to_all: bool) -> list[Any] | None:
        with self._one.turn:
            call = self._next(operation)
            if self.is_chief:
                return self._collect_as_chief(call, stuff, to_all=to_all)
            payload, failure = _dump(stuff)
            try:
                with _Guard(self._one, call):
                    self._show(Header(call.number, operation, waits_for_all=True, failure=_say(failure)), payload)
                    outcome = self._await_outcome(call)
            except CollectiveError as error:
                raise failure or error from None
            if failure is not None:
                raise failure
            merged = _value(outcome)
            return self._load_all(_split(merged), call) if to_all else None

    def _collect_as_chief(self, call: Call, stuff: Any, *, to_all: bool) -> list[Any]:
        payload, failure = _dump(stuff) if to_all else (b"", None)
        with _Guard(self._one, call):
            self._show(Header(call.number, call.operation, waits_for_all=True))
            messages = self._await_all(call)
            failures = {m.rank: said.header.failure for m, said in messages if said.header.failure}
            if failure is not None:
                failures[self._chief.rank] = _say(failure)
            text = _unsent(failures, call) if failures else ""
            blobs = [payload, *(said.payload for _, said in messages)]
            merged = _join(blobs) if to_all and not failures else b""
            header = Header(call.number, call.operation, waits_for_all=True, failure=text)
            self._publish(call, Message(header, merged), waits_for_all=True)
            self._delete_read(call.number - 1)
        if failure is not None:
            raise failure
        if text:
            raise CollectiveError(text)
        return [stuff, *self._load_all(blobs[1:], call, first=1)]

    def _load_all(self, blobs: Iterable[bytes], call: Call, first: int = 0) -> list[Any]:
        return [_load(blob, call, member.rank) for member, blob in zip(self._members[first:], blobs, strict=True)]

    # Where everyone is.

    def _next(self, operation: str) -> Call:
        self._one.enter(f"{operation}()")
        self.calls += 1
        return Call(self._scope, self.calls, operation)

    def _header(self, call: Call, failure: Exception | None) -> Header:
        text = _unsent({self._chief.rank: _say(failure)}, call) if failure is not None else ""
        return Header(call.number, call.operation, waits_for_all=False, failure=text)

    def slot(self, rank: int) -> Header:
        """Where this rank is."""
        record = self._one.connection.get(self._one.session.path(self._scope, rank))
        return read_slot(self._one.session, self._scope, rank, record).header

    def not_in(self, call: int) -> list[Member]:
        """The members that have not come to this call."""
        return [member for member in self._members if self.slot(member.rank).call < call]

    def _show(self, header: Header, payload: bytes = b"") -> None:
        path = self._one.session.path(self._scope, self._one.me.rank)
        self._write(path, Message(header, payload), limit=SLOT_BYTES)

    def _await_all(self, call: Call) -> list[tuple[Member, Message]]:
        """The chief's wait: everyone's slot shows this call."""
        paths = [self._one.session.path(self._scope, member.rank) for member in self._others]
        records = [b""] * len(paths)
        arrived: dict[int, Message] = {}

        def look() -> list[tuple[Member, Message]] | None:
            found = self._one.connection.get_all(paths)
            for index, member in enumerate(self._others):
                if found[index] != records[index]:
                    records[index] = found[index]
                    said = read_slot(self._one.session, self._scope, member.rank, found[index])
                    if said.header.call >= call.number:
                        self._check(said.header, member, call)
                        arrived[member.rank] = said
            return [(m, arrived[m.rank]) for m in self._others] if len(arrived) == len(paths) else None

        messages = self._one.wait(look, lambda: [m for m in self._others if m.rank not in arrived], call)
        return [(member, self._complete(path, said)) for path, (member, said) in zip(paths, messages, strict=True)]

    def _await_outcome(self, call: Call) -> Message:
        """The others' wait: the chief has published what came of this call."""
        path = self._outcome_path(call.number)
        record = self._one.wait(lambda: self._one.connection.find(path), lambda: [self._chief], call)
        said = _read(self._one.session, path, record, f"rank {self._chief.rank}")
        self._check(said.header, self._chief, call)
        said = self._complete(path, said, delete=False)
        self._show(Header(call.number, call.operation, waits_for_all=said.header.waits_for_all, is_done=True))
        return said

    def _check(self, theirs: Header, member: Member, call: Call) -> None:
        if (theirs.call, theirs.operation) != (call.number, call.operation):
            other = Call(self._scope, theirs.call, theirs.operation)
            self._one.fail(CollectiveError(_mismatch(member.rank, other, self._one.me.rank, call)))

    # Outcomes, and their end.

    def _outcome_path(self, call: int) -> str:
        return self._one.session.path(self._scope, "outcome", call)

    def _publish(self, call: Call, message: Message, *, waits_for_all: bool) -> None:
        path = self._outcome_path(call.number)
        self._unread[call.number] = self._write(path, message, limit=CHUNK_BYTES)
        if len(message.payload) > SLOT_BYTES << 5:
            self._ask_at = 0  # too large to lie about
        self._show(Header(call.number, call.operation, waits_for_all=waits_for_all, is_done=True))

    def _forget(self) -> None:
        """After broadcasts nobody answers: from time to time, look who has read what, and delete it."""
        if len(self._unread) >= self._ask_at:
            self._delete_read(min(self.slot(member.rank).last_read for member in self._others))
            self._ask_at = len(self._unread) + UNREAD_CALLS

    def _delete_read(self, last: int) -> None:
        for call in [call for call in self._unread if call <= last]:
            self._one.connection.delete(*self._unread.pop(call))

    # Messages as records.

    def _write(self, path: str, message: Message, limit: int) -> list[str]:
        """Write a message, its object in chunks beside it if it is large. Returns the keys written."""
        header, payload, keys = message.header, message.payload, [path]
        if len(payload) > limit:
            starts = range(0, len(payload), CHUNK_BYTES)
            chunks = [f"{path}/{header.call}/{index}" for index in range(len(starts))]
            for key, start in zip(chunks, starts, strict=True):
                self._one.connection.set(key, payload[start : start + CHUNK_BYTES])
            keys += chunks
            digest = hashlib.sha256(payload).hexdigest()
            header = Header(**{**asdict(header), "chunks": len(chunks), "digest": digest})
            payload = b""
        body = json.dumps(asdict(header)).encode() + b"\n" + payload
        self._one.connection.set(path, _secret.seal(self._one.session.key, path, body))
        return keys

    def _complete(self, path: str, said: Message, *, delete: bool = True) -> Message:
        """The message with its chunks, which are as signed as itself through the digest in its header."""
        header = said.header
        if not header.chunks:
            return said
        keys = [f"{path}/{header.call}/{index}" for index in range(header.chunks)]
        payload = b"".join(self._one.connection.get(key) for key in keys)
        if hashlib.sha256(payload).hexdigest() != header.digest:
            raise CollectiveError(f"A message for {header.operation}() (call {header.call}) was changed on its way.")
        if delete:
            self._one.connection.delete(*keys)
        return Message(header, payload)


class _Guard:
    """Around the part of a call that others depend on: whatever goes wrong there ends the session for all."""

    def __init__(self, participant: Participant, call: Call) -> None:
        self._participant = participant
        self._call = call

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ConnectionLost):
            self._participant.lost(error)
        if isinstance(error, CollectiveError):
            if not self._participant.is_broken:
                self._participant.fail(error)
            return
        if error is not None:
            self._participant.interrupted(str(self._call), error)


def read_slot(session: Session, scope: str, rank: int, record: bytes) -> Message:
    """What a slot says. Before its first call, a rank's slot says nothing."""
    if record == b"-":
        return Message(NOT_YET)
    return _read(session, session.path(scope, rank), record, f"rank {rank}")


def _read(session: Session, path: str, record: bytes, sender: str) -> Message:
    header, _, payload = _secret.unseal(session.key, path, record, sender).partition(b"\n")
    return Message(Header(**json.loads(header)), payload)


def _dump(stuff: Any) -> tuple[bytes, Exception | None]:
    try:
        return pickle.dumps(stuff), None
    except Exception as error:  # noqa: BLE001  # users' classes may raise anything here
        return b"", error


def _load(payload: bytes, call: Call, sender: int) -> Any:
    try:
        return pickle.loads(payload)  # noqa: S301  # its signature was checked
    except Exception as error:
        raise CollectiveError(
            f"What rank {sender} sent to {call} cannot be unpickled here: {_say(error)}. Its class must be "
            "importable on every rank."
        ) from error


def _value(outcome: Message) -> bytes:
    if outcome.header.failure:
        raise CollectiveError(outcome.header.failure)
    return outcome.payload


def _join(blobs: list[bytes]) -> bytes:
    return json.dumps([len(blob) for blob in blobs]).encode() + b"\n" + b"".join(blobs)


def _split(merged: bytes) -> list[bytes]:
    sizes, _, rest = merged.partition(b"\n")
    blobs, start = [], 0
    for size in json.loads(sizes):
        blobs.append(rest[start : start + size])
        start += size
    return blobs


def _unsent(failures: dict[int, str], call: Call) -> str:
    reasons = "; ".join(f"rank {rank}: {failures[rank]}" for rank in sorted(failures))
    return f"The object for {call} could not be pickled by {reasons}."


def _mismatch(rank: int, theirs: Call, me: int, mine: Call) -> str:
    return (
        f"Rank {rank} called {theirs} where rank {me} called {mine}. Every rank must make the same collective calls "
        "in the same order: look for one that only some ranks reach."
    )


def _say(error: BaseException | None) -> str:
    return "" if error is None else ": ".join(filter(None, [type(error).__name__, str(error)]))


def _capital(member: Member) -> str:
    return str(member)[0].upper() + str(member)[1:]
