"""Detect a damaged database file, and set it aside.

Locks and disks that fail for a moment are no damage. A damaged file is renamed, never overwritten and never removed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from determined import errors
from determined.store.database import failures, forks, opening
from determined.store.database.location import FILE_NAME
from determined.store.messages import now

_BESIDE = ("-wal", "-shm")
_BUSY_SECONDS = 1.0


def find(path: Path, store_id: str, *, thoroughly: bool = True) -> str:
    """Return what is wrong with the file, in a few words; "" if nothing is, or if it cannot be told now.

    It is looked at through a connection of its own: one that is in use goes on with what it remembers of the file.

    Args:
        path: The file.
        store_id: The store that it has to hold; "" if any.
        thoroughly: Read all of it, rather than its beginning only.
    """
    if (found := state(path)) and found[0] == 0:
        return "it is empty"  # not to be opened: SQLite would remove the log beside it
    arguments = {"timeout": _BUSY_SECONDS}
    engine = sa.create_engine(opening.sqlite_url(path, read_only=True), connect_args=arguments, poolclass=sa.NullPool)
    forks.OpenConnections(engine, path)  # lives as long as the engine
    try:
        with engine.connect() as conn:
            said = conn.exec_driver_sql("PRAGMA quick_check(1)").scalar() if thoroughly else "ok"
            if said != "ok":
                return str(said).splitlines()[-1]
            if store_id and _id_in(conn) != store_id:
                return "it holds another database now"
    except sa.exc.DBAPIError as failed:
        return str(failed.orig) if isinstance(failures.explain("", failed), errors.StoreDamaged) else ""
    return ""


def _id_in(conn: sa.Connection) -> str | None:
    if not sa.inspect(conn).has_table("store_facts"):
        return None
    found: str | None = conn.exec_driver_sql("SELECT value FROM store_facts WHERE name = 'store_id'").scalar()
    return found


def set_aside(path: Path, store_id: str = "") -> tuple[Path, str] | None:
    """Rename a damaged file and what SQLite keeps beside it. Returns the new name and the reason.

    Several processes may try: the file is looked at again by each when it is its turn, so that none takes away the new
    store of another. None: there is nothing wrong with the file that has the name now.

    Args:
        path: The file.
        store_id: The store that this same file held before; "" if that is not known. Then only a file with the usual
            name is ours to rename.

    Raises:
        OSError: It cannot be renamed.
    """
    if not store_id and path.name != FILE_NAME:
        return None
    with _alone(path.parent):
        if not path.exists() or not (reason := find(path, store_id)):
            return None
        aside = path.with_name(f"{path.name}.damaged-{now():%Y%m%d-%H%M%S-%f}")
        path.rename(aside)
        _rename_beside(path, aside)
        return aside, reason


def leave_old_log(path: Path, log: tuple[int, int] | None) -> None:
    """Remove the log of the old file, or SQLite would apply it to the new file of that name."""
    beside = path.with_name(path.name + "-wal")
    if log is not None and identity(beside) == log:
        with contextlib.suppress(OSError):
            _rename_beside(path, path.with_name(f"{path.name}.replaced-{now():%Y%m%d-%H%M%S-%f}"))


def _rename_beside(path: Path, to: Path) -> None:
    for end in _BESIDE:
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + end).rename(to.with_name(to.name + end))


def identity(path: Path | None) -> tuple[int, int] | None:
    """Return which file it is, whatever its name; None if there is none."""
    found = _status(path)
    return (found.st_dev, found.st_ino) if found else None


def state(path: Path | None) -> tuple[int, int] | None:
    """Return a file's size and time of last change; None if there is no file."""
    found = _status(path)
    return (found.st_size, found.st_mtime_ns) if found else None


def _status(path: Path | None) -> os.stat_result | None:
    try:
        return path.stat() if path else None
    except OSError:
        return None


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Let one process at a time in. The lock is on the directory, so no lock file is left behind."""
    if os.name == "nt":  # where a file that is in use cannot be renamed anyway
        yield
        return
    import fcntl

    held = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
