"""Reports of a training process and lines of its log, as plain frozen values. Needs only the standard library."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import operator
import re
from collections.abc import Sequence
from typing import Any

from determined import errors
from determined._types import Json

LARGEST_STEP = 2**63 - 1  # databases and event files count with 64 bits
LONGEST_GROUP = 64
SUMMARY_KEYS = {"training": "avg_metrics", "validation": "validation_metrics"}
"""Names of these groups in a summary, so no group of a user is called like that."""

_CURSOR = re.compile(r"\x1b\[[0-9;?]*[A-HJKSTfhlnsu]")

now = functools.partial(datetime.datetime.now, datetime.timezone.utc)
"""The moment of a report: always UTC, always aware."""


def check_group(group: Any) -> None:
    """Refuse what cannot be the name of a metric group.

    Raises:
        InvalidValue: It is empty, has a dot, is very long, or is the name of another group in a summary.
    """
    if not isinstance(group, str) or not group or "." in group or "\0" in group:
        raise errors.InvalidValue(
            f"A metric group is a name without dots, not {group!r}. Write for example 'test_set'."
        )
    if len(group) > LONGEST_GROUP:
        raise errors.InvalidValue(
            f"The metric group {group[:20]!r}... has {len(group)} characters. Use {LONGEST_GROUP} at most."
        )
    for real_name, key in SUMMARY_KEYS.items():
        if group == key:
            raise errors.InvalidValue(f"In a summary, {group!r} means the group {real_name!r}. Choose another name.")


def check_steps(steps: Any) -> int:
    """Return a count of finished steps as an int.

    Raises:
        TypeError: It is no whole number.
        InvalidValue: It is negative, or more than 64 bits hold.
    """
    if isinstance(steps, bool) or not hasattr(steps, "__index__"):  # numpy's integers have it too
        raise TypeError(f"steps_completed is {steps!r}; expected the number of steps as an int.")
    count = operator.index(steps)
    if not 0 <= count <= LARGEST_STEP:
        raise errors.InvalidValue(f"steps_completed is {count}; expected the number of finished steps, 0 to 2**63 - 1.")
    return count


@dataclasses.dataclass(frozen=True)
class Report:
    """One thing a training process has to tell. Reports of one process arrive in the order they were made."""

    time: datetime.datetime = dataclasses.field(default_factory=now, kw_only=True)


Batches = list[dict[str, Json]] | dict[str, Sequence[Json]]
"""Metrics of single batches: a dict for each, or for each name a list or an `array.array`."""


@dataclasses.dataclass(frozen=True)
class MetricReport(Report):
    """Metrics of one group at one step; `steps_completed` is None for samples that belong to no step."""

    group: str
    metrics: dict[str, Json]
    steps_completed: int | None = None
    batch_metrics: Batches | None = None
    window: int | None = None  # how many batches these are averages of; None: not said

    def batches(self) -> list[dict[str, Json]]:
        """Return the metrics of each batch, however they came."""
        if isinstance(self.batch_metrics, dict):
            names = list(self.batch_metrics)
            return [dict(zip(names, row, strict=True)) for row in zip(*self.batch_metrics.values(), strict=True)]
        return self.batch_metrics or []


@dataclasses.dataclass(frozen=True)
class CheckpointReport(Report):
    """A checkpoint is complete and readable, or (with no resources) gone."""

    storage_id: str
    metadata: dict[str, Json]
    resources: dict[str, int]  # path -> bytes; directories end in "/" and count 0
    state: str = "COMPLETED"  # or "PARTIALLY_DELETED", "DELETED"


@dataclasses.dataclass(frozen=True)
class ProgressReport(Report):
    """How much of the training is done, from 0 to 1."""

    progress: float


@dataclasses.dataclass(frozen=True)
class StatusReport(Report):
    """What the process is doing, in a word or two for people."""

    status: str


@dataclasses.dataclass(frozen=True)
class EarlyExitReport(Report):
    """Training ends before its length was reached, for this reason."""

    reason: str


@dataclasses.dataclass(frozen=True)
class MetadataReport(Report):
    """The run's own metadata, replacing what was there."""

    metadata: dict[str, Json]


@dataclasses.dataclass(frozen=True)
class PreemptionAcknowledged(Report):
    """The process has seen the request to stop, saves its work, and wants to be continued later."""


@dataclasses.dataclass(frozen=True)
class RunStateReport(Report):
    """The process came up, or is about to end."""

    state: str  # "RUNNING", "COMPLETED", "ERROR", "PAUSED" (asked to stop, with work left), "CANCELED" (interrupted)
    reason: str = ""  # in one line


@dataclasses.dataclass(frozen=True)
class EnvironmentReport(Report):
    """What the process runs on: versions, packages, git. Found out in the background, after the start."""

    environment: dict[str, Json]


@dataclasses.dataclass(frozen=True)
class FitReport(Report):
    """Training begins after `steps` steps. What was reported beyond them is about to be repeated."""

    steps: int
    storage_id: str | None = None  # the checkpoint that it starts from
    continues: bool = False  # its counters go on, rather than only its weights being taken over
    joins: bool = False  # it was found as the trial's own, so this is the next attempt of that trial
    retention: dict[str, int] | None = None  # how many checkpoints to keep, in the words of `checkpoint_storage`


@dataclasses.dataclass(frozen=True)
class CheckpointUseReport(Report):
    """This task works with that checkpoint (and model version), for example to run inference."""

    storage_id: str
    model_id: int | None = None
    model_version: int | None = None


@dataclasses.dataclass(frozen=True)
class LogLine(Report):
    """One line that the process printed."""

    text: str
    stream: str  # "stdout" or "stderr"
    rank: int | None = 0  # None: it may be any


def without_cursor_moves(line: str) -> str:
    """Return a printed line without the codes that move a terminal's cursor; colours stay."""
    return _CURSOR.sub("", line) if "\x1b" in line else line


@dataclasses.dataclass(frozen=True, repr=False)
class LogEntry:
    """One line of a log, as it is stored. As text it is what `det trial logs` shows.

    Example::

        errors = [entry.text for entry in trial.iter_log_rows() if entry.level == "ERROR"]
    """

    id: int
    task_id: str
    allocation_id: str | None
    timestamp: datetime.datetime
    level: str | None
    rank: int | None
    source: str
    stdtype: str
    node: str
    process_id: int | None
    text: str

    def __str__(self) -> str:
        when = self.timestamp.astimezone(datetime.timezone.utc).isoformat(timespec="microseconds")[:-6] + "Z"
        process = "" if self.process_id is None else str(self.process_id)
        rank = "" if self.rank is None else f" [rank={self.rank}]"
        level = "" if self.level is None else f"{self.level}: "
        return f"[{when}] {process:>8.8}{rank} || {level}{self.text}"

    def __repr__(self) -> str:
        return f"LogEntry({self})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, the line as it is shown included as `log`."""
        return {**dataclasses.asdict(self), "log": str(self)}


class Signal(enum.Enum):
    """What the outside asks of a training process."""

    NONE = "none"
    PREEMPT = "preempt"
