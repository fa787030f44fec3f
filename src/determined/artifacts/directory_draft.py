"""A checkpoint that is being written into a `DirectoryStorage`: staged beside the others, then renamed into place."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from determined.artifacts import tree
from determined.artifacts.manifest import (
    DIRECTORY,
    FileEntry,
    Manifest,
    with_parents,
)
from determined.artifacts.storage import Draft
from determined.artifacts.tree import SharedFile
from determined.errors import CheckpointDamaged

if TYPE_CHECKING:
    from determined.artifacts.directory import DirectoryStorage


class DirectoryDraft(Draft):
    """A checkpoint being built in the staging area of a `DirectoryStorage`.

    Of a sole writer, the workspace is the tree itself, and everything becomes durable together, when it is published.
    """

    def __init__(self, storage: DirectoryStorage, storage_id: str, *, is_sole: bool) -> None:
        self.storage_id = storage_id
        self._storage = storage
        self._is_sole = is_sole
        self._staging = storage.records / "staging" / storage_id
        self._tree = self._staging if is_sole else self._staging / "tree"
        self._work = (self._staging.parent if is_sole else self._staging) / f"work-{secrets.token_hex(8)}"
        self._lock = self._staging / "publishing"
        self._final = storage.root / storage_id
        self._staged: set[str] = set()
        self._unsynced: list[Path] = []
        self._shared: dict[str, SharedFile] = {}
        self._has_tree = False
        self._holds_lock = False

    def workspace(self) -> Path:
        if self._is_sole and not self._has_tree:
            self._make_tree()
            return self._tree
        self._storage.make_record_directory("staging")
        path = self._work / f"space-{secrets.token_hex(4)}"
        path.mkdir(parents=True)
        return path

    def put(
        self,
        source: Path,
        paths: Iterable[str],
        *,
        move: bool = False,
        known: Mapping[str, FileEntry] | None = None,
    ) -> dict[str, FileEntry]:
        source, known = Path(source), known or {}
        wanted = with_parents(paths)
        with self._undone_when_full():
            linked = tuple(path for path in wanted if path.endswith("/") and (source / path[:-1]).is_symlink())
            movable = {path for path in wanted if move and _is_all_ours(source / path, path, linked)}
            if source == self._tree:
                if all(path in movable or _is_directory(source, path) for path in wanted):
                    return self._keep(wanted, known)
                self._tree, self._has_tree = self._work / "tree", False  # links among them may lead to the rest
            self._make_tree()
            # What can be moved goes last: links among the rest may lead to it.
            directories = [path for path in wanted if path.endswith("/") and path not in movable]
            entries = {path: self._put_directory(source, path) for path in directories}
            copied = [path for path in wanted if path not in movable and path not in entries]
            entries |= _each(functools.partial(self._copy, source), copied)
            entries |= _each(functools.partial(self._move, source, known), [p for p in wanted if p in movable])
            self._sync_unless_sole()
            return entries

    def _keep(self, wanted: Sequence[str], known: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
        """Take what was written into the tree itself, and nothing else that lies there."""
        self._remove_others(tree.list_plain(self._tree), wanted)
        files = [path for path in wanted if not path.endswith("/")]
        measured = _each(lambda path: tree.measure(self._tree / path), [path for path in files if path not in known])
        self._unsynced += [self._tree / path for path in files]
        self._staged |= set(wanted)
        return {path: measured.get(path) or known.get(path, DIRECTORY) for path in wanted}

    def _copy(self, source: Path, path: str) -> FileEntry:
        tree.check_regular(source / path)
        incoming = self._incoming()
        self._unsynced.append(self._tree / path)
        return self._place(incoming, path, tree.copy_file(source / path, incoming))

    def _move(self, source: Path, known: Mapping[str, FileEntry], path: str) -> FileEntry:
        self._unsynced.append(self._tree / path)
        return self._place(source / path, path, known.get(path) or tree.measure(source / path))

    def _put_directory(self, source: Path, path: str) -> FileEntry:
        if not (source / path).is_dir():
            raise NotADirectoryError(f"{source / path} is not a directory, but {path!r} names one.")
        (self._tree / path).mkdir(exist_ok=True)
        self._staged.add(path)
        return DIRECTORY

    def put_bytes(self, path: str, data: bytes) -> dict[str, FileEntry]:
        return self._put_small({path: SharedFile(data, 0o666)})

    def put_shared(self, files: Mapping[str, SharedFile]) -> dict[str, FileEntry]:
        entries = self._put_small(files)
        self._shared |= files
        return entries

    def _put_small(self, files: Mapping[str, SharedFile]) -> dict[str, FileEntry]:
        with self._undone_when_full():
            self._make_tree()
            entries: dict[str, FileEntry] = {}
            for path in with_parents(files):
                if path.endswith("/"):
                    if path not in self._staged:
                        (self._tree / path).mkdir(exist_ok=True)
                        self._staged.add(path)
                    entries[path] = DIRECTORY
                    continue
                file = files[path]
                place = self._tree / path if self._is_sole and path not in self._staged else self._incoming()
                if not self._link_shared(file, place):
                    tree.write_file(place, file.content, file.mode)
                    self._unsynced.append(self._tree / path)
                if place != self._tree / path:
                    self._place(place, path, file.entry)
                self._staged.add(path)
                entries[path] = file.entry
            self._sync_unless_sole()
            return entries

    def _link_shared(self, file: SharedFile, target: Path) -> bool:
        """Give a file that is stored already a second name, and say whether that was possible."""
        try:
            place, before = self._storage.shared[file.entry.sha256, file.mode]
            now = place.lstat()
            if (now.st_dev, now.st_ino, now.st_mtime_ns) != (before.st_dev, before.st_ino, before.st_mtime_ns):
                return False  # somebody has changed it
            os.link(place, target)
        except (KeyError, OSError):  # deleted meanwhile, linked too often, or a file system without links
            return False
        return True

    def _make_tree(self) -> None:
        if not (self._is_sole and self._has_tree):  # of several writers, another one may have taken it away
            self._storage.make_record_directory("staging")
            self._tree.mkdir(parents=True, exist_ok=True)
            self._has_tree = True

    def _incoming(self) -> Path:
        """Return where a file lies until it is complete."""
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

    def _sync_unless_sole(self) -> None:
        if not self._is_sole:
            tree.sync(self._unsynced)
            self._unsynced.clear()

    def publish(self, entries: Mapping[str, FileEntry]) -> Manifest:
        manifest = Manifest(self.storage_id, dict(entries))
        with self._undone_when_full():
            self._take_lock()
            self._storage._refuse_existing(self.storage_id)
            self._make_exact(manifest)
            directories = [self._tree / path for path in manifest.files if path.endswith("/")]
            record = self._storage.manifest_path(self.storage_id)
            self._storage.make_record_directory("manifests")
            tree.write_file(record, manifest.to_bytes())  # without its checkpoint nobody reads it
            tree.sync([*self._unsynced, record], [*directories, self._tree, record.parent])
            self._tree.rename(self._final)
            tree.sync_directories([self._storage.root])
        self._holds_lock = False
        self._staged.clear()
        for path, file in self._shared.items():
            with contextlib.suppress(FileNotFoundError):  # deleted just now
                place = self._final / path
                self._storage.shared[file.entry.sha256, file.mode] = place, place.lstat()
        if not self._is_sole:
            tree.remove(self._staging)
        return manifest

    def _take_lock(self) -> None:
        """Of several publishers of one id the first goes on: the others must not touch its manifest."""
        self._make_tree()
        try:
            if not self._is_sole:
                self._lock.mkdir()
        except FileExistsError as e:
            raise FileExistsError(
                f"Checkpoint {self.storage_id} is being published by another writer. Exactly one of them may."
            ) from e
        self._holds_lock = True

    def _make_exact(self, manifest: Manifest) -> None:
        """Leave in the tree what the manifest says."""
        found = tree.list_plain(self._tree)
        for path, entry in manifest.files.items():
            if path.endswith("/"):
                if path not in found:
                    (self._tree / path).mkdir(exist_ok=True)
            elif found.get(path) != entry.size:
                raise CheckpointDamaged(
                    f"Checkpoint {self.storage_id} was not published: {path} should have {entry.size} bytes in "
                    f"{self._tree}, and has {found.get(path, 'gone')}."
                )
        self._remove_others(found, manifest.files)

    def _remove_others(self, found: Iterable[str], wanted: Iterable[str]) -> None:
        for path in sorted(set(found) - set(wanted), reverse=True):
            place = self._tree / path
            place.rmdir() if path.endswith("/") else place.unlink()

    def discard(self) -> None:
        if self._holds_lock and not self._final.exists():
            self._storage.manifest_path(self.storage_id).unlink(missing_ok=True)
        tree.remove(self._work)
        if self._is_sole:
            self._holds_lock = False
            tree.remove(self._staging)
            return
        if self._holds_lock:
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


def _each(work: Callable[[str], FileEntry], paths: Sequence[str]) -> dict[str, FileEntry]:
    """The entry of every path. Many at a time if there are many: waiting for the disk is most of what files take."""
    if len(paths) < tree.AT_A_TIME * 2:
        return {path: work(path) for path in paths}
    entries: dict[str, FileEntry] = {}
    tree.side_by_side(
        lambda share: entries.update((path, work(path)) for path in share),
        [paths[lane :: tree.AT_A_TIME] for lane in range(tree.AT_A_TIME)],
    )
    return entries


def _is_directory(source: Path, path: str) -> bool:
    return path.endswith("/") and stat.S_ISDIR((source / path[:-1]).lstat().st_mode)


def _is_all_ours(place: Path, path: str, linked: tuple[str, ...]) -> bool:
    """Whether a file can be taken as it is: no link on the way to it, and no second name through which it changes."""
    if path.endswith("/") or path.startswith(linked):
        return False
    info = place.lstat()
    return stat.S_ISREG(info.st_mode) and info.st_nlink == 1
