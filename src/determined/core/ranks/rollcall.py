"""How ranks find each other in a store: the chief opens a session, everyone registers, the chief reads out the list.

A store may hold what an earlier attempt, or another context of this process, left there. Therefore each meeting has a
session of its own with a random name, and a rank belongs to it only if its own random token is on the list.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import NoReturn

from determined.core.ranks import signing
from determined.core.ranks.meeting import Connection, ConnectionLost
from determined.core.ranks.peers import Member, disagreements, name_ranks
from determined.errors import CollectiveError, CollectiveTimeout

logger = logging.getLogger("determined.core")

SESSION = "session"
SLICE_SECONDS = 0.2
HEAR_SECONDS = 2.0
SILENT = b"-"  # the slot of a rank that has made no call yet
FOREIGN_SECONDS = 15.0  # longer than a chief that closes waits for its readers


@dataclass(frozen=True)
class Session:
    """One meeting: its name in the store, the key of what is said before the list is complete, and after."""

    name: str
    early_key: bytes
    members: tuple[Member, ...] = ()
    key: bytes = b""

    def path(self, *parts: object) -> str:
        return "/".join([self.name, *map(str, parts)])


@dataclass(frozen=True)
class Invitation:
    """What a rank brings to a meeting."""

    me: Member
    secret: bytes
    timeout: float
    deadline: float
    notice: float = 0.0  # seconds after which ranks that have not come are named; 0 for never


def meet(connect: Callable[[], Connection], invitation: Invitation) -> tuple[Connection, Session]:
    """Return once every rank has arrived and the chief found nothing wrong with the list. Collective."""
    connection = connect()
    try:
        if invitation.me.rank == 0:
            return connection, _call(connection, invitation)
    except BaseException:
        connection.close()
        raise
    return _answer(connection, connect, invitation)


def post_abort(connection: Connection, session: Session, error: CollectiveError) -> None:
    """Tell every rank why this session is over. The first reason stays."""
    kind = "timeout" if isinstance(error, CollectiveTimeout) else "error"
    body = json.dumps({"kind": kind, "text": str(error)}).encode()
    connection.replace(session.path("abort"), b"", signing.seal(session.early_key, session.path("abort"), body))


def find_abort(connection: Connection, session: Session) -> CollectiveError | None:
    """Why this session is over, if it is."""
    record = connection.find(session.path("abort"))
    if record is None:
        return None
    try:
        reason = json.loads(signing.unseal(session.early_key, session.path("abort"), record, "another rank"))
    except CollectiveError as refused:
        return refused
    return (CollectiveTimeout if reason["kind"] == "timeout" else CollectiveError)(reason["text"])


def slots(member: Member) -> list[tuple[str, int]]:
    """The (scope, rank) under which this member shows where it is: in the whole job, and on its machine."""
    found = [("job", member.rank)]
    return [*found, (f"machine-{member.cross_rank}", member.rank)] if member.local_size > 1 else found


# The chief's part.


def _call(connection: Connection, invitation: Invitation) -> Session:
    session = _open(connection, invitation)
    present = {0: invitation.me}
    try:
        _wait_for_all(connection, session, invitation, present)
    except CollectiveError as error:
        post_abort(connection, session, error)
        _let_them_hear(connection, session)
        raise
    members = [asdict(present[rank]) for rank in range(invitation.me.size)]
    listed = json.dumps(members).encode()
    _show_slots(connection, session, invitation.me)
    connection.set(session.path("roster"), signing.seal(session.early_key, session.path("roster"), listed))
    return _complete(session, listed)


def _open(connection: Connection, invitation: Invitation) -> Session:
    """Announce a new session, unless another process is just doing the same."""
    me = invitation.me
    previous = connection.find(SESSION)
    if previous is not None:
        other, chief = _read_announcement(previous, invitation)
        over = connection.has(other.path("roster")) or connection.has(other.path("abort"))
        if not over and chief.machine == me.machine and not chief.is_gone(me):
            error = CollectiveError(_twice(0, me, chief))
            post_abort(connection, other, error)
            raise error
    session = _session(secrets.token_hex(8), invitation.secret)
    body = json.dumps({"session": session.name, "chief": asdict(me)}).encode()
    if not connection.replace(SESSION, previous or b"", signing.seal(invitation.secret, SESSION, body)):
        other, chief = _read_announcement(connection.get(SESSION), invitation)
        error = CollectiveError(_twice(0, me, chief))
        post_abort(connection, other, error)
        raise error
    return session


def _wait_for_all(connection: Connection, session: Session, invitation: Invitation, present: dict[int, Member]) -> None:
    """Fill `present`; raise what is wrong as soon as it shows."""
    size, looked = invitation.me.size, 0.0
    say_at = time.monotonic() + (invitation.notice or float("inf"))
    while True:
        missing = [rank for rank in range(size) if rank not in present]
        if time.monotonic() >= looked + SLICE_SECONDS or connection.has(
            *(session.path("member", rank) for rank in missing)
        ):
            looked = time.monotonic()
            for rank in missing:
                if (record := connection.find(session.path("member", rank))) is not None:
                    present[rank] = _read_member(record, session, rank)
            if problems := disagreements(present.values()):
                raise CollectiveError(
                    f"The ranks do not describe one job: {'; '.join(problems)}. Start all of them with one launcher, "
                    "with the same size."
                )
            if len(present) == size:
                return
            _look_around(connection, session, invitation, list(present.values()))
            missing = [rank for rank in range(size) if rank not in present]
            if looked > invitation.deadline:
                _late(invitation, missing)
            if looked > say_at:
                say_at = float("inf")
                logger.warning(
                    "Not all ranks have come to the start of this job after %g s; missing: %s of %d. Check that all "
                    "were started; they are waited for %g s (DET_COLLECTIVE_TIMEOUT).",
                    invitation.notice, name_ranks(missing), size, invitation.timeout,
                )  # fmt: skip
        time.sleep(0.005)


def _let_them_hear(connection: Connection, session: Session) -> None:
    """The store may end with us: give those who came a moment to read why nothing comes of it."""
    deadline = time.monotonic() + HEAR_SECONDS
    while connection.ends_with_chief and time.monotonic() < deadline:
        came, heard = (int(connection.find(session.path(what)) or 0) for what in ("came", "heard"))
        if heard >= came:
            return
        time.sleep(0.01)


# The part of the others.


def _answer(
    connection: Connection, connect: Callable[[], Connection], invitation: Invitation
) -> tuple[Connection, Session]:
    refused: dict[bytes, float] = {}  # announcements of sessions that are not for us, and since when
    try:
        while True:
            try:
                announcement = connection.find(SESSION)
                if announcement is not None and announcement not in refused:
                    if (session := _join(connection, announcement, invitation)) is not None:
                        return connection, session
                    refused[announcement] = time.monotonic()
            except ConnectionLost:  # an earlier context's chief has closed its store; ours is still to come
                connection.close()
                connection, announcement = connect(), None
            _give_up(connection, announcement, refused, invitation)
            time.sleep(0.01)
    except BaseException:
        connection.close()
        raise


def _give_up(
    connection: Connection, announcement: bytes | None, refused: dict[bytes, float], invitation: Invitation
) -> None:
    now = time.monotonic()
    if announcement is not None and connection.is_ours and now > refused.get(announcement, now) + FOREIGN_SECONDS:
        _, chief = _read_announcement(announcement, invitation)
        raise CollectiveError(
            f"{connection.place[0].upper()}{connection.place[1:]} belongs to another job, whose {chief} has all its "
            "ranks. Give each job ports of its own: INTER_TRAIN_PROCESS_COMM_PORT_1, or pub_port=."
        )
    if now > invitation.deadline:
        _late(invitation, [0])


def _join(connection: Connection, announcement: bytes, invitation: Invitation) -> Session | None:
    """Register in the announced session and wait for the list. None if this session is not for us."""
    me = invitation.me
    session, chief = _read_announcement(announcement, invitation, connection)
    if connection.has(session.path("roster")) or chief.is_gone(me):
        return None
    if error := find_abort(connection, session):
        raise error
    connection.count(session.path("came"))
    try:
        if chief.size != me.size:
            raise CollectiveError(
                f"The ranks do not describe one job: rank 0 was told size={chief.size}; rank {me.rank} was told "
                f"size={me.size}. Start all of them with one launcher, with the same size."
            )
        if connection.count(session.path("claims", me.rank)) > 1:
            record = connection.find(session.path("member", me.rank))
            raise CollectiveError(_twice(me.rank, me, _read_member(record, session, me.rank) if record else None))
        _show_slots(connection, session, me)
        path = session.path("member", me.rank)
        connection.set(path, signing.seal(session.early_key, path, json.dumps(asdict(me)).encode()))
        return _wait_for_roster(connection, session, announcement, chief, invitation)
    except ConnectionLost as error:
        raise CollectiveError(f"rank 0 ended or gave up while the ranks were meeting. {error}") from error
    except CollectiveError as error:
        post_abort(connection, session, error)
        connection.count(session.path("heard"))
        raise


def _wait_for_roster(
    connection: Connection, session: Session, announcement: bytes, chief: Member, invitation: Invitation
) -> Session | None:
    path, looked, pause = session.path("roster"), time.monotonic(), 0.001
    while True:
        if (record := connection.find(path)) is not None:
            listed = signing.unseal(session.early_key, path, record, "rank 0")
            complete = _complete(session, listed)
            mine = complete.members[invitation.me.rank]
            if mine.token != invitation.me.token:
                raise CollectiveError(_twice(mine.rank, invitation.me, mine))
            return complete
        if time.monotonic() > looked + SLICE_SECONDS:
            looked = time.monotonic()
            if connection.get(SESSION) != announcement:
                return None
            _look_around(connection, session, invitation, [chief])
            if looked > invitation.deadline:
                ranks = range(invitation.me.size)
                missing = [r for r in ranks if r and not connection.has(session.path("member", r))]
                _late(invitation, missing or [0])
        time.sleep(pause)
        pause = min(pause * 1.2, 0.05)


# What both need.


def _look_around(connection: Connection, session: Session, invitation: Invitation, present: list[Member]) -> None:
    if error := find_abort(connection, session):
        raise error
    if gone := [member for member in present if member.is_gone(invitation.me)]:
        raise CollectiveError(f"{gone[0]} ended while the ranks were meeting. See its own output for the reason.")


def _late(invitation: Invitation, missing: list[int]) -> NoReturn:
    me, plural = invitation.me, "ranks" if len(missing) > 1 else "rank"
    raise CollectiveTimeout(
        f"{plural} {name_ranks(missing)} of {me.size} did not arrive within {invitation.timeout:g} s, so the "
        f"ranks could not meet (seen by rank {me.rank}). Check that all were started, or give them longer: timeout= or "
        "DET_COLLECTIVE_TIMEOUT, in seconds."
    )


def _twice(rank: int, me: Member, other: Member | None) -> str:
    second = f" and {other}" if other else ""
    return (
        f"rank {rank} was given to two participants: {me}{second}. Give each its own rank, and each job its own ports "
        "(INTER_TRAIN_PROCESS_COMM_PORT_1, or pub_port=)."
    )


def _session(name: str, secret: bytes) -> Session:
    return Session(name, signing.derive(secret, b"early", name.encode()))


def _complete(session: Session, listed: bytes) -> Session:
    members = tuple(Member(**described) for described in json.loads(listed))
    return Session(session.name, session.early_key, members, signing.derive(session.early_key, b"complete", listed))


def _read_announcement(
    record: bytes, invitation: Invitation, connection: Connection | None = None
) -> tuple[Session, Member]:
    """The announced session. With a `connection`, a chief that has another secret is told so."""
    announced = json.loads(record[signing.SIGNATURE_BYTES :])
    session = _session(announced["session"], invitation.secret)
    try:
        signing.unseal(invitation.secret, SESSION, record, "rank 0")
    except CollectiveError as error:
        if connection is not None and not connection.has(session.path("roster")):
            post_abort(connection, session, error)
        raise
    return session, Member(**announced["chief"])


def _read_member(record: bytes, session: Session, rank: int) -> Member:
    body = signing.unseal(session.early_key, session.path("member", rank), record, f"rank {rank}")
    return Member(**json.loads(body))


def _show_slots(connection: Connection, session: Session, me: Member) -> None:
    """Make this rank's slots, so that others can read them without asking whether they are there."""
    for scope, rank in [*slots(me), ("pulse", me.rank)]:
        connection.set(session.path(scope, rank), SILENT)
