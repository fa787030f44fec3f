"""Trees of files on a disk: list, hash, copy, write, make durable, remove. Knows nothing of checkpoints."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import queue
import secrets
import shutil
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypeVar

from determined.artifacts.manifest import FileEntry, check_path, shown
from determined.errors import UnsafePath

CHUNK = 1 << 20
OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT)


def list_tree(root: Path) -> dict[str, int]:
    """List what lies under `root`: relative path to bytes, directories as `name/` with 0, sorted.

    Symbolic links are followed; a link back to a directory that holds it is listed as an empty directory. Links to
    nothing and special files are listed with 0 bytes, so that a selector may reject them; storing them is an error.
    """
    return dict(sorted(_walk(Path(root), follow=True)))


def list_stored(root: Path) -> dict[str, int]:
    """Like `list_tree`, for a stored checkpoint: a link that leads out of it is refused."""
    home = root.resolve()
    found = {}
    for path, size in _walk(root, follow=True):
        if not (root / path).resolve().is_relative_to(home):
            raise UnsafePath(f"{shown(path)} in {root} is a symbolic link that leads out of the checkpoint.")
        found[check_path(path)] = size
    return dict(sorted(found.items()))


def list_plain(root: Path) -> dict[str, int]:
    """Like `list_tree`, but links are listed as the files they are: what a delete may touch."""
    return dict(sorted(_walk(root, follow=False)))


def _walk(root: Path, *, follow: bool) -> Iterator[tuple[str, int]]:
    top = root.stat()
    waiting = [(root, "", frozenset([(top.st_dev, top.st_ino)]))]
    while waiting:
        directory, prefix, above = waiting.pop()
        with os.scandir(directory) as entries:
            for entry in entries:
                info = _stat(entry, follow=follow)
                if not stat.S_ISDIR(info.st_mode):
                    yield prefix + entry.name, info.st_size if stat.S_ISREG(info.st_mode) else 0
                    continue
                yield prefix + entry.name + "/", 0
                if (key := (info.st_dev, info.st_ino)) not in above:
                    waiting.append((directory / entry.name, prefix + entry.name + "/", above | {key}))


def _stat(entry: os.DirEntry[str], *, follow: bool) -> os.stat_result:
    try:
        return entry.stat(follow_symlinks=follow)
    except OSError as e:
        if e.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        return entry.stat(follow_symlinks=False)  # a link to nothing, or to itself


def stored_file(root: Path, path: str) -> Path:
    """Return where the file `path` of a manifest lies under `root`, if no symbolic link leads out of `root`."""
    place = _within(root, path)
    check_regular(place)
    return place


def inside(root: Path, path: str) -> Path:
    """Return where `path` lies under `root`, if no symbolic link on the way leads out of `root`."""
    return _within(root, check_path(path))


def _within(root: Path, path: str) -> Path:
    place = root / path
    if not place.resolve().is_relative_to(root.resolve()):
        raise UnsafePath(f"{shown(path)} would lead out of {root} through a symbolic link.")
    return place


def check_regular(path: Path) -> None:
    """Raise unless `path` is, or links to, a file with content. Opening a pipe would wait for ever."""
    try:
        mode = path.stat().st_mode
    except OSError as e:
        if path.is_symlink() and e.errno in (errno.ENOENT, errno.ELOOP):
            raise FileNotFoundError(
                f"{path} is a symbolic link to {str(path.readlink())!r}, where there is nothing. "
                "Remove it, or leave it out with a selector."
            ) from e
        raise
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is not a regular file, and only those can be stored. Leave it out with a selector.")


def open_plain(path: Path) -> BinaryIO:
    """Open a regular file for reading. A link, a directory or a pipe is a ValueError, and nothing waits for a pipe."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    info = path.lstat()  # first: opening a device may do something
    if stat.S_ISREG(info.st_mode):
        file = os.fdopen(os.open(path, flags), "rb")
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
    kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe"}
    kind = kinds.get(stat.S_IFMT(info.st_mode), "a special file")
    advice = ". Copy the directory with cp -rL to have the file itself" if stat.S_ISLNK(info.st_mode) else ""
    raise ValueError(f"{path} is {kind}, and not a regular file{advice}")


def read_plain(path: Path, limit: int) -> bytes:
    """Return the content of a small regular file; a larger one is a ValueError, and not read."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ValueError(
                f"{path} is too large to be read: it has {size} bytes, and such a file has {limit} at most"
            )
        return file.read(limit)


def measure(path: Path) -> FileEntry:
    """Return size and checksum of a file."""
    with path.open("rb") as file:
        return measure_stream(file)


def measure_saved(home: Path, path: str, saved: FileEntry) -> FileEntry:
    """Return the entry of a saved path as it is now; a file of another size is not read. A link is a ValueError."""
    place = home / path
    if path.endswith("/"):
        if not place.is_dir() or place.is_symlink():
            raise FileNotFoundError(path)
        return saved
    with open_plain(place) as file:
        size = os.fstat(file.fileno()).st_size
        return measure_stream(file) if size == saved.size else FileEntry(size, "")


def measure_bytes(data: bytes) -> FileEntry:
    return FileEntry(len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True)
class SharedFile:
    """A small file that many checkpoints of a run hold. Where the storage can, its bytes are written only once."""

    content: bytes
    mode: int = 0o444

    @functools.cached_property
    def entry(self) -> FileEntry:
        return measure_bytes(self.content)


def measure_stream(file: BinaryIO, copy_to: BinaryIO | None = None) -> FileEntry:
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(CHUNK):
        digest.update(chunk)
        size += len(chunk)
        if copy_to is not None:
            copy_to.write(chunk)
    return FileEntry(size, digest.hexdigest())


def copy_file(source: Path, target: Path) -> FileEntry:
    """Copy a file's bytes, times and mode to `target`, which must not exist, and measure what was copied."""
    with source.open("rb") as reader, target.open("xb") as writer:
        entry = measure_stream(reader, writer)
        writer.flush()
        info = os.fstat(reader.fileno())
        os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))
        target.chmod(stat.S_IMODE(info.st_mode) | stat.S_IRUSR | stat.S_IWUSR)
    return entry


def write_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file, with the permissions that the umask leaves of `mode`."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), mode)
    try:
        _write_all(handle, data)
    finally:
        os.close(handle)


def _write_all(handle: int, data: bytes | bytearray | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def write_durably(path: Path, data: bytes) -> None:
    """Put `data` at `path` so that a crash leaves all of it or what was there before."""
    temporary = path.with_name(f"{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directories([path.parent])


def sync_directories(directories: Iterable[Path]) -> None:
    """Make the names in these directories durable."""
    _sync_share([(directory, True) for directory in directories])


def remove(path: Path) -> None:
    """Remove a file, a link (never what it points at) or a whole tree; what is gone or cannot be removed is left."""
    with contextlib.suppress(OSError, RecursionError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


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
            _write_all(self._handle, data)
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
            try:
                os.fsync(handle)
            except OSError as e:  # some network file systems cannot sync directories, and need not
                if not is_directory or e.errno not in (errno.EINVAL, errno.ENOTSUP):
                    raise
