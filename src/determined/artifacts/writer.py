"""Files that are measured while they are written, so that nobody reads them back; and many made durable at once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from determined.artifacts import tree
from determined.artifacts.manifest import FileEntry

T = TypeVar("T")

LARGE = 1 << 20
PIECE = 16 << 20
AT_A_TIME = 8
"""How many files are brought to the disk at once, if there are many."""
FEW = 3
"""The same if there are not."""


class MeasuredFile:
    """A new file, for `torch.save` and the like; `entry` is its size and checksum after the block.

    A large piece is hashed beside its being written, and the disk begins with it at once. An error of the disk is
    raised when the block ends: torch calls `write()` from C++, where it would become another one.
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        self._digest = hashlib.sha256()
        self._size = 0
        self._waiting = bytearray()
        self._hasher: threading.Thread | None = None
        self._to_hash: queue.SimpleQueue[memoryview | None] = queue.SimpleQueue()
        self._hashed: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._failed: OSError | None = None

    @property
    def entry(self) -> FileEntry:
        return FileEntry(self._size, self._digest.hexdigest())

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if len(view) < LARGE:
            self._waiting += view
        if len(self._waiting) >= LARGE or len(view) >= LARGE:
            self.flush()
        if len(view) >= LARGE:
            self._write_large(view)
        return len(view)

    def flush(self) -> None:
        self._digest.update(self._waiting)
        self._write_out(self._waiting)
        self._waiting = bytearray()

    def _write_large(self, view: memoryview) -> None:
        if self._hasher is None:
            self._hasher = threading.Thread(target=self._hash, name="checkpoint-hasher")
            self._hasher.start()
        self._to_hash.put(view)
        for start in range(0, len(view), PIECE):
            self._write_out(view[start : start + PIECE])
            begin_to_store(self._handle)
        self._hashed.get()  # the memory is ours only until we return

    def _hash(self) -> None:
        while (view := self._to_hash.get()) is not None:
            self._digest.update(view)
            self._hashed.put(None)

    def _write_out(self, data: bytearray | memoryview) -> None:
        self._size += len(data)
        if self._failed is not None:
            return
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._handle, rest) :]
        except OSError as failed:
            self._failed = failed

    def __enter__(self) -> MeasuredFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            os.close(self._handle)
            if self._hasher is not None:
                self._to_hash.put(None)
                self._hasher.join()
        if self._failed is not None:
            raise self._failed


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Say which file could not be written, and how much room there is."""
    try:
        yield
    except OSError as failed:
        free = shutil.disk_usage(path.parent).free // 2**20
        why = failed.strerror or failed
        raise OSError(
            f"{path.name} could not be written to {path.parent}, which has {free} MiB left: {why}."
        ) from failed


def write_measured(path: Path, data: bytes) -> FileEntry:
    """Write a small file, and measure it."""
    with MeasuredFile(path) as file:
        file.write(data)
    return file.entry


def begin_to_store(handle: int) -> None:
    """Let the kernel begin to write a file to the disk, where it can be told so."""
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


def sync(files: Sequence[Path], directories: Sequence[Path] = ()) -> None:
    """Make the content of files, and the names in directories, durable.

    All files are on their way before the first is waited for, and they are waited for side by side: the disk is asked
    to empty its cache once for several. The calling thread does its share, because threads take time to start.
    """
    work = [*((path, False) for path in files), *((path, True) for path in directories)]
    lanes = FEW if len(work) < AT_A_TIME * 2 else AT_A_TIME
    shares = [share for share in (work[lane::lanes] for lane in range(lanes)) if share]
    side_by_side(_sync_share, shares)


def side_by_side(work: Callable[[T], None], shares: Sequence[T]) -> None:
    """Do all of it at once, and raise what went wrong first.

    With bare threads, because an executor refuses to work once the program has come to its end, and a checkpoint that
    is written in the background then is still to be whole.
    """
    failed: list[BaseException] = []

    def run(share: T) -> None:
        try:
            work(share)
        except BaseException as problem:  # noqa: BLE001  raised below
            failed.append(problem)

    others = [threading.Thread(target=run, args=(share,), name="checkpoint-sync") for share in shares[1:]]
    for other in others:
        other.start()
    for share in shares[:1]:
        run(share)
    for other in others:
        other.join()
    if failed:
        raise failed[0]


def _sync_share(share: Sequence[tuple[Path, bool]]) -> None:
    with contextlib.ExitStack() as stack:
        handles = []
        for path, is_directory in share:
            handle = os.open(path, os.O_RDONLY)
            stack.callback(os.close, handle)
            handles.append((handle, is_directory))
            if not is_directory:
                begin_to_store(handle)
        for handle, is_directory in handles:
            tree.sync_directory(handle) if is_directory else os.fsync(handle)
