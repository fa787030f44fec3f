"""Which experiments, trials and checkpoints a command is about, and in which order."""

from __future__ import annotations

import math
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
    sort_by: str = "id",
    reverse: bool = False,
    last: int | None = None,
    limit: int | None = None,
    offset: int = 0,
    **which: Any,
) -> list[Experiment]:
    """The experiments that fit. `last` chooses the newest before they are sorted; the rest is a page of the result."""
    from determined.client import ExperimentSortBy, OrderBy

    which = {name: list(value) if isinstance(value, tuple) else value for name, value in which.items() if value != ()}
    if last is not None:
        found = list(newest_experiments(client, last, owners=owners, **which))
        by_id = sort_by == "id"
        ordered = found if by_id else _ranked(found) if sort_by == "best" else sorted(found, key=_key(sort_by))
        ordered = ordered[::-1] if reverse else ordered
        return ordered[offset:][:limit]
    if sort_by == "best":
        ordered = _ranked(client.list_experiments(users=owners, **which))
        return (ordered[::-1] if reverse else ordered)[offset:][:limit]
    return client.list_experiments(
        sort_by=ExperimentSortBy(SORTS[sort_by]),
        order_by=OrderBy.DESC if reverse else OrderBy.ASC,
        users=owners,
        limit=limit,
        offset=offset,
        **which,
    )


def newest_experiments(
    client: Determined, count: int, *, owners: Sequence[str] | None = None, **which: Any
) -> list[Experiment]:
    """The newest so many, the newest last. Whose, if nothing is said: the user's."""
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
