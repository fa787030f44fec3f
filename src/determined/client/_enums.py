"""States, orders and levels under the names that scripts know, and how the store calls the orders."""

from __future__ import annotations

import enum
from typing import Any


class _Word(str, enum.Enum):
    """An enum whose members are their own names as text, so that they print, compare and serialise as such."""

    def __str__(self) -> str:
        return str(self.value)


class ExperimentState(_Word):
    """State of an experiment.

    Example::

        ExperimentState("COMPLETED").is_terminal
    """

    PAUSED = "PAUSED"
    ACTIVE = "ACTIVE"
    QUEUED = "QUEUED"
    PULLING = "PULLING"  # never used here
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"
    DELETING = "DELETING"
    DELETE_FAILED = "DELETE_FAILED"
    DELETED = "DELETED"

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended: nothing of it runs, or will by itself."""
        return self.value in {*TERMINAL, "DELETING", "DELETE_FAILED", "DELETED"}


class TrialState(_Word):
    """State of a trial.

    Example::

        TrialState("RUNNING").is_terminal
    """

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    CANCELED = "CANCELED"
    COMPLETED = "COMPLETED"
    ERROR = "ERROR"
    QUEUED = "QUEUED"
    PULLING = "PULLING"  # never used here
    STARTING = "STARTING"
    RUNNING = "RUNNING"

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended."""
        return self.value in TERMINAL


TERMINAL = {"COMPLETED", "CANCELED", "ERROR"}


class CheckpointState(_Word):
    """Whether a checkpoint's files are there."""

    ACTIVE = "ACTIVE"
    COMPLETED = "COMPLETED"
    ERROR = "ERROR"
    DELETED = "DELETED"
    PARTIALLY_DELETED = "PARTIALLY_DELETED"


class OrderBy(_Word):
    """Which end of a list comes first."""

    ASCENDING = "ASCENDING"
    DESCENDING = "DESCENDING"
    ASC = "ASCENDING"
    DESC = "DESCENDING"


ModelOrderBy = OrderBy  # what older scripts call it


class TrialSortBy(_Word):
    """What to order trials by."""

    ID = "ID"
    START_TIME = "START_TIME"
    END_TIME = "END_TIME"
    STATE = "STATE"
    BEST_VALIDATION_METRIC = "BEST_VALIDATION_METRIC"
    LATEST_VALIDATION_METRIC = "LATEST_VALIDATION_METRIC"
    BATCHES_PROCESSED = "BATCHES_PROCESSED"
    DURATION = "DURATION"
    RESTARTS = "RESTARTS"
    CHECKPOINT_SIZE = "CHECKPOINT_SIZE"
    LOG_RETENTION_DAYS = "LOG_RETENTION_DAYS"


class CheckpointSortBy(_Word):
    """What to order checkpoints by."""

    UUID = "UUID"
    TRIAL_ID = "TRIAL_ID"
    BATCH_NUMBER = "BATCH_NUMBER"
    END_TIME = "END_TIME"
    STATE = "STATE"
    SEARCHER_METRIC = "SEARCHER_METRIC"


class ExperimentSortBy(_Word):
    """What to order experiments by."""

    ID = "ID"
    DESCRIPTION = "DESCRIPTION"
    START_TIME = "START_TIME"
    END_TIME = "END_TIME"
    STATE = "STATE"
    NUM_TRIALS = "NUM_TRIALS"
    PROGRESS = "PROGRESS"
    USER = "USER"
    NAME = "NAME"
    FORKED_FROM = "FORKED_FROM"
    RESOURCE_POOL = "RESOURCE_POOL"
    PROJECT_ID = "PROJECT_ID"
    CHECKPOINT_SIZE = "CHECKPOINT_SIZE"
    CHECKPOINT_COUNT = "CHECKPOINT_COUNT"
    SEARCHER_METRIC_VAL = "SEARCHER_METRIC_VAL"


class ModelSortBy(_Word):
    """What to order models by."""

    NAME = "NAME"
    DESCRIPTION = "DESCRIPTION"
    CREATION_TIME = "CREATION_TIME"
    LAST_UPDATED_TIME = "LAST_UPDATED_TIME"
    NUM_VERSIONS = "NUM_VERSIONS"
    WORKSPACE = "WORKSPACE"


class DownloadMode(_Word):
    """How a checkpoint's files are fetched. All three read the storage directly here: there is no server in between."""

    DIRECT = "DIRECT"
    MASTER = "MASTER"
    AUTO = "AUTO"


class LogLevel(_Word):
    """How serious a line of a log is.

    Example::

        assert LogLevel.ERROR in LogLevel.WARNING.and_above
    """

    TRACE = "TRACE"
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"

    @property
    def and_above(self) -> tuple[LogLevel, ...]:
        """This level and the more serious ones."""
        levels = tuple(LogLevel)
        return levels[levels.index(self) :]


_CHECKPOINTS = {CheckpointSortBy.BATCH_NUMBER: "steps", CheckpointSortBy.END_TIME: "time"}
_COLUMNS: dict[str, str] = {
    TrialSortBy.BEST_VALIDATION_METRIC: "best_metric",
    TrialSortBy.LATEST_VALIDATION_METRIC: "latest_metric",
    TrialSortBy.BATCHES_PROCESSED: "batches",
    ExperimentSortBy.USER: "owner",
    ExperimentSortBy.FORKED_FROM: "parent_id",
    ExperimentSortBy.RESOURCE_POOL: "id",  # there is one pool: this machine
}


def column(sort_by: TrialSortBy | ExperimentSortBy | ModelSortBy) -> str:
    """Return what the store calls an order of trials, experiments or models."""
    return _COLUMNS.get(sort_by, str(sort_by).lower())


def checkpoints_by(sort_by: str | CheckpointSortBy | None, order_by: OrderBy | None) -> dict[str, Any]:
    """Return the store's arguments for an order of checkpoints: by what, and whether the largest comes first.

    Both or neither has to be given; neither means the best by the searcher metric first.

    Example::

        assert checkpoints_by(None, None) == {}
        assert checkpoints_by("accuracy", OrderBy.DESC) == {"metric": "accuracy", "descending": True}
    """
    if sort_by is None and order_by is None:
        return {}
    if sort_by is not None and not isinstance(sort_by, str):  # a CheckpointSortBy is a str, too
        raise ValueError(f"sort_by is {sort_by!r}. Use a CheckpointSortBy, or the name of a validation metric.")
    if sort_by is None or order_by is None:  # the contract's exception
        raise AssertionError("sort_by and order_by go together. Give both, or neither for the best first.")
    if isinstance(sort_by, CheckpointSortBy):
        by = {"sort_by": _CHECKPOINTS.get(sort_by, str(sort_by).lower())}
    else:
        by = {"metric": sort_by}
    return {**by, "descending": order_by == OrderBy.DESC}


def best_by(sort_by: str | None, smaller_is_better: bool | None) -> tuple[str | None, OrderBy | None]:
    """Return `sort_by` and `order_by` for a metric and which values of it are better.

    Example::

        assert best_by("accuracy", False) == ("accuracy", OrderBy.DESC)
    """
    if (sort_by is None) != (smaller_is_better is None):
        raise AssertionError("sort_by and smaller_is_better go together. Give both, or neither.")
    if sort_by is None:
        return None, None
    return sort_by, OrderBy.ASC if smaller_is_better else OrderBy.DESC
