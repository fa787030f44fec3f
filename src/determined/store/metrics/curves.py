"""Read curves: the envelope of any range in about as many buckets as asked for, and exact points.

Whatever the range, an envelope reads a few thousand rows at most: roll-ups of the right width, or the points themselves
where they are few.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from determined.store import values
from determined.store.metrics.buckets import of_cells, of_points
from determined.store.metrics.rollups import Cell, Envelope, Points, Rollup, epochs_of, real, width
from determined.store.metrics.series import CELL_COLUMNS, PAGE, mentions
from determined.store.schema import metric_cells, metric_series, metrics, trials

EXACT = 4
"""With this many points per bucket, or fewer, the points themselves are read."""


@dataclasses.dataclass(frozen=True)
class LearningCurve:
    """A curve for a picture of many trials, as columns: after how many steps and epochs, when, and the value.

    Of a long one these are means of buckets, at the last point of each; NaN where a bucket has no finite value.
    `points` is how many were reported.
    """

    steps: list[int]
    epochs: list[float | None]
    time: list[datetime.datetime]
    value: list[float]
    points: int = 0

    def __len__(self) -> int:
        return len(self.steps)


def envelope(
    conn: sa.Connection,
    trial_id: int,
    group: str,
    name: str,
    *,
    first: int | None = None,
    last: int | None = None,
    buckets: int = 1000,
) -> Envelope:
    """Return the curve of a metric between two steps, both included, in `buckets` buckets or fewer.

    Buckets hold about equally many points, in whole roll-ups; so there may be a quarter as many as asked for, and those
    at the ends may reach beyond the range. With few points each has a bucket of its own.

    Args:
        conn: Where.
        trial_id: Whose curve.
        group: Of which group.
        name: Of which metric.
        first: From this step on; from the beginning without it.
        last: Up to this step; to the end without it.
        buckets: How many are useful; a chart needs one per column of pixels.

    Example::

        curve = envelope(conn, 1, "training", "loss", first=1000, last=2000, buckets=200)
        assert len(curve) <= 200 and curve.min[0] <= curve.mean[0] <= curve.max[0]
    """
    series = _series(conn, trial_id, group, name)
    if series is None:
        return of_points([], buckets)
    low, high = first or 0, series.last_steps if last is None else min(last, series.last_steps)
    there = points_between(conn, series, low, high)
    if there <= EXACT * buckets:
        numbers = _numbers(conn, trial_id, group, name, first, last)
        return of_points([(row.steps, value, row.window_batches) for row, value in numbers], buckets)
    return of_cells(cells_between(conn, series, level_of(there, buckets), low, high), buckets)


def level_of(there: int, buckets: int) -> int:
    """Return the level of the cells that show so many points: half as many as buckets will do, for less reading."""
    level = 0
    while width(level + 1) * buckets <= 2 * there:
        level += 1
    return level


def chart(
    conn: sa.Connection, trial_ids: Sequence[int], group: str, name: str, *, buckets: int = 200
) -> dict[int, Envelope]:
    """Return the same curve of many trials, for one picture; trials that never reported it are left out."""
    found = {trial_id: envelope(conn, trial_id, group, name, buckets=buckets) for trial_id in trial_ids}
    return {trial_id: curve for trial_id, curve in found.items() if len(curve)}


def learning_curves(
    conn: sa.Connection, trial_ids: Sequence[int], group: str, name: str, *, buckets: int = 200
) -> dict[int, LearningCurve]:
    """Return a metric of many trials over steps, epochs and time; trials that never reported it are left out.

    Short curves are read in one query, whatever their number; a long one costs a few more.

    Args:
        conn: Where.
        trial_ids: Whose, a few hundred at most.
        group: Of which group.
        name: Of which metric.
        buckets: At most so many points of each.
    """
    series = (metric_series.c.metric_group == group, metric_series.c.name == name, metric_series.c.points > 0)
    counted = sa.select(metric_series.c.trial_id, metric_series.c.points).where(
        metric_series.c.trial_id.in_(list(trial_ids)), *series
    )
    lengths = {row.trial_id: row.points for row in conn.execute(counted)}
    found = {
        trial_id: LearningCurve([], [], [], [], lengths[trial_id]) for trial_id in trial_ids if trial_id in lengths
    }
    short = [trial_id for trial_id in found if lengths[trial_id] <= EXACT * buckets]
    for row, body in _rows(conn, short, group, mentions(conn, name)):
        if (value := real(body.get(name))) is not None:
            _extend(found[row.trial_id], row, body, value)
    for trial_id in found.keys() - set(short):
        rough = envelope(conn, trial_id, group, name, buckets=buckets)
        means = dict(zip(rough.ends, rough.mean, strict=True))
        for row, body in _rows(conn, [trial_id], group, metrics.c.steps.in_(rough.ends)):
            mean = means[row.steps]
            _extend(found[trial_id], row, body, math.nan if mean is None else mean)
    return {trial_id: _thinned(curve, buckets) for trial_id, curve in found.items() if len(curve)}


def _thinned(curve: LearningCurve, buckets: int) -> LearningCurve:
    """Return a curve in `buckets` buckets or fewer, which hold about equally many points."""
    if len(curve) <= buckets:
        return curve
    ends = [number * len(curve) // buckets for number in range(buckets + 1)]
    last = [end - 1 for end in ends[1:]]
    finite = [[v for v in curve.value[start:end] if math.isfinite(v)] for start, end in itertools.pairwise(ends)]
    return LearningCurve(
        [curve.steps[i] for i in last],
        [curve.epochs[i] for i in last],
        [curve.time[i] for i in last],
        [statistics.fmean(values) if values else math.nan for values in finite],
        curve.points,
    )


def values_near(
    conn: sa.Connection, experiment_id: int, group: str, name: str, steps: int, *, reach: int
) -> dict[int, float]:
    """Return a metric of the trials of an experiment at a step, or at the nearest one that is at most `reach` away.

    Of two that are equally near the later one counts. Trials that reported nothing there are left out.
    """
    away = sa.func.abs(metrics.c.steps - steps)
    nearest = sa.func.row_number().over(partition_by=metrics.c.trial_id, order_by=(away, metrics.c.steps.desc()))
    there = (
        sa.select(metrics.c.trial_id, metrics.c.body, nearest.label("place"))
        .join(trials, trials.c.id == metrics.c.trial_id)
        .where(
            trials.c.experiment_id == experiment_id,
            metrics.c.metric_group == group,
            metrics.c.archived == sa.false(),
            metrics.c.steps.between(steps - reach, steps + reach),
            mentions(conn, name),
        )
        .subquery()
    )
    found = conn.execute(sa.select(there.c.trial_id, there.c.body).where(there.c.place == 1))
    values_there = ((row.trial_id, real(values.load(row.body).get(name))) for row in found)
    return {trial_id: value for trial_id, value in values_there if value is not None}


def _rows(
    conn: sa.Connection, trial_ids: Sequence[int], group: str, *which: sa.ColumnElement[bool]
) -> Iterator[tuple[sa.Row[Any], dict[str, Any]]]:
    """Yield visible reports of trials with their metrics, by trial and in order of steps."""
    columns = [metrics.c[name] for name in ("trial_id", "steps", "report_time", "body")]
    query = sa.select(*columns).where(
        metrics.c.trial_id.in_(list(trial_ids)),
        metrics.c.metric_group == group,
        metrics.c.archived == sa.false(),
        metrics.c.steps >= 0,
        *which,
    )
    if not trial_ids:
        return
    ordered = query.order_by(metrics.c.trial_id, metrics.c.steps)
    with conn.execute(ordered.execution_options(yield_per=PAGE)) as result:
        for row in result:
            yield row, values.load(row.body)


def _extend(curve: LearningCurve, row: sa.Row[Any], body: dict[str, Any], value: float) -> None:
    curve.steps.append(row.steps)
    curve.epochs.append(epochs_of(body))
    curve.time.append(row.report_time)
    curve.value.append(value)


def points(
    conn: sa.Connection,
    trial_id: int,
    group: str,
    name: str,
    *,
    first: int | None = None,
    last: int | None = None,
    limit: int | None = None,
) -> Points:
    """Return the exact points of a curve between two steps, both included; the first `limit` of them."""
    found = Points([], [], [], [])
    numbers = _numbers(conn, trial_id, group, name, first, last, metrics.c.report_time)
    for row, value in itertools.islice(numbers, limit):
        found.steps.append(row.steps)
        found.value.append(value)
        found.time.append(row.report_time)
        found.window.append(row.window_batches)
    return found


def _numbers(
    conn: sa.Connection,
    trial_id: int,
    group: str,
    name: str,
    first: int | None,
    last: int | None,
    *columns: sa.ColumnElement[Any],
) -> Iterator[tuple[sa.Row[Any], float]]:
    """Yield the rows in which a metric is a number, in order of steps."""
    query = sa.select(metrics.c.steps, metrics.c.body, metrics.c.window_batches, *columns).where(
        metrics.c.trial_id == trial_id,
        metrics.c.metric_group == group,
        metrics.c.archived == sa.false(),
        metrics.c.steps >= (first or 0),
        mentions(conn, name),
    )
    if last is not None:
        query = query.where(metrics.c.steps <= last)
    with conn.execute(query.order_by(metrics.c.steps).execution_options(yield_per=PAGE)) as result:
        for row in result:
            if (value := real(values.load(row.body).get(name))) is not None:
                yield row, value


def _series(conn: sa.Connection, trial_id: int, group: str, name: str) -> sa.Row[Any] | None:
    columns = [metric_series.c[column] for column in ("id", "points", "last_steps", "rollup")]
    return conn.execute(
        sa.select(*columns).where(
            metric_series.c.trial_id == trial_id,
            metric_series.c.metric_group == group,
            metric_series.c.name == name,
            metric_series.c.points > 0,
        )
    ).first()


def _of_level(cells: sa.FromClause) -> tuple[sa.ColumnElement[bool], ...]:
    return cells.c.series_id == sa.bindparam("series"), cells.c.level == sa.bindparam("level")


# Made once: putting a statement together takes as long as PostgreSQL needs to answer it.
_FIRST = metric_cells.c.first_steps
_LOW: sa.BindParameter[int] = sa.bindparam("low")
_HIGH: sa.BindParameter[int] = sa.bindparam("high")
_CELL = sa.select(metric_cells.c.cell).where(*_of_level(metric_cells)).limit(1)
_AROUND = sa.select(
    _CELL.where(_FIRST <= _LOW).order_by(_FIRST.desc()).scalar_subquery(),
    _CELL.where(_FIRST > _HIGH).order_by(_FIRST).scalar_subquery(),
)
_EARLIER = metric_cells.alias()
_BEGIN = sa.select(sa.func.coalesce(sa.func.max(_EARLIER.c.first_steps), 0)).where(
    *_of_level(_EARLIER), _EARLIER.c.first_steps <= _LOW
)
_CELLS = (
    sa.select(*(metric_cells.c[name] for name in CELL_COLUMNS))
    .where(*_of_level(metric_cells), _FIRST.between(_BEGIN.scalar_subquery(), _HIGH))
    .order_by(_FIRST)
    .execution_options(det_numbers=True)
)


def points_between(conn: sa.Connection, series: sa.Row[Any], low: int, high: int) -> int:
    """Return about how many points lie between two steps: exact but for the cells at the ends."""
    if low <= 0 and high >= series.last_steps:
        return int(series.points)
    before, after = conn.execute(_AROUND, {"series": series.id, "level": 0, "low": low, "high": high}).one()
    return int(series.points if after is None else after * width(0)) - int(before or 0) * width(0)


def cells_between(conn: sa.Connection, series: sa.Row[Any], level: int, low: int, high: int) -> list[Cell]:
    """Return the full cells of a level that overlap a range, and what follows the last of them."""
    place = {"series": series.id, "level": level, "low": low, "high": high}
    cells = list(itertools.starmap(Cell, conn.execute(_CELLS, place).all()))
    cells += Rollup.load(series.rollup).tail(level)
    return [cell for cell in cells if cell.last_steps >= low and cell.first_steps <= high]
