"""Trees of files on a disk: list, hash, copy, make durable, remove. Knows nothing of checkpoints."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from determined.artifacts.manifest import FileEntry
from determined.artifacts.paths import check_path, shown
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


def inside(root: Path, path: str) -> Path:
    """Return where `path` lies under `root`, if no symbolic link on the way leads out of `root`."""
    place = root / check_path(path)
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


def is_plain_directory(path: Path) -> bool:
    """Return whether it is a directory, and not a link to one."""
    return path.is_dir() and not path.is_symlink()


def measure(path: Path) -> FileEntry:
    """Return size and checksum of a file."""
    with path.open("rb") as file:
        return _hash(file.fileno(), None)


def measure_plain(path: Path, size: int | None = None) -> FileEntry:
    """Size and checksum of a regular file that is no link. One of another size than this, if given, is not read."""
    with open_plain(path) as file:
        found = os.fstat(file.fileno()).st_size
        return measure_stream(file) if size in (None, found) else FileEntry(found, "")


def measure_stream(file: BinaryIO) -> FileEntry:
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(CHUNK):
        digest.update(chunk)
        size += len(chunk)
    return FileEntry(size, digest.hexdigest())


def measure_bytes(data: bytes) -> FileEntry:
    return FileEntry(len(data), hashlib.sha256(data).hexdigest())


def copy_file(source: Path, target: Path) -> FileEntry:
    """Copy a file's bytes, times and mode to `target`, which must not exist, and measure what was copied."""
    with source.open("rb") as reader, target.open("xb") as writer:
        entry = _hash(reader.fileno(), writer.fileno())
        info = os.fstat(reader.fileno())
        os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))
        target.chmod(stat.S_IMODE(info.st_mode) | stat.S_IRUSR | stat.S_IWUSR)
    return entry


def _hash(reader: int, writer: int | None) -> FileEntry:
    digest, size = hashlib.sha256(), 0
    while chunk := os.read(reader, CHUNK):
        digest.update(chunk)
        size += len(chunk)
        rest = memoryview(chunk)
        while writer is not None and rest:
            rest = rest[os.write(writer, rest) :]
    return FileEntry(size, digest.hexdigest())


def write_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file, with the permissions that the umask leaves of `mode`."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), mode)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
    finally:
        os.close(handle)


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
    for directory in directories:
        handle = os.open(directory, os.O_RDONLY)
        try:
            sync_directory(handle)
        finally:
            os.close(handle)


def sync_directory(handle: int) -> None:
    """Make the names in an open directory durable."""
    try:
        os.fsync(handle)
    except OSError as e:
        if e.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot, and need not
            raise


def remove(path: Path) -> None:
    """Remove a file, a link (never what it points at) or a whole tree; what is gone or cannot be removed is left."""
    with contextlib.suppress(OSError, RecursionError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def last_change(path: Path) -> float:
    """When anything at or under `path` last changed. Copied files keep their old times, so the inode's counts too."""
    newest = 0.0
    waiting = [path]
    while waiting:
        place = waiting.pop()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # its owner may be at work on it
            info = place.lstat()
            newest = max(newest, info.st_mtime, info.st_ctime)
            if stat.S_ISDIR(info.st_mode):
                waiting.extend(place.iterdir())
    return newest
