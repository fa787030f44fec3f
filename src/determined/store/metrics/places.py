"""Reports at some steps of a curve: when they were made, and after how many epochs."""

from __future__ import annotations

import datetime
import functools
import itertools
import json
import math
import statistics
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from determined.store import values
from determined.store.metrics.rollups import real
from determined.store.schema import Moment, metrics

STRIDE = 8  # of so many ends of buckets, the report at one is read
UNEVEN = 3.0  # two such reports that are further apart than this times the usual have those between them read, too

EPOCHS = ("epochs", "epoch")  # what the count of epochs is called in a report, the first that is there
RAW_TIME = sa.type_coerce(metrics.c.report_time, sa.Text)
"""The time of a report as the database has it: parsed only where it is shown."""

_decode = json.JSONDecoder().raw_decode
_moment = Moment().process_result_value


class Places:
    """When the reports of a curve were made, and after how many epochs.

    A thousand reports that lie all over a file take longest of all that a picture needs. So only some are read, and
    what lies between two of them is where it would be at an even pace; unless they are too far apart for that.
    """

    def __init__(self, conn: sa.Connection, series: sa.Row[Any]) -> None:
        self._conn = conn
        self._series = series

    def at(self, ends: Sequence[int]) -> tuple[list[float | None], list[float | None]]:
        """Return seconds since the trial began, and epochs, at these steps."""
        if len(ends) <= 2 * STRIDE:
            return self._filled(ends, self._read(ends))
        marks = [*ends[:-1:STRIDE], ends[-1]]
        known = self._read(marks)
        spans = [_span(known.get(begin), known.get(end)) for begin, end in itertools.pairwise(marks)]
        usual = statistics.median_low(spans)
        uneven = [
            step
            for place, span in enumerate(spans)
            if span > UNEVEN * usual + 1
            for step in ends[place * STRIDE + 1 : (place + 1) * STRIDE]
        ]
        return self._filled(ends, known | (self._read(uneven) if uneven else {}))

    def _read(self, steps: Sequence[int]) -> dict[int, tuple[float, float | None]]:
        started, has_epochs = self._series.start_time, self._series.has_epochs
        dialect = self._conn.dialect.name
        place = {"trial": self._series.trial_id, "group": self._series.metric_group, "steps": _list(dialect, steps)}
        return {
            row[0]: (since(started, row[1]), epochs_of(body_of(row[2])) if has_epochs else None)
            for row in self._conn.execute(_reports(dialect, has_epochs), place).all()
        }

    def _filled(
        self, ends: Sequence[int], known: dict[int, tuple[float, float | None]]
    ) -> tuple[list[float | None], list[float | None]]:
        seconds = _interpolated(ends, known, 0)
        return seconds, _interpolated(ends, known, 1) if self._series.has_epochs else [None] * len(ends)


@functools.cache
def _reports(dialect: str, with_body: bool) -> sa.Select[Any]:
    """Return the question for the reports at many steps, which are one parameter of it."""
    column = metrics.c
    steps: sa.BindParameter[str] = sa.bindparam("steps", type_=sa.Text)
    among: sa.ColumnElement[bool]
    if dialect == "sqlite":
        among = column.steps.in_(sa.select(sa.func.json_each(steps).table_valued("value").c.value))
    else:
        among = column.steps == sa.any_(sa.cast(steps, sa.ARRAY(sa.BigInteger)))
    here = (column.trial_id == sa.bindparam("trial"), column.metric_group == sa.bindparam("group"))
    columns = [column.steps, RAW_TIME, *([column.body] if with_body else [])]
    return sa.select(*columns).where(*here, column.archived == sa.false(), among)


def _list(dialect: str, steps: Sequence[int]) -> str:
    """Return numbers as JSON, or as PostgreSQL writes a list."""
    text = ",".join(map(str, steps))
    return f"[{text}]" if dialect == "sqlite" else f"{{{text}}}"


def _span(begin: tuple[float, float | None] | None, end: tuple[float, float | None] | None) -> float:
    """Return the seconds between two reports; without end where one is not there, or counts no epochs."""
    if begin is None or end is None or (begin[1] is None) != (end[1] is None):
        return math.inf
    return end[0] - begin[0]


def _interpolated(ends: Sequence[int], known: dict[int, tuple[float, float | None]], which: int) -> list[float | None]:
    found: list[float | None] = [None] * len(ends)
    before: int | None = None
    for place, end in enumerate(ends):
        value = known[end][which] if end in known else None
        if value is None:
            before = None if end in known else before
            continue
        found[place] = value
        if before is not None and place - before > 1:
            start, first = ends[before], found[before] or 0.0
            pace = (value - first) / (end - start)
            for between in range(before + 1, place):
                found[between] = first + pace * (ends[between] - start)
        before = place
    return found


def body_of(text: str) -> dict[str, Any]:
    """Return what `values.load` does, in half the time for what has only numbers."""
    if 'NaN"' in text or 'Infinity"' in text:
        found: dict[str, Any] = values.load(text)
    else:
        found, _ = _decode(text)
    return found


def epochs_of(body: dict[str, Any]) -> float | None:
    """Return the epochs that a report counts, if it does."""
    return real(body.get(EPOCHS[0], body.get(EPOCHS[1])))


def since(started: datetime.datetime, raw: Any) -> float:
    """Return the seconds from a moment to a raw time."""
    time = _moment(raw, None)  # type: ignore[arg-type]  # the dialect does not matter for what is read
    assert time is not None
    return (time - started).total_seconds()
