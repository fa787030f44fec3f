"""The working directory of an attempt: a fresh copy of the experiment's code, and the directories it mounts.

$DET_HOME/code/<sha256>/                 each code snapshot, unpacked once
$DET_HOME/work/<name>/                   the working directory; removed when the attempt has ended
$DET_HOME/work/<name>.info/              what `get_cluster_info()` reads; locked while the agent lives, then removed
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import shutil
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from determined import errors
from determined.store.control import code
from determined.store.database.connection import Store
from determined.store.database.waiting import when_available

STORE_SECONDS = 300.0
"""How long an attempt waits for the store to have its code: that it is away for a while is no failure of the trial."""


def name_of(store_id: str, allocation_id: str) -> str:
    """Return what files of an attempt are called. Searches with the same seed have the same allocations in any store.

    Example::

        assert name_of("0f8fad5b-d9cb-469f", "1.47c2ec1a.1") == "0f8fad5b-1.47c2ec1a.1"
    """
    return f"{store_id[:8]}-{allocation_id}"


def of(home: str, name: str) -> Path:
    """Return the working directory of an attempt."""
    return Path(home) / "work" / name


def info_of(home: str, name: str) -> Path:
    """Return the directory of an attempt's info files."""
    return Path(home) / "work" / f"{name}.info"


def make_info(home: str, name: str) -> Path:
    """Make the directory of an attempt's info files, for this user alone, and lock it until this process has ended.

    What it forks holds the lock, too: a guard that outlives its agent still ends the processes that run there.
    """
    place = info_of(home, name)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        place.mkdir(mode=0o700, exist_ok=True)
        try:
            held = _lock(place)
        except (FileNotFoundError, BlockingIOError):  # `remove_abandoned` has just looked at it
            time.sleep(0.01)
            continue
        except OSError:  # a file system without locks
            return place
        if place.is_dir() and place.stat().st_ino == os.fstat(held).st_ino:
            return place
        os.close(held)  # it was removed before we had the lock


def fill(directory: Path, home: str, store: Store, snapshot_id: int | None) -> None:
    """Make a working directory with a copy of a code snapshot; nothing that was there before is in it."""
    _remove_tree(directory)
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if snapshot_id is None:
        directory.mkdir()
        return
    shutil.copytree(unpacked(home, store, snapshot_id), directory, symlinks=True)
    directory.chmod(0o700)


def remove(home: str, name: str) -> None:
    """Remove the directories of an attempt."""
    _remove_tree(of(home, name))
    _remove_tree(info_of(home, name))


def remove_abandoned(home: str) -> None:
    """Remove the directories of attempts whose agent and guard were killed on this machine, before they could do it."""
    for info in (Path(home) / "work").glob("*.info"):
        with contextlib.suppress(OSError):  # whoever made it is alive, or has just removed it
            held = _lock(info)
            try:
                remove(home, info.name.removesuffix(".info"))
            finally:
                os.close(held)


def _lock(directory: Path) -> int:
    """Lock a directory, and return the file that holds the lock; BlockingIOError if another process has it."""
    import fcntl

    opened = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        raise
    return opened


def mount(directory: Path, mounts: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Link the directories of `bind_mounts` into a working directory; yield a sentence for each that cannot be."""
    for entry in mounts:
        source, name = Path(entry["host_path"]), Path(os.path.normpath(entry["container_path"]))
        if name.is_absolute():
            if name != Path(os.path.normpath(source)):
                yield f"bind_mounts: {source} cannot appear as {name} without a container. Use a relative path."
            continue
        target = directory / name
        if ".." in name.parts or os.path.lexists(target):
            yield f"bind_mounts: {name} is in the code already, so {source} is not linked there. Choose another name."
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)


def unpacked(home: str, store: Store, snapshot_id: int) -> Path:
    """Return the directory of a code snapshot, unpacked now if it is the first time."""
    place, content = when_available(lambda: _find_snapshot(home, store, snapshot_id), STORE_SECONDS)
    if place.is_dir():
        return place
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        unpack(content, draft)
        draft.replace(place)
    except OSError:
        if not place.is_dir():  # else another agent was quicker
            raise
    finally:
        _remove_tree(draft)
    return place


def _find_snapshot(home: str, store: Store, snapshot_id: int) -> tuple[Path, bytes]:
    """Return where a snapshot is unpacked, and what it holds unless it is."""
    with store.read() as conn:
        place = Path(home) / "code" / code.get(conn, snapshot_id).sha256
        return place, b"" if place.is_dir() else code.content(conn, snapshot_id)


def unpack(content: bytes, target: Path) -> None:
    """Unpack an archive of plain files, directories and links that stay inside."""
    target.mkdir(mode=0o700)
    links: list[tuple[Path, str]] = []
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts:
                raise errors.StoreError(f"The code snapshot holds the path {member.name!r}, which leads out of it.")
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if member.isdir():
                path.mkdir(exist_ok=True)
            elif member.isfile():
                _write(path, archive.extractfile(member), 0o755 if member.mode & 0o100 else 0o644)
            elif member.issym():
                links.append((path, member.linkname))
            else:
                raise errors.StoreError(
                    f"The code snapshot holds {member.name!r}, which is no plain file or directory."
                )
    for path, link in links:  # last, so that no file is written through one
        path.symlink_to(link)
    for path, link in links:
        if not path.resolve().is_relative_to(target.resolve()):
            raise errors.StoreError(
                f"The code snapshot holds the link {path.name!r} to {link!r}, which leads out of it."
            )


def _write(path: Path, source: Any, mode: int) -> None:
    # Not through a link, and on the disk before the directory has its name: a crash must not leave an empty file.
    with path.open("xb") as target:
        shutil.copyfileobj(source, target)
        target.flush()
        os.fsync(target.fileno())
    path.chmod(mode)


def _remove_tree(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if path.is_dir():  # a directory in it that may not be written to
        for directory, _, _ in os.walk(path):
            with contextlib.suppress(OSError):
                Path(directory).chmod(0o700)
        shutil.rmtree(path, ignore_errors=True)
