"""Curves as charts draw them: in buckets over steps, epochs and seconds, with the points that are no numbers.

Many curves are read with few questions: one for all that are short, two or three for each that is long.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from determined.store import values
from determined.store.metrics.buckets import columns, fewer, of_points
from determined.store.metrics.curves import EXACT, cells_between, level_of, points_between
from determined.store.metrics.places import RAW_TIME, body_of, places, since
from determined.store.metrics.rollups import EPOCHS, Envelope, Rollup, epochs_of, real, width
from determined.store.metrics.series import mentions, visible
from determined.store.schema import metric_cells, metric_series, metrics, trials

MOST_ODD = 100
MOST_BUCKETS = 40_000  # of all curves together
LEAST_BUCKETS = 100  # of each
MOST_POINTS = 80_000  # that are read one by one, of all curves together
MOST_RANGES = 20  # in which points that are no numbers are looked for


@dataclasses.dataclass(frozen=True)
class Drawn:
    """One curve in buckets. Epochs and seconds are at the last step of each."""

    trial_id: int
    group: str
    name: str
    envelope: Envelope
    epochs: list[float | None]
    seconds: list[float | None]  # since the trial began
    odd: list[tuple[int, float]]  # steps and values that are NaN or infinite; the first of them
    points: int  # in the range that was asked for
    total: int  # of the whole curve


@dataclasses.dataclass(frozen=True)
class Range:
    """What is asked for: between these steps, both included, in so many buckets or fewer."""

    first: int | None = None
    last: int | None = None
    buckets: int = 1000

    def shared(self, curves: int) -> Range:
        """Return what each of so many curves gets, so that all together stay within bounds."""
        fair = max(MOST_BUCKETS // max(curves, 1), LEAST_BUCKETS)
        return dataclasses.replace(self, buckets=max(min(self.buckets, fair), 1))


def draw(
    conn: sa.Connection,
    trial_ids: Sequence[int],
    wanted: Sequence[tuple[str, str]],
    asked: Range | None = None,
) -> list[Drawn]:
    """Return the curves that there are of some metrics (group and name) of some trials, by metric, then by trial.

    Example::

        loss, accuracy = draw(conn, [7], [("training", "loss"), ("validation", "accuracy")], Range(buckets=200))
    """
    found = _series(conn, trial_ids, wanted)
    share = (asked or Range()).shared(len(found))
    most = min(EXACT * share.buckets, MOST_POINTS // max(len(found), 1))
    drawn: dict[tuple[int, str, str], Drawn] = {}
    short: dict[tuple[str, str], list[sa.Row[Any]]] = {}
    for row in found:
        low, high = _ends(row, share)
        there = points_between(conn, row, low, high)
        if there <= most or there < width(0):
            short.setdefault((row.metric_group, row.name), []).append(row)
            continue
        drawn[row.trial_id, row.metric_group, row.name] = _long(conn, row, share, there)
    for some in short.values():
        for curve in _short(conn, some, share):
            drawn[curve.trial_id, curve.group, curve.name] = curve
    order = ((trial_id, group, name) for group, name in wanted for trial_id in trial_ids)
    return [drawn[place] for place in order if place in drawn]


_NAMES = ("id", "trial_id", "metric_group", "name", "points", "last_steps", "rollup")
_COLUMN, _OTHER = metric_series.c, metric_series.alias().c
_HAS_EPOCHS = sa.exists().where(
    _OTHER.trial_id == _COLUMN.trial_id, _OTHER.metric_group == _COLUMN.metric_group, _OTHER.name.in_(EPOCHS)
)
_SERIES: sa.Select[Any] = (
    sa.select(*(_COLUMN[name] for name in _NAMES), trials.c.start_time, _HAS_EPOCHS.label("has_epochs"))
    .join(trials, trials.c.id == _COLUMN.trial_id)
    .where(_COLUMN.trial_id.in_(sa.bindparam("trials", expanding=True)), _COLUMN.points > 0)
    .where(sa.tuple_(_COLUMN.metric_group, _COLUMN.name).in_(sa.bindparam("wanted", expanding=True)))
)


def _series(conn: sa.Connection, trial_ids: Sequence[int], wanted: Sequence[tuple[str, str]]) -> Sequence[sa.Row[Any]]:
    """Return the rows of curves, with the start of their trials, and whether their reports count epochs."""
    return conn.execute(_SERIES, {"trials": list(trial_ids), "wanted": list(wanted)}).all()


def _ends(series: sa.Row[Any], asked: Range) -> tuple[int, int]:
    return asked.first or 0, series.last_steps if asked.last is None else min(asked.last, series.last_steps)


# Long curves: roll-ups.


def _long(conn: sa.Connection, series: sa.Row[Any], asked: Range, there: int) -> Drawn:
    low, high = _ends(series, asked)
    cells = fewer(cells_between(conn, series, level_of(there, asked.buckets), low, high), asked.buckets)
    found = columns(cells)
    seconds, epochs = places(conn, series, cells)
    odd = _odd(conn, series, found) if any(found.odd) else []
    points = sum(found.count) + sum(found.odd)
    place = (series.trial_id, series.metric_group, series.name)
    return Drawn(*place, found, epochs, seconds, odd, points, series.points)


def _odd(conn: sa.Connection, series: sa.Row[Any], found: Envelope) -> list[tuple[int, float]]:
    """Return the first points that are NaN or infinite: the smallest cells that have some say where to look."""
    marks: list[tuple[int, float]] = []
    for low, high in _runs(found)[:MOST_RANGES]:
        place = {"series": series.id, "low": low, "high": high, "most": MOST_ODD - len(marks)}
        cells = [(row.first_steps, row.last_steps) for row in conn.execute(_ODD_CELLS, place)]
        tail = [(cell.first_steps, cell.last_steps) for cell in Rollup.load(series.rollup).tail(0) if cell.odd]
        for begin, end in [*cells, *(each for each in tail if low <= each[0] <= high)]:
            query = sa.select(metrics.c.steps, metrics.c.body).where(
                *visible(series.trial_id, series.metric_group), metrics.c.steps.between(begin, end)
            )
            for steps, body in conn.execute(query.order_by(metrics.c.steps)):
                value = real(values.load(body).get(series.name))
                if value is not None and not math.isfinite(value):
                    marks.append((steps, value))
        if len(marks) >= MOST_ODD:
            break
    return marks[:MOST_ODD]


_ODD_CELLS = (
    sa.select(metric_cells.c.first_steps, metric_cells.c.last_steps)
    .where(metric_cells.c.series_id == sa.bindparam("series"), metric_cells.c.level == 0, metric_cells.c.odd > 0)
    .where(metric_cells.c.first_steps.between(sa.bindparam("low"), sa.bindparam("high")))
    .order_by(metric_cells.c.first_steps)
    .limit(sa.bindparam("most"))
)


def _runs(found: Envelope) -> list[tuple[int, int]]:
    """Return first and last step of each run of neighbouring buckets with odd points."""
    runs: list[tuple[int, int]] = []
    was_odd = False
    for begin, end, count in zip(found.steps, found.ends, found.odd, strict=True):
        if count:
            runs[-1:] = [(runs[-1][0], end)] if was_odd else [*runs[-1:], (begin, end)]
        was_odd = bool(count)
    return runs


# Short curves: their reports.


def _short(conn: sa.Connection, series: Sequence[sa.Row[Any]], asked: Range) -> Iterator[Drawn]:
    """Yield the same metric of several trials."""
    read: dict[int, list[tuple[int, float, int | None, Any, float | None]]] = {row.trial_id: [] for row in series}
    for trial_id, steps, body, window, time in _reports(conn, series, asked):
        found = body_of(body)
        if (value := real(found.get(series[0].name))) is not None:
            read[trial_id].append((steps, value, window, time, epochs_of(found)))
    for row in series:
        points = read[row.trial_id]
        envelope = of_points([point[:3] for point in points], asked.buckets)
        at = {point[0]: point for point in points}
        yield Drawn(
            row.trial_id,
            row.metric_group,
            row.name,
            envelope,
            [at[end][4] for end in envelope.ends],
            [since(row.start_time, at[end][3]) for end in envelope.ends],
            [(point[0], point[1]) for point in points if not math.isfinite(point[1])][:MOST_ODD],
            len(points),
            row.points,
        )


def _reports(conn: sa.Connection, series: Sequence[sa.Row[Any]], asked: Range) -> Iterable[Any]:
    column = metrics.c
    query = sa.select(column.trial_id, column.steps, column.body, column.window_batches, RAW_TIME).where(
        column.trial_id.in_([row.trial_id for row in series]),
        column.metric_group == series[0].metric_group,
        column.archived == sa.false(),
        column.steps >= (asked.first or 0),
        mentions(conn, series[0].name),
    )
    if asked.last is not None:
        query = query.where(column.steps <= asked.last)
    return conn.execute(query.order_by(column.trial_id, column.steps)).all()
