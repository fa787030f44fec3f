"""When the cells of a curve ended, and after how many epochs."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from determined.store import values
from determined.store.metrics.rollups import Cell, When, epochs_of
from determined.store.schema import Moment, metrics

RAW_TIME = sa.type_coerce(metrics.c.report_time, sa.Text)
"""The time of a report as the database has it: parsed only where it is shown."""

_decode = json.JSONDecoder().raw_decode
_moment = Moment().process_result_value


def places(
    conn: sa.Connection, series: sa.Row[Any], cells: Sequence[Cell]
) -> tuple[list[float | None], list[float | None]]:
    """Return seconds since the trial began, and epochs, at the last point of each cell.

    What a cell does not say is read from the report there: cells of before 0004 say nothing, and epochs may have been
    reported later than the rest of a step.
    """
    began, has_epochs = series.start_time.timestamp(), series.has_epochs
    silent = [cell.last_steps for cell in cells if cell.time is None or (has_epochs and cell.epochs is None)]
    read = _read(conn, series, silent) if silent else {}
    found = [read.get(cell.last_steps, (cell.time, cell.epochs)) for cell in cells]
    seconds = [None if time is None else round(time - began, 6) for time, _ in found]
    return seconds, [epochs for _, epochs in found]


def _read(conn: sa.Connection, series: sa.Row[Any], steps: Sequence[int]) -> dict[int, When]:
    dialect, text = conn.dialect.name, ",".join(map(str, steps))
    listed = f"[{text}]" if dialect == "sqlite" else f"{{{text}}}"  # JSON, or as PostgreSQL writes a list
    place = {"trial": series.trial_id, "group": series.metric_group, "steps": listed}
    rows = conn.execute(_reports(dialect), place).all()
    return {step: (_parsed(raw).timestamp(), epochs_of(body_of(body))) for step, raw, body in rows}


@functools.cache
def _reports(dialect: str) -> sa.Select[Any]:
    """Return the question for the reports at many steps, which are one parameter of it."""
    column = metrics.c
    steps: sa.BindParameter[str] = sa.bindparam("steps", type_=sa.Text)
    among: sa.ColumnElement[bool]
    if dialect == "sqlite":
        among = column.steps.in_(sa.select(sa.func.json_each(steps).table_valued("value").c.value))
    else:
        among = column.steps == sa.any_(sa.cast(steps, sa.ARRAY(sa.BigInteger)))
    here = (column.trial_id == sa.bindparam("trial"), column.metric_group == sa.bindparam("group"))
    return sa.select(column.steps, RAW_TIME, column.body).where(*here, column.archived == sa.false(), among)


def body_of(text: str) -> dict[str, Any]:
    """Return what `values.load` does, in half the time for what has only numbers."""
    if 'NaN"' in text or 'Infinity"' in text:
        found: dict[str, Any] = values.load(text)
    else:
        found, _ = _decode(text)
    return found


def since(started: datetime.datetime, raw: Any) -> float:
    """Return the seconds from a moment to a raw time."""
    return (_parsed(raw) - started).total_seconds()


def _parsed(raw: Any) -> datetime.datetime:
    time = _moment(raw, None)  # type: ignore[arg-type]  # the dialect does not matter for what is read
    assert time is not None
    return time
