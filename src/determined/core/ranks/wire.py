"""What ranks write into a store about a call: a signed header, the pickled object, and how both are put and found."""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import dataclass, replace
from typing import Any

from determined.core.ranks import signing
from determined.core.ranks.meeting import Connection
from determined.core.ranks.rollcall import SILENT, Session
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
        """The last call whose outcome a rank with this header in its slot has read."""
        return self.call if self.is_done else self.call - 1


@dataclass(frozen=True)
class Message:
    """A header and the pickled object, which is empty while it lies in chunks beside the header."""

    header: Header
    payload: bytes = b""


def write(connection: Connection, session: Session, path: str, message: Message, *, limit: int) -> list[str]:
    """Write a message, its object in chunks beside it if larger than `limit`. Returns the keys written."""
    header, payload, chunks = message.header, message.payload, []
    if len(payload) > limit:
        starts = range(0, len(payload), CHUNK_BYTES)
        header = replace(header, chunks=len(starts), digest=hashlib.sha256(payload).hexdigest())
        chunks = _chunks(path, header)
        for key, start in zip(chunks, starts, strict=True):
            connection.set(key, payload[start : start + CHUNK_BYTES])
        payload = b""
    body = json.dumps(vars(header)).encode() + b"\n" + payload
    connection.set(path, signing.seal(session.key, path, body))
    return [path, *chunks]


def read(session: Session, path: str, record: bytes, sender: int) -> Message:
    """The message in a record, without its chunks."""
    if record == SILENT:
        return Message(Header(0, "", waits_for_all=False, is_done=True))
    header, _, payload = signing.unseal(session.key, path, record, f"rank {sender}").partition(b"\n")
    return Message(Header(**json.loads(header)), payload)


def fetch(connection: Connection, path: str, said: Message, *, delete: bool) -> Message:
    """The message with its chunks, which are as signed as its header through the digest in it."""
    header = said.header
    if not header.chunks:
        return said
    keys = _chunks(path, header)
    payload = b"".join(connection.get(key) for key in keys)
    if hashlib.sha256(payload).hexdigest() != header.digest:
        raise CollectiveError(f"A message for {header.operation}(), call {header.call}, was changed on its way.")
    if delete:
        connection.delete(*keys)
    return Message(header, payload)


def _chunks(path: str, header: Header) -> list[str]:
    return [f"{path}/{header.call}/{index}" for index in range(header.chunks)]


def dump(stuff: Any) -> tuple[bytes, Exception | None]:
    """The object pickled, or why it cannot be."""
    try:
        return pickle.dumps(stuff), None
    except Exception as error:  # noqa: BLE001  # users' classes may raise anything here
        return b"", error


def load(payload: bytes, call: Call, sender: int) -> Any:
    """The object that `sender` pickled."""
    try:
        return pickle.loads(payload)  # noqa: S301  # its signature was checked
    except Exception as error:
        raise CollectiveError(
            f"What rank {sender} sent to {call}, cannot be unpickled here: {describe(error)}. Its class must be "
            "importable on every rank."
        ) from error


def join(blobs: list[bytes]) -> bytes:
    """Many pickled objects as one."""
    return json.dumps([len(blob) for blob in blobs]).encode() + b"\n" + b"".join(blobs)


def split(joined: bytes) -> list[bytes]:
    """Undo `join`."""
    sizes, _, rest = joined.partition(b"\n")
    blobs, start = [], 0
    for size in json.loads(sizes):
        blobs.append(rest[start : start + size])
        start += size
    return blobs


def describe(error: BaseException | None) -> str:
    """`ValueError: what it says`, or nothing for None."""
    return "" if error is None else ": ".join(filter(None, [type(error).__name__, str(error)]))


def unsent(failures: dict[int, str], call: Call) -> str:
    """The sentence for objects that could not be pickled."""
    reasons = "; ".join(f"rank {rank}: {failures[rank]}" for rank in sorted(failures))
    return f"The object for {call}, could not be pickled by {reasons}."


def mismatch(rank: int, theirs: Call, me: int, mine: Call) -> str:
    """The sentence for two ranks in different calls."""
    return (
        f"rank {rank} called {theirs}, where rank {me} called {mine}. Every rank must make the same collective calls "
        "in the same order: look for one that only some ranks reach."
    )
