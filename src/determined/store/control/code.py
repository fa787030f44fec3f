"""Code snapshots: the code that an experiment was submitted with, as a compressed archive, once per content."""

from __future__ import annotations

import dataclasses
import hashlib

import sqlalchemy as sa

from determined import errors
from determined.store import rows
from determined.store.schema import code_snapshots


@dataclasses.dataclass(frozen=True)
class CodeSnapshot:
    """One archive, without its content."""

    id: int
    sha256: str
    size: int


def add(conn: sa.Connection, content: bytes) -> CodeSnapshot:
    """Store an archive, unless the same one is there, and return it."""
    sha256 = hashlib.sha256(content).hexdigest()
    known = conn.execute(_columns().where(code_snapshots.c.sha256 == sha256)).mappings().one_or_none()
    if known is not None:
        return CodeSnapshot(**known)
    ident = rows.insert(conn, code_snapshots, {"sha256": sha256, "size": len(content), "content": content})
    return CodeSnapshot(ident, sha256, len(content))


def get(conn: sa.Connection, snapshot_id: int) -> CodeSnapshot:
    """Return one snapshot."""
    row = conn.execute(_columns().where(code_snapshots.c.id == snapshot_id)).mappings().one_or_none()
    return CodeSnapshot(**rows.required(row, "code snapshot", snapshot_id, "det experiment ls"))


def content(conn: sa.Connection, snapshot_id: int) -> bytes:
    """Return the archive of a snapshot, verified."""
    snapshot = get(conn, snapshot_id)
    found = bytes(conn.scalar(sa.select(code_snapshots.c.content).where(code_snapshots.c.id == snapshot_id)) or b"")
    if hashlib.sha256(found).hexdigest() != snapshot.sha256:
        raise errors.StoreError(f"Code snapshot {snapshot_id} is damaged: its content does not have its checksum.")
    return found


def _columns() -> sa.Select[tuple[int, str, int]]:
    return sa.select(code_snapshots.c.id, code_snapshots.c.sha256, code_snapshots.c.size)
