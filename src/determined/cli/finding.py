"""Find the experiments, trials and checkpoints that a command is about, in the order that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from determined.client import Checkpoint, Determined, Experiment, Listing, Trial
    from determined.client._compare import Scores

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
) -> tuple[list[Experiment], Scores | None]:
    """Find experiments. `last` chooses the newest before they are sorted; limit and offset choose a page of the result.

    They are sorted by id, or by the best value of `metric` if one is named, unless `sort_by` says otherwise. Returns
    them with their scores by `metric`.
    """
    from determined.client import ExperimentSortBy, OrderBy, _compare

    which = {name: list(value) if isinstance(value, tuple) else value for name, value in which.items() if value != ()}
    sort_by = sort_by or ("id" if metric is None else "best")
    pages_in_store = last is None and sort_by in SORTS
    if pages_in_store:
        order = OrderBy.DESC if reverse else OrderBy.ASC
        by = ExperimentSortBy(SORTS[sort_by])
        found = client.list_experiments(by, order, users=owners, limit=limit, offset=offset, **which)
    elif last is None:
        found = client.list_experiments(users=owners, **which)
    else:
        found = newest_experiments(client, last, owners=owners, **which)
    scores = None if metric is None else _compare.scores(found, metric, smaller_is_better)
    if pages_in_store:
        return found, scores
    ordered = _compare.ordered(found, scores) if sort_by == "best" else sorted(found, key=_key(sort_by))
    return (ordered[::-1] if reverse else ordered)[offset:][:limit], scores


def newest_experiments(
    client: Determined, count: int, *, owners: Sequence[str] | None = None, **which: Any
) -> Listing[Experiment]:
    """Find the newest experiments that are not archived, the newest last; everyone's, if no owners are named."""
    from determined.client import ExperimentSortBy, OrderBy

    which.setdefault("archived", False)
    found = client.list_experiments(
        sort_by=ExperimentSortBy.ID, order_by=OrderBy.DESC, users=owners, limit=count, **which
    )
    found.reverse()
    return found


def _key(sort_by: str) -> Any:
    attribute = {"started": "start_time", "ended": "end_time"}.get(sort_by, sort_by)

    def key(experiment: Experiment) -> tuple[bool, Any]:
        value = getattr(experiment, attribute)
        return value is None, "" if value is None else value

    return key


def trials(client: Determined, *, experiment_id: int | None, last: int | None) -> list[Trial]:
    """Find the trials of one experiment, or of all; the newest last."""
    if experiment_id is not None:
        found = list(client.get_experiment(experiment_id).list_trials())
        return found[-last:] if last else found
    return list(client.list_trials(limit=last))


def checkpoints(
    client: Determined, *, experiment_id: int | None = None, trial_id: int | None = None, best: int | None = None
) -> list[Checkpoint]:
    """Find checkpoints of a trial, of an experiment, or of all: the newest last, or the best first."""
    from determined.client._checkpoint import validated

    if trial_id is not None:
        owner: Trial | Experiment = client.get_trial(trial_id)
    elif experiment_id is not None:
        owner = client.get_experiment(experiment_id)
    else:
        return list(client.list_checkpoints())
    if best is not None:
        return validated(owner.list_checkpoints(), None)[:best]
    return sorted(owner.all_checkpoints(), key=lambda checkpoint: checkpoint.report_time)
