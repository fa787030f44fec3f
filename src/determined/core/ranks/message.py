"""What ranks write into a store about a call, with the pickled object that goes with it, and how that is read."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass, replace
from typing import Any

from determined.core.ranks.session import NOTHING_YET, Session
from determined.errors import CollectiveError

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
