"""The trials of a search as a table: the hyperparameters that differ, and the best value of one metric."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from determined import store
from determined._wording import instead
from determined.client._compare import SYSTEM_GROUPS, differing_keys, summary
from determined.client._listing import flat, section
from determined.errors import NotFound
from determined.experiment.lifecycle import State, shown_state

if TYPE_CHECKING:
    from determined.client._experiment import Experiment
    from determined.store.metrics.curves import LearningCurve as LearningCurve

MOST_OFFERED = 12  # names in a message
STOPPING = ("asha", "halving", "adaptive")  # in the names of searchers that stop trials early


@dataclasses.dataclass(frozen=True)
class Hyperparameter:
    """A hyperparameter that is not the same in all trials.

    Args:
        name: With dots where it is nested.
        categories: Its values as text, in the order they were declared, or else sorted; empty for numbers.
        is_log: It was declared with `type: log`.
        is_whole: All its values are whole numbers.
    """

    name: str
    categories: tuple[str, ...] = ()
    is_log: bool = False
    is_whole: bool = False

    def number(self, value: Any) -> float:
        """Return the value as a number, a category as its position."""
        if self.categories:
            return float(self.categories.index(as_text(value)))
        return float(value)


@dataclasses.dataclass(frozen=True)
class Result:
    """One trial: its hyperparameters, names with dots, and the best value of the metric; None if it has none."""

    trial_id: int
    hparams: dict[str, Any]
    value: float | None
    batches: int
    state: str
    is_stopped: bool  # the search ended it early


@dataclasses.dataclass(frozen=True)
class SearchResults:
    """The trials of an experiment, the best first, and what differs between them.

    Args:
        metric: The metric that is compared, with its group: `validation.loss`.
        smaller_is_better: Whether smaller values of it are.
        is_stopping: The searcher stops trials early, so they differ in length.
        hyperparameters: Those that are not the same in all trials, by name.
        results: All trials; those without a value last.
        steps: Values are of this step; None: the best of each trial.

    Example::

        found = experiment.search_results()
        for result in found.results[:3]:
            print(result.trial_id, result.value, result.hparams)
    """

    metric: str
    smaller_is_better: bool
    is_stopping: bool
    hyperparameters: list[Hyperparameter]
    results: list[Result]
    steps: int | None = None

    @property
    def measured(self) -> list[Result]:
        """The trials that have a value, the best first."""
        return [result for result in self.results if result.value is not None]

    def rank(self, value: float) -> float:
        """Return a number that is less for better values."""
        return value if self.smaller_is_better else -value

    def top(self, limit: int) -> list[Result]:
        """Return the trials to look at: the best one, then by metric, or by training length where trials are stopped.

        Example::

            [result.trial_id for result in experiment.search_results().top(10)]
        """
        measured = self.measured
        rest = sorted(measured[1:], key=lambda result: -result.batches) if self.is_stopping else measured[1:]
        return [*measured[:1], *rest][:limit]


@dataclasses.dataclass(frozen=True)
class At:
    """A step at which trials are compared, give or take so many percent of it."""

    steps: int
    margin: float = 10.0

    @property
    def reach(self) -> int:
        """How many steps before or after still count."""
        return int(self.steps * self.margin / 100)


def read_results(
    experiment: Experiment, metric: str | None, smaller_is_better: bool | None, at: At | None = None
) -> SearchResults:
    """Read the trials of an experiment. See `Experiment.search_results` for the arguments."""
    group, name = _chosen_metric(experiment, metric)
    if smaller_is_better is None:
        smaller_is_better = experiment.smaller_is_better if name == experiment.searcher_metric else True
    with experiment._session.read() as conn:
        trials = store.trials.briefs(conn, experiment.id)
        live: dict[int, list[str]] = {}
        for launch in store.overview.running.going(conn, experiment.id):
            live.setdefault(launch.trial_id, []).append(launch.state)
        near = {}
        if at is not None:
            near = store.metrics.curves.values_near(conn, experiment.id, group, name, at.steps, reach=at.reach)
    searcher = section(experiment.config, "searcher")
    is_stopping = any(word in str(searcher.get("name", "")) for word in STOPPING)
    longest = max((trial.total_batches for trial in trials), default=0)
    figure = "min" if smaller_is_better else "max"

    def result(trial: store.trials.TrialBrief) -> Result:
        found = summary(trial, group, name).get(figure) if at is None else near.get(trial.id)
        value = float(found) if isinstance(found, (int, float)) and math.isfinite(found) else None
        is_stopped = is_stopping and trial.state == "COMPLETED" and trial.total_batches < longest
        state = shown_state(State.ACTIVE, live.get(trial.id, ())) if trial.state == "ACTIVE" else trial.state
        return Result(trial.id, flat(trial.hparams), value, trial.total_batches, state, is_stopped)

    sign = 1 if smaller_is_better else -1
    results = sorted(map(result, trials), key=lambda r: (r.value is None, sign * (r.value or 0.0), r.trial_id))
    declared = _declared(section(experiment.config, "hyperparameters"))
    varied = list(_varied([r.hparams for r in results], declared))
    steps = None if at is None else at.steps
    return SearchResults(f"{group}.{name}", smaller_is_better, is_stopping, varied, results, steps)


def learning_curves(
    experiment: Experiment, trial_ids: Sequence[int], metric: str, *, buckets: int = 200
) -> dict[int, LearningCurve]:
    """Return a metric (`validation.loss`) of many trials in one read; trials that never reported it are left out."""
    group, _, name = metric.partition(".")
    with experiment._session.read() as conn:
        return store.metrics.curves.learning_curves(conn, trial_ids, group, name, buckets=buckets)


def _chosen_metric(experiment: Experiment, wanted: str | None) -> tuple[str, str]:
    """Return group and name of what is meant by `loss`, by `training.loss`, or by nothing."""
    known = experiment.metric_names()
    groups = sorted(known.keys() - SYSTEM_GROUPS, key=lambda group: (group != "validation", group != "training", group))
    offered = [f"{group}.{name}" for group in groups for name in known[group] if name not in ("batches", "epochs")]
    if not known:
        what = "has no trials yet" if experiment.trial_count == 0 else "has reported no metric yet"
        raise NotFound(f"Experiment {experiment.id} {what}.")
    if wanted is None:
        if experiment.searcher_metric is None:
            names = ", ".join(offered[:MOST_OFFERED])
            raise NotFound(f"Experiment {experiment.id} names no searcher metric. Name one: {names}.")
        wanted = experiment.searcher_metric
    group, _, name = wanted.partition(".")
    if name and name in known.get(group, ()):
        return group, name
    for group in (*groups, *sorted(known.keys() & SYSTEM_GROUPS)):
        if wanted in known[group]:
            return group, wanted
    raise NotFound(f"Experiment {experiment.id} reported no {wanted!r}.{instead(wanted, offered)}")


def _declared(section: Mapping[str, Any], prefix: str = "") -> dict[str, Mapping[str, Any]]:
    """Return the declarations of hyperparameters that have a type, names with dots."""
    found: dict[str, Mapping[str, Any]] = {}
    for key, value in section.items():
        if isinstance(value, Mapping):
            found |= {f"{prefix}{key}": value} if "type" in value else _declared(value, f"{prefix}{key}.")
    return found


def _varied(rows: Sequence[Mapping[str, Any]], declared: Mapping[str, Mapping[str, Any]]) -> Iterator[Hyperparameter]:
    """Yield the hyperparameters whose values differ, by name."""
    for name in sorted(differing_keys(rows)):
        seen = [row[name] for row in rows if name in row]
        declaration = declared.get(name, {})
        is_number = all(isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v) for v in seen)
        if declaration.get("type") == "categorical" or not is_number:
            texts = {as_text(value) for value in seen}
            order = [as_text(value) for value in declaration.get("vals", ())]
            yield Hyperparameter(name, tuple(dict.fromkeys(t for t in [*order, *sorted(texts)] if t in texts)))
        else:
            is_log = declaration.get("type") == "log" and min(seen) > 0
            is_whole = all(float(value).is_integer() for value in seen) and not is_log
            yield Hyperparameter(name, is_log=is_log, is_whole=is_whole)


def as_text(value: Any) -> str:
    """Return the name of a category: texts as they are, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
