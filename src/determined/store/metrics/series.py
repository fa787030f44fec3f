"""The curves of one trial while reports are written: rows of `metric_series` and `metric_cells` brought up to date.

Only the tables of roll-ups are written here. They follow from the visible rows of `metrics` and can be made again.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from determined._types import Json
from determined.store import values
from determined.store.metrics import rollups
from determined.store.metrics.rollups import (
    MIXED,
    Cell,
    FullCell,
    Rollup,
    When,
    common_type,
    epochs_of,
    join,
    real,
    summary_entry,
    type_of,
    width,
)
from determined.store.schema import metric_cells, metric_series, metrics

PAGE = 2000
CELL_COLUMNS = tuple(field.name for field in dataclasses.fields(Cell))

# Steps, the values that are new there, their window, and when they were reported.
Fresh = tuple["int | None", "dict[str, Json]", "int | None", When]


@dataclasses.dataclass
class Series:
    """One metric of a trial."""

    group: str
    name: str
    id: int | None = None
    type: str | None = None  # None: no values
    last: Json = None
    last_steps: int | None = None
    rollup: Rollup = dataclasses.field(default_factory=Rollup)
    full: list[FullCell] = dataclasses.field(default_factory=list)  # not written yet

    def take(self, points: Sequence[tuple[int, Json, int | None, When]]) -> None:
        """Append values, which are in order of steps and follow all earlier ones."""
        self._note_types([value for _, value, _, _ in points])
        self.last_steps, self.last, _, _ = points[-1]
        numbers, when = [], []
        for steps, value, window, moment in points:
            if (number := real(value)) is not None:
                numbers.append((steps, number, window or 1))
                when.append(moment)
        self.full += self.rollup.extend(numbers, when)

    def sample(self, samples: Sequence[Json]) -> None:
        """Count values that belong to no step."""
        self._note_types(samples)
        if numbers := [number for value in samples if (number := real(value)) is not None]:
            self.rollup.sample(numbers)
        if self.last_steps is None:
            self.last = samples[-1]

    def _note_types(self, seen: Sequence[Json]) -> None:
        one_of_each = {type(value): value for value in seen}
        for value in seen if str in one_of_each else one_of_each.values():  # of texts, some may be dates
            self.type = common_type(self.type, type_of(value))

    def forget(self) -> None:
        """Drop all values."""
        self.type, self.last, self.last_steps = None, None, None
        self.rollup, self.full = Rollup(), []

    @property
    def entry(self) -> dict[str, Any] | None:
        """The entry in the summary; None without values."""
        return None if self.type is None else summary_entry(self.type, self.last, self.rollup.total)


class TrialSeries:
    """All curves of a trial in the groups that change. Read once, changed in memory, written once."""

    def __init__(self, conn: sa.Connection, trial_id: int, groups: Iterable[str]) -> None:
        self._conn = conn
        self._trial_id = trial_id
        query = sa.select(metric_series).where(
            metric_series.c.trial_id == trial_id, metric_series.c.metric_group.in_(sorted(groups))
        )
        self._stored = {(row.metric_group, row.name): row for row in conn.execute(query)}
        self._changed: dict[tuple[str, str], Series] = {}

    def absorb(self, group: str, fresh: Sequence[Fresh], changed_from: int | None = None) -> None:
        """Take in values whose rows are written already, in order of steps.

        Args:
            group: Their group.
            fresh: Steps and values that were not there before.
            changed_from: Rows from this step on were hidden or shown; curves that reach it are made again from there.
        """
        again = {name: changed_from for name in self._reaching(group, changed_from) if changed_from is not None}
        for name, points in _by_name(row for row in fresh if row[0] is not None).items():
            series = self._get(group, name)
            if name in again:  # which reads the rows of these points, too
                again[name] = min(again[name], points[0][0])
            elif series.last_steps is not None and points[0][0] <= series.last_steps:
                again[name] = points[0][0]  # an earlier step: what follows it moves
            else:
                series.take(points)
        for name, samples in _by_name(row for row in fresh if row[0] is None).items():
            self._get(group, name).sample([value for _, value, _, _ in samples])
        if again:
            self._make_again(group, {name: (self._get(group, name), start) for name, start in again.items()})

    def _get(self, group: str, name: str) -> Series:
        series = self._changed.get((group, name))
        if series is None:
            series = Series(group, name)
            if (row := self._stored.get((group, name))) is not None:
                series.id, series.type, series.last_steps = row.id, row.type, row.last_steps
                series.last, series.rollup = values.load(row.last), Rollup.load(row.rollup)
            self._changed[group, name] = series
        return series

    def _reaching(self, group: str, steps: int | None) -> list[str]:
        """Return the stored curves of a group that have a value at or after a step."""
        if steps is None:
            return []
        rows = ((name, row) for (of, name), row in self._stored.items() if of == group)
        return [name for name, row in rows if row.last_steps is not None and row.last_steps >= steps]

    def _make_again(self, group: str, again: dict[str, tuple[Series, int]]) -> None:
        """Cut curves back before a step, then append what follows from the rows."""
        kept = {name: self._cut(series, start) for name, (series, start) in again.items()}
        right = [steps for steps in kept.values() if steps is not None]
        for page in pages(self._conn, self._trial_id, group, min(right) if len(right) == len(kept) else None):
            for name, points in _by_name(_only_after(page, kept)).items():
                series = again[name][0]
                if samples := [value for steps, value, _, _ in points if steps is None]:
                    series.sample(samples)
                if stepped := [point for point in points if point[0] is not None]:
                    series.take(stepped)

    def _cut(self, series: Series, start: int) -> int | None:
        """Drop the cells that reach `start`; return the step it is right up to, None if samples count again."""
        of_series = metric_cells.c.series_id == series.id
        self._conn.execute(metric_cells.delete().where(of_series, metric_cells.c.last_steps >= start))
        if series.type == MIXED:  # which types are left is known only after reading everything
            self._conn.execute(metric_cells.delete().where(of_series))
            series.forget()
            return None
        series.full = []
        series.rollup = reopened(self._conn, series.id, series.rollup.samples)
        self._find_last(series, start)
        if series.type == "number":
            return max((cell.last_steps for cell in series.rollup.open if cell is not None), default=-1)
        return start - 1

    def _find_last(self, series: Series, before: int) -> None:
        """Set the last value that a curve has before a step, or among its samples; drop all values if there is none."""
        query = sa.select(*_REPORT).where(*visible(self._trial_id, series.group), mentions(self._conn, series.name))
        earlier = query.where(metrics.c.steps < before).order_by(metrics.c.steps.desc())
        samples = query.where(metrics.c.steps.is_(None)).order_by(metrics.c.id.desc())
        for rows in (earlier, samples):
            for page in _pages(self._conn, rows):
                for steps, body, _, _ in page:
                    if series.name in body:
                        series.last_steps, series.last = steps, body[series.name]
                        return
        series.forget()

    def save(self) -> dict[tuple[str, str], dict[str, Any] | None]:
        """Write what changed; return its entries in the summary, None for metrics without values."""
        there = [series for series in self._changed.values() if series.type is not None]
        self._insert([series for series in there if series.id is None])
        if old := [
            {"row": series.id, **_columns(series)} for series in there if (series.group, series.name) in self._stored
        ]:
            self._conn.execute(_UPDATE, old)
        if gone := [series.id for series in self._changed.values() if series.type is None and series.id is not None]:
            self._conn.execute(metric_series.delete().where(metric_series.c.id.in_(gone)))
        if filled := [_cell_row(series.id, *full) for series in there for full in series.full]:
            self._conn.execute(metric_cells.insert(), filled)
        return {place: series.entry for place, series in self._changed.items()}

    def _insert(self, new: Sequence[Series]) -> None:
        if not new:
            return
        rows = [
            {"trial_id": self._trial_id, "metric_group": series.group, "name": series.name, **_columns(series)}
            for series in new
        ]
        ids = metric_series.insert().returning(metric_series.c.id, sort_by_parameter_order=True)
        for series, series_id in zip(new, self._conn.execute(ids, rows).scalars(), strict=True):
            series.id = series_id


_UPDATE = (
    metric_series.update()
    .where(metric_series.c.id == sa.bindparam("row"))
    .values({name: sa.bindparam(name) for name in ("type", "last", "last_steps", "points", "rollup")})
)


def reopened(conn: sa.Connection, series_id: int | None, samples: Cell | None) -> Rollup:
    """Return the roll-up of a curve that ends with its last full cell of level 0."""
    columns = [metric_cells.c[name] for name in CELL_COLUMNS]
    of_series = metric_cells.c.series_id == series_id
    newest = sa.select(metric_cells.c.cell).where(of_series, metric_cells.c.level == 0)
    index = conn.scalar(newest.order_by(metric_cells.c.first_steps.desc()).limit(1))
    full = 0 if index is None else index + 1  # cells of this level
    rollup = Rollup(full * width(0), [None], samples)
    level = 0
    while full:
        query = sa.select(*columns).where(of_series, metric_cells.c.level == level)
        rows = conn.execute(query.order_by(metric_cells.c.first_steps.desc()).limit(full % rollups.FAN)).all()
        rollup.open.append(join(Cell(*row) for row in reversed(rows)))
        level, full = level + 1, full // rollups.FAN
    return rollup


def mentions(conn: sa.Connection, name: str) -> sa.ColumnElement[bool]:
    """Return the condition that a row names a metric: one that is seldom reported is found without reading the rest."""
    find = sa.func.instr if conn.dialect.name == "sqlite" else sa.func.strpos
    return find(metrics.c.body, json.dumps(name)) > 0


def visible(trial_id: int, group: str) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the condition that a row is a report of this group that counts."""
    return metrics.c.trial_id == trial_id, metrics.c.metric_group == group, metrics.c.archived == sa.false()


def pages(conn: sa.Connection, trial_id: int, group: str, after: int | None = None) -> Iterator[list[Fresh]]:
    """Yield pages of visible rows of a group after a step, in order; without a step all, samples first."""
    query = sa.select(*_REPORT).where(*visible(trial_id, group))
    if after is None:
        yield from _pages(conn, query.where(metrics.c.steps.is_(None)).order_by(metrics.c.id))
        after = -1
    yield from _pages(conn, query.where(metrics.c.steps > after).order_by(metrics.c.steps))


_REPORT = tuple(metrics.c[name] for name in ("steps", "body", "window_batches", "report_time"))


def _pages(conn: sa.Connection, query: sa.Select[Any]) -> Iterator[list[Fresh]]:
    with conn.execute(query.execution_options(yield_per=PAGE)) as result:
        for page in result.partitions():
            yield [_fresh(row) for row in page]


def _fresh(row: sa.Row[Any]) -> Fresh:
    body = values.load(row.body)
    return row.steps, body, row.window_batches, (row.report_time.timestamp(), epochs_of(body))


def _by_name(rows: Iterable[Fresh]) -> dict[str, list[tuple[Any, Json, int | None, When]]]:
    """Return steps, values, windows and times by metric."""
    found: dict[str, list[tuple[Any, Json, int | None, When]]] = collections.defaultdict(list)
    for steps, body, window, when in rows:
        for name, value in body.items():
            found[name].append((steps, value, window, when))
    return found


def _only_after(page: Iterable[Fresh], kept: dict[str, int | None]) -> Iterator[Fresh]:
    """Yield of each metric only what follows the step in `kept`; samples where that is None."""
    for steps, body, window, when in page:
        after = -1 if steps is None else steps
        later = {n: v for n, v in body.items() if n in kept and ((right := kept[n]) is None or after > right)}
        yield steps, later, window, when


def _columns(series: Series) -> dict[str, Any]:
    return {
        "type": series.type,
        "last": values.dump(series.last),
        "last_steps": series.last_steps,
        "points": series.rollup.points,
        "rollup": series.rollup.dump(),
    }


def _cell_row(series_id: int | None, level: int, index: int, cell: Cell) -> dict[str, Any]:
    row = {name: getattr(cell, name) for name in CELL_COLUMNS}
    return {"series_id": series_id, "level": level, "cell": index, **row}
