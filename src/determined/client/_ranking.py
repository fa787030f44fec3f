"""Which run was best: by the metric that the runs look at, or by any metric that they reported."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from determined._wording import instead
from determined.client._compare import GROUPS, SYSTEM_GROUPS
from determined.client._listing import Listing
from determined.errors import NotFound

if TYPE_CHECKING:
    from determined.client._experiment import Experiment
    from determined.client._trial import Trial

SUMMARIES = {group: key for key, group in GROUPS.items()}  # what groups are called in a summary


def rank(
    experiments: Iterable[Experiment], metric: str | None = None, smaller_is_better: bool | None = None
) -> Listing[Experiment]:
    """The experiments, the best first; those that look at the same metric stand together, those without a value last.

    Args:
        experiments: Which.
        metric: Another one than each looks at: `loss` of validation, or `training.loss`. Those returned then have it
            as their `searcher_metric`, and its best value as their `best_metric`.
        smaller_is_better: Whether smaller values of `metric` are; by default what the experiments that look at it say,
            else True.

    Raises:
        NotFound: None of them reported that metric.

    Example::

        best = client.rank(client.list_experiments(limit=10))[0]
        print(best.id, best.searcher_metric, best.best_metric)
    """
    found = list(experiments)
    return Listing(sorted(found if metric is None else judged(found, metric, smaller_is_better), key=_key))


def _key(experiment: Experiment) -> tuple[bool, str, float]:
    value = experiment.best_metric
    if value is None or math.isnan(value):
        return True, "", 0.0
    return False, experiment.searcher_metric or "", value if experiment.smaller_is_better else -value


def judged(experiments: Sequence[Experiment], metric: str, smaller_is_better: bool | None = None) -> list[Experiment]:
    """Copies of the experiments, as if they had looked at this metric; in the order given. See `rank`."""
    if smaller_is_better is None:
        said = {e.smaller_is_better for e in experiments if e.searcher_metric in (metric, _parts(metric)[1])}
        smaller_is_better = said != {False}
    known: dict[str, None] = {}
    found = []
    for experiment in map(copy.copy, experiments):
        trials = list(experiment.iter_trials())
        known |= dict.fromkeys(name for trial in trials for name in _names(trial))
        summaries = [summary(trial, "validation", metric) or summary(trial, *_parts(metric)) for trial in trials]
        values = [each.get("min" if smaller_is_better else "max") for each in summaries]
        experiment.searcher_metric, experiment.smaller_is_better = metric, smaller_is_better
        numbers = [value for value in values if isinstance(value, (int, float))]
        experiment.best_metric = (min if smaller_is_better else max)(numbers, default=None)
        found.append(experiment)
    if found and not {metric, metric.removeprefix("validation.")} & known.keys():
        raise NotFound(f"None of these experiments reported {metric!r}.{instead(metric, known)}")
    return found


def best(trials: Iterable[Trial]) -> Trial | None:
    """The best of trials whose experiments look at the same metric in the same way; None if they do not."""
    having = [(trial.best_metric, trial) for trial in trials if trial.best_metric is not None]
    goals = {(trial.searcher_metric, trial.smaller_is_better) for _, trial in having}
    if len(goals) != 1:
        return None
    choose = min if having[0][1].smaller_is_better else max
    return choose(having, key=lambda pair: pair[0])[1]


def summary(trial: Trial, group: str, name: str) -> dict[str, Any]:
    """Count, last, min, max and mean of one metric of a trial; empty if it never reported it."""
    found: dict[str, Any] = trial.summary_metrics.get(SUMMARIES.get(group, group), {}).get(name, {})
    return found


def _parts(metric: str) -> tuple[str, str]:
    """Group and name of `training.loss`; a name alone is one of validation."""
    group, dot, name = metric.partition(".")
    return (group, name) if dot else ("validation", metric)


def _names(trial: Trial) -> list[str]:
    """What a trial reported, as people type it: `loss` of validation, `training.loss`."""
    groups = {GROUPS.get(key, key): names for key, names in trial.summary_metrics.items()}
    return [
        name if group == "validation" else f"{group}.{name}"
        for group in sorted(groups, key=lambda group: (group != "validation", group))
        if group not in SYSTEM_GROUPS
        for name in groups[group]
        if name not in ("batches", "epochs")
    ]
