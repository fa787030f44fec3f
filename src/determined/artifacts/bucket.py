"""Checkpoints in a bucket. The manifest is uploaded last, and is the commit.

    <prefix>/<storage id>/...                          the user's files and metadata.json, nothing else
    <prefix>/.artifacts/manifests/<id>.json            sizes and checksums; the checkpoint exists while this does
    <prefix>/.artifacts/pending/<id>/<token>.json      somebody is writing or deleting that checkpoint, or crashed at it
    <prefix>/.artifacts/reading/<id>/<token>.json      somebody is reading it, or crashed at it

Objects under an id that has neither are a checkpoint of the original product.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import logging
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from determined.artifacts import tree
from determined.artifacts.driver import Driver, Found
from determined.artifacts.manifest import (
    DIRECTORY,
    FileEntry,
    Manifest,
    check_path,
    check_storage_id,
    is_old_checkpoint,
    parents,
    surviving,
    with_parents,
)
from determined.artifacts.storage import ABANDONED_AFTER, RECORDS, Draft, Storage
from determined.artifacts.tree import SharedFile
from determined.errors import CheckpointDamaged, DeterminedError, UnsafePath

logger = logging.getLogger("determined.artifacts")

NOTE_SECONDS = 3600.0
"""How long a reader's note counts if it is not renewed: one that crashes holds nothing for long."""
RENEW_SECONDS = 300.0


class BucketStorage(Storage):
    """Checkpoints in an object store.

    Args:
        driver: The bucket.
        prefix: Where in it, without slashes at either end; may be empty.
        temp_dir: Where workspaces are made; the system's place for temporary files if None.
        clock: Seconds since the epoch, for telling the age of leftovers.
    """

    is_direct = False

    def __init__(
        self,
        driver: Driver,
        prefix: str = "",
        *,
        temp_dir: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.driver = driver
        self.url = f"{driver.url}/{prefix}".rstrip("/")
        self.temp_dir = temp_dir
        self._base = f"{prefix}/" if prefix else ""
        self._records = f"{self._base}{RECORDS}/"
        self._clock = clock

    def home(self, storage_id: str) -> str:
        """The prefix of a checkpoint's keys. Its slash keeps an id apart from a longer one that starts with it."""
        return f"{self._base}{check_storage_id(storage_id)}/"

    def manifest_key(self, storage_id: str) -> str:
        return f"{self._records}manifests/{check_storage_id(storage_id)}.json"

    def pending_prefix(self, storage_id: str) -> str:
        return f"{self._records}pending/{check_storage_id(storage_id)}/"

    def draft(self, storage_id: str, *, is_sole: bool = False) -> Draft:  # noqa: ARG002  all the same here
        self._refuse_existing(storage_id)
        self._sweep_once()
        return BucketDraft(self, storage_id)

    def exists(self, storage_id: str) -> bool:
        return self.is_published(storage_id) or self._is_old(storage_id)

    def is_published(self, storage_id: str) -> bool:
        return self._stored_manifest(storage_id) is not None

    def _is_old(self, storage_id: str) -> bool:
        home = self.home(storage_id)
        # Objects, not directories: where those are things of their own, empty ones outlive a delete.
        names = {key.removeprefix(home).partition("/")[0] for key in self.driver.find(home) if key != home}
        return is_old_checkpoint(storage_id, names) and not self.driver.find(self.pending_prefix(storage_id))

    def _stored_manifest(self, storage_id: str) -> bytes | None:
        try:
            return self.driver.get_bytes(self.manifest_key(storage_id))
        except FileNotFoundError:
            return None

    def list(self) -> builtins.list[str]:
        recorded = self.driver.children(f"{self._records}manifests/")
        published = {name.removesuffix(".json") for name in recorded if name.endswith(".json")}
        others = {name[:-1] for name in self.driver.children(self._base) if name.endswith("/")} - published
        return sorted(name for name in published | others if _is_id(name) and (name in published or self._is_old(name)))

    def manifest(self, storage_id: str) -> Manifest:
        data = self._stored_manifest(storage_id)
        if data is not None:
            return Manifest.from_bytes(storage_id, data)
        if not self._is_old(storage_id):
            raise self._not_found(storage_id)
        found = self.objects(storage_id)
        entries = {path: DIRECTORY if path.endswith("/") else FileEntry(f.size, "") for path, f in found.items()}
        return Manifest(storage_id, entries, verified=False)

    def objects(self, storage_id: str) -> dict[str, Found]:
        """Return what is stored under an id, finished or not: path to object. A name that is not safe is refused."""
        home = self.home(storage_id)
        found = self.driver.find(home)
        return {check_path(key.removeprefix(home)): object_ for key, object_ in found.items() if key != home}

    def directory(self, storage_id: str, *, verify: bool = True, manifest: Manifest | None = None) -> Path:
        raise NotImplementedError(f"{self.url} has no directories to look into. Use fetch().")

    def delete(self, storage_id: str, globs: Sequence[str] | None = None) -> dict[str, int]:
        if not self.exists(storage_id):
            return {}
        if globs is not None:
            sizes = {path: found.size for path, found in self.objects(storage_id).items()}
            sizes |= self.manifest(storage_id).resources  # only there are all empty directories known
            if kept := surviving(sizes, globs):
                self._keep_only(storage_id, kept)
                return {path: sizes[path] for path in kept}
        # The note comes first: objects without manifest and note would be taken for the original product's.
        self.driver.put_bytes(f"{self.pending_prefix(storage_id)}{secrets.token_hex(8)}.json", b'{"doing": "delete"}')
        self.driver.remove([self.manifest_key(storage_id)])
        self.remove_objects(storage_id)
        return {}

    def remove_objects(self, storage_id: str) -> None:
        """Remove all that is stored under an id that is not published, then the notes about it."""
        self.objects(storage_id)  # refuses names that are not safe
        self.driver.remove(builtins.list(self.driver.find(self.home(storage_id))))
        self.remove_pending(storage_id)

    def remove_pending(self, storage_id: str) -> None:
        self.driver.remove(builtins.list(self.driver.find(self.pending_prefix(storage_id))))

    def _keep_only(self, storage_id: str, kept: Sequence[str]) -> None:
        """Remove objects. The manifest forgets them first: a crash in between leaves objects that nobody misses."""
        manifest, keep, home = self.manifest(storage_id), set(kept), self.home(storage_id)
        if manifest.verified:
            files = {path: entry for path, entry in manifest.files.items() if path in keep}
            self.driver.put_bytes(self.manifest_key(storage_id), Manifest(storage_id, files).to_bytes())
        else:
            for path in keep:  # a directory of which nothing else is left
                if path.endswith("/"):
                    self.driver.put_directory(home + path)
        self.driver.remove([home + path for path in self.objects(storage_id) if path not in keep])

    def _reading_prefix(self, storage_id: str) -> str:
        return f"{self._records}reading/{check_storage_id(storage_id)}/"

    @contextlib.contextmanager
    def reading(self, storage_id: str) -> Iterator[Callable[[], None]]:
        key, left_at = f"{self._reading_prefix(storage_id)}{secrets.token_hex(8)}.json", float("-inf")

        def renew() -> None:
            """Leave a note, or leave it anew if it has become old. Failing to is no reason not to read."""
            nonlocal left_at
            if time.monotonic() - left_at > RENEW_SECONDS:
                with contextlib.suppress(OSError, DeterminedError):
                    self.driver.put_bytes(key, b"{}")
                left_at = time.monotonic()

        renew()
        try:
            yield renew
        finally:
            with contextlib.suppress(OSError, DeterminedError):
                self.driver.remove([key])

    def delete_unread(self, storage_id: str) -> bool:
        notes = self.driver.find(self._reading_prefix(storage_id))
        if any(self._clock() - note.written < NOTE_SECONDS for note in notes.values()):
            return False
        self.delete(storage_id)
        self.driver.remove(builtins.list(notes))
        return True

    def sweep(self, older_than: timedelta = ABANDONED_AFTER) -> builtins.list[str]:
        removed = self._sweep_notes(older_than)
        for name in self.driver.children(f"{self._records}pending/"):
            storage_id = name.removesuffix("/")
            if not _is_id(storage_id) or not self._is_older(storage_id, older_than):
                continue
            try:
                if self.is_published(storage_id):  # it crashed after the commit, or before it began to delete
                    self.remove_pending(storage_id)
                else:
                    self.remove_objects(storage_id)
            except UnsafePath as e:
                logger.warning("Left %s in %s alone: %s", storage_id, self.url, e)
            else:
                removed.append(f"pending/{storage_id}")
        return removed

    def _sweep_notes(self, older_than: timedelta) -> builtins.list[str]:
        age = max(older_than.total_seconds(), NOTE_SECONDS)
        notes = self.driver.find(f"{self._records}reading/")
        old = [key for key, note in notes.items() if self._clock() - note.written >= age]
        self.driver.remove(old)
        return [key.removeprefix(self._records) for key in old]

    def _is_older(self, storage_id: str, age: timedelta) -> bool:
        found = [*self.driver.find(self.pending_prefix(storage_id)).values()]
        found += self.driver.find(self.home(storage_id)).values()
        newest = max((object_.written for object_ in found), default=0.0)
        return self._clock() - newest >= age.total_seconds()

    def keep(self, source: Path, path: str) -> None:
        self.driver.put_file(source, f"{self._base}{check_path(path)}")

    def _copy_out(self, storage_id: str, path: str, target: Path) -> FileEntry:
        self.driver.get_file(self.home(storage_id) + check_path(path), target)
        return tree.measure(target)

    def _read(self, storage_id: str, path: str) -> bytes:
        return self.driver.get_bytes(self.home(storage_id) + check_path(path))

    def _measurer(self, storage_id: str) -> Callable[[str, FileEntry], FileEntry]:
        home = self.home(storage_id)  # directories are no things of their own here
        return lambda path, saved: saved if path.endswith("/") else self.driver.measure(home + path)


class BucketDraft(Draft):
    """A checkpoint being uploaded. Its files go to their final keys; without a manifest nobody takes them for one."""

    def __init__(self, storage: BucketStorage, storage_id: str) -> None:
        self.storage_id = storage_id
        self._storage = storage
        self._driver = storage.driver
        self._home = storage.home(storage_id)
        self._pending = f"{storage.pending_prefix(storage_id)}{secrets.token_hex(8)}.json"
        self._staged: dict[str, None] = {}
        self._has_announced = False
        self._spaces: list[Path] = []

    def workspace(self) -> Path:
        if self._storage.temp_dir is not None:
            self._storage.temp_dir.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix="determined-", dir=self._storage.temp_dir))
        self._spaces.append(path)
        return path

    def put(
        self,
        source: Path,
        paths: Iterable[str],
        *,
        move: bool = False,  # noqa: ARG002
        known: Mapping[str, FileEntry] | None = None,
    ) -> dict[str, FileEntry]:
        source, known = Path(source), known or {}
        wanted = with_parents(paths)
        for path in wanted:
            if not path.endswith("/"):
                tree.check_regular(source / path)
            elif not (source / path).is_dir():
                raise NotADirectoryError(f"{source / path} is not a directory, but {path!r} names one.")
        return {path: self._put(source, path, known.get(path)) for path in wanted}

    def _put(self, source: Path, path: str, known: FileEntry | None) -> FileEntry:
        self._announce()
        self._staged[path] = None
        if path.endswith("/"):
            self._driver.put_directory(self._home + path)
            return DIRECTORY
        entry = known or tree.measure(source / path)
        self._driver.put_file(source / path, self._home + path)
        return entry

    def put_bytes(self, path: str, data: bytes) -> dict[str, FileEntry]:
        self._announce()
        self._staged[check_path(path)] = None
        self._driver.put_bytes(self._home + path, data)
        return {**dict.fromkeys(parents(path), DIRECTORY), path: tree.measure_bytes(data)}

    def put_shared(self, files: Mapping[str, SharedFile]) -> dict[str, FileEntry]:
        # Objects have one name each, and a reference to another checkpoint's would break when that is deleted.
        entries: dict[str, FileEntry] = {}
        for path, file in files.items():
            entries |= self.put_bytes(path, file.content)
        return entries

    def _announce(self) -> None:
        """Leave a note before the first object goes up. Each writer has its own, so that none removes another's."""
        if not self._has_announced:
            self._driver.put_bytes(self._pending, json.dumps({"doing": "write", "since": time.time()}).encode())
            self._has_announced = True

    def publish(self, entries: Mapping[str, FileEntry]) -> Manifest:
        manifest = Manifest(self.storage_id, dict(entries))
        self._announce()
        self._storage._refuse_existing(self.storage_id)
        stored = self._storage.objects(self.storage_id)
        for path, size in manifest.resources.items():
            if not path.endswith("/") and (path not in stored or stored[path].size != size):
                found = f"{stored[path].size} bytes" if path in stored else "nothing"
                raise CheckpointDamaged(
                    f"Checkpoint {self.storage_id} was not published: {path} should have {size} bytes in "
                    f"{self._storage.url}, and there is {found}."
                )
        self._driver.remove([self._home + path for path in stored if path not in manifest.files])
        self._driver.put_bytes(self._storage.manifest_key(self.storage_id), manifest.to_bytes())
        self._has_announced = False
        self._staged.clear()
        try:
            self._storage.remove_pending(self.storage_id)
        except OSError as e:  # the checkpoint exists; a later sweep removes the note
            logger.warning("Checkpoint %s is stored, but its note in %s remains: %s", self.storage_id, self._pending, e)
        self._remove_spaces()
        return manifest

    def discard(self) -> None:
        self._remove_spaces()
        if not self._has_announced:
            return
        try:
            if not self._storage.is_published(self.storage_id):
                self._driver.remove([self._home + path for path in self._staged])
                self._driver.remove([self._pending])
        except Exception as e:  # noqa: BLE001  what stays is invisible, and a later sweep removes it
            logger.warning("Could not remove the unfinished checkpoint %s from %s: %s", self.storage_id, self._home, e)
        self._has_announced = False
        self._staged.clear()

    def _remove_spaces(self) -> None:
        for path in self._spaces:
            tree.remove(path)
        self._spaces.clear()


def _is_id(name: str) -> bool:
    try:
        check_storage_id(name)
    except UnsafePath:
        return False
    return True
