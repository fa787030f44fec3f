"""Which experiments, trials and checkpoints a command is about, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from determined.client import Checkpoint, Determined, Experiment, Trial

SORTS = {"id": "ID", "name": "NAME", "state": "STATE", "started": "START_TIME", "ended": "END_TIME",
         "progress": "PROGRESS", "owner": "USER"}  # fmt: skip


def experiments(
    client: Determined,
    *,
    owners: Sequence[str] | None,
    sort_by: str | None = None,
    reverse: bool = False,
    last: int | None = None,
    limit: int | None = None,
    offset: int = 0,
    metric: str | None = None,
    smaller_is_better: bool | None = None,
    **which: Any,
) -> list[Experiment]:
    """The experiments that fit. `last` chooses the newest before they are sorted; the rest is a page of the result.

    They are sorted by id, or by the best value of `metric` if one is named, unless `sort_by` says otherwise.
    """
    from determined.client import ExperimentSortBy, OrderBy, _ranking

    which = {name: list(value) if isinstance(value, tuple) else value for name, value in which.items() if value != ()}
    sort_by = sort_by or ("id" if metric is None else "best")
    if last is None and sort_by in SORTS:
        order = OrderBy.DESC if reverse else OrderBy.ASC
        by = ExperimentSortBy(SORTS[sort_by])
        page = client.list_experiments(by, order, users=owners, limit=limit, offset=offset, **which)
        return list(page) if metric is None else _ranking.judged(page, metric, smaller_is_better)
    if last is None:
        found: Sequence[Experiment] = client.list_experiments(users=owners, **which)
    else:
        found = newest_experiments(client, last, owners=owners, **which)
    if sort_by == "best":
        ordered: list[Experiment] = _ranking.rank(found, metric, smaller_is_better)
    else:
        judged = found if metric is None else _ranking.judged(found, metric, smaller_is_better)
        ordered = sorted(judged, key=_key(sort_by))
    return (ordered[::-1] if reverse else ordered)[offset:][:limit]


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
