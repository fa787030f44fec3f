"""Curves as charts draw them: in buckets over steps, epochs and seconds, with the points that are no numbers."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence

import sqlalchemy as sa

from determined.store import values
from determined.store.metrics.curves import envelope
from determined.store.metrics.rollups import Envelope, real
from determined.store.schema import metric_series, metrics, trials

MOST_ODD = 100


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


def draw(
    conn: sa.Connection,
    trial_ids: Sequence[int],
    wanted: Sequence[tuple[str, str]],
    *,
    first: int | None = None,
    last: int | None = None,
    buckets: int = 1000,
) -> list[Drawn]:
    """Return the curves that there are of some metrics (group and name) of some trials."""
    started = {
        row.id: row.start_time
        for row in conn.execute(sa.select(trials.c.id, trials.c.start_time).where(trials.c.id.in_(list(trial_ids))))
    }
    column = metric_series.c
    query = sa.select(column.trial_id, column.metric_group, column.name, column.points).where(
        column.trial_id.in_(list(trial_ids)), sa.tuple_(column.metric_group, column.name).in_(list(wanted))
    )
    found = {(row.trial_id, row.metric_group, row.name): row.points for row in conn.execute(query)}
    return [
        _drawn(conn, trial_id, group, name, found[trial_id, group, name], started[trial_id], first, last, buckets)
        for group, name in wanted
        for trial_id in trial_ids
        if found.get((trial_id, group, name))
    ]


def _drawn(
    conn: sa.Connection,
    trial_id: int,
    group: str,
    name: str,
    total: int,
    started: datetime.datetime,
    first: int | None,
    last: int | None,
    buckets: int,
) -> Drawn:
    found = envelope(conn, trial_id, group, name, first=first, last=last, buckets=buckets)
    at = _places(conn, trial_id, group, found.ends)
    epochs = [at[end][0] if end in at else None for end in found.ends]
    seconds = [(at[end][1] - started).total_seconds() if end in at else None for end in found.ends]
    odd = [(end, math.nan) for end, count in zip(found.ends, found.odd, strict=True) if count][:MOST_ODD]
    points = sum(found.count) + sum(found.odd)
    return Drawn(trial_id, group, name, found, epochs, seconds, odd, points, total)


def _places(
    conn: sa.Connection, trial_id: int, group: str, steps: Sequence[int]
) -> dict[int, tuple[float | None, datetime.datetime]]:
    query = sa.select(metrics.c.steps, metrics.c.report_time, metrics.c.body).where(
        metrics.c.trial_id == trial_id,
        metrics.c.metric_group == group,
        metrics.c.archived == sa.false(),
        metrics.c.steps.in_(list(steps)),
    )
    found = {}
    for row in conn.execute(query):
        body = values.load(row.body)
        found[row.steps] = (real(body.get("epochs", body.get("epoch"))), row.report_time)
    return found
