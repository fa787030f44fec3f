"""Write and read a trial's checkpoint: which files there are, in which order, and which rank does what.

What is in `state_dict.pth` is listed in `_state`; how older files are read is in `_checkpoint_compat`.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import io
import json
import logging
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from determined import core, errors
from determined._home import data_directory
from determined._redact import redacted
from determined._version import __version__
from determined.artifacts import FileEntry, SharedFile, documents
from determined.artifacts.writer import MeasuredFile, naming, write_measured
from determined.core._checkpoint import write_shared
from determined.core.recording.values import plain as json_value
from determined.pytorch._callback import Callbacks, overrides
from determined.pytorch._state import (
    CallbackStates,
    Models,
    Optimizers,
    Progress,
    Scaler,
    Schedulers,
    TrainingState,
)
from determined.pytorch.checkpoint import older_layouts
from determined.pytorch.checkpoint.background import BackgroundSave, Snapshot
from determined.pytorch.checkpoint.encoding import from_plain, to_plain
from determined.pytorch.checkpoint.reading import (
    BESIDE,
    metadata_digest,
    read_state,
    script_checksum,
)
from determined.pytorch.checkpoint.saved import SavedCheckpoint, open_checkpoint
from determined.pytorch.code.copying import CodeCopy
from determined.pytorch.data.stream import TrainingStream
from determined.pytorch.parallel.gradients import average_waiting
from determined.pytorch.rng import streams as rng_streams

logger = logging.getLogger("determined.pytorch")

FORMAT_VERSION = 1
_PER_RANK = ("gradients", "reducers", "data", "rng_states")
_WITH_CODE = ("optimizers_state_dict", "lr_schedulers_state_dict")


@dataclass(frozen=True)
class Loaded:
    """What loading a checkpoint came to."""

    continues: bool
    """The counters and the data go on where they were; otherwise only what was learned is taken over."""


class Checkpointer:
    """Saves and loads one `fit()`.

    Args:
        core_context: Whose storage is used.
        context: The trial's context: models, optimizers, lr_schedulers, scaler, gradients, reducers.
        trial: The trial, for the name of its class.
        callbacks: Their hooks run here, and their state is saved.
        progress: How far training is; `progress.trial_id` is the trial that runs now.
        stream: The training data. It may be set later, before the first call.
        code: The user's code; by default that of the script and of what it has imported.
    """

    def __init__(
        self,
        core_context: core.Context,
        context: Any,
        trial: Any,
        callbacks: Callbacks,
        progress: Progress,
        stream: TrainingStream | None = None,
        *,
        code: CodeCopy | None = None,
    ) -> None:
        self._core = core_context
        self._context = context
        self._trial = trial
        self._callbacks = callbacks
        self._progress = progress
        self.stream = stream
        self._code = code or CodeCopy(without=_own_places(core_context))
        self._distributed: core.DistributedContext = context.distributed
        if self._distributed.rank == 0:
            self._code.read()  # now, because a person may go on editing while the run trains
        self._rng = rng_streams.RngState()
        self._snapshot = Snapshot()
        self._background: BackgroundSave | None = None  # on the chief
        self._is_saving = False  # on every rank
        self._described: tuple[str | None, SharedFile] | None = None  # load_data.json, and the script it names
        self._stored_sharded: str | None = None
        self._kept_as_text: set[str] = set()
        self._about_the_run = _about_the_run(core_context)
        self._newest = ""  # when the checkpoint that training goes on from was saved, and later the last of our own
        self._saved_classes: dict[str, list[str]] = {}
        self._models = Models(context.models, self._classes_of)
        self._optimizers = Optimizers(context.optimizers, self._classes_of)
        self._schedulers = Schedulers(context.lr_schedulers, self._classes_of)

    def _tracked(self) -> TrainingState:
        """What is saved, in the order it is restored in. Made for each use: the scaler may come late."""
        state = TrainingState()
        state.track("models_state_dict", self._models)
        state.track("optimizers_state_dict", self._optimizers)
        state.track("lr_schedulers_state_dict", self._schedulers)
        state.track("scaler_state_dict", Scaler(self._context.scaler))
        state.track("rng_states", self._rng, per_rank=True)
        state.track("callbacks", CallbackStates(self._callbacks.named))
        if self.stream is not None:
            state.track("data", self.stream, per_rank=True)
        state.track("gradients", self._context.gradients, per_rank=True)
        state.track("reducers", self._context.reducers, per_rank=True)
        return state

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
        metadata = self._metadata(metadata_extra)
        written: dict[str, FileEntry] = {}

        def fill(path: Path, shared: Mapping[str, SharedFile]) -> None:
            beside = self._beside(shared, metadata)
            written.update(self._write(path, self._assemble(ranks) | beside, self._progress.trial_state()))
            self._run_write_end(path)

        def write() -> str:
            shared = self._shared()
            with self._streams_kept(), self._store(metadata, shared, written) as (path, storage_id):
                fill(path, shared)
            return storage_id

        if self._has("on_checkpoint_write_shard"):
            return self._save_shards(metadata, fill)
        return self._distributed.run_on_chief(write)

    def _store(
        self, metadata: dict[str, Any], shared: Mapping[str, SharedFile], written: Mapping[str, FileEntry]
    ) -> AbstractContextManager[tuple[Path, str]]:
        if self._has("on_checkpoint_end", "on_checkpoint_write_end"):  # they may change whatever they see
            return self._core.checkpoint._store_path(metadata, shared, shows_shared=True)
        return self._core.checkpoint._store_path(metadata, shared, written=written)

    def _shared(self) -> dict[str, SharedFile]:
        """What is the same in all checkpoints of a run, so that it is written only once."""
        code = {f"code/{path}": file for path, file in self._code.read().items()}
        self._code.say()
        if self._described is None or self._described[0] != self._code.script:
            self._described = (self._code.script, self._describe())
        return {**code, "load_data.json": self._described[1]}

    def _describe(self) -> SharedFile:
        described = json.dumps(self._load_data(), indent=2).encode()
        if len(described) > documents.LARGEST:
            logger.warning(
                "load_data.json takes %d bytes, and load_trial_from_checkpoint_path() reads %d at most. "
                "Keep what is large in hparams or config in a file of its own.",
                len(described),
                documents.LARGEST,
            )
        return SharedFile(described)

    def _beside(self, shared: Mapping[str, SharedFile], metadata: dict[str, Any]) -> dict[str, Any]:
        """Return checksums of the other files, for `state_dict.pth`: in a copy by hand nothing else has any.

        Not where hooks may change the files afterwards.
        """
        if self._has("on_checkpoint_end", "on_checkpoint_write_end", "on_checkpoint_write_shard"):
            return {}
        known = {name: file.entry.sha256 for name, file in shared.items()}
        known["trial_state.pkl"] = hashlib.sha256(_counters(self._progress.trial_state())).hexdigest()
        return {BESIDE: {**known, "metadata.json": metadata_digest(self._core.checkpoint._checked(metadata))}}

    def _save_shards(self, metadata: dict[str, Any], fill: Callable[[Path, Mapping[str, SharedFile]], None]) -> str:
        """Every rank writes into a directory of its own, the chief what there is for all, too. Collective."""
        is_chief = self._distributed.rank == 0
        store = self._core.checkpoint.store_path(metadata if is_chief else None, shard=True)
        with self._streams_kept(), store as (path, storage_id):
            if is_chief:
                shared = self._shared()
                write_shared(path, shared)
                fill(path, shared)
            self._callbacks.on_checkpoint_write_shard(str(path))
        return storage_id

    def save_async(self, metadata_extra: Mapping[str, Any] | None = None) -> None:
        """Copy the state, and write the checkpoint beside training. Collective.

        `poll()` or `wait()` tell its id, run the write-end hooks, and raise what went wrong. One that is still being
        written is waited for, so ask `wait()` before if its id matters.
        """
        if self._has("on_checkpoint_write_shard"):  # ranks have to meet for it, which a thread beside training cannot
            self._stored_sharded = self.save(metadata_extra)
            return
        self.wait()
        ranks = self._gather()
        metadata = self._metadata(metadata_extra)
        trial_state = self._progress.trial_state()
        written: dict[str, FileEntry] = {}

        def begin() -> None:
            with self._streams_kept():
                shared = self._shared()
                state = self._snapshot.copy(self._assemble(ranks)) | self._beside(shared, metadata)

            def write(path: Path) -> None:
                written.update(self._write(path, state, trial_state))

            self._background = BackgroundSave(
                lambda: self._store(metadata, shared, written),
                write,
                self._run_write_end if self._has("on_checkpoint_end", "on_checkpoint_write_end") else None,
            )

        self._distributed.run_on_chief(begin)
        self._is_saving = True

    def poll(self) -> str | None:
        """The id of the checkpoint that `save_async()` began, if it was stored meanwhile. Collective.

        Returns it once; None if there is none, or not yet. Raises, on every rank, what went wrong.
        """
        return self._finish(lambda saving: saving.poll())

    def wait(self) -> str | None:
        """Like `poll()`, but wait until it is stored. Collective."""
        return self._finish(lambda saving: saving.wait())

    def abandon(self) -> None:
        """After an error elsewhere: let what is being written come to its end, without talking to other ranks."""
        saving, self._background, self._is_saving = self._background, None, False
        if saving is not None:
            try:
                saving.wait()
            except Exception:
                logger.warning("The checkpoint that was being written in the background is lost.", exc_info=True)

    def _finish(self, ask: Any) -> str | None:
        if not self._is_saving:
            stored, self._stored_sharded = self._stored_sharded, None
            return stored

        def result() -> str | None:
            assert self._background is not None, "the chief began it"
            with self._streams_kept():
                found: str | None = ask(self._background)
            return found

        try:
            storage_id = self._distributed.run_on_chief(result)
        except BaseException:
            self._is_saving, self._background = False, None
            raise
        if storage_id is not None:
            self._is_saving, self._background = False, None
        return storage_id

    def _gather(self) -> list[dict[str, Any]]:
        """Every rank's own state; on ranks other than the chief, nothing. Collective."""
        mine: dict[str, Any] = {}
        failed: Exception | None = None
        try:
            self._context.gradients.check_exchanged()
            states = self._tracked().rank_state_dict()
            mine = {name: to_plain(state, f"the state of {name}") for name, state in states.items()}
        except Exception as problem:  # noqa: BLE001 - raised below, once the others know
            failed = problem
        self._distributed.agree(failed)
        if self._distributed.size == 1:
            return [mine]
        return [_unpacked(packed) for packed in self._distributed.gather(_packed(mine)) or []]

    def _assemble(self, ranks: list[dict[str, Any]]) -> dict[str, Any]:
        """What `state_dict.pth` holds: gathered, shown to the callbacks, and made of tensors and plain values only."""
        checkpoint: dict[str, Any] = self._tracked().state_dict()
        checkpoint["rng_state"] = ranks[0]["rng_states"]  # the chief's, where scripts have always found it
        checkpoint |= {name: [mine.get(name) for mine in ranks] for name in _PER_RANK}
        checkpoint["progress"] = self._progress.state_dict()
        checkpoint["trial_seed"] = self._seed()
        checkpoint["classes"] = {
            "model": self._models.classes(),
            "optimizer": self._optimizers.classes(),
            "lr_scheduler": self._schedulers.classes(),
        }
        checkpoint["format_version"] = FORMAT_VERSION
        self._callbacks.on_checkpoint_save_start(checkpoint)
        return {key: _encoded(key, value) for key, value in checkpoint.items()}

    def _write(self, path: Path, state: dict[str, Any], trial_state: dict[str, int]) -> dict[str, FileEntry]:
        (path / "code").mkdir(exist_ok=True)
        (path / "code").chmod(0o755)
        return {
            "state_dict.pth": _save_state(state, path / "state_dict.pth"),
            "trial_state.pkl": write_measured(path / "trial_state.pkl", _counters(trial_state)),
        }

    def _load_data(self) -> dict[str, Any]:
        return {
            "trial_type": "PyTorchTrial",
            "experiment_config": self._as_json("experiment_config", self._context.get_experiment_config),
            "hparams": self._as_json("hparams", self._context.get_hparams),
            "trial_cls_spec": class_spec(type(self._trial)),
            "script": self._code.script,
            "is_trainer": True,
        }

    def _as_json(self, name: str, get: Callable[[], Any]) -> Any:
        try:
            found = get()
        except ValueError:
            return None
        return redacted(_lenient(found, name, self._kept_as_text))

    def _metadata(self, extra: Mapping[str, Any] | None) -> dict[str, Any]:
        self._newest = _later_than(self._newest)
        return {
            "determined_version": __version__,
            "steps_completed": self._progress.batches_trained,
            "framework": f"torch-{torch.__version__}",
            "format": "pickle",
            "trial_class": class_spec(type(self._trial)),
            "trial_id": self._progress.trial_id,
            "trial_seed": self._seed(),
            "saved_at": self._newest,
            **self._about_the_run,
            **(extra or {}),
        }

    def _has(self, *hooks: str) -> bool:
        return any(overrides(callback, hook) for callback in self._callbacks.named.values() for hook in hooks)

    def _run_write_end(self, path: Path) -> None:
        for callback in self._callbacks.named.values():  # the pair of one callback before that of the next
            callback.on_checkpoint_end(str(path))
            callback.on_checkpoint_write_end(str(path))

    @contextlib.contextmanager
    def _streams_kept(self) -> Iterator[None]:
        """Whatever hooks draw: a run that saves goes on like one that does not."""
        streams = self._rng.state_dict()
        try:
            yield
        finally:
            self._rng.load_state_dict(streams)

    def _seed(self) -> int | None:
        try:
            seed: int = self._context.get_trial_seed()
        except errors.InternalException:  # made without one
            return None
        return seed

    # Loading.

    def load(self, source: str | SavedCheckpoint) -> Loaded:
        """Restore everything from a checkpoint that was opened, or by its id or its directory. Collective.

        Raises:
            CheckpointNotFound: There is no such checkpoint.
            CheckpointDamaged: Its files are not the ones that were saved.
            InvalidCheckpointException: It does not fit this trial, or it holds something that is not read.
        """
        loaded, failed = Loaded(continues=False), None
        opened = source if isinstance(source, SavedCheckpoint) else open_checkpoint(self._core, source)
        with opened.files(self._core) as path:
            try:
                loaded = self._load(path, opened)
                with self._streams_kept():
                    self._callbacks.on_checkpoint_read_shard(str(path))
            except Exception as problem:  # noqa: BLE001 - raised below, once no rank reads any more
                failed = problem
        self._distributed.agree(failed)
        return loaded

    def _load(self, path: Path, opened: SavedCheckpoint) -> Loaded:
        source = opened.source
        saved_state = read_state(path)
        saved_state.pop(BESIDE, None)  # verified already, and nobody's state
        checkpoint = _decoded(saved_state, self._callbacks.named)
        self._newest = str(opened.metadata.get("saved_at", ""))
        self._callbacks.on_checkpoint_load_start(checkpoint)
        counts = {"model": len(self._context.models), "optimizer": len(self._context.optimizers)}
        older_layouts.modernise(checkpoint, {**counts, "lr_scheduler": len(self._context.lr_schedulers)})
        saved = self._saved_progress(opened, checkpoint)
        continues = saved is not None and saved.trial_id == self._progress.trial_id
        self._saved_classes = checkpoint.get("classes") or {}
        mine = self._own_part(checkpoint, continues)
        state = self._tracked()
        try:
            state.check(mine)
        except errors.InvalidCheckpointException as mismatch:
            raise type(mismatch)(f"Checkpoint {source}: {mismatch}") from None
        if "amp_state" in checkpoint:
            logger.warning("Checkpoint %s holds the state of apex, which is not used any more: left out.", source)
        self._seek_older_data(checkpoint, saved if continues else None)
        state.load_state_dict(mine)
        self._settle_streams(mine.get("rng_states"), checkpoint, saved)
        if continues and saved is not None:
            self._progress.load_state_dict(saved.state_dict())
            logger.debug("Checkpoint %s: training goes on after batch %d.", source, saved.batches_trained)
        else:
            logger.debug("Checkpoint %s: weights and states are loaded, and training starts at batch 0.", source)
        return Loaded(continues)

    def _saved_progress(self, opened: SavedCheckpoint, checkpoint: Mapping[str, Any]) -> Progress | None:
        length = self.stream.epoch_length if self.stream is not None else sys.maxsize
        if opened.counters is not None:
            return Progress.from_trial_state(opened.counters, length)
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

    def _own_part(self, checkpoint: dict[str, Any], continues: bool) -> dict[str, Any]:
        """The checkpoint as this rank restores it."""
        mine = {key: value for key, value in checkpoint.items() if key not in _PER_RANK}
        for name in _PER_RANK:
            ranks = checkpoint.get(name) or []
            if name == "rng_states" and not ranks:
                ranks = [checkpoint.get("rng_state")] * self._distributed.size  # until 0.38, the chief's for all
            same_size = len(ranks) == self._distributed.size
            if name == "rng_states" and not same_size:
                continue
            if name == "gradients" and not same_size:
                ranks = [average_waiting([rank or {} for rank in ranks])]
            part = ranks[self._distributed.rank if same_size else 0] if ranks else None
            if part is not None and (continues or name not in ("data", "gradients")):
                mine[name] = from_plain(part, f"the state of {name}")
        return mine

    def _seek_older_data(self, checkpoint: Mapping[str, Any], saved: Progress | None) -> None:
        if saved is not None and not checkpoint.get("data") and self.stream is not None:
            self.stream.load_state_dict({"version": 1, "batches": saved.batches_trained})

    def _settle_streams(self, own: Any, checkpoint: dict[str, Any], saved: Progress | None) -> None:
        """Put the random streams where they belong, after everything that may have drawn from them."""
        if own is not None:
            self._rng.load_state_dict(own)
        elif checkpoint.get("rng_states"):
            batches = saved.batches_trained if saved is not None else 0
            seed = checkpoint.get("trial_seed")
            rng_streams.derive(seed if seed is not None else self._seed() or 0, batches, self._distributed.rank)
            logger.info("Saved by %d ranks: random streams begin anew.", len(checkpoint["rng_states"]))
        else:
            logger.warning("The checkpoint has no rng_state: random streams go on as they are.")

    def _classes_of(self, kind: str) -> list[str]:
        return self._saved_classes.get(kind, [])


def _packed(state: dict[str, Any]) -> bytes:
    """For another rank: pickle alone cannot carry every tensor."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _unpacked(packed: bytes) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(io.BytesIO(packed), map_location="cpu", weights_only=True)
    return state


def _counters(trial_state: dict[str, int]) -> bytes:
    return pickle.dumps(trial_state, protocol=2)


def _save_state(state: dict[str, Any], path: Path) -> FileEntry:
    serialization, computes = torch.serialization, torch.serialization.get_crc32_options()
    try:
        serialization.set_crc32_options(True)  # a copy without our manifest has no other checksums
        with naming(path), MeasuredFile(path) as file:
            torch.save(state, file)  # type: ignore[arg-type]  # it needs no more of a file than write() and flush()
    finally:
        serialization.set_crc32_options(computes)
    return file.entry


def _about_the_run(core_context: core.Context) -> dict[str, Any]:
    """By what "latest" knows its own, also where nothing is recorded."""
    description = core_context.description
    if description is None:
        return {}
    script, hparams = description.script, description.hparams
    about: dict[str, Any] = {"script": script, "script_sha256": script_checksum(script)}
    if len(json.dumps(hparams, default=str)) < documents.LARGEST // 2:  # more would not be read back
        about["hparams"] = hparams
    return about


def _later_than(moment: str) -> str:
    """Now; or just after `moment` if the clock was set back since, so that newer checkpoints always look newer."""
    now = datetime.datetime.now(datetime.timezone.utc)
    with contextlib.suppress(ValueError, TypeError):  # unknown, or not written by us
        now = max(now, datetime.datetime.fromisoformat(moment) + datetime.timedelta(microseconds=1))
    return now.isoformat()


def class_spec(cls: type) -> str:
    """A class as `load_data.json` names it."""
    return f"{cls.__module__}:{cls.__qualname__}"


def _encoded(key: str, value: Any) -> Any:
    if key == "callbacks" and isinstance(value, dict):
        return {name: to_plain(state, f"the state of callback {name!r}: state") for name, state in value.items()}
    return to_plain(value, key, keeps_code=key in _WITH_CODE)


def _decoded(checkpoint: dict[str, Any], callbacks: Mapping[str, Any]) -> dict[str, Any]:
    """What callbacks are shown. Objects restore theirs later, and what nobody asks for stays as it is."""
    later = (*_WITH_CODE, *_PER_RANK, "models_state_dict", "model_state_dict")
    decoded = {
        key: value if key in later else from_plain(value, key)
        for key, value in checkpoint.items()
        if key != "callbacks"
    }
    if isinstance(saved := checkpoint.get("callbacks"), dict):
        decoded["callbacks"] = {
            name: from_plain(state, f"the state of callback {name!r}") if name in callbacks else state
            for name, state in saved.items()
        }
    return decoded


def _lenient(value: Any, name: str, said: set[str]) -> Any:
    """As JSON; what cannot be is written as text, because a checkpoint matters more. Each is said once."""
    if isinstance(value, Mapping):
        return {str(key): _lenient(item, f"{name}.{key}", said) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_lenient(item, name, said) for item in value]
    try:
        return json_value(value, name)
    except (TypeError, ValueError):
        if name not in said:
            said.add(name)
            logger.warning("load_data.json: %s is of type %s, and is kept as text.", name, type(value).__name__)
        return repr(value)


def _own_places(core_context: core.Context) -> list[Path]:
    places = [Path(core_context.checkpoint.location), data_directory()]
    return [place for place in places if place.is_absolute()]
