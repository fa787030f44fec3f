"""The words of the SDK: states, orders and levels, under the names that scripts know."""

from __future__ import annotations

import enum


class _Word(str, enum.Enum):
    """An enum whose members are their own names as text, so that they print, compare and serialise as such."""

    def __str__(self) -> str:
        return str(self.value)


class ExperimentState(_Word):
    """Where an experiment is in its life.

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
    """Where a trial is in its life.

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
    """How a checkpoint's files travel. All three read the storage directly here: there is nobody in between."""

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
