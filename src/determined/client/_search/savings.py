"""What stopping trials early saved: the batches that they trained, against those of as many trainings to the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from determined import store
from determined.client._listing import section

if TYPE_CHECKING:
    from determined.client._experiment import Experiment
    from determined.client.following.replay import Ladder


@dataclasses.dataclass(frozen=True)
class Savings:
    """What a search with rungs trained, of the trials that it has ended.

    Args:
        trials: How many it has ended.
        to_the_end: How many of these were trained to the end.
        batches_trained: How many batches they were trained in all.
        batches_full: How many it would have been, had all been trained to the end; 0 if none was, so nobody knows.
        is_over: All trials have ended.

    Example::

        print(f"{experiment.savings().share:.0%}")
    """

    trials: int
    to_the_end: int
    batches_trained: int
    batches_full: int
    is_over: bool = True

    @property
    def share(self) -> float:
        """The share of the training that was saved, 0 to 1."""
        return 1 - self.batches_trained / self.batches_full if self.batches_full else 0.0

    def __str__(self) -> str:
        if not self.batches_full:
            return "No trial has been trained to the end yet, so what stopping early saves is not known."
        so_far = "" if self.is_over else " so far"
        return f"Stopping early saved {100 * self.share:.0f} % of {self.batches_full:,} batches{so_far}."


def read(experiment: Experiment, ladder: Ladder) -> Savings:
    """Return what stopping early saved in an experiment with these rungs."""
    with experiment._session.read() as conn:
        trials = store.trials.briefs(conn, experiment.id)
    return of(trials, ladder, section(experiment.config, "searcher"))


def of(trials: Sequence[store.trials.TrialBrief], ladder: Ladder, searcher: dict[str, Any]) -> Savings:
    """Return what stopping early saved. Trials that failed or were killed count for nothing. Pure."""
    ended = [trial for trial in trials if trial.state == "COMPLETED" and trial.total_batches]
    whole = _whole(ended, ladder, searcher)
    trained = sum(min(trial.total_batches, whole or trial.total_batches) for trial in ended)
    to_the_end = sum(trial.total_batches >= whole > 0 for trial in ended)
    is_over = all(trial.state in store.experiments.TERMINAL for trial in trials)
    return Savings(len(ended), to_the_end, trained, whole * len(ended), is_over)


def _whole(ended: Sequence[store.trials.TrialBrief], ladder: Ladder, searcher: dict[str, Any]) -> int:
    """Return how many batches a training to the end has; 0 if none got there."""
    if searcher.get("time_metric") == "batches":
        return int(searcher.get("max_time") or 0)
    last = max((row.units for row in ladder.rows), default=0)
    tops = [ladder.trials.get((row.bracket, row.rung), []) for row in ladder.rows if row.units == last]
    there = {trial.request_id for trials in tops for trial in trials}
    return max((trial.total_batches for trial in ended if trial.request_id in there), default=0)
