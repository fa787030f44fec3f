"""Roll-ups of a curve, as arithmetic: points go in, full cells and the entry of a summary come out. No SQL here.

Points are grouped by their place in the curve, not by their step: cell n of level k sums up the points
n * width(k) ... (n + 1) * width(k) - 1. A full cell never changes. What is not full yet is kept like the digits of a
counter: `open[0]` has the last points, `open[k]` the full cells of level k - 1 that no full cell of level k covers.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from determined._types import Json
from determined.store import values
from determined.store.messages import SUMMARY_KEYS

WIDTH = 16
"""Points in a cell of level 0."""
FAN = 4
"""Cells of one level in a cell of the next."""

EPOCHS = ("epochs", "epoch")
"""What the count of epochs is called in a report, the first that is there."""

Point = tuple[int, float, int]  # steps, value, and how many batches it is an average of (1: not said)
When = tuple["float | None", "float | None"]  # seconds since 1970, and epochs, if they were counted
UNKNOWN: When = (None, None)


def width(level: int) -> int:
    """Return the number of points in a full cell of this level."""
    return WIDTH * int(FAN**level)


@dataclasses.dataclass(slots=True)
class Cell:
    """The sum of some neighbouring points. `min`, `max` and `sum` are of the finite values, None without one.

    The mean weighs each value by the batches behind it; a cell that was stored without weights counts each once.
    Time and epochs are those of the last point, so that a picture over time needs no reports.

    Example::

        cell = Cell.of([(10, 1.0, 1), (20, 3.0, 1), (30, math.nan, 1)])
        assert (cell.count, cell.odd, cell.min, cell.max, cell.mean) == (2, 1, 1.0, 3.0, 2.0)
        assert Cell.of([(100, 1.0, 100), (125, 2.0, 25)]).mean == 1.2
    """

    first_steps: int
    last_steps: int
    count: int = 0  # finite values
    odd: int = 0  # NaN and infinities
    min: float | None = None
    max: float | None = None
    sum: float | None = None
    weight: int | None = None  # batches behind the finite values
    weighted: float | None = None  # the sum of value times batches
    time: float | None = None  # seconds since 1970; None: a cell of before
    epochs: float | None = None  # None also where they are not counted

    @classmethod
    def of(cls, points: Sequence[Point], when: When = UNKNOWN) -> Cell:
        """Return the cell of these points, which are in order of steps; `when` is of the last one."""
        finite = [(value, batches) for _, value, batches in points if math.isfinite(value)]
        cell = cls(points[0][0], points[-1][0], len(finite), len(points) - len(finite))
        if finite:
            values = [value for value, _ in finite]
            cell.min, cell.max, cell.sum = min(values), max(values), sum(values)
            cell.weight, cell.weighted = sum(b for _, b in finite), sum(value * b for value, b in finite)
        cell.time, cell.epochs = when
        return cell

    @property
    def points(self) -> int:
        return self.count + self.odd

    @property
    def mean(self) -> float | None:
        """The mean of the finite values. It is not finite itself if their sum is more than a float holds."""
        if not self.count:
            return None
        weighted, weight = self._weights()
        return math.nan if weighted is None else weighted / weight  # SQLite has no NaN: it gives back nothing

    def _weights(self) -> tuple[float | None, int]:
        return (self.sum, self.count) if self.weight is None else (self.weighted, self.weight)

    def joined(self, later: Cell) -> Cell:
        """Return one cell for both; `later` follows this one."""
        ends, odd, when = (self.first_steps, later.last_steps), self.odd + later.odd, (later.time, later.epochs)
        if not (self.count and later.count):
            one = self if self.count else later
            if not one.count:
                return Cell(*ends, 0, odd, time=later.time, epochs=later.epochs)
            weighted, weight = one._weights()
            total, weighted = _sum(one.sum, 0.0), _sum(weighted, 0.0)
            return Cell(*ends, one.count, odd, one.min, one.max, total, weight, weighted, *when)
        assert self.min is not None
        assert self.max is not None
        assert later.min is not None
        assert later.max is not None
        (weighted, weight), (more, further) = self._weights(), later._weights()
        return Cell(
            *ends,
            self.count + later.count,
            odd,
            self.min if self.min <= later.min else later.min,
            self.max if self.max >= later.max else later.max,
            _sum(self.sum, later.sum),
            weight + further,
            _sum(weighted, more),
            *when,
        )


def _sum(first: float | None, second: float | None) -> float:
    return math.nan if first is None or second is None else first + second


class FullCell(NamedTuple):
    """A cell that is finished: which one, of which level."""

    level: int
    place: int
    cell: Cell


def join(cells: Iterable[Cell]) -> Cell | None:
    """Return one cell for all, which are in order; None if there are none."""
    whole: Cell | None = None
    for cell in cells:
        whole = cell if whole is None else whole.joined(cell)
    return whole


@dataclasses.dataclass(slots=True)
class Rollup:
    """The end of a curve: how many points it has, and the cells that are not full.

    Samples that belong to no step count in the total, and are no points of the curve.

    Example::

        rollup = Rollup()
        full = rollup.extend([(step, float(step), 1) for step in range(20)])
        assert [(level, place) for level, place, _ in full] == [(0, 0)]
        assert rollup.total.mean == 9.5
    """

    points: int = 0
    open: list[Cell | None] = dataclasses.field(default_factory=list)
    samples: Cell | None = None

    def extend(self, points: Sequence[Point], when: Sequence[When] = ()) -> list[FullCell]:
        """Add points, which follow all earlier ones, and when each was reported; return the cells that this fills."""
        full: list[FullCell] = []
        start = 0
        while start < len(points):
            end = min(start + WIDTH - self.points % WIDTH, len(points))
            self._carry(Cell.of(points[start:end], when[end - 1] if when else UNKNOWN), full)
            start = end
        return full

    def _carry(self, cell: Cell, full: list[FullCell]) -> None:
        self.points += cell.points
        level = 0
        while True:
            if level == len(self.open):
                self.open.append(None)
            there = self.open[level]
            cell = cell if there is None else there.joined(cell)
            if cell.points < width(level):
                self.open[level] = cell
                return
            self.open[level] = None
            full.append(FullCell(level, self.points // width(level) - 1, cell))
            level += 1

    def sample(self, numbers: Sequence[float]) -> None:
        """Count numbers that belong to no step."""
        cell = Cell.of([(0, number, 1) for number in numbers])
        self.samples = cell if self.samples is None else self.samples.joined(cell)

    @property
    def total(self) -> Cell | None:
        """The samples and the whole curve in one cell; None if there are neither."""
        samples = [] if self.samples is None else [self.samples]
        return join([*samples, *self.tail(len(self.open) - 1)])

    def tail(self, level: int) -> Iterator[Cell]:
        """Yield what follows the last full cell of a level, oldest first."""
        for cell in reversed(self.open[: level + 1]):
            if cell is not None:
                yield cell

    def dump(self) -> str:
        """As text, for a row."""
        return values.dump([self.points, _plain(self.samples), *map(_plain, self.open)])

    @classmethod
    def load(cls, text: str) -> Rollup:
        """Return what `dump` wrote."""
        points, *cells = values.load(text)
        samples, *still_open = [None if cell is None else Cell(*cell) for cell in cells]
        return cls(points, still_open, samples)


def _plain(cell: Cell | None) -> list[float | None] | None:
    if cell is None:
        return None
    extremes = [cell.first_steps, cell.last_steps, cell.count, cell.odd, cell.min, cell.max, cell.sum]
    return [*extremes, cell.weight, cell.weighted, cell.time, cell.epochs]


def real(value: Json) -> float | None:
    """Return a metric as a float; None if it is no number. A whole number too long for a float is infinite."""
    if type(value) is float:  # nearly always
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return values.as_float(value)


def epochs_of(body: Mapping[str, Any]) -> float | None:
    """Return the epochs that a report counts, if it does."""
    return real(body.get(EPOCHS[0], body.get(EPOCHS[1])))


MIXED = "mixed"
"""Values of more than one type were seen; a summary says `string` for it."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")


def summary_key(group: str) -> str:
    """Return where a group stands in a summary.

    Example::

        assert (summary_key("training"), summary_key("validation"), summary_key("inference")) == (
            "avg_metrics", "validation_metrics", "inference")
    """
    return SUMMARY_KEYS.get(group, group)


def type_of(value: Json) -> str:
    """Return the type of a value, in a summary's words.

    Example::

        assert [type_of(v) for v in (1, "a", True, None, [], {}, "2025-01-31")] == [
            "number", "string", "boolean", "null", "array", "object", "date"]
    """
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "date" if value[:1].isdigit() and _DATE.fullmatch(value) else "string"
    if value is None:
        return "null"
    return "object" if isinstance(value, dict) else "array"


def common_type(one: str | None, other: str) -> str:
    """Return the type of values of both types; None is the type of no values."""
    return other if one in (None, other) else MIXED


def summary_entry(type_name: str, last: Json, total: Cell | None) -> dict[str, Any]:
    """Return one metric in a summary. Count, min, max, sum and mean are of the finite numbers.

    The mean weighs each by the batches that it is an average of, where that was said.

    Example::

        assert summary_entry("number", 2, Cell.of([(1, 1.0, 1), (2, 3.0, 1), (3, 2.0, 1)])) == {
            "count": 3, "min": 1.0, "max": 3.0, "sum": 6.0, "mean": 2.0, "last": 2, "type": "number"}
    """
    if type_name != "number" or total is None:
        return {"last": last, "type": "string" if type_name == MIXED else type_name}
    return {
        "count": total.count,
        "min": total.min,
        "max": total.max,
        "sum": total.sum,
        "mean": total.mean,
        "last": last,
        "type": type_name,
    }


@dataclasses.dataclass(frozen=True)
class Envelope:
    """A curve in buckets, as columns; bucket i holds the points from `steps[i]` to `ends[i]`. See `client.Curve`."""

    steps: list[int]
    ends: list[int]
    count: list[int]
    min: list[float | None]
    mean: list[float | None]
    max: list[float | None]
    odd: list[int]

    def __len__(self) -> int:
        return len(self.steps)


@dataclasses.dataclass(frozen=True)
class Points:
    """A curve as it was reported, as columns, in order of steps."""

    steps: list[int]
    value: list[float]
    time: list[datetime.datetime]
    window: list[int | None]  # how many batches each is an average of

    def __len__(self) -> int:
        return len(self.steps)
