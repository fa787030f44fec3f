"""A checkpoint that training goes on from: find it, open it once, verify its files, and read what they say."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from determined import artifacts, core, errors
from determined._redact import redacted
from determined.artifacts import Manifest
from determined.artifacts.manifest import check_path
from determined.core.recording.link import Candidate, History, choose_checkpoints, is_of_class
from determined.pytorch.checkpoint import older_layouts
from determined.pytorch.checkpoint.torch_archive import check_archive

logger = logging.getLogger("determined.pytorch")

Read = Callable[[str], bytes | None]
"""Returns the content of a small file of a checkpoint, for one rank alone; None if there is none of that name."""
BESIDE = "files_beside"
"""The key of the state file under which the checksums of the files beside it are found."""


@dataclasses.dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that was opened: its manifest and small files are read and verified. The same on every rank."""

    source: str
    """Its id or its directory, as the user named it."""
    manifest: Manifest | None
    """None for a directory outside of this storage, which was verified when it was opened."""
    metadata: dict[str, Any]
    counters: dict[str, int] | None
    """How far training was; None if no file says it."""
    hparams: dict[str, Any]
    """Without secrets."""
    best: float | None
    """The best value of the searcher metric until it was saved, if it is known."""
    storage_id: str

    @property
    def seed(self) -> int | None:
        """The trial seed it was trained with, if it is known."""
        seed = self.metadata.get("trial_seed")
        return seed if isinstance(seed, int) else None

    def batches_of(self, trial_id: int) -> int:
        """Return how many batches it has seen of this trial; 0 for a checkpoint of another trial."""
        if self.counters is None or (self.counters.get("trial_id") or 0) != trial_id:
            return 0
        return self.counters["batches_trained"]

    @contextlib.contextmanager
    def files(self, core_context: core.Context) -> Iterator[Path]:
        """Its directory, all files verified, for the length of the block. Collective."""
        if self.manifest is None:
            yield Path(self.source)
            return
        opened = (self.manifest, self.metadata)
        with core_context.checkpoint._restore_path(self.manifest.storage_id, opened=opened) as path:
            if not self.manifest.verified:
                core_context.distributed.run_on_local_chief(lambda: verify(path))
            yield path


def open_checkpoint(core_context: core.Context, source: str) -> SavedCheckpoint:
    """Open a checkpoint by its id or its directory. Collective.

    Raises:
        CheckpointNotFound: There is no such checkpoint.
        CheckpointDamaged: Its files are not the ones that were saved.
    """
    distributed, checkpoints = core_context.distributed, core_context.checkpoint

    def opened(manifest: Manifest | None) -> SavedCheckpoint:
        read: Read = functools.partial(read_file, Path(source))
        if manifest is not None:
            read = functools.partial(checkpoints._read, manifest)
        metadata = _document(read, "metadata.json", source)
        best = metadata.get("best_validation")
        if not isinstance(best, (int, float)):  # it was saved without a searcher metric, or by an older version
            best = core_context.train.best_before(Path(source).name if manifest is None else manifest.storage_id)
        return SavedCheckpoint(
            source,
            manifest,
            metadata,
            older_layouts.saved_counters(read, source),
            _hparams(read, metadata, source),
            None if best is None else float(best),
            Path(source).name,
        )

    def opened_here() -> SavedCheckpoint | None:
        storage_id = _storage_id(core_context, source)
        return None if storage_id is None else opened(checkpoints._manifest(storage_id))

    if (found := distributed.run_on_chief(opened_here)) is not None:
        return found
    distributed.run_on_local_chief(lambda: verify(Path(source)))
    return distributed.run_on_chief(lambda: opened(None))


def read_file(directory: Path, name: str) -> bytes | None:
    """Return the content of a small file of a directory that was verified before; None if there is none."""
    place = directory / name
    return artifacts.read_plain(place, artifacts.documents.LARGEST) if os.path.lexists(place) else None


def _document(read: Read, name: str, source: str) -> dict[str, Any]:
    data = read(name)
    return {} if data is None else artifacts.documents.parse(data, f"{name} of checkpoint {source}")


def _hparams(read: Read, metadata: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the hyperparameters that a checkpoint was trained with, without secrets."""
    if "hparams" not in metadata:  # saved by an older version
        metadata = _document(read, "load_data.json", source)
    found = redacted(metadata.get("hparams") or {})
    return found if isinstance(found, dict) else {}


def _storage_id(core_context: core.Context, source: str) -> str | None:
    """Return the id of a checkpoint in this storage; None for a directory elsewhere."""
    if not _is_directory(source):
        return source
    path, storage = Path(source).resolve(), Path(core_context.checkpoint.location)
    is_here = path.parent == storage.resolve() and path.name in core_context.checkpoint.list()
    return path.name if is_here else None


def _is_directory(source: str) -> bool:
    """Return whether `source` is a checkpoint's path. A bare name is one only if it looks like a checkpoint."""
    path = Path(source)
    if not path.is_dir():
        if len(path.parts) > 1:
            raise errors.CheckpointNotFound(
                f"There is no directory {source}. Pass the directory or the id of a checkpoint that fit() wrote, or "
                'latest_checkpoint="latest".'
            )
        return False
    return len(path.parts) > 1 or any(os.path.lexists(path / name) for name in older_layouts.STATE_FILES)


def find_checkpoint(
    core_context: core.Context,
    which: Literal["latest", "best"],
    trial_class_name: str,
    smaller_is_better: bool = True,
    trial_id: int = 0,
) -> History:
    """Find the newest or best checkpoint of this script, trial class and hyperparameters in this storage. Collective.

    The store knows those of this script. Without it, or if it knows none, checkpoints say themselves whose they are.
    One that was saved in test mode never counts. The result has one id at most.

    Args:
        core_context: Whose storage to look in.
        which: "latest" in the order of training, or "best" by the searcher metric it was saved with.
        trial_class_name: The class, as `module:Name` or by its name alone.
        smaller_is_better: The direction of the metric.
        trial_id: The number of the trial whose checkpoints they are; 0 for plain runs.
    """

    def find() -> History:
        history = core_context.train.find_checkpoints(which, trial_class_name, smaller_is_better) or History()
        known = core_context.checkpoint.list()
        for storage_id in history.found:
            if storage_id in known:
                return History([storage_id])
        stored = [one for one in known if one not in {*history.others, *history.found}]
        candidates = sorted(_candidates(core_context, stored, trial_class_name, trial_id), key=_age, reverse=True)
        mine = core_context.description
        hparams = mine.hparams if trial_id == 0 and mine is not None else None
        chosen = choose_checkpoints(candidates, which, trial_class_name, smaller_is_better, hparams)
        return History(chosen.found[:1], unlike=None if chosen.found else history.unlike or chosen.unlike)

    return core_context.distributed.run_on_chief(find)


def _candidates(
    core_context: core.Context, stored: Iterable[str], trial_class_name: str, trial_id: int
) -> Iterator[Candidate]:
    """Yield the stored checkpoints of this script, trial class and trial, whatever their hyperparameters."""
    mine = core_context.description.script if core_context.description is not None else None
    for storage_id in stored:
        try:
            read = functools.partial(core_context.checkpoint._read, core_context.checkpoint._manifest(storage_id))
            metadata = _document(read, "metadata.json", storage_id)
            script = metadata.get("script")
            is_other_script = trial_id == 0 and None not in (script, mine) and script != mine
            if (
                is_other_script
                or metadata.get("trial_id", 0) != trial_id
                or not is_of_class(metadata, trial_class_name)
            ):
                continue
            yield Candidate(storage_id, metadata, _hparams(read, metadata, storage_id), f"checkpoint {storage_id[:8]}")
        except errors.DeterminedError as problem:
            logger.warning("Checkpoint %s is passed over: %s", storage_id, problem)


def _age(candidate: Candidate) -> tuple[str, int, str]:
    """Return what is greater for a newer checkpoint."""
    steps = candidate.metadata.get("steps_completed")
    saved_at = str(candidate.metadata.get("saved_at", ""))
    return saved_at, steps if isinstance(steps, int) else 0, candidate.storage_id


def read_state(directory: Path, **load_kwargs: Any) -> dict[str, Any]:
    """Return what the state file of a checkpoint's directory holds, on the CPU: tensors and plain values only.

    Args:
        directory: The directory.
        **load_kwargs: More for `torch.load`.

    Raises:
        InvalidCheckpointException: There is no state file, or it holds other values.
        CheckpointDamaged: It is incomplete, or would unpack to more bytes than it has.
    """
    path = older_layouts.find_state_file(directory)
    check_archive(path, contents=False)
    options = {"map_location": "cpu", "weights_only": True, **load_kwargs}
    try:
        state = torch.load(path, **options)
    except pickle.UnpicklingError:
        state = older_layouts.read_old(path, options)
    except Exception as broken:
        raise errors.CheckpointDamaged(
            f"{path} cannot be read: {type(broken).__name__}: {str(broken)[:300]}. Use another checkpoint."
        ) from broken
    if not isinstance(state, dict):
        raise errors.InvalidCheckpointException(
            f"{path} holds a {type(state).__name__}, and the state of a trial is a dict: this is some other file."
        )
    return state


def verify(directory: Path) -> None:
    """Refuse a checkpoint's directory whose files are not the ones that were saved, wherever it is.

    Without a manifest, the checksums in the state file are compared.

    Raises:
        CheckpointDamaged: With the reason.
    """
    if not artifacts.verify_in_place(directory):
        verify_without_manifest(directory)


def verify_without_manifest(directory: Path) -> None:
    """Refuse a checkpoint's directory by the checksums in its state file; see `verify`.

    Older layouts, and trials whose hooks write files, have no checksums of the files beside it.
    """
    for name in ("metadata.json", "load_data.json", *older_layouts.COUNTER_FILES):
        if os.path.lexists(directory / name):
            try:
                artifacts.open_plain(directory / name).close()
            except ValueError as e:
                raise errors.CheckpointDamaged(f"{e}. Use another checkpoint.") from e
    path = older_layouts.find_state_file(directory)
    check_archive(path, contents=True)
    try:
        beside = dict(torch.load(path, map_location="cpu", weights_only=True, mmap=True).get(BESIDE) or {})
    except Exception:  # noqa: BLE001 - none, or of another layout, or damaged: whoever reads it will say so
        return
    for name, digest in beside.items():
        try:
            said = artifacts.documents.read(directory / name) if name.endswith(".json") and "/" not in name else None
            found = metadata_digest(said or {}) if name == "metadata.json" else _digest(directory / check_path(name))
        except (OSError, ValueError, errors.UnsafePath) as e:
            raise errors.CheckpointDamaged(f"{directory / name} cannot be read: {e}. Use another checkpoint.") from e
        if found != digest:
            raise errors.CheckpointDamaged(
                f"{directory / name} is not the file that was saved: its SHA-256 differs. Use another checkpoint. If "
                "it was changed on purpose, store the directory anew with core_context.checkpoint.upload()."
            )


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with artifacts.open_plain(path) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def metadata_digest(metadata: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the metadata, whatever the layout of `metadata.json`."""
    return hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()
