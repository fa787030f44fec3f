"""A checkpoint that training goes on from: find it, open it once, and know what its small files say."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from determined import artifacts, core, errors
from determined._redact import redacted
from determined.artifacts import Manifest
from determined.core.recording.link import Candidate, History, choose_checkpoints, is_of_class
from determined.pytorch.checkpoint import older_layouts
from determined.pytorch.checkpoint.reading import verify

logger = logging.getLogger("determined.pytorch")


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

    @property
    def storage_id(self) -> str:
        return Path(self.source).name

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
    distributed = core_context.distributed
    storage_id = distributed.run_on_chief(lambda: _storage_id(core_context, source))
    if storage_id is None:
        distributed.run_on_local_chief(lambda: verify(Path(source)))

    def read() -> SavedCheckpoint:
        files = DirectoryFiles(Path(source)) if storage_id is None else StoredFiles(core_context, storage_id)
        metadata = files.metadata()
        best = metadata.get("best_validation")
        if not isinstance(best, (int, float)):  # it was saved without a searcher metric, or by an older version
            best = core_context.train.best_before(storage_id or Path(source).name)
        return SavedCheckpoint(
            source,
            files.manifest,
            metadata,
            older_layouts.saved_counters(files.read, source),
            _hparams(files, metadata),
            None if best is None else float(best),
        )

    return distributed.run_on_chief(read)


class StoredFiles:
    """The small files of a checkpoint in this storage, each verified. For one rank alone."""

    def __init__(self, core_context: core.Context, storage_id: str) -> None:
        self._checkpoints = core_context.checkpoint
        self.manifest: Manifest = self._checkpoints._manifest(storage_id)

    def read(self, name: str) -> bytes | None:
        return self._checkpoints._read(self.manifest, name)

    def metadata(self) -> dict[str, Any]:
        return self._checkpoints._metadata(self.manifest)


class DirectoryFiles:
    """The small files of a directory elsewhere, which was verified before. For one rank alone."""

    manifest = None

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, name: str) -> bytes | None:
        place = self._directory / name
        return artifacts.read_plain(place, artifacts.documents.LARGEST) if os.path.lexists(place) else None

    def metadata(self) -> dict[str, Any]:
        return artifacts.documents.read(self._directory / "metadata.json") or {}


def _hparams(files: StoredFiles | DirectoryFiles, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters that a checkpoint was trained with, without secrets."""
    if "hparams" not in metadata and (data := files.read("load_data.json")) is not None:  # saved by an older version
        metadata = artifacts.documents.parse(data, "load_data.json")
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


@dataclasses.dataclass(frozen=True)
class Found:
    """The result of a search for a checkpoint."""

    storage_id: str | None
    unlike: Candidate | None = None
    """If there is none: the newest that differs in its hyperparameters only."""


def find_checkpoint(
    core_context: core.Context,
    which: Literal["latest", "best"],
    trial_class_name: str,
    smaller_is_better: bool = True,
    trial_id: int = 0,
) -> Found:
    """Find the newest or best checkpoint of this script, trial class and hyperparameters in this storage. Collective.

    The store knows those of this script. Without it, or if it knows none, checkpoints say themselves whose they are.
    One that was saved in test mode never counts.

    Args:
        core_context: Whose storage to look in.
        which: "latest" in the order of training, or "best" by the searcher metric it was saved with.
        trial_class_name: The class, as `module:Name` or by its name alone.
        smaller_is_better: The direction of the metric.
        trial_id: The number of the trial whose checkpoints they are; 0 for plain runs.
    """

    def find() -> Found:
        history = core_context.train.find_checkpoints(which, trial_class_name, smaller_is_better) or History()
        known = core_context.checkpoint.list()
        for storage_id in history.found:
            if storage_id in known:
                return Found(storage_id)
        stored = [one for one in known if one not in {*history.others, *history.found}]
        candidates = sorted(_candidates(core_context, stored, trial_class_name, trial_id), key=_age, reverse=True)
        mine = core_context.description
        hparams = mine.hparams if trial_id == 0 and mine is not None else None
        chosen = choose_checkpoints(candidates, which, trial_class_name, smaller_is_better, hparams)
        if chosen.found:
            return Found(chosen.found[0])
        return Found(None, history.unlike or chosen.unlike)

    return core_context.distributed.run_on_chief(find)


def _candidates(
    core_context: core.Context, stored: Iterable[str], trial_class_name: str, trial_id: int
) -> Iterator[Candidate]:
    """Yield the stored checkpoints of this script, trial class and trial, whatever their hyperparameters."""
    mine = core_context.description.script if core_context.description is not None else None
    for storage_id in stored:
        try:
            files = StoredFiles(core_context, storage_id)
            metadata = files.metadata()
            script = metadata.get("script")
            is_other_script = trial_id == 0 and None not in (script, mine) and script != mine
            if (
                is_other_script
                or metadata.get("trial_id", 0) != trial_id
                or not is_of_class(metadata, trial_class_name)
            ):
                continue
            yield Candidate(storage_id, metadata, _hparams(files, metadata), f"checkpoint {storage_id[:8]}")
        except errors.DeterminedError as problem:
            logger.warning("Checkpoint %s is passed over: %s", storage_id, problem)


def _age(candidate: Candidate) -> tuple[str, int, str]:
    """Return what is greater for a newer checkpoint."""
    steps = candidate.metadata.get("steps_completed")
    saved_at = str(candidate.metadata.get("saved_at", ""))
    return saved_at, steps if isinstance(steps, int) else 0, candidate.storage_id
