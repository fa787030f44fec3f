"""Files of experiments: download and remove checkpoints, and remove event files."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from determined import store
from determined.artifacts import Storage, open_storage, verify_in_place
from determined.client._session import Session
from determined.errors import CheckpointStateException, Refused

METADATA = "metadata.json"
Progress = Callable[[int, int], None]
"""Told how many bytes are here, and how many there are."""


def fetch(
    storage: Storage, uuid: str, target: Path, metadata: Mapping[str, Any], progress: Progress | None = None
) -> None:
    """Copy a checkpoint into `target`, unless a whole copy is there.

    `metadata.json` comes last, so a directory that has it has everything: a copy that was cut short is completed.
    A whole copy is verified by the manifest it carries; one of an earlier release carries none.
    """
    if (target / METADATA).is_file():
        verify_in_place(target)
        return
    sizes = storage.manifest(uuid).resources
    done, total = 0, sum(sizes.values())

    def count(path: str, size: int) -> None:  # noqa: ARG001  the name does not matter here
        nonlocal done
        done += size
        if progress is not None:
            progress(done, total)

    was_there = target.exists()
    try:
        target.mkdir(parents=True, exist_ok=True)
        storage.fetch(uuid, target, lambda path: path != METADATA, fetched=count, carries_manifest=True)
        if METADATA in sizes:
            storage.fetch(uuid, target, lambda path: path == METADATA, fetched=count, carries_manifest=True)
        else:
            write_metadata(target / METADATA, metadata)
    except BaseException:
        if not was_there:
            _remove_empty(target)
        raise


def _remove_empty(target: Path) -> None:
    """Take away directories that nothing came into; whole files stay, for the next attempt."""
    made = [Path(directory) for directory, _, _ in os.walk(target, topdown=False)]
    for directory in made:
        with contextlib.suppress(OSError):
            directory.rmdir()


def write_metadata(path: Path, metadata: Mapping[str, Any]) -> None:
    """Write metadata to a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(dict(metadata), indent=2, sort_keys=True), encoding="utf-8")
    temporary.replace(path)


def storage_of(uuid: str, config: Mapping[str, Any] | None) -> Storage:
    """Open the storage that a checkpoint was recorded to be in."""
    if config is None:
        raise CheckpointStateException(
            f"Where the files of checkpoint {uuid} are was not recorded. "
            "If you know the directory, read it with determined.pytorch.load_trial_from_checkpoint_path()."
        )
    return open_storage(config)


class Storages:
    """The storages of many checkpoints, each opened once."""

    def __init__(self) -> None:
        self._opened: dict[str, Storage] = {}

    def of(self, config: Mapping[str, Any] | None) -> Storage | None:
        """Return the storage of a checkpoint, or None if it was not recorded."""
        if config is None:
            return None
        key = json.dumps(config, sort_keys=True)
        return self._opened.get(key) or self._opened.setdefault(key, open_storage(config))


@dataclasses.dataclass(frozen=True)
class Retention:
    """What clearing up did, or would do.

    Args:
        removed: The checkpoints whose files are gone now; with `dry_run`, would be.
        in_use: Those that were left alone: they are being read, were registered meanwhile, or have no recorded storage.
        size: Bytes of the removed ones.
        dry_run: Whether it was only a look.

    Example::

        print(experiment.apply_retention(save_trial_best=1, dry_run=True).size)
    """

    removed: list[str]
    in_use: list[str]
    size: int
    dry_run: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)


def apply(
    session: Session, experiment_id: int, policy: store.upkeep.retention.Policy | None, *, dry_run: bool
) -> Retention:
    """Remove what a policy does not keep; None is what the experiment's config says."""
    with session.read() as conn:
        unwanted = store.upkeep.retention.plan(conn, experiment_id, policy)
        sizes = {uuid: store.checkpoints.get(conn, uuid).size for uuid in unwanted}
    if dry_run:
        return Retention(unwanted, [], sum(sizes.values()), dry_run=True)
    storages = Storages()

    def delete(row: store.checkpoints.CheckpointRow) -> bool:
        storage = storages.of(row.storage)
        return storage is not None and storage.delete_unread(row.uuid)

    gone, stayed = store.upkeep.retention.remove(session.store, unwanted, delete)
    return Retention(gone, stayed, sum(sizes[uuid] for uuid in gone), dry_run=False)


EVENT_FILES = "*tfevents*"


def download_code(session: Session, experiment_id: int, output_dir: str | None) -> str:
    """Write the code that an experiment was submitted with to `exp-<id>_model_def.tar.gz`, and return the path.

    Raises:
        Refused: It was not submitted, so there is no copy of its code.
    """
    return _write_code(packed_code(session, experiment_id), Path(output_dir or "."), experiment_id)


def packed_code(session: Session, experiment_id: int) -> bytes:
    """Return the code that an experiment was submitted with, as .tar.gz.

    Raises:
        Refused: It was not submitted, so there is no copy of its code. The message says where else it may be.
    """
    from determined.store.control import code

    with session.read() as conn:
        experiment = store.experiments.get(conn, experiment_id)
        if experiment.code_snapshot_id is not None:
            return code.content(conn, experiment.code_snapshot_id)
        newest = store.trials.of_experiment(conn, experiment_id, descending=True, limit=1)
        found = [row for trial in newest for row in store.attempts.of_trial(conn, trial.id)]
    environment = found[-1].environment if found else {}
    git = environment.get("git") if isinstance(environment.get("git"), dict) else {}
    where = f" It ran {experiment.script}" if experiment.script else ""
    commit = f" at git commit {git['commit']}" if git and git.get("commit") else ""
    raise Refused(
        f"Experiment {experiment_id} has no copy of its code: only experiments that are submitted do.{where}{commit}."
        + (" Its checkpoints may hold a copy, in their directory code." if experiment.checkpoint_count else "")
    )


def code_name(experiment_id: int) -> str:
    """Return what the file with the code of an experiment is called."""
    return f"exp-{experiment_id}_model_def.tar.gz"


def _write_code(content: bytes, directory: Path, experiment_id: int) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / code_name(experiment_id)
    unfinished = path.with_name(f".{path.name}.part")
    unfinished.write_bytes(content)
    unfinished.replace(path)
    return str(path)


def remove_event_files(directory: str) -> None:
    """Remove the event files below a directory, and the directories that are empty then. Nothing else is touched."""
    root = Path(directory)
    for path in root.rglob(EVENT_FILES):
        if path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)
    for path in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
        with contextlib.suppress(OSError):  # something else is in it
            path.rmdir()
    with contextlib.suppress(OSError):
        root.rmdir()
