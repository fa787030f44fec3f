"""Samples that belong to no step, such as those of the profiler, as curves over time.

A sample may be nested: `{"node-1": {"cpu_util_simple": 12.5}}` in the group `cpu` is the curve
`node-1.cpu_util_simple`. Which curves there are is read from the last sample of each metric.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from determined.store import values
from determined.store.metrics.buckets import of_points
from determined.store.metrics.places import RAW_TIME, body_of, since
from determined.store.metrics.rollups import Envelope, real
from determined.store.schema import metric_series, metrics, trials

MOST_SAMPLES = 50_000  # of one group of a trial that are read; of more, every second, third, ...

Path = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class SampledSeries:
    """A curve over time that a trial has. `path` is where its values are in a sample."""

    trial_id: int
    group: str
    name: str
    path: Path
    samples: int  # of its group


@dataclasses.dataclass(frozen=True)
class Sampled:
    """A curve over time, in buckets: those of the envelope begin and end in milliseconds since the trial began."""

    series: SampledSeries
    envelope: Envelope
    odd: list[tuple[int, float]]
    points: int  # in the range that was asked for


def names(conn: sa.Connection, trial_ids: Sequence[int], groups: Sequence[str] | None = None) -> list[SampledSeries]:
    """Return the curves over time that some trials have, by trial, group and name."""
    column = metric_series.c
    query = sa.select(column.trial_id, column.metric_group, column.name, column.last).where(
        column.trial_id.in_(list(trial_ids)), column.last_steps.is_(None)
    )
    if groups is not None:
        query = query.where(column.metric_group.in_(list(groups)))
    found = conn.execute(query.order_by(column.trial_id, column.metric_group, column.name)).all()
    counts = _counts(conn, trial_ids, sorted({row.metric_group for row in found}))
    return [
        SampledSeries(row.trial_id, row.metric_group, ".".join(path), path, counts[row.trial_id, row.metric_group])
        for row in found
        for path in _leaves({row.name: values.load(row.last)})
    ]


def _counts(conn: sa.Connection, trial_ids: Sequence[int], groups: Sequence[str]) -> Mapping[tuple[int, str], int]:
    column = metrics.c
    query = sa.select(column.trial_id, column.metric_group, sa.func.count()).where(
        column.trial_id.in_(list(trial_ids)), column.metric_group.in_(list(groups)), *_SAMPLES
    )
    counted = conn.execute(query.group_by(column.trial_id, column.metric_group)) if groups else ()
    return collections.Counter({(trial_id, group): count for trial_id, group, count in counted})


_SAMPLES = (metrics.c.archived == sa.false(), metrics.c.steps.is_(None))


def _leaves(nested: Mapping[str, Any], above: Path = ()) -> Iterator[Path]:
    """Yield where the numbers are."""
    for name, value in nested.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, name))
        elif real(value) is not None:
            yield *above, name


def draw(
    conn: sa.Connection,
    wanted: Sequence[SampledSeries],
    *,
    first: float | None = None,
    last: float | None = None,
    buckets: int = 1000,
) -> list[Sampled]:
    """Return curves over time, between two times in seconds since the trial began, both included."""
    groups: dict[tuple[int, str], list[SampledSeries]] = {}
    for series in wanted:
        groups.setdefault((series.trial_id, series.group), []).append(series)
    found = {}
    for (trial_id, group), some in groups.items():
        started = conn.scalar(sa.select(trials.c.start_time).where(trials.c.id == trial_id))
        assert started is not None
        points: list[list[tuple[int, float, None]]] = [[] for _ in some]
        for body, raw in _read(conn, trial_id, group, some[0].samples, _between(started, first, last)):
            time, sample = round(1000 * since(started, raw)), body_of(body)
            for series, line in zip(some, points, strict=True):
                if (value := _value(sample, series.path)) is not None:
                    line.append((time, value, None))
        for series, line in zip(some, points, strict=True):
            line.sort()
            envelope = of_points(line, buckets)
            odd = [(time, value) for time, value, _ in line if not math.isfinite(value)]
            found[series] = Sampled(series, envelope, odd, len(line))
    return [found[series] for series in wanted]


def _between(started: datetime.datetime, first: float | None, last: float | None) -> list[sa.ColumnElement[bool]]:
    ends = []
    if first is not None:
        ends.append(metrics.c.report_time >= started + datetime.timedelta(seconds=first))
    if last is not None:
        ends.append(metrics.c.report_time <= started + datetime.timedelta(seconds=last))
    return ends


def _read(
    conn: sa.Connection, trial_id: int, group: str, samples: int, which: Sequence[sa.ColumnElement[bool]]
) -> Sequence[Any]:
    column = metrics.c
    query = sa.select(column.body, RAW_TIME).where(column.trial_id == trial_id, column.metric_group == group, *_SAMPLES)
    stride = -(-samples // MOST_SAMPLES)
    if stride > 1:
        query = query.where(column.id % stride == 0)
    return conn.execute(query.where(*which).order_by(column.id)).all()


def _value(sample: Any, path: Path) -> float | None:
    for name in path:
        if not isinstance(sample, dict):
            return None
        sample = sample.get(name)
    return real(sample)
