"""A trial: its overview, its reports, its life; stopping it."""

from __future__ import annotations

import datetime
from typing import Literal

from determined.server.answers.common import Answer, Ids, Json, Number, Question


class CheckpointBrief(Answer):
    """A checkpoint in few words."""

    uuid: str
    steps: int
    value: Number | None  # of the searcher metric
    time: datetime.datetime
    size: int


class MetricSummary(Answer):
    """One metric of a trial."""

    group: str
    name: str
    type: str  # number, string, boolean ...
    points: int
    last: Json
    min: Number | None
    max: Number | None
    mean: Number | None
    last_steps: int | None


class AttemptAnswer(Answer):
    """One launch of a trial's processes."""

    attempt: int
    state: str
    slots: int
    node: str
    pid: int | None
    start_time: datetime.datetime
    end_time: datetime.datetime | None
    exit_code: int | None
    exit_reason: str | None


class TrialAnswer(Answer):
    """A trial as its page shows it."""

    id: int
    experiment_id: int
    experiment: str
    project_id: int
    project: str
    state: str
    state_reason: str
    runner_state: str
    unmanaged: bool
    hparams: dict[str, Json]
    metadata: dict[str, Json]
    seed: int
    attempt: int
    restarts: int
    start_time: datetime.datetime
    end_time: datetime.datetime | None
    seconds: float
    progress: float | None
    total_batches: int
    searcher_metric: str | None
    smaller_is_better: bool
    best_metric: Number | None
    latest_metric: Number | None
    slots: int
    checkpoint_count: int
    checkpoint_size: int
    best_checkpoint: CheckpointBrief | None
    latest_checkpoint: CheckpointBrief | None
    load_line: str  # the line of Python that loads the best checkpoint; empty without one
    warm_start_checkpoint_uuid: str | None
    log_retention_days: int | None
    log_policy_matched: str | None
    metrics: list[MetricSummary]
    attempts: list[AttemptAnswer]
    environment: dict[str, Json]  # arguments, git, packages, host of the newest attempt
    tensorboard: list[str]
    has_code: bool
    actions: dict[str, str]  # kill, stop, continue, fork: empty, or the reason why not


class Report(Answer):
    """What a trial reported at one step: all groups together."""

    steps: int
    time: datetime.datetime
    attempt: int
    values: dict[str, dict[str, Json]]  # group to name to value
    checkpoint_uuid: str | None
    has_validation: bool


class Reports(Answer):
    """A page of reports, the newest first."""

    reports: list[Report]
    total: int


class Moment(Answer):
    """One thing in the life of a trial, for its time line."""

    time: datetime.datetime
    kind: Literal["attempt", "checkpoint", "validation", "state", "end"]
    steps: int | None
    said: str


class Timeline(Answer):
    """The life of a trial, oldest first; of many checkpoints and validations at most 200 each."""

    moments: list[Moment]


class TrialBulk(Question):
    """Stop or kill several trials."""

    action: Literal["stop", "kill"]
    ids: Ids
