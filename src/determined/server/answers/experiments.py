"""An experiment: its header, its curves, its search, its texts, and what can be done with it."""

from __future__ import annotations

import datetime
from typing import Annotated, Literal

from pydantic import Field

from determined.server.answers.common import Answer, Ids, Json, Number, Question

Action = Literal["activate", "pause", "cancel", "kill", "archive", "unarchive", "delete", "move"]


class ExperimentAnswer(Answer):
    """An experiment as its page's header shows it."""

    id: int
    name: str
    state: str
    state_reason: str
    owner: str
    project_id: int
    project: str
    workspace: str
    parent_id: int | None
    description: str
    notes: str
    labels: list[str]
    start_time: datetime.datetime
    end_time: datetime.datetime | None
    seconds: float
    progress: float | None
    seconds_left: float | None
    archived: bool
    unmanaged: bool
    external_experiment_id: str | None
    script: str | None
    searcher: str  # single, random, grid, adaptive_asha ...; empty if unknown
    searcher_metric: str | None
    smaller_is_better: bool
    best_metric: Number | None
    best_trial_id: int | None
    best_checkpoint_uuid: str | None
    trial_count: int
    counts: dict[str, int]  # trials per state
    restarts: int
    slots: int
    slots_per_trial: int
    resource_pool: str | None
    checkpoint_count: int
    checkpoint_size: int
    warnings: list[str]
    single_trial_id: int | None  # set: the page shows the tabs of this trial
    has_code: bool
    has_rungs: bool
    metric_names: dict[str, list[str]]  # by group
    actions: dict[str, str]  # every action and dialog to an empty text, or to the reason why it is not possible now


class ExperimentEdit(Question):
    """New texts; fields that are left out stay."""

    name: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    description: Annotated[str, Field(max_length=10_000)] | None = None
    notes: Annotated[str, Field(max_length=200_000)] | None = None
    labels: Annotated[list[str], Field(max_length=100)] | None = None


class BulkAction(Question):
    """One action on several experiments."""

    action: Action
    ids: Ids
    project_id: int | None = None  # for move


class LearningCurveAnswer(Answer):
    """The metric of one trial, at most 200 points."""

    trial_id: int
    steps: list[int]
    epochs: list[float | None]
    time: list[datetime.datetime]
    value: list[float | None]  # null where it was not finite
    points: int  # how many were reported
    hparams: dict[str, Json]
    best: Number | None
    state: str


class LearningCurves(Answer):
    """The metric of several trials, the best first."""

    metric: str  # with its group: validation.loss
    smaller_is_better: bool
    curves: list[LearningCurveAnswer]
    trials_total: int
    is_by_length: bool  # the search stops trials early: the longest, then the best, are shown
    said: str  # why there is nothing to show, if so


class HyperparameterAnswer(Answer):
    """A hyperparameter that is not the same in all trials."""

    name: str
    categories: list[str]  # empty for numbers
    is_log: bool
    is_whole: bool
    importance: float | None  # share of the metric's variance that it explains


class SearchResult(Answer):
    """One trial of a search."""

    trial_id: int
    hparams: dict[str, Json]  # names with dots; only those that differ
    value: Number | None
    batches: int
    state: str
    is_stopped: bool  # the search ended it early


class SearchAnswer(Answer):
    """What a search found: for parallel coordinates, scatter plots, heat maps and importance."""

    metric: str
    smaller_is_better: bool
    hyperparameters: list[HyperparameterAnswer]
    results: list[SearchResult]  # the best first; at most 1000
    trials_total: int
    is_uncertain: bool  # too few trials for importance to say much
    said: str  # why there is nothing to show, if so
    steps: int | None  # values are of this step, give or take the margin; null: the best of each trial


class RungTrial(Answer):
    """A trial that reached a rung."""

    trial_id: int
    value: Number | None
    is_stopped_here: bool
    is_waiting: bool


class RungAnswer(Answer):
    """One rung of an ASHA search."""

    bracket: int
    rung: int
    units: str  # "4 epochs"
    arrived: int
    passed: int
    stopped: int
    waiting: int
    best: Number | None
    trials: list[RungTrial]


class Rungs(Answer):
    """The rungs of an ASHA search, and what stopping early saved."""

    rungs: list[RungAnswer]
    batches_trained: int
    batches_full: int  # if every trial had been trained to the end
    saved: float  # 0 to 1
    said: str  # "Stopping early saved 71 % of 15,000 batches."


class EventAnswer(Answer):
    """Something that happened to an experiment or one of its trials."""

    id: int
    time: datetime.datetime
    kind: str
    trial_id: int | None
    said: str


class Events(Answer):
    """A page of events, the newest first."""

    events: list[EventAnswer]
    next_before: int | None  # ask again with `before` for older ones


class ConfigAnswer(Answer):
    """The configuration of an experiment, secrets masked."""

    submitted: str  # as it was written, comments included
    effective: str  # with all defaults, as YAML
