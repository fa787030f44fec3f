"""Checkpoints in a directory: staged on the same file system, then renamed into place. The rename is the commit.

<root>/<storage id>/...                   the user's files and metadata.json, nothing else
<root>/.artifacts/manifests/<id>.json     sizes and checksums; without its checkpoint a harmless leftover
<root>/.artifacts/staging/<id>/tree/      the checkpoint being built, by all of its writers
<root>/.artifacts/staging/<id>/work-*/    workspaces of one writer
<root>/.artifacts/trash/                  on the way out
"""

from __future__ import annotations

import builtins
import concurrent.futures
import contextlib
import functools
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from determined.artifacts import carried, documents, lease, tree
from determined.artifacts.manifest import DIRECTORY, FileEntry, Manifest
from determined.artifacts.paths import (
    Selector,
    check_path,
    check_storage_id,
    is_old_checkpoint,
    parents,
    surviving,
    with_parents,
)
from determined.artifacts.storage import ABANDONED_AFTER, RECORDS, Draft, SharedFile, Storage
from determined.errors import CheckpointDamaged

AT_A_TIME = 8
"""How many files are brought to the disk at once, if there are many."""


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
        self._shared: dict[tuple[str, int], tuple[Path, os.stat_result]] = {}  # by checksum and mode

    def manifest_path(self, storage_id: str) -> Path:
        return self.records / "manifests" / f"{storage_id}.json"

    def make_record_directory(self, name: str) -> Path:
        """Make a place for our records. Whoever may write checkpoints into the root may write there too."""
        for path in (self.records, self.records / name):
            if not path.exists():
                path.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(PermissionError):  # another user was quicker, and does the same
                    path.chmod(stat.S_IMODE(self.root.stat().st_mode))
        return self.records / name

    def draft(self, storage_id: str) -> Draft:
        self._refuse_existing(check_storage_id(storage_id))
        self._sweep_once()
        return DirectoryDraft(self, storage_id)

    def remember_shared(self, file: SharedFile, place: Path) -> None:
        """Later checkpoints may link this file, which is part of a published one."""
        with contextlib.suppress(FileNotFoundError):  # deleted just now
            self._shared[file.entry.sha256, file.mode] = place, place.lstat()

    def link_shared(self, file: SharedFile, target: Path) -> bool:
        """Give a file that is stored already a second name, and say whether that was possible."""
        try:
            place, before = self._shared[file.entry.sha256, file.mode]
            now = place.lstat()
            if (now.st_dev, now.st_ino, now.st_mtime_ns) != (before.st_dev, before.st_ino, before.st_mtime_ns):
                return False  # somebody has changed it
            os.link(place, target)
        except (KeyError, OSError):  # deleted meanwhile, linked too often, or a file system without links
            return False
        return True

    def _refuse_existing(self, storage_id: str) -> None:
        super()._refuse_existing(storage_id)
        if os.path.lexists(self.root / storage_id):
            raise FileExistsError(f"{self.root / storage_id} exists and is no checkpoint. Use another storage id.")

    def exists(self, storage_id: str) -> bool:
        home = self.root / check_storage_id(storage_id)
        if not home.is_dir():
            return False
        return self.manifest_path(storage_id).exists() or is_old_checkpoint(storage_id, _names(home))

    def list(self) -> builtins.list[str]:
        return [name for name in _names(self.root) if not name.startswith(".") and self._holds(name)]

    def _holds(self, name: str) -> bool:
        try:
            return self.exists(name)
        except (ValueError, PermissionError):  # a name that no checkpoint can have, or somebody else's folder
            return False

    def manifest(self, storage_id: str) -> Manifest:
        if not self.exists(storage_id):
            raise self._not_found(storage_id)
        try:
            data = tree.read_plain(self.manifest_path(storage_id), carried.LARGEST)
        except FileNotFoundError:
            return self._listed(storage_id)
        except ValueError as e:
            raise CheckpointDamaged(f"The manifest of checkpoint {storage_id} cannot be read: {e}.") from e
        return Manifest.from_bytes(storage_id, data)

    def _listed(self, storage_id: str) -> Manifest:
        """The manifest of a checkpoint that has none."""
        try:
            sizes = tree.list_stored(self.root / storage_id)
        except FileNotFoundError as e:  # deleted while we looked
            raise self._not_found(storage_id) from e
        return Manifest(storage_id, {path: FileEntry(size, "") for path, size in sizes.items()}, verified=False)

    def directory(self, storage_id: str, *, verify: bool = True) -> Path:
        manifest = self.manifest(storage_id)
        if verify and (problems := self._problems(manifest)):
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
        with lease.locked(self._lockable(storage_id), alone=False):
            yield lambda: None

    def delete_unread(self, storage_id: str) -> bool:
        with lease.locked(self._lockable(storage_id), alone=True) as is_free:
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
        return self._clock() - tree.last_change(path) >= age.total_seconds()

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
            tree.copy_file(source, temporary, sync=False)
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)

    def _copy_out(self, storage_id: str, path: str, target: Path) -> FileEntry:
        return tree.copy_file(self._file(storage_id, path), target, sync=False)

    def _read(self, storage_id: str, path: str) -> bytes:
        return tree.read_plain(self._file(storage_id, path).resolve(), documents.LARGEST)

    def _measure(self, storage_id: str, path: str) -> FileEntry:
        return tree.measure_plain(self.root / storage_id / path)

    def _missing_directory(self, storage_id: str, path: str) -> bool:
        return not tree.is_plain_directory(self.root / storage_id / path)

    def _file(self, storage_id: str, path: str) -> Path:
        place = tree.inside(self.root / storage_id, path)
        tree.check_regular(place)
        return place


class DirectoryDraft(Draft):
    """A checkpoint being built in the staging area of a `DirectoryStorage`."""

    def __init__(self, storage: DirectoryStorage, storage_id: str) -> None:
        self.storage_id = storage_id
        self._storage = storage
        self._staging = storage.records / "staging" / storage_id
        self._tree = self._staging / "tree"
        self._work = self._staging / f"work-{secrets.token_hex(8)}"
        self._lock = self._staging / "publishing"
        self._final = storage.root / storage_id
        self._staged: set[str] = set()
        self._shared: dict[str, SharedFile] = {}
        self._holds_lock = False

    def workspace(self) -> Path:
        self._storage.make_record_directory("staging")
        path = self._work / f"space-{secrets.token_hex(4)}"
        path.mkdir(parents=True)
        return path

    def put(self, source: Path, paths: Iterable[str], *, move: bool = False) -> dict[str, FileEntry]:
        wanted = with_parents(check_path(path) for path in paths)
        with self._undone_when_full():
            self._make_tree()
            # What can be moved goes last: links among the rest may lead to it.
            movable = {path for path in wanted if move and _is_all_ours(Path(source), path)}
            directories = [path for path in wanted if path.endswith("/") and path not in movable]
            entries = {path: self._put_directory(Path(source), path) for path in directories}
            copied = [path for path in wanted if path not in movable and path not in entries]
            entries |= _each(functools.partial(self._copy, Path(source)), copied)
            return entries | _each(functools.partial(self._move, Path(source)), [p for p in wanted if p in movable])

    def _copy(self, source: Path, path: str) -> FileEntry:
        tree.check_regular(source / path)
        incoming = self._incoming()
        return self._place(incoming, path, tree.copy_file(source / path, incoming, sync=True))

    def _move(self, source: Path, path: str) -> FileEntry:
        return self._place(source / path, path, tree.measure(source / path, sync=True))

    def _put_directory(self, source: Path, path: str) -> FileEntry:
        if not (source / path).is_dir():
            raise NotADirectoryError(f"{source / path} is not a directory, but {path!r} names one.")
        (self._tree / path).mkdir(exist_ok=True)
        self._staged.add(path)
        return DIRECTORY

    def put_bytes(self, path: str, data: bytes) -> dict[str, FileEntry]:
        return self._put_small(path, tree.measure_bytes(data), lambda target: tree.write_durably(target, data))

    def _put_small(self, path: str, entry: FileEntry, write: Callable[[Path], None]) -> dict[str, FileEntry]:
        with self._undone_when_full():
            self._make_tree()
            for parent in parents(check_path(path)):
                (self._tree / parent).mkdir(exist_ok=True)
                self._staged.add(parent)
            incoming = self._incoming()
            write(incoming)
            return {**dict.fromkeys(parents(path), DIRECTORY), path: self._place(incoming, path, entry)}

    def put_shared(self, files: Mapping[str, SharedFile]) -> dict[str, FileEntry]:
        entries: dict[str, FileEntry] = {}
        for path, file in files.items():
            entries |= self._put_small(path, file.entry, functools.partial(self._write_shared, file))
        self._shared |= files
        return entries

    def _write_shared(self, file: SharedFile, target: Path) -> None:
        if not self._storage.link_shared(file, target):
            tree.write_durably(target, file.content, file.mode)

    def _make_tree(self) -> None:
        self._storage.make_record_directory("staging")
        self._tree.mkdir(parents=True, exist_ok=True)

    def _incoming(self) -> Path:
        """Where a file lies until it is complete."""
        self._work.mkdir(parents=True, exist_ok=True)
        return self._work / f"incoming-{secrets.token_hex(4)}"

    def _place(self, complete: Path, path: str, entry: FileEntry) -> FileEntry:
        target = self._tree / path
        if target.exists() and tree.measure(target) != entry:
            raise FileExistsError(
                f"Two writers of checkpoint {self.storage_id} put different content at {path}. Give their files "
                "different names."
            )
        complete.replace(target)
        self._staged.add(path)
        return entry

    def publish(self, entries: Mapping[str, FileEntry]) -> Manifest:
        manifest = Manifest(self.storage_id, dict(entries))
        with self._undone_when_full():
            self._take_lock()
            self._storage._refuse_existing(self.storage_id)
            self._make_exact(manifest)
            record = self._storage.manifest_path(self.storage_id)
            self._storage.make_record_directory("manifests")
            tree.sync_directories([record.parent.parent, self._storage.root])
            tree.write_durably(record, manifest.to_bytes())
            self._tree.rename(self._final)
            tree.sync_directories([self._storage.root])
        self._holds_lock = False
        self._staged.clear()
        for path, file in self._shared.items():
            self._storage.remember_shared(file, self._final / path)
        tree.remove(self._staging)
        return manifest

    def _take_lock(self) -> None:
        """Of several publishers of one id the first goes on: the others must not touch its manifest."""
        self._make_tree()
        try:
            self._lock.mkdir()
        except FileExistsError as e:
            raise FileExistsError(
                f"Checkpoint {self.storage_id} is being published by another writer. Exactly one of them may."
            ) from e
        self._holds_lock = True

    def _make_exact(self, manifest: Manifest) -> None:
        """Leave in the tree what the manifest says, all of it durable."""
        found = tree.list_plain(self._tree)
        for path, size in manifest.resources.items():
            if path.endswith("/"):
                (self._tree / path).mkdir(exist_ok=True)
            elif found.get(path) != size:
                raise CheckpointDamaged(
                    f"Checkpoint {self.storage_id} was not published: {path} should have {size} bytes in "
                    f"{self._tree}, and has {found.get(path, 'gone')}."
                )
        for path in sorted(set(found) - set(manifest.files), reverse=True):
            place = self._tree / path
            place.rmdir() if path.endswith("/") else place.unlink()
        tree.sync_directories([self._tree / path for path in manifest.files if path.endswith("/")])
        tree.sync_directories([self._tree])

    def discard(self) -> None:
        tree.remove(self._work)
        if self._holds_lock:
            if not self._final.exists():
                self._storage.manifest_path(self.storage_id).unlink(missing_ok=True)
            tree.remove(self._lock)
            self._holds_lock = False
        for path in sorted(self._staged, reverse=True):
            with contextlib.suppress(OSError):  # published, gone, or still used by another writer
                place = self._tree / path
                place.rmdir() if path.endswith("/") else place.unlink()
        self._staged.clear()
        for directory in (self._tree, self._staging):
            with contextlib.suppress(OSError):
                directory.rmdir()

    @contextlib.contextmanager
    def _undone_when_full(self) -> Iterator[None]:
        """Leave nothing behind when the disk is full, and say so."""
        try:
            yield
        except OSError as e:
            if e.errno not in tree.OUT_OF_SPACE:
                raise
            self.discard()
            message = (
                f"{os.strerror(e.errno)}, so checkpoint {self.storage_id} was not stored. Earlier checkpoints are "
                "untouched. Free some space, or choose another checkpoint_storage"
            )
            raise OSError(e.errno, message, str(self._storage.root)) from e


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
    elif (found := carried.read(home)) is not None:
        manifest = found
        advice = f"Download it again, or use another one. If you changed it on purpose, remove its {carried.CARRIED}."
    else:
        return False

    def measure(name: str) -> FileEntry:
        return tree.measure_plain(home / name, manifest.files[name].size)

    def lacks(name: str) -> bool:
        return not tree.is_plain_directory(home / name)

    if problems := manifest.problems(measure, lacks, selector):
        raise CheckpointDamaged(f"The checkpoint in {home} is damaged: {' '.join(problems[:3])} {advice}")
    return True


def _each(work: Callable[[str], FileEntry], paths: Sequence[str]) -> dict[str, FileEntry]:
    """The entry of every path. Many at a time if there are many: waiting for the disk is most of what files take."""
    if len(paths) < AT_A_TIME * 2:
        return {path: work(path) for path in paths}
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        return dict(zip(paths, pool.map(work, paths), strict=True))


def _is_all_ours(source: Path, path: str) -> bool:
    """Whether a file can be taken as it is: no link on the way to it, and no second name through which it changes."""
    if path.endswith("/") or any((source / parent.rstrip("/")).is_symlink() for parent in parents(path)):
        return False
    info = (source / path).lstat()
    return stat.S_ISREG(info.st_mode) and info.st_nlink == 1


def _names(directory: Path) -> builtins.list[str]:
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208  names, not paths
    except (FileNotFoundError, NotADirectoryError):
        return []
