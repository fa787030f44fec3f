"""CheckpointContext: store, restore, upload, download and delete checkpoints.

`artifacts` moves the bytes; here ranks agree on what is stored, and a stored checkpoint is reported.
"""

from __future__ import annotations

import builtins
import contextlib
import enum
import functools
import json
import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from determined import artifacts, errors
from determined._home import data_directory
from determined._info import ClusterInfo
from determined._types import Json
from determined.artifacts import Draft, FileEntry, Manifest, Selector, SharedFile, Storage, tree
from determined.core import _checkpoint_files as files
from determined.core._checkpoint_files import METADATA
from determined.core._train import TrainContext
from determined.core.ranks.distributed import DistributedContext
from determined.core.recording.link import History
from determined.core.recording.shipper import Shipper
from determined.store.messages import CheckpointReport

logger = logging.getLogger("determined.core")

T = TypeVar("T")


class DownloadMode(enum.Enum):
    """Who downloads.

    `LocalWorkersShareDownload`: all ranks call in step; one of each machine downloads for the others.
    `NoSharedDownload`: the calling rank downloads for itself, without talking to anybody.
    """

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    NoSharedDownload = "NO_SHARED_DOWNLOAD"


class CheckpointContext:
    """Stores and restores checkpoints. Reached as `core_context.checkpoint`.

    A checkpoint is complete or absent, never half written, and never changes: each one gets an id of its own.

    Example::

        with context.checkpoint.store_path({"steps_completed": 100}) as (path, storage_id):
            torch.save(model.state_dict(), path / "model.pt")

        with context.checkpoint.restore_path(storage_id) as path:
            model.load_state_dict(torch.load(path / "model.pt", weights_only=True))
    """

    def __init__(
        self,
        distributed: DistributedContext | None = None,
        storage: Storage | None = None,
        shipper: Shipper | None = None,
        *,
        needs_metadata: bool = False,
        train: TrainContext | None = None,
        info: ClusterInfo | None = None,
    ) -> None:
        self._distributed = distributed or DistributedContext()
        self._storage = storage or artifacts.open_storage(None, default_root=data_directory() / "checkpoints")
        self._shipper = shipper or Shipper()
        self._needs_metadata = needs_metadata
        self._train = train  # of a run that may continue an earlier one
        self._trial_info = info if info is not None and info.task_type == "TRIAL" else None
        self._found: str | None = None  # by latest()

    @property
    def location(self) -> str:
        """Where checkpoints are stored, for people."""
        return self._storage.url

    def upload(
        self,
        ckpt_dir: os.PathLike[str] | str | None,
        metadata: dict[str, Any] | None = None,
        *,
        shard: bool = False,
        selector: Selector | None = None,
    ) -> str:
        """Store a directory as a checkpoint, and return its id.

        Args:
            ckpt_dir: The directory. With `shard`, ranks that have nothing to add pass None.
            metadata: Kept as `metadata.json`; says at least `steps_completed`.
            shard: Every rank adds its own files to one checkpoint. Collective.
            selector: Gets each path relative to `ckpt_dir` (directories end in "/") and says whether to store it.

        Raises:
            RuntimeError: Not the chief and not `shard`; or ranks offer different files, or metadata, under one name.
            ValueError: The metadata lacks `steps_completed`, or it is no whole number.
        """
        if shard:
            return self._upload_shards(lambda: self._offer(ckpt_dir, metadata, selector), ckpt_dir)
        self._check_chief("upload")
        if ckpt_dir is None:
            raise RuntimeError("upload(None): there is nothing to upload. Pass the directory, or use shard=True.")
        metadata = self._checked(metadata)
        root = files.existing_directory(ckpt_dir)
        paths = files.selected_paths(root, selector)
        keeps_metadata = selector is None or selector(METADATA) or not paths
        storage_id = str(uuid.uuid4())
        with self._storage.draft(storage_id, is_sole=True) as draft:
            entries = draft.put(root, paths)
            self._publish(draft, entries, metadata, keeps_metadata)
        return storage_id

    @contextlib.contextmanager
    def store_path(self, metadata: dict[str, Any] | None = None, *, shard: bool = False) -> Iterator[tuple[Path, str]]:
        """A directory to write a checkpoint into, and its id. It is stored when the block ends without an error.

        Args:
            metadata: Kept as `metadata.json`; says at least `steps_completed`.
            shard: Every rank gets a directory of its own, and all become one checkpoint. Collective.
        """
        with self._store_path_shards(metadata) if shard else self._store_path(metadata) as place:
            yield place

    @contextlib.contextmanager
    def _store_path(
        self,
        metadata: dict[str, Any] | None,
        shared: Mapping[str, SharedFile] | None = None,
        *,
        shows_shared: bool = False,
        written: Mapping[str, FileEntry] | None = None,
    ) -> Iterator[tuple[Path, str]]:
        """Like `store_path`, with files that other checkpoints of this process hold too.

        They are in the directory only with `shows_shared`; then those that the block changes are stored as they are.
        The block may fill `written` with the entries of files that it has measured while writing them; then the
        metadata is what `_checked()` returned, too.
        """
        self._check_chief("store_path")
        shared = shared or {}
        checked = self._checked(metadata) if written is None else dict(metadata or {})
        storage_id = str(uuid.uuid4())
        with self._storage.draft(storage_id, is_sole=True) as draft:
            path = draft.workspace()
            if shows_shared:
                files.write_shared(path, shared)
            yield path, storage_id
            if shows_shared:
                shared = {name: file for name, file in shared.items() if files.is_unchanged(path / name, file)}
            own = files.selected_paths(path, None) - shared.keys()
            entries = draft.put(path, own, move=True, known=written) | draft.put_shared(shared)
            # A block of the user's may have added to it; ours has not.
            self._publish(draft, entries, checked if written is not None else self._checked(metadata))

    def download(
        self,
        storage_id: str,
        ckpt_dir: os.PathLike[str] | str,
        download_mode: DownloadMode | str = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> None:
        """Copy a checkpoint into a directory, checking every file on the way.

        The directory also gets a hidden file with the checksums, so that later damage is noticed when it is read.

        Args:
            storage_id: The checkpoint's id.
            ckpt_dir: Where to; made if needed. In the shared mode the directory of each machine's first rank counts.
            download_mode: Whether the ranks of a machine share one download.
            selector: Says for each path whether it is wanted; what any sharing rank wants is downloaded.
        """
        is_shared = DownloadMode(download_mode) is DownloadMode.LocalWorkersShareDownload
        self._fetch(storage_id, lambda: Path(ckpt_dir), selector, is_shared, carries_manifest=True)
        self._note_restored(storage_id)

    @contextlib.contextmanager
    def restore_path(
        self,
        storage_id: str,
        download_mode: DownloadMode | str = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> Iterator[Path]:
        """A directory that holds a checkpoint, for the length of the block. Read it; do not change it.

        Args:
            storage_id: The checkpoint's id.
            download_mode: Whether the ranks of a machine share one download.
            selector: Says for each path whether it is wanted. Ignored, with a warning, where nothing is downloaded.

        Raises:
            CheckpointNotFound: There is no such checkpoint.
            CheckpointDamaged: Its files are not the ones that were saved.
        """
        is_shared = DownloadMode(download_mode) is DownloadMode.LocalWorkersShareDownload
        with self._restore_path(storage_id, is_shared, selector) as path:
            yield path

    @contextlib.contextmanager
    def _restore_path(
        self,
        storage_id: str,
        is_shared: bool = True,
        selector: Selector | None = None,
        opened: tuple[Manifest, Mapping[str, Any]] | None = None,
    ) -> Iterator[Path]:
        """Like `restore_path`, of a checkpoint whose manifest and metadata may have been read already."""
        manifest = opened[0] if opened is not None else None
        with contextlib.ExitStack() as stack:
            if self._storage.is_direct:
                # What is read in place has to stay there until we are done: see Storage.reading().
                stack.enter_context(self._storage.reading(storage_id))
                if selector is not None:
                    logger.warning("restore_path: %s is read in place, so the selector is ignored.", self._storage.url)
                look = functools.partial(self._storage.directory, storage_id, manifest=manifest)
                path = self._distributed.run_on_local_chief(look) if is_shared else look()
            else:

                def make() -> Path:
                    made = tempfile.mkdtemp(prefix="determined-")
                    stack.callback(shutil.rmtree, made, ignore_errors=True)
                    return Path(made)

                path = self._fetch(storage_id, make, selector, is_shared, manifest=manifest)
            self._note_restored(storage_id, opened[1] if opened is not None else None)
            try:
                yield path
            except Exception as failed:
                if is_shared and not isinstance(failed, errors.CollectiveError):
                    with contextlib.suppress(errors.CollectiveError):
                        self._distributed.allgather_local(None)
                raise
            else:
                if is_shared:
                    self._distributed.allgather_local(None)  # nobody reads any more

    def latest(self) -> str | None:
        """Return the id of the newest checkpoint of this training, or None if there is none yet. Collective.

        That is one of this script, saved in this storage with the same hyperparameters (`core.init(hparams=...)`); of
        a managed trial, the one that it is to go on from. A run that restores it goes on with its trial: one curve.

        Example::

            if newest := context.checkpoint.latest():
                with context.checkpoint.restore_path(newest) as path:
                    model.load_state_dict(torch.load(path / "model.pt", weights_only=True))
        """
        return None if self._train is None else self._distributed.run_on_chief(self._find_latest)

    def _find_latest(self) -> str | None:
        assert self._train is not None
        if self._trial_info is not None:
            return self._trial_info.latest_checkpoint
        history, stored = self._train.find_checkpoints("latest", "", True) or History(), self.list()
        self._found = next((one for one in history.found if one in stored), None)
        return self._found

    def _note_restored(self, storage_id: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Report the checkpoint that a run continues from, unless it has reported metrics already.

        One that `latest()` returned makes it the next attempt of that trial; another one is recorded as its parent's.
        """
        train = self._train
        if train is None or self._trial_info is not None or self._distributed.rank != 0 or train.has_reported:
            return
        steps = (self.get_metadata(storage_id) if metadata is None else metadata).get("steps_completed")
        if isinstance(steps, int):
            train.note_fit(steps, storage_id, continues=True, joins=storage_id == self._found)

    def delete(self, storage_id: str) -> None:
        """Remove a checkpoint. One that is gone already is no error."""
        self._shipper.mark_pending(storage_id)
        self._storage.delete(storage_id)
        self._shipper.put(CheckpointReport(storage_id, {}, {}, "DELETED"))

    def list(self) -> builtins.list[str]:
        """Return the ids of all checkpoints in this storage, sorted."""
        return self._storage.list()

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        """Return the metadata that was stored with a checkpoint; empty if there was none."""
        return self._metadata(self._manifest(storage_id))

    def _manifest(self, storage_id: str) -> Manifest:
        """Return what a checkpoint holds; `_read`, `_metadata` and `_restore_path` take it, so it is read once."""
        return self._storage.manifest(storage_id)

    def _read(self, manifest: Manifest, path: str) -> bytes | None:
        """Return the verified content of a small file; None if the checkpoint has no such file."""
        if path not in manifest.files:
            return None
        return self._storage.read_bytes(manifest.storage_id, path, manifest)

    def _metadata(self, manifest: Manifest) -> dict[str, Any]:
        data = self._read(manifest, METADATA)
        return (
            {} if data is None else artifacts.documents.parse(data, f"{METADATA} of checkpoint {manifest.storage_id}")
        )

    def check_storage(self) -> None:
        """Raise on every rank if checkpoints cannot be written to where they go. Collective."""
        self._distributed.run_on_chief(lambda: self._storage.probe(publishes=False))

    def _check_chief(self, call: str) -> None:
        if self._distributed.rank != 0:
            raise RuntimeError(
                f"{call}(shard=False) was called on non-chief rank {self._distributed.rank}. "
                f"Call it on rank 0 only, or on all ranks with shard=True."
            )

    def _checked(self, metadata: Mapping[str, Any] | None) -> dict[str, Json]:
        """Return the metadata as it will be stored; refuse it here, before any byte is written."""
        checked = files.plain_metadata(metadata)
        if "steps_completed" in checked:
            checked["steps_completed"] = files.whole_steps(checked["steps_completed"])
        elif checked or self._needs_metadata:
            raise ValueError(
                f"The checkpoint's metadata holds {sorted(checked)} but no steps_completed. "
                'Add it, for example {"steps_completed": 100}.'
            )
        return checked

    def _publish(
        self,
        draft: Draft,
        entries: Mapping[str, FileEntry],
        metadata: dict[str, Json],
        keeps_metadata: bool = True,
    ) -> None:
        """Make the draft a checkpoint, and report it."""
        if keeps_metadata:
            entries = {**entries, **draft.put_bytes(METADATA, json.dumps(metadata, indent=2).encode())}
        self._shipper.secure()  # a kill must not leave the checkpoint without the reports before it
        self._shipper.mark_pending(draft.storage_id)
        manifest = draft.publish(entries)
        self._shipper.put(CheckpointReport(draft.storage_id, metadata, manifest.resources))
        logger.info("Checkpoint %s is stored in %s.", draft.storage_id, self._storage.url)

    # Sharded: every step that can fail on one rank ends with an exchange, so that all ranks succeed or all raise.

    def _offer(
        self, ckpt_dir: os.PathLike[str] | str | None, metadata: Mapping[str, Any] | None, selector: Selector | None
    ) -> files.Offer:
        if ckpt_dir is None and selector is not None:
            raise RuntimeError("upload(None, selector=...): a selector needs a directory to select from.")
        checked = files.plain_metadata(metadata)
        if ckpt_dir is None:
            return files.Offer(None, metadata=checked)
        root = files.existing_directory(ckpt_dir)
        found = root.stat()
        identity = (self._distributed.cross_rank, found.st_dev, found.st_ino) if selector is None else None
        return files.Offer(sorted(files.selected_paths(root, selector)), identity, checked)

    def _upload_shards(
        self,
        make_offer: Callable[[], files.Offer],
        source: os.PathLike[str] | str | None,
        *,
        draft: Draft | None = None,
    ) -> str:
        """Collective."""
        offers = self._all_or_none(make_offer)
        storage_id = draft.storage_id if draft else self._distributed.broadcast(str(uuid.uuid4()))
        if all(offer.paths is None for offer in offers):
            raise RuntimeError("upload(shard=True): every rank passed None, so there is nothing to upload.")
        merged, conflicts = files.merge_metadata([offer.metadata for offer in offers])
        if conflicts:
            raise RuntimeError(
                f"metadata conflicts between ranks:{files.describe(conflicts, self._distributed.rank == 0)}"
            )
        metadata = self._checked(merged)
        mine = self._settled_share(offers, source)
        writes_metadata = self._distributed.rank == next(r for r, offer in enumerate(offers) if offer.paths is not None)
        with contextlib.ExitStack() as stack:
            own = draft or stack.enter_context(self._storage.draft(storage_id))

            def put() -> dict[str, FileEntry]:
                entries: dict[str, FileEntry] = {}
                if source is not None and mine:
                    entries |= own.put(Path(source), sorted(mine), move=draft is not None)
                if writes_metadata:
                    entries |= own.put_bytes(METADATA, json.dumps(metadata, indent=2).encode())
                return entries

            parts = self._all_or_none(put)
            entries = {path: entry for part in parts for path, entry in part.items()}
            self._distributed.run_on_chief(lambda: self._publish(own, entries, metadata, keeps_metadata=False))
        return storage_id

    def _settled_share(self, offers: builtins.list[files.Offer], source: os.PathLike[str] | str | None) -> set[str]:
        """Return the paths that this rank uploads. Collective."""
        shares = files.share(offers)
        rank = self._distributed.rank

        def digests() -> dict[str, str]:
            contested = [path for path, ranks in shares.contested.items() if rank in ranks]
            return {path: tree.measure(Path(source or ".") / path).sha256 for path in contested}

        paths, conflicts = shares.settle(self._all_or_none(digests) if shares.contested else [])
        if conflicts:
            raise RuntimeError(f"files conflicts between ranks:{files.describe(conflicts, rank == 0)}")
        return paths[rank]

    @contextlib.contextmanager
    def _store_path_shards(self, metadata: dict[str, Any] | None) -> Iterator[tuple[Path, str]]:
        """Collective, at both ends of the block."""
        storage_id = self._distributed.broadcast(str(uuid.uuid4()))
        with self._storage.draft(storage_id) as draft:
            path = self._all_or_none(draft.workspace)[self._distributed.rank]
            try:
                yield path, storage_id
            except Exception as failed:
                if not isinstance(failed, errors.CollectiveError):
                    with contextlib.suppress(errors.CollectiveError):
                        self._distributed.agree(failed)
                raise
            self._distributed.agree(None)  # no rank's block failed
            self._upload_shards(lambda: self._offer(path, metadata, None), path, draft=draft)

    def _all_or_none(self, work: Callable[[], T]) -> builtins.list[T]:
        """Return every rank's result, in order; if the work failed on any rank, every rank raises. Collective."""
        result, failed = None, None
        try:
            result = work()
        except Exception as problem:  # noqa: BLE001 - it is raised again once the others know
            failed = problem
        self._distributed.agree(failed)
        return self._distributed.allgather(result)

    # Downloads: the first rank of a machine works, the others wait for it.

    def _fetch(
        self,
        storage_id: str,
        target: Callable[[], Path],
        selector: Selector | None,
        is_shared: bool,
        *,
        carries_manifest: bool = False,
        manifest: Manifest | None = None,
    ) -> Path:
        """Download to the directory that `target` returns, and return it. If `is_shared`, collective on the machine."""
        if not is_shared:
            path = target()
            self._storage.fetch(storage_id, path, selector, carries_manifest=carries_manifest, manifest=manifest)
            return path
        manifest = manifest or self._distributed.run_on_local_chief(lambda: self._storage.manifest(storage_id))
        known = list(manifest.files)
        wanted, failed = None, None
        try:
            wanted = None if selector is None else {path for path in known if selector(path)}
        except Exception as problem:  # noqa: BLE001 - it is raised again once the others know
            failed = problem
        self._distributed.agree_local(failed)
        wishes = self._distributed.gather_local(wanted)

        def fetch() -> Path:
            path = target()
            everything = wishes is None or any(wish is None for wish in wishes)
            union: set[str] = set() if everything else set().union(*(w for w in wishes or [] if w))
            chosen = None if everything else union.__contains__
            self._storage.fetch(storage_id, path, chosen, carries_manifest=carries_manifest, manifest=manifest)
            return path

        return self._distributed.run_on_local_chief(fetch)
