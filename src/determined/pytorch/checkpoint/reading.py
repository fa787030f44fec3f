"""Find and look at checkpoints, with or without a trial that is being trained. What is in them stays as it is."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import pickle
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from determined import artifacts, core, errors
from determined._redact import redacted
from determined.artifacts.paths import check_path
from determined.core.recording.link import History, Unlike
from determined.core.recording.run_description import RunDescription
from determined.core.recording.values import differences
from determined.pytorch.checkpoint import older_layouts
from determined.pytorch.checkpoint.torch_archive import check_archive

logger = logging.getLogger("determined.pytorch")

BESIDE = "files_beside"
"""The key of the state file under which the checksums of the files beside it are found."""
SEARCHER_METRIC = "searcher_metric"
"""The key of the metadata under which the validation metric that a checkpoint was saved with is found."""


def read_state(directory: Path, **load_kwargs: Any) -> dict[str, Any]:
    """What the state file of a checkpoint's directory holds, on the CPU. Only tensors and plain values are read.

    Args:
        directory: The directory.
        **load_kwargs: More for `torch.load`.

    Raises:
        InvalidCheckpointException: There is no state file, or it wants more than that.
        CheckpointDamaged: It is not whole, or would unpack to more than it has.
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
    """Refuse a checkpoint's directory whose files are not the ones that were saved, wherever it lies.

    Where nobody wrote down how they should be, the state file's own checksums are compared.

    Raises:
        CheckpointDamaged: With the reason.
    """
    if not artifacts.verify_in_place(directory):
        verify_without_manifest(directory)


def verify_without_manifest(directory: Path) -> None:
    """Refuse a checkpoint's directory as far as one can tell without checksums of ours; see `verify`."""
    for name in ("metadata.json", "load_data.json", *older_layouts.COUNTER_FILES):
        if os.path.lexists(directory / name):
            try:
                artifacts.open_plain(directory / name).close()
            except ValueError as e:
                raise errors.CheckpointDamaged(f"{e}. Use another checkpoint.") from e
    check_archive(older_layouts.find_state_file(directory), contents=True)
    _check_beside(directory)


def _check_beside(directory: Path, names: Collection[str] | None = None) -> None:
    """Refuse files of a directory without a manifest that are not as the state file says. Those of older layouts, and
    of trials whose hooks write files, are not described there."""
    try:
        path = older_layouts.find_state_file(directory)
        check_archive(path, contents=False)
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        beside = dict(state.get(BESIDE) or {})
    except errors.CheckpointDamaged:
        raise
    except Exception:  # noqa: BLE001 - none, or of another layout, or damaged: whoever reads it will say so
        return
    for name, digest in beside.items():
        if names is not None and name not in names:
            continue
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
    """Return the SHA-256 of what `metadata.json` says, however it is laid out."""
    return hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def opened(core_context: core.Context, source: str) -> Iterator[Path]:
    """The directory of a checkpoint, by its id or its path, verified. Collective."""
    distributed, checkpoints = core_context.distributed, core_context.checkpoint
    storage_id = distributed.run_on_chief(lambda: _storage_id(core_context, source))
    if storage_id is None:
        distributed.run_on_local_chief(lambda: verify(Path(source)))
        yield Path(source)
        return
    has_checksums = distributed.run_on_chief(lambda: checkpoints._has_checksums(storage_id))
    with checkpoints.restore_path(storage_id) as path:
        if not has_checksums:
            distributed.run_on_local_chief(lambda: verify(path))
        yield path


def _storage_id(core_context: core.Context, source: str) -> str | None:
    """The id, or None for a directory elsewhere."""
    if not _is_directory(source):
        return source
    path, storage = Path(source).resolve(), Path(core_context.checkpoint.location)
    is_here = path.parent == storage.resolve() and path.name in core_context.checkpoint.list()
    return path.name if is_here else None


def _is_directory(source: str) -> bool:
    """Whether it is the path of a checkpoint. A bare name may be an id, and then it has to look like a checkpoint."""
    path = Path(source)
    if not path.is_dir():
        if len(path.parts) > 1:
            raise errors.CheckpointNotFound(
                f"There is no directory {source}. Pass the directory or the id of a checkpoint that fit() wrote, or "
                'latest_checkpoint="latest".'
            )
        return False
    return len(path.parts) > 1 or any(os.path.lexists(path / name) for name in older_layouts.STATE_FILES)


def saved_batches(core_context: core.Context, source: str, trial_id: int) -> int:
    """How many batches a checkpoint of this trial has seen; 0 for one of another trial. Cheap. Collective."""

    def read() -> int:
        with _small_files(core_context, source) as path:
            counters = older_layouts.saved_counters(path, sys.maxsize)
        if counters is None or (counters.get("trial_id") or 0) != trial_id:
            return 0
        return int(counters["batches_trained"])

    return core_context.distributed.run_on_chief(read)


@contextlib.contextmanager
def _small_files(
    core_context: core.Context, source: str, names: Collection[str] = older_layouts.COUNTER_FILES
) -> Iterator[Path]:
    """The directory of a checkpoint, or one with these files only: nobody waits for gigabytes. For one rank alone."""
    if _is_directory(source):
        if not artifacts.verify_in_place(Path(source), names.__contains__):
            _check_beside(Path(source), names)
        yield Path(source)
        return
    with tempfile.TemporaryDirectory(prefix="determined-") as directory:
        core_context.checkpoint.download(
            source,
            directory,
            core.DownloadMode.NoSharedDownload,
            selector=lambda path: path in names,
        )
        yield Path(directory)


def saved_seed(core_context: core.Context, source: str) -> int | None:
    """The trial seed that a checkpoint was trained with; None if it does not say. Collective."""
    seed = _saved_metadata(core_context, source).get("trial_seed")
    return seed if isinstance(seed, int) else None


def saved_best(core_context: core.Context, source: str) -> float | None:
    """The best value of the searcher metric when a checkpoint was saved; None if nobody knows. Collective."""
    best = _saved_metadata(core_context, source).get("best_validation")
    if isinstance(best, (int, float)):
        return float(best)
    # It was saved without a searcher metric, or by an older version. The store may still know the validations.
    return core_context.distributed.run_on_chief(lambda: core_context.train.best_before(Path(source).name))


def _saved_metadata(core_context: core.Context, source: str) -> dict[str, Any]:
    """What `metadata.json` says; empty if there is none. Collective."""
    return core_context.distributed.run_on_chief(lambda: saved_metadata(core_context, source))


def saved_metadata(core_context: core.Context, source: str) -> dict[str, Any]:
    """What `metadata.json` says; empty if there is none. For one rank alone."""
    return read_metadata(Path(source)) if _is_directory(source) else core_context.checkpoint.get_metadata(source)


def read_metadata(directory: Path) -> dict[str, Any]:
    """What `metadata.json` of a checkpoint's directory says, verified if that can be; empty if there is none."""
    if not artifacts.verify_in_place(directory, "metadata.json".__eq__):
        _check_beside(directory, ["metadata.json"])
    return artifacts.documents.read(directory / "metadata.json") or {}


def saved_hparams(core_context: core.Context, source: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """The hyperparameters that a checkpoint was trained with, without secrets. For one rank alone."""
    if "hparams" not in metadata:  # older ones have them in another file
        with _small_files(core_context, source, ["load_data.json"]) as path:
            metadata = artifacts.documents.read(path / "load_data.json") or {}
    found = redacted(metadata.get("hparams") or {})
    return found if isinstance(found, dict) else {}


def script_checksum(script: str | None) -> str | None:
    """A sign of what a script says now; None if nobody can tell, as of a notebook, whose file changes as it runs."""
    try:
        return (
            None
            if script is None or script.endswith(".ipynb")
            else hashlib.sha256(Path(script).read_bytes()).hexdigest()
        )
    except OSError:
        return None


@dataclasses.dataclass(frozen=True)
class Found:
    """What became of looking for a checkpoint."""

    storage_id: str | None
    unlike: Unlike | None = None
    """If there is none: the newest that would do but for its hyperparameters."""


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
        history = core_context.find_checkpoints(which, trial_class_name, smaller_is_better) or History()
        known = core_context.checkpoint.list()
        for storage_id in history.found:
            if storage_id in known:
                return Found(storage_id)
        found: list[tuple[Any, str, int, str]] = []
        unlike: list[tuple[str, Unlike]] = []
        others = {*history.others, *history.found}
        for storage_id in (one for one in known if one not in others):
            try:
                metadata = core_context.checkpoint.get_metadata(storage_id)
                if not _is_own(metadata, trial_class_name, trial_id, core_context.description):
                    continue
                hparams = saved_hparams(core_context, storage_id, metadata)
            except errors.DeterminedError as problem:
                logger.warning("Checkpoint %s is passed over: %s", storage_id, problem)
                continue
            saved_at, value = str(metadata.get("saved_at", "")), metadata.get(SEARCHER_METRIC)
            mine = core_context.description
            if trial_id == 0 and mine is not None and differences(mine.hparams, hparams):
                unlike.append((saved_at, Unlike(f"checkpoint {storage_id[:8]}", hparams)))
                continue
            steps = metadata.get("steps_completed")
            order = (saved_at, steps if isinstance(steps, int) else 0, storage_id)
            if which == "latest":
                found.append((0, *order))
            elif isinstance(value, (int, float)) and value == value:
                found.append((-value if smaller_is_better else value, *order))
        if found:
            return Found(max(found)[-1])
        newest = max(unlike, key=lambda one: one[0])[1] if unlike else None
        return Found(None, history.unlike or newest)

    return core_context.distributed.run_on_chief(find)


def _is_own(metadata: dict[str, Any], trial_class_name: str, trial_id: int, description: RunDescription | None) -> bool:
    """Whether a checkpoint is one of this script, trial class and trial, whatever its hyperparameters."""
    spec, script = str(metadata.get("trial_class", "")), metadata.get("script")
    if trial_class_name not in (spec, spec.rpartition(":")[2]) or metadata.get("test_mode"):
        return False
    mine = description.script if description is not None else None
    is_other_script = script is not None and mine is not None and script != mine
    return metadata.get("trial_id", 0) == trial_id and not (trial_id == 0 and is_other_script)
