"""Which experiments, trials and checkpoints a command is about, and in which order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from determined.client import Checkpoint, Determined, Experiment, Trial

SUMMARIES = {"training": "avg_metrics", "validation": "validation_metrics"}  # what groups are called in a summary
SORTS = {"id": "ID", "name": "NAME", "state": "STATE", "started": "START_TIME", "ended": "END_TIME",
         "progress": "PROGRESS", "owner": "USER"}  # fmt: skip


def experiments(
    client: Determined,
    *,
    owners: Sequence[str] | None,
    sort_by: str = "id",
    reverse: bool = False,
    last: int | None = None,
    limit: int | None = None,
    offset: int = 0,
    metric: str | None = None,
    larger_is_better: bool = False,
    **which: Any,
) -> list[Experiment]:
    """The experiments that fit. `last` chooses the newest before they are sorted; the rest is a page of the result."""
    from determined.client import ExperimentSortBy, OrderBy

    which = {name: list(value) if isinstance(value, tuple) else value for name, value in which.items() if value != ()}
    if last is None and sort_by in SORTS:
        order = OrderBy.DESC if reverse else OrderBy.ASC
        by = ExperimentSortBy(SORTS[sort_by])
        page = client.list_experiments(by, order, users=owners, limit=limit, offset=offset, **which)
        return _judged(page, metric, larger_is_better)
    if last is None:
        found: Sequence[Experiment] = client.list_experiments(users=owners, **which)
    else:
        found = newest_experiments(client, last, owners=owners, **which)
    found = _judged(found, metric, larger_is_better)
    ordered = _ranked(found) if sort_by == "best" else sorted(found, key=_key(sort_by))
    return (ordered[::-1] if reverse else ordered)[offset:][:limit]


def _judged(found: Sequence[Experiment], metric: str | None, larger_is_better: bool) -> list[Experiment]:
    """The experiments as if they had looked at this metric: `loss` of validation, or `training.loss`."""
    if metric is None:
        return list(found)
    group, _, name = metric.partition(".")
    for experiment in found:
        summaries = [
            summary(trial, "validation", metric) or summary(trial, group, name)  # a name may have a dot in it
            for trial in experiment.iter_trials()
        ]
        values = [summary["max" if larger_is_better else "min"] for summary in summaries if summary.get("count")]
        experiment.searcher_metric, experiment.smaller_is_better = metric, not larger_is_better
        experiment.best_metric = (max if larger_is_better else min)(values, default=None)
    return list(found)


def summary(trial: Trial, group: str, name: str) -> dict[str, Any]:
    """Count, last, min, max and mean of one metric of a trial; empty if it never reported it."""
    found: dict[str, Any] = trial.summary_metrics.get(SUMMARIES.get(group, group), {}).get(name, {})
    return found


def newest_experiments(
    client: Determined, count: int, *, owners: Sequence[str] | None = None, **which: Any
) -> list[Experiment]:
    """The newest so many that are not archived, the newest last; everyone's, if no owners are named."""
    from determined.client import ExperimentSortBy, OrderBy

    which.setdefault("archived", False)
    found = client.list_experiments(
        sort_by=ExperimentSortBy.ID, order_by=OrderBy.DESC, users=owners, limit=count, **which
    )
    return found[::-1]


def _ranked(found: Sequence[Experiment]) -> list[Experiment]:
    """Best first; those that look at the same metric stand together, those without a value at the end."""

    def key(experiment: Experiment) -> tuple[bool, str, float]:
        value = experiment.best_metric
        if value is None or math.isnan(value):
            return True, "", 0.0
        return False, experiment.searcher_metric or "", value if experiment.smaller_is_better else -value

    return sorted(found, key=key)


def _key(sort_by: str) -> Any:
    attribute = {"started": "start_time", "ended": "end_time"}.get(sort_by, sort_by)

    def key(experiment: Experiment) -> tuple[bool, Any]:
        value = getattr(experiment, attribute)
        return value is None, "" if value is None else value

    return key


def trials(client: Determined, *, experiment_id: int | None, last: int | None) -> list[Trial]:
    """The trials of one experiment, or of all; the newest last."""
    if experiment_id is not None:
        found = list(client.get_experiment(experiment_id).list_trials())
        return found[-last:] if last else found
    return list(client.list_trials(limit=last))


def checkpoints(
    client: Determined, *, experiment_id: int | None = None, trial_id: int | None = None, best: int | None = None
) -> list[Checkpoint]:
    """Checkpoints of a trial, of an experiment, or of all: the newest last, or the best first."""
    if trial_id is not None:
        owner: Trial | Experiment = client.get_trial(trial_id)
    elif experiment_id is not None:
        owner = client.get_experiment(experiment_id)
    else:
        return list(client.list_checkpoints())
    if best is not None:
        return [found for found in owner.list_checkpoints() if found.searcher_metric is not None][:best]
    return sorted(owner.all_checkpoints(), key=lambda checkpoint: checkpoint.report_time)
