"""The best and the latest validation of a trial, by the metric that the experiment searches for.

The best is the first of the best: a tie goes to the earlier step. NaN is never the best; it may be the latest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from determined._types import Json
from determined.store import values
from determined.store.metrics.rollups import real
from determined.store.metrics.series import Fresh, pages
from determined.store.schema import experiments, metrics, trials

GROUP = "validation"


@dataclasses.dataclass(frozen=True)
class Goal:
    """What an experiment looks for."""

    metric: str | None
    smaller_is_better: bool

    def rank(self, value: float) -> float:
        """Less is better."""
        return value if self.smaller_is_better else -value

    def best(self, candidates: Iterable[tuple[int, float]]) -> tuple[int, float] | None:
        """Return the best of (steps, value): the earliest on ties, never NaN.

        Example::

            assert Goal("loss", True).best([(1, 3.0), (2, math.nan), (3, 2.0), (4, 2.0)]) == (3, 2.0)
        """
        comparable = [candidate for candidate in candidates if not math.isnan(candidate[1])]
        return min(comparable, key=lambda candidate: (self.rank(candidate[1]), candidate[0]), default=None)


def changed_columns(
    conn: sa.Connection,
    trial: sa.Row[Any],
    goal: Goal,
    fresh: Sequence[Fresh],
    *,
    again: bool,
) -> dict[str, Any]:
    """Return the columns of a trial that new validations change.

    Args:
        conn: Where.
        trial: The trial as it is, locked.
        goal: What its experiment looks for.
        fresh: Steps and values that are new, their rows written already.
        again: Validations were hidden, so all that are left count.
    """
    if goal.metric is None:
        return {}
    found = _values(goal.metric, fresh)
    if again:
        found = _values(goal.metric, (row for page in pages(conn, trial.id, GROUP, -1) for row in page))
    elif not found:
        return {}
    else:
        found += _known(conn, trial, goal.metric)
    best = goal.best(found)
    latest = max(found, key=lambda candidate: candidate[0], default=None)
    return {
        "best_validation_id": _row_id(conn, trial.id, best),
        "searcher_metric_value": None if best is None else best[1],
        "latest_validation_id": _row_id(conn, trial.id, latest),
        "latest_metric_value": None if latest is None or math.isnan(latest[1]) else latest[1],
    }


def update_best_trial(conn: sa.Connection, trial: sa.Row[Any], goal: Goal, value: float | None) -> None:
    """Update an experiment's best trial after the best value of one trial has become `value`."""
    if value == trial.searcher_metric_value:
        return
    row = sa.select(experiments.c.best_trial_id).where(experiments.c.id == trial.experiment_id)
    best_id = conn.scalar(row.with_for_update(key_share=True))
    best = conn.scalar(sa.select(trials.c.searcher_metric_value).where(trials.c.id == best_id))
    if best_id == trial.id or best is None:
        winner = _best_trial(conn, trial.experiment_id, goal)
    elif value is not None and goal.rank(value) < goal.rank(best):
        winner = trial.id
    else:
        return
    conn.execute(experiments.update().where(experiments.c.id == trial.experiment_id).values(best_trial_id=winner))


def best_validation(conn: sa.Connection, experiment_id: int) -> float | None:
    """Return the best value of the searcher metric in an experiment so far; None before the first."""
    smaller = conn.scalar(sa.select(experiments.c.smaller_is_better).where(experiments.c.id == experiment_id))
    best = sa.func.min if smaller else sa.func.max
    found: float | None = conn.scalar(
        sa.select(best(trials.c.searcher_metric_value)).where(trials.c.experiment_id == experiment_id)
    )
    return found


def _best_trial(conn: sa.Connection, experiment_id: int, goal: Goal) -> int | None:
    value = trials.c.searcher_metric_value
    query = sa.select(trials.c.id).where(trials.c.experiment_id == experiment_id, value.is_not(None))
    order = value if goal.smaller_is_better else value.desc()
    winner: int | None = conn.scalar(query.order_by(order, trials.c.id).limit(1))
    return winner


def _values(metric: str, rows: Iterable[Fresh]) -> list[tuple[int, float]]:
    return _numbers((steps, body.get(metric)) for steps, body, *_ in rows)


def _known(conn: sa.Connection, trial: sa.Row[Any], metric: str) -> list[tuple[int, float]]:
    """Return the best and the latest validation so far."""
    ids = [row_id for row_id in (trial.best_validation_id, trial.latest_validation_id) if row_id is not None]
    rows = conn.execute(sa.select(metrics.c.steps, metrics.c.body).where(metrics.c.id.in_(ids)))
    return _numbers((row.steps, values.load(row.body).get(metric)) for row in rows)


def _numbers(found: Iterable[tuple[int | None, Json]]) -> list[tuple[int, float]]:
    numbers = ((steps, real(value)) for steps, value in found)
    return [(steps, value) for steps, value in numbers if steps is not None and value is not None]


def _row_id(conn: sa.Connection, trial_id: int, validation: tuple[int, float] | None) -> int | None:
    if validation is None:
        return None
    row_id: int | None = conn.scalar(
        sa.select(metrics.c.id).where(
            metrics.c.trial_id == trial_id,
            metrics.c.metric_group == GROUP,
            metrics.c.archived == sa.false(),
            metrics.c.steps == validation[0],
        )
    )
    return row_id
