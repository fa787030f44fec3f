"""Write and read a trial's checkpoint: which files there are, in which order, and which rank does what.

The parts that `Checkpointer` tracks say what is in `state_dict.pth`; `older_layouts` says how older files are read.
"""

from __future__ import annotations

import hashlib
import io
import logging
import pickle
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from determined import core
from determined.artifacts import FileEntry, SharedFile
from determined.artifacts.tree import MeasuredFile, naming, write_measured
from determined.core._checkpoint_files import write_shared
from determined.pytorch import _rng
from determined.pytorch._callback import Callbacks, overrides
from determined.pytorch._plan import Progress
from determined.pytorch.checkpoint import older_layouts
from determined.pytorch.checkpoint.background import BackgroundSave, Snapshot
from determined.pytorch.checkpoint.parts import (
    CallbackStates,
    CheckpointMismatch,
    DataPosition,
    Listed,
    Models,
    Optimizers,
    RandomStreams,
    RankPart,
    Restoring,
    Scaler,
    Schedulers,
    TrainingState,
    WaitingGradients,
)
from determined.pytorch.checkpoint.run_facts import RunFacts
from determined.pytorch.checkpoint.saved import BESIDE, SavedCheckpoint, metadata_digest, open_checkpoint, read_state
from determined.pytorch.code.copying import CodeCopy
from determined.pytorch.data.stream import TrainingStream

if TYPE_CHECKING:
    from determined.pytorch._context import PyTorchTrialContext
    from determined.pytorch._trial import PyTorchTrial

logger = logging.getLogger("determined.pytorch")

FORMAT_VERSION = 1


class Checkpointer:
    """Saves and loads one `fit()`. `progress.trial_id` is the trial that runs now."""

    def __init__(
        self,
        core_context: core.Context,
        context: PyTorchTrialContext,
        trial: PyTorchTrial,
        callbacks: Callbacks,
        progress: Progress,
        stream: TrainingStream,
        *,
        code: CodeCopy | None = None,
    ) -> None:
        self._core = core_context
        self._context = context
        self._callbacks = callbacks
        self._progress = progress
        self._stream = stream
        self._facts = RunFacts(core_context, context, trial, code)
        self._distributed = context.distributed
        self._snapshot = Snapshot()
        self._background: BackgroundSave | None = None  # on the chief
        self._is_saving = False  # on every rank
        self._stored_sharded: str | None = None
        models, optimizers = Models(context.models), Optimizers(context.optimizers)
        schedulers = Schedulers(context.lr_schedulers)
        self._listed: list[Listed] = [models, optimizers, schedulers]
        self._state = state = TrainingState()  # everything that is saved, in the order it is restored in
        state.track("models_state_dict", models)
        state.track("optimizers_state_dict", optimizers)
        state.track("lr_schedulers_state_dict", schedulers)
        state.track("scaler_state_dict", Scaler(context.precision))
        state.track("callbacks", CallbackStates(callbacks.named))
        state.track("data", DataPosition(stream))
        state.track("gradients", WaitingGradients(context.gradients))
        state.track("reducers", RankPart(context.reducers))
        state.track("rng_states", RandomStreams(_rng.RngState()))  # last: restoring the others may draw random numbers

    # Saving.

    def save(self, metadata_extra: Mapping[str, Any] | None = None) -> str:
        """Write a checkpoint and return its id, on every rank. Collective.

        Args:
            metadata_extra: More for `metadata.json`, such as `{"searcher_metric": 0.5}`.

        Raises:
            Exception: What went wrong on the chief, on every rank; then there is no checkpoint.
        """
        self.wait()
        ranks = self._gather()
        metadata = self._facts.metadata(self._progress, metadata_extra)
        if self._has("on_checkpoint_write_shard"):
            return self._save_shards(metadata, ranks)

        def write() -> str:
            shared, checked = self._facts.shared_files(), self._core.checkpoint._checked(metadata)
            written: dict[str, FileEntry] = {}
            with _rng.preserved(), self._store(checked, shared, written) as (path, storage_id):
                written.update(_write(path, *self._content(ranks, shared, checked)))
                self._run_write_end(path)
            return storage_id

        return self._distributed.run_on_chief(write)

    def _store(
        self, metadata: dict[str, Any], shared: Mapping[str, SharedFile], written: Mapping[str, FileEntry]
    ) -> AbstractContextManager[tuple[Path, str]]:
        if self._has("on_checkpoint_end", "on_checkpoint_write_end"):  # they may change whatever they see
            return self._core.checkpoint._store_path(metadata, shared, shows_shared=True)
        return self._core.checkpoint._store_path(metadata, shared, written=written)

    def _content(
        self, ranks: list[dict[str, Any]], shared: Mapping[str, SharedFile], metadata: dict[str, Any]
    ) -> tuple[dict[str, Any], bytes]:
        """Return the content of `state_dict.pth` and of `trial_state.pkl`.

        The former has the checksums of the other files, because in a copy by hand nothing else has any; but not where
        hooks may change the files afterwards.
        """
        counters = pickle.dumps(self._progress.trial_state(), protocol=2)
        if self._has("on_checkpoint_end", "on_checkpoint_write_end", "on_checkpoint_write_shard"):
            return self._assemble(ranks), counters
        known = {name: file.entry.sha256 for name, file in shared.items()}
        known["trial_state.pkl"] = hashlib.sha256(counters).hexdigest()
        known["metadata.json"] = metadata_digest(metadata)
        return {**self._assemble(ranks), BESIDE: known}, counters

    def _save_shards(self, metadata: dict[str, Any], ranks: list[dict[str, Any]]) -> str:
        """Have every rank write into a directory of its own, and the chief write the common files too. Collective."""
        is_chief = self._distributed.rank == 0
        store = self._core.checkpoint.store_path(metadata if is_chief else None, shard=True)
        with _rng.preserved(), store as (path, storage_id):
            if is_chief:
                shared = self._facts.shared_files()
                write_shared(path, shared)
                _write(path, *self._content(ranks, shared, metadata))
                self._run_write_end(path)
            self._callbacks.on_checkpoint_write_shard(str(path))
        return storage_id

    def save_async(self, metadata_extra: Mapping[str, Any] | None = None) -> None:
        """Copy the state, and write the checkpoint in the background. Collective.

        `poll()` and `wait()` return its id, run the write-end hooks, and raise its errors. An earlier one that is still
        being written is waited for first; call `wait()` before if its id matters.
        """
        if self._has("on_checkpoint_write_shard"):  # ranks have to meet for it, which a thread beside training cannot
            self._stored_sharded = self.save(metadata_extra)
            return
        self.wait()
        ranks = self._gather()
        metadata = self._facts.metadata(self._progress, metadata_extra)

        def begin() -> None:
            with _rng.preserved():
                shared, checked = self._facts.shared_files(), self._core.checkpoint._checked(metadata)
                state, counters = self._content(ranks, shared, checked)
                state = self._snapshot.copy(state)
            written: dict[str, FileEntry] = {}
            self._background = BackgroundSave(
                lambda: self._store(checked, shared, written),
                lambda path: written.update(_write(path, state, counters)),
                self._run_write_end if self._has("on_checkpoint_end", "on_checkpoint_write_end") else None,
            )

        self._distributed.run_on_chief(begin)
        self._is_saving = True

    def poll(self) -> str | None:
        """Return the id of the checkpoint that `save_async()` began, once it is stored. Collective.

        Returns it once; None if there is none, or not yet. Raises its error on every rank.
        """
        return self._finish(lambda saving: saving.poll())

    def wait(self) -> str | None:
        """Like `poll()`, but wait until it is stored. Collective."""
        return self._finish(lambda saving: saving.wait())

    def abandon(self) -> None:
        """Wait for the background save after an error elsewhere, without a call to other ranks."""
        saving, self._background, self._is_saving = self._background, None, False
        if saving is not None:
            try:
                saving.wait()
            except Exception:
                logger.warning("The checkpoint that was being written in the background is lost.", exc_info=True)

    def _finish(self, ask: Callable[[BackgroundSave], str | None]) -> str | None:
        if not self._is_saving:
            stored, self._stored_sharded = self._stored_sharded, None
            return stored

        def result() -> str | None:
            assert self._background is not None, "the chief began it"
            with _rng.preserved():
                return ask(self._background)

        try:
            storage_id = self._distributed.run_on_chief(result)
        except BaseException:
            self._is_saving, self._background = False, None
            raise
        if storage_id is not None:
            self._is_saving, self._background = False, None
        return storage_id

    def _gather(self) -> list[dict[str, Any]]:
        """Return the states of all ranks on the chief, and nothing on the others. Collective."""
        mine: dict[str, Any] = {}
        failed: Exception | None = None
        try:
            self._context.gradients.check_exchanged()
            mine = self._state.rank_state_dict()
        except Exception as problem:  # noqa: BLE001 - raised below, once the others know
            failed = problem
        self._distributed.agree(failed)
        if self._distributed.size == 1:
            return [mine]
        buffer = io.BytesIO()
        torch.save(mine, buffer)  # pickle alone cannot carry every tensor
        gathered = self._distributed.gather(buffer.getvalue()) or []
        return [torch.load(io.BytesIO(packed), map_location="cpu", weights_only=True) for packed in gathered]

    def _assemble(self, ranks: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the content of `state_dict.pth`, after callbacks have seen it, as tensors and plain values."""
        checkpoint = self._state.state_dict(ranks)
        checkpoint["progress"] = self._progress.state_dict()
        checkpoint["trial_seed"] = self._facts.seed
        checkpoint["classes"] = {part.kind: part.classes() for part in self._listed}
        checkpoint["format_version"] = FORMAT_VERSION
        self._callbacks.on_checkpoint_save_start(checkpoint)
        return self._state.encode(checkpoint, is_changed=bool(self._callbacks.on_checkpoint_save_start))

    def _has(self, *hooks: str) -> bool:
        return any(overrides(callback, hook) for callback in self._callbacks.named.values() for hook in hooks)

    def _run_write_end(self, path: Path) -> None:
        for callback in self._callbacks.named.values():  # the pair of one callback before that of the next
            callback.on_checkpoint_end(str(path))
            callback.on_checkpoint_write_end(str(path))

    # Loading.

    def load(self, source: str | SavedCheckpoint) -> bool:
        """Restore everything from a checkpoint that was opened, or by its id or its directory. Collective.

        Returns:
            Whether training goes on from the saved counters and data; otherwise only weights and states were taken
            over.

        Raises:
            CheckpointNotFound: There is no such checkpoint.
            CheckpointDamaged: Its files are not the ones that were saved.
            InvalidCheckpointException: It does not fit this trial, or it holds something that is not read.
        """
        continues, failed = False, None
        opened = source if isinstance(source, SavedCheckpoint) else open_checkpoint(self._core, source)
        with opened.files(self._core) as path:
            try:
                continues = self._load(path, opened)
                self._callbacks.on_checkpoint_read_shard.preserving(str(path))
            except Exception as problem:  # noqa: BLE001 - raised below, once no rank reads any more
                failed = problem
        self._distributed.agree(failed)
        return continues

    def _load(self, path: Path, opened: SavedCheckpoint) -> bool:
        source = opened.source
        saved_state = read_state(path)
        saved_state.pop(BESIDE, None)  # verified already, and not part of any state
        checkpoint = self._state.decode(saved_state)
        self._facts.newest = str(opened.metadata.get("saved_at", ""))
        self._callbacks.on_checkpoint_load_start(checkpoint)
        counts = {part.kind: len(part.objects) for part in self._listed}
        older_layouts.modernise(checkpoint, counts, self._distributed.size)
        saved = self._saved_progress(opened, checkpoint)
        for part in self._listed:
            part.saved_classes = (checkpoint.get("classes") or {}).get(part.kind, [])
        seed = checkpoint.get("trial_seed")
        restoring = Restoring(
            rank=self._distributed.rank,
            size=self._distributed.size,
            continues=saved is not None and saved.trial_id == self._progress.trial_id,
            batches_trained=saved.batches_trained if saved is not None else 0,
            seed=seed if seed is not None else self._facts.seed or 0,
        )
        mine = self._state.for_rank(checkpoint, restoring)
        if "amp_state" in checkpoint:
            logger.warning("Checkpoint %s holds the state of apex, which is not used any more: left out.", source)
        try:
            self._state.load_state_dict(mine)
        except CheckpointMismatch as mismatch:
            raise type(mismatch)(f"Checkpoint {source}: {mismatch}") from None
        if restoring.continues and saved is not None:
            self._progress.load_state_dict(saved.state_dict())
            logger.debug("Checkpoint %s: training goes on after batch %d.", source, saved.batches_trained)
        else:
            logger.debug("Checkpoint %s: weights and states are loaded, and training starts at batch 0.", source)
        return restoring.continues

    def _saved_progress(self, opened: SavedCheckpoint, checkpoint: Mapping[str, Any]) -> Progress | None:
        if opened.counters is not None:
            return Progress.from_trial_state(opened.counters, self._stream.epoch_length)
        if isinstance(checkpoint.get("progress"), Mapping):
            saved = Progress()
            saved.load_state_dict(checkpoint["progress"])
            return saved
        logger.warning(
            "%s has none of %s, so how far training was is unknown: it starts at batch 0 with the saved weights.",
            opened.source,
            ", ".join(older_layouts.COUNTER_FILES),
        )
        return None


def _write(path: Path, state: dict[str, Any], counters: bytes) -> dict[str, FileEntry]:
    """Write the files that are this checkpoint's own."""
    (path / "code").mkdir(exist_ok=True)
    (path / "code").chmod(0o755)
    serialization, computes = torch.serialization, torch.serialization.get_crc32_options()
    try:
        serialization.set_crc32_options(True)  # a copy without our manifest has no other checksums
        with naming(path / "state_dict.pth"), MeasuredFile(path / "state_dict.pth") as file:
            torch.save(state, file)  # type: ignore[arg-type]  # it needs no more of a file than write() and flush()
    finally:
        serialization.set_crc32_options(computes)
    return {
        "state_dict.pth": file.entry,
        "trial_state.pkl": write_measured(path / "trial_state.pkl", counters),
    }
