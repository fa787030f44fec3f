"""The seam: what every place that keeps checkpoints can do, and the parts that are the same for all of them."""

from __future__ import annotations

import builtins
import functools
import logging
import secrets
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

from determined.artifacts import documents, tree
from determined.artifacts.manifest import FileEntry, Manifest, Selector, check_path
from determined.artifacts.tree import SharedFile
from determined.errors import CheckpointDamaged, CheckpointNotFound, DeterminedError, StorageConfigError

logger = logging.getLogger("determined.artifacts")

RECORDS = ".artifacts"
# Writing one checkpoint takes minutes, and a draft is as young as its youngest file. A day leaves room for clocks that
# disagree and for a laptop that slept through the night; longer would let a run that crashes every hour fill the disk.
ABANDONED_AFTER = timedelta(days=1)


class Draft(ABC):
    """A checkpoint being written. Several writers may open drafts of one id; exactly one of them publishes.

    Nobody sees any of it before `publish`, and everybody sees all of it afterwards.
    """

    storage_id: str

    @abstractmethod
    def workspace(self) -> Path:
        """Make a fresh directory for this writer alone. It goes away with `publish` or `discard`."""

    @abstractmethod
    def put(
        self,
        source: Path,
        paths: Iterable[str],
        *,
        move: bool = False,
        known: Mapping[str, FileEntry] | None = None,
    ) -> dict[str, FileEntry]:
        """Add these files and directories of `source`, and the directories above them.

        Args:
            source: The directory that `paths` are relative to.
            paths: What to add. A directory ends in `/` and is added without what it holds.
            move: The files may be taken away, because `source` is a workspace of this draft.
            known: Entries of files that were measured when they were written, and have not changed since.

        Returns:
            An entry per added path, to be handed to `publish` by the one writer that calls it.
        """

    @abstractmethod
    def put_bytes(self, path: str, data: bytes) -> dict[str, FileEntry]:
        """Add one small file."""

    @abstractmethod
    def put_shared(self, files: Mapping[str, SharedFile]) -> dict[str, FileEntry]:
        """Add files that earlier checkpoints hold too. None depends on another's being there."""

    @abstractmethod
    def publish(self, entries: Mapping[str, FileEntry]) -> Manifest:
        """Make the checkpoint exist, whole and durable, with exactly `entries`: what all writers' `put` returned."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what this draft staged, and its workspaces. After `publish`, by whichever writer, only the latter."""

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


class Storage(ABC):
    """A place that keeps checkpoints, each under its id. A finished checkpoint never changes, except by `delete`."""

    url: str
    """Where it is, for people."""
    is_direct: bool
    """Whether `directory` can give the stored directory itself."""

    def __init__(self) -> None:
        self._has_swept = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url})"

    @abstractmethod
    def draft(self, storage_id: str, *, is_sole: bool = False) -> Draft:
        """Begin to write a checkpoint. `FileExistsError` if there is one of that id.

        With `is_sole` no other draft of that id is opened; then nothing has to be durable before it is published.
        """

    @abstractmethod
    def exists(self, storage_id: str) -> bool:
        """Return whether there is a finished checkpoint of that id."""

    @abstractmethod
    def list(self) -> builtins.list[str]:
        """Return the ids of all finished checkpoints, sorted."""

    @abstractmethod
    def manifest(self, storage_id: str) -> Manifest:
        """Return what the checkpoint holds. `CheckpointNotFound` if there is none of that id."""

    @abstractmethod
    def directory(self, storage_id: str, *, verify: bool = True, manifest: Manifest | None = None) -> Path:
        """Return the stored directory itself, where `is_direct`; `CheckpointDamaged` if `verify` finds a problem.

        A `manifest` that the caller has read already is not read again; the same holds for `fetch` and `read_bytes`.
        """

    @abstractmethod
    def delete(self, storage_id: str, globs: Sequence[str] | None = None) -> dict[str, int]:
        """Delete a checkpoint, or what `globs` mean in it; a missing one is no error.

        Returns:
            What remains: path to bytes.
        """

    @abstractmethod
    def reading(self, storage_id: str) -> AbstractContextManager[Callable[[], None]]:
        """Keep a checkpoint from `delete_unread` for the length of the block.

        In a directory that is a shared lock on the manifest, or on the checkpoint where there is none; in a bucket a
        note that counts for an hour and is renewed file by file. Where neither can be had, nothing is promised.
        Never fails, also if there is no such checkpoint. Yields what to call now and then in a long block.
        """

    @abstractmethod
    def delete_unread(self, storage_id: str) -> bool:
        """Delete a checkpoint unless somebody is reading it, and say whether it is gone."""

    @abstractmethod
    def sweep(self, older_than: timedelta = ABANDONED_AFTER) -> builtins.list[str]:
        """Remove what crashed writers left behind, if nothing in it changed for `older_than`.

        Returns:
            What was removed, for people. Never a finished checkpoint.
        """

    @abstractmethod
    def keep(self, source: Path, path: str) -> None:
        """Copy a file that belongs to no checkpoint, such as an event file, to `path` beside them, replacing it."""

    @abstractmethod
    def _copy_out(self, storage_id: str, path: str, target: Path) -> FileEntry:
        """Copy a stored file to `target`, which does not exist; FileNotFoundError if it is not stored."""

    @abstractmethod
    def _read(self, storage_id: str, path: str) -> bytes:
        """Return the bytes of a stored file; FileNotFoundError if it is not stored."""

    @abstractmethod
    def _measurer(self, storage_id: str) -> Callable[[str, FileEntry], FileEntry]:
        """Return what measures the paths of a checkpoint as they are stored now, for `Manifest.problems`."""

    def fetch(
        self,
        storage_id: str,
        target: Path,
        selector: Selector | None = None,
        *,
        fetched: Callable[[str, int], None] | None = None,
        carries_manifest: bool = False,
        manifest: Manifest | None = None,
    ) -> None:
        """Copy a checkpoint, or what `selector` accepts of it, into the directory `target`.

        Every file is verified before it appears under its name. Directories above a selected file are made whether
        they are selected or not; selecting a directory does not select what it holds. If nothing is selected, `target`
        is not made. `fetched` is told each file's path and bytes once it is there. With `carries_manifest`, `target`
        also gets the manifest of what it was to get (see `documents`), before its first file.
        """
        with self.reading(storage_id) as still_reading:
            manifest = known = manifest or self.manifest(storage_id)
            chosen = [path for path in manifest.files if selector is None or selector(path)]
            leave = functools.cache(
                lambda: documents.leave_manifest(target, known, chosen) if carries_manifest else None
            )
            for path in chosen:
                place = tree.inside(target, path)
                if path.endswith("/"):
                    place.mkdir(parents=True, exist_ok=True)
                else:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    self._fetch_file(manifest, path, place, leave)
                    still_reading()
                    if fetched is not None:
                        fetched(path, manifest.files[path].size)

    def _fetch_file(self, manifest: Manifest, path: str, place: Path, before: Callable[[], None]) -> None:
        temporary = place.with_name(f".fetch-{secrets.token_hex(8)}")
        try:
            found = self._copy_out(manifest.storage_id, path, temporary)
            self._refuse_damage(manifest, path, found)
            before()
            temporary.replace(place)
        except (FileNotFoundError, ValueError) as e:
            raise self._unreadable(manifest.storage_id, path, e) from e
        finally:
            temporary.unlink(missing_ok=True)

    def read_bytes(self, storage_id: str, path: str, manifest: Manifest | None = None) -> bytes:
        """Return the verified content of one stored file, for small ones such as `metadata.json`."""
        manifest = manifest or self.manifest(storage_id)
        if path not in manifest.files:
            raise FileNotFoundError(f"Checkpoint {storage_id} in {self.url} holds no {check_path(path)}.")
        if manifest.files[path].size > documents.LARGEST:
            raise CheckpointDamaged(
                f"{path} of checkpoint {storage_id} in {self.url} is too large to be read: it has "
                f"{manifest.files[path].size} bytes, and such a file has {documents.LARGEST} at most."
            )
        try:
            data = self._read(storage_id, path)
        except (FileNotFoundError, ValueError) as e:
            raise self._unreadable(storage_id, path, e) from e
        self._refuse_damage(manifest, path, tree.measure_bytes(data))
        return data

    def verify(self, storage_id: str) -> builtins.list[str]:
        """Compare what is stored with what was saved.

        Files that were added later are no problem: nothing that was saved depends on them.

        Returns:
            One sentence per problem; none if the checkpoint is intact, or is the original product's, which kept no
            checksums.
        """
        return self.manifest(storage_id).problems(self._measurer(storage_id))

    def probe(self, *, publishes: bool = True) -> None:
        """Write, read back and delete a small checkpoint, so that a storage that does not work is known at once.

        Args:
            publishes: With False it is only written and taken away again, where nobody sees it.
        """
        storage_id, data = str(uuid.uuid4()), b"{}"
        try:
            with self.draft(storage_id) as draft:
                entries = draft.put_bytes("metadata.json", data)
                if publishes:
                    draft.publish(entries)
            if not publishes:
                return
            try:
                if self.read_bytes(storage_id, "metadata.json") != data:
                    raise CheckpointDamaged("what was read is not what was written")
            finally:
                self.delete(storage_id)
        except DeterminedError as e:
            raise type(e)(f"{self!r} does not work: {e}") from e
        except Exception as e:
            raise StorageConfigError(
                f"{self!r} does not work: {type(e).__name__}: {e}. Check the place and what you may do there, "
                "or choose another checkpoint_storage."
            ) from e

    def _sweep_once(self) -> None:
        """Clear away old leftovers when the first draft opens. Failing to is no reason not to save."""
        if self._has_swept:
            return
        self._has_swept = True
        try:
            removed = self.sweep()
        except Exception as e:  # noqa: BLE001  the draft matters, and meets the same trouble if it is real
            logger.warning("Could not look for leftovers of crashed writers in %s: %s", self.url, e)
        else:
            if removed:
                logger.info("Removed what crashed writers left in %s: %s", self.url, ", ".join(removed))

    def _refuse_existing(self, storage_id: str) -> None:
        if self.exists(storage_id):
            raise FileExistsError(
                f"Checkpoint {storage_id} is already in {self.url}, and a checkpoint is never overwritten. "
                "Use a new id, for example str(uuid.uuid4())."
            )

    def _refuse_damage(self, manifest: Manifest, path: str, found: FileEntry) -> None:
        if found != manifest.files[path] and (problem := manifest.difference(path, found)):
            raise CheckpointDamaged(
                f"Checkpoint {manifest.storage_id} in {self.url} is damaged: {path} {problem}. "
                "Restore it from a backup, or use another checkpoint."
            )

    def _not_found(self, storage_id: str) -> CheckpointNotFound:
        return CheckpointNotFound(f"There is no checkpoint {storage_id} in {self.url}.")

    def _unreadable(self, storage_id: str, path: str, problem: Exception) -> DeterminedError:
        """Why a file of the manifest is not there: somebody deleted the checkpoint just now, or it is damaged."""
        if isinstance(problem, DeterminedError):  # a path that is not safe, for example
            return problem
        if isinstance(problem, FileNotFoundError) and not self.exists(storage_id):
            return self._not_found(storage_id)
        why = f"{path} is missing" if isinstance(problem, FileNotFoundError) else problem
        return CheckpointDamaged(f"Checkpoint {storage_id} in {self.url} is damaged: {why}.")
