"""Several trials side by side: only what differs."""

from __future__ import annotations

import datetime

from determined.server.answers.common import Answer, Json, Number


class ComparedTrial(Answer):
    """One of the trials."""

    id: int
    experiment_id: int
    experiment: str
    state: str
    batches: int
    best_metric: Number | None
    searcher_metric: str | None
    smaller_is_better: bool
    checkpoint_count: int
    start_time: datetime.datetime
    seconds: float


class DifferenceAnswer(Answer):
    """One key that is not the same everywhere."""

    section: str  # hparams, config, environment, metrics
    key: str
    values: dict[int, Json]  # trial to value; without one: the trial has no such key


class ComparisonAnswer(Answer):
    """What differs."""

    trials: list[ComparedTrial]
    differences: list[DifferenceAnswer]
    equal: dict[str, int]  # section to how many keys are the same in all
    hyperparameters: list[str]  # names of those that differ
