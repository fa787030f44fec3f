"""A checkpoint: what was saved, when, how good it was, and its files."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined import store
from determined.artifacts import Storage
from determined.client import _enums, _files
from determined.client._enums import CheckpointSortBy, CheckpointState, DownloadMode, OrderBy
from determined.client._listing import Listing
from determined.client._metrics import Metrics, TrialMetrics
from determined.client._session import Session, Stored
from determined.errors import CheckpointStateException, InvalidValue, NotFound

if TYPE_CHECKING:
    import sqlalchemy as sa

READABLE = {CheckpointState.COMPLETED, CheckpointState.PARTIALLY_DELETED}


@dataclasses.dataclass(frozen=True)
class CheckpointTrainingMetadata:
    """Where a checkpoint came from.

    Args:
        experiment_config: The config of the experiment.
        experiment_id: The experiment.
        trial_id: The trial.
        hparams: Its hyperparameters.
        validation_metrics: What was measured at exactly the checkpoint's steps; empty if nothing was.
    """

    experiment_config: dict[str, Any]
    experiment_id: int
    trial_id: int
    hparams: dict[str, Any]
    validation_metrics: dict[str, Any]


class Checkpoint(Stored):
    """A saved state of a trial. Fields are as they were when it was read; `reload()` reads it again.

    Example::

        checkpoint = client.get_checkpoint("f57e2b")
        print(checkpoint.steps_completed, checkpoint.searcher_metric, checkpoint.download())
    """

    uuid: str
    task_id: str
    allocation_id: str | None
    trial_id: int
    experiment_id: int
    steps_completed: int
    report_time: datetime.datetime
    state: CheckpointState
    metadata: dict[str, Any]
    resources: dict[str, int]
    size: int
    storage: dict[str, Any] | None
    validation_metrics: dict[str, Any] | None
    searcher_metric: float | None

    def _take(self, row: store.checkpoints.CheckpointRow) -> None:
        self.__dict__.update(vars(row))
        self.steps_completed = self.__dict__.pop("steps")
        self.state = CheckpointState(row.state)
        self._training: CheckpointTrainingMetadata | None = None

    def __repr__(self) -> str:
        return f"Checkpoint({self.uuid!r}, trial {self.trial_id}, {self.steps_completed} steps, {self.state})"

    @property
    def training(self) -> CheckpointTrainingMetadata:
        """Experiment, trial, hyperparameters and validation metrics it belongs to.

        Example::

            checkpoint.training.hparams["lr"]
        """
        if self._training is None:
            with self._session.read() as conn:
                config = store.experiments.get(conn, self.experiment_id).config or {}
                hparams = store.trials.get(conn, self.trial_id).hparams
            self._training = CheckpointTrainingMetadata(
                config, self.experiment_id, self.trial_id, hparams, self.validation_metrics or {}
            )
        return self._training

    @property
    def location(self) -> str:
        """Where its files are: a directory, or a URL of a bucket.

        Example::

            print(experiment.top_checkpoint().location)
        """
        return f"{self._open_storage().url.rstrip('/')}/{self.uuid}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data.

        Example::

            json.dumps(checkpoint.to_dict(), default=str)
        """
        return {
            "uuid": self.uuid,
            "experiment_id": self.experiment_id,
            "trial_id": self.trial_id,
            "steps_completed": self.steps_completed,
            "report_time": self.report_time,
            "state": str(self.state),
            "searcher_metric": self.searcher_metric,
            "validation_metrics": self.validation_metrics or {},
            "size": self.size,
            "storage": self.storage,
            "metadata": self.metadata,
        }

    def _row(self, conn: sa.Connection) -> store.checkpoints.CheckpointRow:
        return store.checkpoints.get(conn, self.uuid)

    def download(
        self,
        path: str | os.PathLike[str] | None = None,
        mode: DownloadMode | str = DownloadMode.AUTO,
        *,
        progress: _files.Progress | None = None,
    ) -> str:
        """Copy the files to a directory, verified, and return its path. A whole copy that is there is only verified.

        A hidden file with their checksums comes along, so that later damage is noticed when they are loaded.

        Args:
            path: The directory; `checkpoints/<uuid>` if None.
            mode: Accepted for older scripts; files are read from where they are in any case.
            progress: Told how many bytes are here and how many there are, after each file.

        Raises:
            CheckpointStateException: Its files are gone, or not there yet.
            CheckpointDamaged: They are not the ones that were saved.

        Example::

            weights = Path(checkpoint.download("best")) / "state_dict.pth"
        """
        DownloadMode(mode)
        if self.state not in READABLE:
            raise CheckpointStateException(
                f"Checkpoint {self.uuid} is {self.state}, so it has no files to download. "
                f"See which ones of its trial have: det checkpoint ls -t {self.trial_id}"
            )
        target = Path("checkpoints") / self.uuid if path is None else Path(path)
        _files.fetch(self._open_storage(), self.uuid, target, self.metadata, progress)
        return str(target)

    def verify(self) -> list[str]:
        """Compare the stored files with what was saved: one sentence per problem, none if all is well.

        Example::

            assert checkpoint.verify() == []
        """
        return self._open_storage().verify(self.uuid)

    def write_metadata_file(self, path: str | os.PathLike[str]) -> None:
        """Write the metadata, as the store has it, to a file.

        Example::

            checkpoint.write_metadata_file("metadata.json")
        """
        _files.write_metadata(Path(path), self.metadata)

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Set top-level keys in the store. The stored files stay as they are.

        Example::

            checkpoint.add_metadata({"reviewed": True})
        """
        self._change_metadata(lambda known: {**known, **metadata})

    def remove_metadata(self, keys: Sequence[str]) -> None:
        """Take top-level keys away in the store; those that are not there are no error.

        Example::

            checkpoint.remove_metadata(["reviewed"])
        """
        self._change_metadata(lambda known: {key: value for key, value in known.items() if key not in keys})

    def _change_metadata(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        with self._session.write() as conn:
            metadata = change(store.checkpoints.get(conn, self.uuid).metadata)
            store.checkpoints.set_metadata(conn, self.uuid, metadata)
        self.metadata = metadata

    def delete(self) -> None:
        """Delete the files. The row stays and says DELETED.

        Raises:
            Refused: It is in the model registry.

        Example::

            checkpoint.delete()
        """
        self._delete(None)

    def remove_files(self, globs: Sequence[str]) -> None:
        """Delete the files that some patterns mean; without patterns, only look again which there are.

        Example::

            checkpoint.remove_files(["optimizer/**"])
        """
        self._delete(list(globs))

    def _delete(self, globs: list[str] | None) -> None:
        with self._session.read() as conn:
            store.checkpoints.check_deletable(conn, [self.uuid])
        storage = self._open_storage()
        left = storage.delete(self.uuid, globs) if globs is None or globs else _listed(storage, self.uuid)
        with self._session.write() as conn:
            state = CheckpointState.PARTIALLY_DELETED if left else CheckpointState.DELETED
            if left == self.resources:
                state = self.state
            store.checkpoints.set_state(conn, self.uuid, str(state), resources=left)
        self.reload()

    def get_metrics(self, group: str | None = None) -> list[TrialMetrics]:
        """Return the metrics that were reported at exactly the checkpoint's steps.

        Example::

            [report.metrics for report in checkpoint.get_metrics("validation")]
        """
        here = self.steps_completed
        return list(Metrics(self._session, [self.trial_id], group, first=here, last=here))

    def _open_storage(self) -> Storage:
        return _files.storage_of(self.uuid, self.storage)


def find_checkpoints(
    session: Session,
    sort_by: str | CheckpointSortBy | None,
    order_by: OrderBy | None,
    limit: int | None,
    *,
    experiment_id: int | None = None,
    trial_id: int | None = None,
) -> Listing[Checkpoint]:
    """Return the complete checkpoints of an experiment or a trial, in this order."""
    order = _enums.checkpoints_by(sort_by, order_by)
    with session.read() as conn:
        rows = store.checkpoints.find(conn, experiment_id=experiment_id, trial_id=trial_id, limit=limit, **order)
    return Listing(Checkpoint(session, row) for row in rows)


def all_checkpoints(
    session: Session, *, experiment_id: int | None = None, trial_id: int | None = None
) -> Listing[Checkpoint]:
    """Return the checkpoints of an experiment or a trial in any state, in order of steps."""
    with session.read() as conn:
        rows = store.checkpoints.find(
            conn, experiment_id=experiment_id, trial_id=trial_id, states=None, sort_by="steps", descending=False
        )
    return Listing(Checkpoint(session, row) for row in rows)


def validated(found: Iterable[Checkpoint], metric: str | None) -> Listing[Checkpoint]:
    """Return those that were validated by this metric; None is the searcher metric."""
    if metric is None:
        return Listing(checkpoint for checkpoint in found if checkpoint.searcher_metric is not None)
    return Listing(checkpoint for checkpoint in found if metric in (checkpoint.validation_metrics or {}))


def beginning(found: Iterable[Checkpoint], uuid: str) -> list[Checkpoint]:
    """Return the checkpoint with this id, or the only one whose id begins so, in a list; else an empty list."""
    some = [checkpoint for checkpoint in found if checkpoint.uuid.startswith(uuid)]
    if len(some) > 1 and uuid not in (checkpoint.uuid for checkpoint in some):
        known = ", ".join(checkpoint.uuid for checkpoint in some[:3])
        raise InvalidValue(f"Several checkpoints begin with {uuid!r}: {known}, ... Type more of it.")
    return sorted(some, key=lambda checkpoint: len(checkpoint.uuid))[:1]


def none_is_best(owner: str, found: Iterable[Checkpoint], metric: str | None, listing: str) -> NotFound:
    """Return an error that says why none of these checkpoints is the best, and what to type instead.

    Args:
        owner: Whose they are, such as `Trial 3`.
        found: All of them.
        metric: What they were to be compared by; None is the searcher metric.
        listing: The command that lists them.
    """
    measured = {name for checkpoint in found for name in checkpoint.validation_metrics or {}} - {"batches", "epochs"}
    if not measured:
        return NotFound(f"{owner} has no validated checkpoint. See what it has: {listing}")
    sought = "the searcher metric" if metric is None else repr(metric)
    advice = f"--sort-by {min(measured)} --smaller-is-better true, or false (sort_by= and smaller_is_better= in Python)"
    return NotFound(
        f"{owner} has no checkpoint that was validated by {sought}, but by {', '.join(sorted(measured))}. "
        f"Choose with: {advice}"
    )


def _listed(storage: Storage, uuid: str) -> dict[str, int]:
    return storage.manifest(uuid).resources if storage.exists(uuid) else {}
