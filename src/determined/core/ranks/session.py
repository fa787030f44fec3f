"""How ranks find each other in a store: the chief opens a session, every rank registers, the chief writes the list.

A store may hold what an earlier attempt, or another context of this process, left there. Therefore each session has a
random name, and a rank belongs to it only if its own random token is on the list.
"""

from __future__ import annotations

import hashlib
import json
import logging
import pickle
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

from determined.core.ranks import signing
from determined.core.ranks.connection import Connection, ConnectionLost
from determined.core.ranks.members import Member, find_contradictions, name_ranks
from determined.errors import CollectiveError, CollectiveTimeout

logger = logging.getLogger("determined.core")

ANNOUNCEMENT = "session"  # the key under which the chief announces the newest session
LOOK_SECONDS = 0.2
READ_SECONDS = 2.0
NOTHING_YET = b"-"  # the slot of a rank that has made no call yet
FOREIGN_SECONDS = 15.0  # longer than a chief that closes waits for its readers


@dataclass(frozen=True)
class Session:
    """The ranks of one context in a store: its name there, its members once all are known, and its keys.

    What ranks write while they register, and why a session was aborted, is signed with `early_key`; the rest with
    `key`, which depends on the list of members.
    """

    connection: Connection
    name: str
    early_key: bytes
    key: bytes
    members: tuple[Member, ...] = ()

    def path(self, *parts: object) -> str:
        """Return the key in the store of something that belongs to this session."""
        return "/".join([self.name, *map(str, parts)])

    def write(self, path: str, body: bytes) -> None:
        """Write a signed record."""
        self.connection.set(path, signing.sign(self.key, path, body))

    def verify(self, path: str, record: bytes, rank: int) -> bytes:
        """Return the body of a record that `rank` has written."""
        return signing.verify(self.key, path, record, f"rank {rank}")

    def abort(self, error: CollectiveError) -> None:
        """Tell every rank why this session is over. The first reason stays."""
        path = self.path("abort")
        kind = "timeout" if isinstance(error, CollectiveTimeout) else "error"
        body = json.dumps({"kind": kind, "text": str(error)}).encode()
        self.connection.replace(path, b"", signing.sign(self.early_key, path, body))

    def find_abort(self) -> CollectiveError | None:
        """Return why this session is over, if it is."""
        path = self.path("abort")
        record = self.connection.find(path)
        if record is None:
            return None
        try:
            reason = json.loads(signing.verify(self.early_key, path, record, "another rank"))
        except CollectiveError as refused:
            return refused
        return (CollectiveTimeout if reason["kind"] == "timeout" else CollectiveError)(reason["text"])


def slots(member: Member) -> list[tuple[str, int]]:
    """Return the (scope, rank) pairs under which this member writes its calls: for the job, and for its machine."""
    found = [("job", member.rank)]
    return [*found, (f"machine-{member.cross_rank}", member.rank)] if member.local_size > 1 else found


@dataclass
class Registration:
    """How one rank enters a session."""

    connect: Callable[[], Connection]  # called again if an earlier context's chief closes its store meanwhile
    me: Member
    secret: bytes
    timeout: float  # seconds to wait for other ranks, for sentences
    deadline: float  # when they are over
    notice: float  # seconds after which ranks that have not arrived are named in a warning; 0 for never

    def run(self) -> Session:
        """Return the session once every rank has registered and the chief found no contradiction. Collective."""
        self._connection = self.connect()
        try:
            return self._register_all() if self.me.rank == 0 else self._find_session()
        except BaseException:
            self._connection.close()
            raise

    # On the chief.

    def _register_all(self) -> Session:
        session = self._open_session()
        try:
            members = self._wait_for_members(session)
        except CollectiveError as error:
            session.abort(error)
            self._wait_for_readers(session)
            raise
        listed = json.dumps([asdict(members[rank]) for rank in range(self.me.size)]).encode()
        self._make_slots(session)
        session.write(session.path("members"), listed)
        return _complete(session, listed)

    def _open_session(self) -> Session:
        """Announce a new session, unless another process is just doing the same."""
        previous = self._connection.find(ANNOUNCEMENT)
        if previous is not None:
            other, chief = self._read_announcement(previous)
            is_over = self._connection.has(other.path("members")) or self._connection.has(other.path("abort"))
            if not is_over and chief.machine == self.me.machine and not chief.is_gone(self.me):
                self._abort_second_chief(other, chief)
        session = self._session(secrets.token_hex(8))
        body = json.dumps({"session": session.name, "chief": asdict(self.me)}).encode()
        record = signing.sign(self.secret, ANNOUNCEMENT, body)
        if not self._connection.replace(ANNOUNCEMENT, previous or b"", record):
            self._abort_second_chief(*self._read_announcement(self._connection.get(ANNOUNCEMENT)))
        return session

    def _abort_second_chief(self, other: Session, chief: Member) -> NoReturn:
        error = self._given_twice(chief)
        other.abort(error)
        raise error

    def _wait_for_members(self, session: Session) -> dict[int, Member]:
        """Return all members by rank; raise what is wrong as soon as it shows."""
        size, looked, present = self.me.size, 0.0, {0: self.me}
        warn_at = time.monotonic() + (self.notice or float("inf"))
        while True:
            paths = {rank: session.path("member", rank) for rank in range(size) if rank not in present}
            if time.monotonic() >= looked + LOOK_SECONDS or self._connection.has(*paths.values()):
                looked = time.monotonic()
                for rank, path in paths.items():
                    if (record := self._connection.find(path)) is not None:
                        present[rank] = _read_member(session, record, rank)
                if problems := find_contradictions(present.values()):
                    raise _not_one_job("; ".join(problems))
                if len(present) == size:
                    return present
                self._raise_if_over(session, *present.values())
                missing = [rank for rank in range(size) if rank not in present]
                if looked > self.deadline:
                    raise self._late(missing)
                if looked > warn_at:
                    warn_at = float("inf")
                    logger.warning(
                        "Not all ranks have come to the start of this job after %g s; missing: %s of %d. Check that "
                        "all were started; they are waited for %g s (DET_COLLECTIVE_TIMEOUT).",
                        self.notice, name_ranks(missing), size, self.timeout,
                    )  # fmt: skip
            time.sleep(0.005)

    def _wait_for_readers(self, session: Session) -> None:
        """Give those who registered a moment to read why the session was aborted: the store may end with us."""
        deadline = time.monotonic() + READ_SECONDS
        while self._connection.ends_with_chief and time.monotonic() < deadline:
            came, read = (int(self._connection.find(session.path(what)) or 0) for what in ("came", "read"))
            if read >= came:
                return
            time.sleep(0.01)

    # On the other ranks.

    def _find_session(self) -> Session:
        """Register in the first announced session that is for this rank."""
        refused: dict[bytes, float] = {}  # announcements of sessions that are not for us, and since when
        while True:
            try:
                announcement = self._connection.find(ANNOUNCEMENT)
                if announcement is not None and announcement not in refused:
                    if (session := self._register(announcement)) is not None:
                        return session
                    refused[announcement] = time.monotonic()
            except ConnectionLost:  # an earlier context's chief has closed its store; ours is still to come
                self._connection.close()
                self._connection, announcement = self.connect(), None
            now = time.monotonic()
            if announcement is not None and self._connection.is_ours and now > refused[announcement] + FOREIGN_SECONDS:
                place, (_, chief) = self._connection.place, self._read_announcement(announcement)
                raise CollectiveError(
                    f"{place[0].upper()}{place[1:]} belongs to another job, whose {chief} has all its ranks. Give each "
                    "job ports of its own: INTER_TRAIN_PROCESS_COMM_PORT_1, or pub_port=."
                )
            if now > self.deadline:
                raise self._late([0])
            time.sleep(0.01)

    def _register(self, announcement: bytes) -> Session | None:
        """Register in the announced session and wait for the list. None if this session is not for us."""
        me, connection = self.me, self._connection
        session, chief = self._read_announcement(announcement, answer=True)
        if connection.has(session.path("members")) or chief.is_gone(me):
            return None
        if error := session.find_abort():
            raise error
        connection.count(session.path("came"))
        try:
            if chief.size != me.size:
                raise _not_one_job(f"rank 0 was told size={chief.size}; rank {me.rank} was told size={me.size}")
            path = session.path("member", me.rank)
            if connection.count(session.path("claims", me.rank)) > 1:
                record = connection.find(path)
                raise self._given_twice(_read_member(session, record, me.rank) if record else None)
            self._make_slots(session)
            session.write(path, json.dumps(asdict(me)).encode())
            return self._wait_for_list(session, announcement, chief)
        except ConnectionLost as error:
            raise CollectiveError(f"rank 0 ended or gave up while the ranks were meeting. {error}") from error
        except CollectiveError as error:
            session.abort(error)
            connection.count(session.path("read"))
            raise

    def _wait_for_list(self, session: Session, announcement: bytes, chief: Member) -> Session | None:
        path, looked, pause = session.path("members"), time.monotonic(), 0.001
        while (record := self._connection.find(path)) is None:
            if time.monotonic() > looked + LOOK_SECONDS:
                looked = time.monotonic()
                if self._connection.get(ANNOUNCEMENT) != announcement:
                    return None
                self._raise_if_over(session, chief)
                if looked > self.deadline:
                    others = range(1, self.me.size)
                    missing = [rank for rank in others if not self._connection.has(session.path("member", rank))]
                    raise self._late(missing or [0])
            time.sleep(pause)
            pause = min(pause * 1.2, 0.05)
        complete = _complete(session, session.verify(path, record, 0))
        listed = complete.members[self.me.rank]
        if listed.token != self.me.token:
            raise self._given_twice(listed)
        return complete

    # On both.

    def _session(self, name: str) -> Session:
        key = signing.derive(self.secret, b"early", name.encode())
        return Session(self._connection, name, key, key)

    def _read_announcement(self, record: bytes, *, answer: bool = False) -> tuple[Session, Member]:
        """Return the announced session and its chief. To `answer` is to tell a chief that has another secret so."""
        announced = json.loads(record[signing.SIGNATURE_BYTES :])
        session = self._session(announced["session"])
        try:
            signing.verify(self.secret, ANNOUNCEMENT, record, "rank 0")
        except CollectiveError as error:
            if answer and not self._connection.has(session.path("members")):
                session.abort(error)
            raise
        return session, Member(**announced["chief"])

    def _make_slots(self, session: Session) -> None:
        """Make what this rank will write to, so that others can read it without asking whether it is there."""
        for scope, rank in [*slots(self.me), ("status", self.me.rank)]:
            self._connection.set(session.path(scope, rank), NOTHING_YET)

    def _raise_if_over(self, session: Session, *present: Member) -> None:
        if error := session.find_abort():
            raise error
        if gone := [member for member in present if member.is_gone(self.me)]:
            raise CollectiveError(f"{gone[0]} ended while the ranks were meeting. See its own output for the reason.")

    def _late(self, missing: list[int]) -> CollectiveTimeout:
        return CollectiveTimeout(
            f"{name_ranks(missing)} of {self.me.size} did not arrive within {self.timeout:g} s, so the ranks could not "
            f"meet (seen by rank {self.me.rank}). Check that all were started, or give them longer: timeout= or "
            "DET_COLLECTIVE_TIMEOUT, in seconds."
        )

    def _given_twice(self, other: Member | None) -> CollectiveError:
        second = f" and {other}" if other else ""
        return CollectiveError(
            f"rank {self.me.rank} was given to two participants: {self.me}{second}. Give each its own rank, and each "
            "job its own ports (INTER_TRAIN_PROCESS_COMM_PORT_1, or pub_port=)."
        )


def _not_one_job(problem: str) -> CollectiveError:
    return CollectiveError(
        f"The ranks do not describe one job: {problem}. Start all of them with one launcher, with the same size."
    )


def _complete(session: Session, listed: bytes) -> Session:
    """Return the session with its list of members, as JSON has it."""
    members = tuple(Member(**described) for described in json.loads(listed))
    return replace(session, members=members, key=signing.derive(session.early_key, b"complete", listed))


def _read_member(session: Session, record: bytes, rank: int) -> Member:
    return Member(**json.loads(session.verify(session.path("member", rank), record, rank)))


CHUNK_BYTES = 4 << 20  # torch's server takes 8 MiB at once


@dataclass(frozen=True)
class Call:
    """One collective call, as sentences name it."""

    scope: str
    number: int
    operation: str

    def __str__(self) -> str:
        where = "" if self.scope == "job" else " on its machine"
        return f"{self.operation}(), call {self.number}{where}"


@dataclass(frozen=True)
class Message:
    """What a rank writes about a call."""

    call: int
    operation: str
    waits_for_all: bool  # false for a broadcast, which needs the chief only
    is_done: bool = False
    failure: str = ""  # why there is no object
    payload: bytes = b""  # the pickled object; empty while it lies in chunks beside the message
    chunks: int = 0
    digest: str = ""

    @property
    def last_read(self) -> int:
        """The last call whose outcome a rank with this message in its slot has read."""
        return self.call if self.is_done else self.call - 1


def write(session: Session, path: str, message: Message, *, limit: int) -> list[str]:
    """Write a message, its object in chunks beside it if larger than `limit`. Return the keys written."""
    payload, keys = message.payload, [path]
    if len(payload) > limit:
        starts = range(0, len(payload), CHUNK_BYTES)
        message = replace(message, payload=b"", chunks=len(starts), digest=hashlib.sha256(payload).hexdigest())
        keys += _chunk_keys(path, message)
        for key, start in zip(keys[1:], starts, strict=True):
            session.connection.set(key, payload[start : start + CHUNK_BYTES])
    session.write(path, pickle.dumps(message))
    return keys


def read(session: Session, path: str, record: bytes, sender: int) -> Message:
    """Return the message in a record, without its chunks."""
    if record == NOTHING_YET:
        return Message(0, "", waits_for_all=False, is_done=True)
    return pickle.loads(session.verify(path, record, sender))  # type: ignore[no-any-return]  # noqa: S301  # it is signed


def fetch_chunks(session: Session, path: str, message: Message, *, delete: bool) -> Message:
    """Return the message with its object, whose digest is in what was signed."""
    if not message.chunks:
        return message
    keys = _chunk_keys(path, message)
    payload = b"".join(session.connection.get(key) for key in keys)
    if hashlib.sha256(payload).hexdigest() != message.digest:
        raise CollectiveError(f"A message for {message.operation}(), call {message.call}, was changed on its way.")
    if delete:
        session.connection.delete(*keys)
    return replace(message, payload=payload)


def _chunk_keys(path: str, message: Message) -> list[str]:
    return [f"{path}/{message.call}/{index}" for index in range(message.chunks)]


def dump(stuff: Any) -> tuple[bytes, Exception | None]:
    """Return the object pickled, or why it cannot be."""
    try:
        return pickle.dumps(stuff), None
    except Exception as error:  # noqa: BLE001  # users' classes may raise anything here
        return b"", error


def load(payload: bytes, call: Call, sender: int) -> Any:
    """Return the object that `sender` pickled."""
    try:
        return pickle.loads(payload)  # noqa: S301  # its signature was checked
    except Exception as error:
        raise CollectiveError(
            f"What rank {sender} sent to {call}, cannot be unpickled here: {describe(error)}. Its class must be "
            "importable on every rank."
        ) from error


def describe(error: BaseException | None) -> str:
    """Return `ValueError: its text`, or nothing for None."""
    return "" if error is None else ": ".join(filter(None, [type(error).__name__, str(error)]))


def describe_unsent(failures: dict[int, str], call: Call) -> str:
    """Return the sentence for objects that could not be pickled; nothing if there are none."""
    reasons = "; ".join(f"rank {rank}: {failures[rank]}" for rank in sorted(failures))
    return f"The object for {call}, could not be pickled by {reasons}." if failures else ""


def mismatch(rank: int, theirs: Call, me: int, mine: Call) -> CollectiveError:
    """Return the error for two ranks in different calls."""
    return CollectiveError(
        f"rank {rank} called {theirs}, where rank {me} called {mine}. Every rank must make the same collective calls "
        "in the same order: look for one that only some ranks reach."
    )
