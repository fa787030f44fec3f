"""Checkpoints in a directory: staged on the same file system, then renamed into place. The rename is the commit.

<root>/<storage id>/...                   the user's files and metadata.json, nothing else
<root>/.artifacts/manifests/<id>.json     sizes and checksums; without its checkpoint a harmless leftover
<root>/.artifacts/staging/<id>/tree/      the checkpoint being built, by all of its writers
<root>/.artifacts/staging/<id>/work-*/    workspaces of one writer
<root>/.artifacts/staging/<id>/           the checkpoint itself, if there is only one writer
<root>/.artifacts/trash/                  on the way out
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import os
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

from determined.artifacts import documents, tree
from determined.artifacts.directory_draft import DirectoryDraft
from determined.artifacts.manifest import (
    FileEntry,
    Manifest,
    Selector,
    check_storage_id,
    is_old_checkpoint,
    surviving,
)
from determined.artifacts.storage import ABANDONED_AFTER, RECORDS, Draft, Storage
from determined.errors import CheckpointDamaged

if sys.platform != "win32":
    import fcntl


class DirectoryStorage(Storage):
    """Checkpoints in a directory of this machine, or one that machines share.

    Args:
        root: The directory. It is made when the first checkpoint is written.
        clock: Seconds since the epoch, for telling the age of leftovers.
    """

    is_direct = True

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self.root = root
        self.url = str(root)
        self.records = root / RECORDS
        self._clock = clock
        self._made: set[Path] = set()
        self.shared: dict[tuple[str, int], tuple[Path, os.stat_result]] = {}
        """Files of published checkpoints that later ones may link, by checksum and mode."""

    def manifest_path(self, storage_id: str) -> Path:
        return self.records / "manifests" / f"{storage_id}.json"

    def make_record_directory(self, name: str) -> Path:
        """Make a place for our records. Whoever may write checkpoints into the root may write there too."""
        place = self.records / name
        if place in self._made and place.exists():
            return place
        for path in (self.records, place):
            if not path.exists():
                path.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(PermissionError):  # another user was quicker, and does the same
                    path.chmod(stat.S_IMODE(self.root.stat().st_mode))
        tree.sync_directories([self.records, self.root])
        self._made.add(place)
        return place

    def draft(self, storage_id: str, *, is_sole: bool = False) -> Draft:
        check_storage_id(storage_id)
        self._sweep_once()
        self._refuse_existing(storage_id)
        return DirectoryDraft(self, storage_id, is_sole=is_sole)

    def _refuse_existing(self, storage_id: str) -> None:
        if os.path.lexists(self.root / storage_id):
            super()._refuse_existing(storage_id)
            raise FileExistsError(f"{self.root / storage_id} exists and is no checkpoint. Use another storage id.")

    def exists(self, storage_id: str) -> bool:
        home = self.root / check_storage_id(storage_id)
        if not home.is_dir():
            return False
        return self.manifest_path(storage_id).exists() or is_old_checkpoint(storage_id, _names(home))

    def list(self) -> builtins.list[str]:
        recorded: set[str] = set()
        with contextlib.suppress(PermissionError):  # then each is looked at by its name
            recorded.update(_names(self.records / "manifests"))
        names = [name for name in _names(self.root) if not name.startswith(".")]
        return [name for name in names if self._holds(name, is_recorded=f"{name}.json" in recorded)]

    def _holds(self, name: str, *, is_recorded: bool) -> bool:
        try:
            return (self.root / name).is_dir() if is_recorded else self.exists(name)
        except (ValueError, PermissionError):  # a name that no checkpoint can have, or somebody else's folder
            return False

    def manifest(self, storage_id: str) -> Manifest:
        if not self.exists(storage_id):
            raise self._not_found(storage_id)
        try:
            data = tree.read_plain(self.manifest_path(storage_id), documents.LARGEST_MANIFEST)
        except FileNotFoundError:
            return self._listed(storage_id)
        except ValueError as e:
            raise CheckpointDamaged(f"The manifest of checkpoint {storage_id} cannot be read: {e}.") from e
        return Manifest.from_bytes(storage_id, data)

    def _listed(self, storage_id: str) -> Manifest:
        """Return the manifest of a checkpoint that has none."""
        try:
            sizes = tree.list_stored(self.root / storage_id)
        except FileNotFoundError as e:  # deleted while we looked
            raise self._not_found(storage_id) from e
        return Manifest(storage_id, {path: FileEntry(size, "") for path, size in sizes.items()}, verified=False)

    def directory(self, storage_id: str, *, verify: bool = True, manifest: Manifest | None = None) -> Path:
        manifest = manifest or self.manifest(storage_id)
        if verify and (problems := manifest.problems(self._measurer(storage_id))):
            if not self.exists(storage_id):  # deleted since the manifest was read
                raise self._not_found(storage_id)
            raise CheckpointDamaged(
                f"Checkpoint {manifest.storage_id} in {self.url} is damaged: {' '.join(problems[:3])} "
                "Restore it from a backup, or use another checkpoint."
            )
        return self.root / storage_id

    def delete(self, storage_id: str, globs: Sequence[str] | None = None) -> dict[str, int]:
        if not self.exists(storage_id):
            return {}
        home = self.root / storage_id
        if globs is not None:
            found = tree.list_plain(home)
            if kept := surviving(found, globs):
                self._keep_only(storage_id, found, kept)
                return {path: found[path] for path in kept}
        self._trash(home)
        tree.sync_directories([self.root])
        self.manifest_path(storage_id).unlink(missing_ok=True)
        self._empty_trash()
        return {}

    def _keep_only(self, storage_id: str, found: Iterable[str], kept: Sequence[str]) -> None:
        """Remove files. The manifest forgets them first: a crash in between leaves files that nobody misses."""
        manifest, keep = self.manifest(storage_id), set(kept)
        if manifest.verified:
            files = {path: entry for path, entry in manifest.files.items() if path in keep}
            tree.write_durably(self.manifest_path(storage_id), Manifest(storage_id, files).to_bytes())
        home = self.root / storage_id
        for path in sorted(set(found) - keep, reverse=True):  # what a directory holds goes before it
            place = home / path
            with contextlib.suppress(FileNotFoundError):
                place.rmdir() if path.endswith("/") else place.unlink()

    def _trash(self, path: Path) -> None:
        """Take `path` out of sight in one step; a link is moved, not followed."""
        trash = self.make_record_directory("trash")
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            path.rename(trash / secrets.token_hex(8))

    def _empty_trash(self) -> builtins.list[str]:
        """Remove everything in the trash, whoever put it there: nobody wants it back."""
        found = _names(self.records / "trash")
        for name in found:
            tree.remove(self.records / "trash" / name)
        return [f"trash/{name}" for name in found]

    @contextlib.contextmanager
    def reading(self, storage_id: str) -> Iterator[Callable[[], None]]:
        with _locked(self._lockable(storage_id), alone=False):
            yield lambda: None

    def delete_unread(self, storage_id: str) -> bool:
        with _locked(self._lockable(storage_id), alone=True) as is_free:
            if is_free:
                self.delete(storage_id)
            return is_free

    def _lockable(self, storage_id: str) -> Sequence[Path]:
        return self.manifest_path(check_storage_id(storage_id)), self.root / storage_id

    def sweep(self, older_than: timedelta = ABANDONED_AFTER) -> builtins.list[str]:
        removed = []
        for name in _names(self.records / "staging"):
            staging = self.records / "staging" / name
            if self._is_older(staging, older_than):
                self._trash(staging)
                removed.append(f"staging/{name}")
        for name in _names(self.records / "manifests"):
            path = self.records / "manifests" / name
            if self._is_older(path, older_than) and self._is_orphan(path):
                path.unlink(missing_ok=True)
                removed.append(f"manifests/{name}")
        return removed + self._empty_trash()

    def _is_older(self, path: Path, age: timedelta) -> bool:
        return self._clock() - _last_change(path) >= age.total_seconds()

    def _is_orphan(self, manifest: Path) -> bool:
        # In this order: a publisher's staging goes away only after its checkpoint is in place.
        if manifest.suffix == ".tmp":
            return True
        return not (self.records / "staging" / manifest.stem).exists() and not (self.root / manifest.stem).exists()

    def keep(self, source: Path, path: str) -> None:
        place = tree.inside(self.root, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".keep-{secrets.token_hex(8)}")
        try:
            tree.copy_file(source, temporary)
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)

    def _copy_out(self, storage_id: str, path: str, target: Path) -> FileEntry:
        return tree.copy_file(tree.stored_file(self.root / storage_id, path), target)

    def _read(self, storage_id: str, path: str) -> bytes:
        return tree.read_plain(tree.stored_file(self.root / storage_id, path).resolve(), documents.LARGEST)

    def _measurer(self, storage_id: str) -> Callable[[str, FileEntry], FileEntry]:
        return functools.partial(tree.measure_saved, self.root / storage_id)


def verify_in_place(path: Path, selector: Selector | None = None) -> bool:
    """Refuse a checkpoint's directory that differs from its manifest: its storage's, or the one a download carries.

    Args:
        path: The directory.
        selector: Says which files to look at; all of them by default.

    Returns:
        Whether there is a manifest. Without one nobody knows how the files should be.

    Raises:
        CheckpointDamaged: Its files are not the ones that were saved.
    """
    home = path.resolve()
    if not home.is_dir():
        return False
    storage = DirectoryStorage(home.parent)
    if os.path.lexists(storage.manifest_path(home.name)):
        manifest, advice = storage.manifest(home.name), "Restore it from a backup, or use another checkpoint."
    elif (found := documents.carried_manifest(home)) is not None:
        manifest = found
        advice = (
            "Download it again, or use another one. If you changed it on purpose, store the directory anew with "
            "core_context.checkpoint.upload()."
        )
    else:
        return False

    if problems := manifest.problems(functools.partial(tree.measure_saved, home), selector):
        raise CheckpointDamaged(f"The checkpoint in {home} is damaged: {' '.join(problems[:3])} {advice}")
    return True


def _last_change(path: Path) -> float:
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


def _names(directory: Path) -> builtins.list[str]:
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208  names, not paths
    except (FileNotFoundError, NotADirectoryError):
        return []


# Who is reading a checkpoint now, so that clearing up leaves it alone: the kernel drops a lock with its process.


@contextlib.contextmanager
def _locked(places: Sequence[Path], *, alone: bool) -> Iterator[bool]:
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
