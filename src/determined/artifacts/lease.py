"""Who is reading a checkpoint now, so that clearing up leaves it alone. A reader that crashes holds nothing for long.

In a directory a reader has a shared lock (`flock`) on the checkpoint's manifest, or on its directory where there is no
manifest; the kernel drops it with the process. In a bucket a reader leaves a note that counts for an hour and is
renewed file by file. Where neither can be had (no locks on that file system, no right to write), nothing is promised.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from determined.errors import DeterminedError

if sys.platform != "win32":
    import fcntl

NOTE_SECONDS = 3600.0
RENEW_SECONDS = 300.0


@contextlib.contextmanager
def locked(places: Sequence[Path], *, alone: bool) -> Iterator[bool]:
    """Hold the first of `places` that is there, together with other readers or alone.

    Yields:
        False if `alone` and somebody holds it; then nothing is held. A reader waits instead: nobody holds it alone for
        longer than it takes to rename a directory.
    """
    opened = _open_locked(places, alone)
    if opened is None:
        yield False
        return
    try:
        yield True
    finally:
        if opened >= 0:
            os.close(opened)  # and the lock with it


def _open_locked(places: Sequence[Path], alone: bool) -> int | None:
    """A descriptor that holds the lock, -1 if there is nothing that could be locked, None if others hold it."""
    while sys.platform != "win32" and (place := next((p for p in places if p.exists()), None)):
        try:
            opened = os.open(place, os.O_RDWR if alone and place.is_file() else os.O_RDONLY)
        except OSError:  # gone just now, or not for us
            return -1
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
            if _is_still(opened, place):
                return opened
            os.close(opened)  # replaced while we waited: its successor has a lock of its own
        except BlockingIOError:
            os.close(opened)
            return None
        except OSError:  # a file system without locks
            os.close(opened)
            return -1
    return -1


def _is_still(opened: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(opened), place.stat())
    except FileNotFoundError:
        return False


class Notes(Protocol):
    """The part of a bucket's driver that notes need."""

    def put_bytes(self, key: str, data: bytes) -> None: ...

    def remove(self, keys: Sequence[str]) -> None: ...


class Note:
    """A reader's note in a bucket, renewed while it reads on. Failing to leave one is no reason not to read."""

    def __init__(self, notes: Notes, prefix: str) -> None:
        self._notes = notes
        self._key = f"{prefix}{secrets.token_hex(8)}.json"
        self._left_at: float | None = None

    def renew(self) -> None:
        """Leave the note, or leave it anew if it has become old."""
        if self._left_at is None or time.monotonic() - self._left_at > RENEW_SECONDS:
            with contextlib.suppress(OSError, DeterminedError):
                self._notes.put_bytes(self._key, b"{}")
            self._left_at = time.monotonic()

    def remove(self) -> None:
        with contextlib.suppress(OSError, DeterminedError):
            self._notes.remove([self._key])
