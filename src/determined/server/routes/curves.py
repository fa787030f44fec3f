"""Curves of metrics, of one trial or of several."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from determined import store
from determined.client._session import Session
from determined.server.answers.common import spelled
from determined.server.answers.curves import Curves, Envelope, OddPoint, SeriesAnswer, SeriesList
from determined.server.depends import StoreSession
from determined.server.reading.asked import numbers, series_names
from determined.server.rules import READS
from determined.store.metrics.drawn import MOST_ODD, Drawn, Range
from determined.store.metrics.rollups import Envelope as Buckets
from determined.store.metrics.sampled import Sampled

if TYPE_CHECKING:
    import sqlalchemy as sa

router = APIRouter(tags=["curves"])

PREFIXES = ("training_", "train_", "t_", "validation_", "val_", "v_")
PAGE = 2000


@router.get("/series", **READS)
def series(session: StoreSession, trials: Annotated[str, Query(max_length=4000)]) -> SeriesList:
    """Return which curves these trials (comma-separated ids, at most 100) have."""
    ids = numbers("trials", trials)
    with session.read() as conn:
        rows = store.metrics.metric_reports.series(conn, ids)
        sampled = store.metrics.sampled.names(conn, ids)
    found: dict[tuple[str, str], SeriesAnswer] = {}
    for row in rows:
        if row.points:
            _count(found, row.group, row.name, base_name(row.name), row.points)
    for each in sampled:
        _count(found, each.group, each.name, each.path[-1], each.samples, is_sampled=True)
    return SeriesList(series=sorted(found.values(), key=lambda each: (each.chart, each.group, each.name)))


def _count(
    found: dict[tuple[str, str], SeriesAnswer],
    group: str,
    name: str,
    chart: str,
    points: int,
    *,
    is_sampled: bool = False,
) -> None:
    """Add what one trial has of a series."""
    fresh = SeriesAnswer(group=group, name=name, chart=chart, points=0, trials=0, is_sampled=is_sampled)
    answer = found.setdefault((group, name), fresh)
    answer.points += points
    answer.trials += 1


def base_name(name: str) -> str:
    """Return what training and validation of a metric have in common: the name without a prefix that says which.

    Example::

        assert base_name("val_loss") == base_name("train_loss") == base_name("loss") == "loss"
    """
    for prefix in PREFIXES:
        if name.startswith(prefix) and len(name) > len(prefix):
            return name[len(prefix) :]
    return name


@router.get("/curves", **READS)
def curves(
    session: StoreSession,
    trials: Annotated[str, Query(max_length=4000)],
    series: Annotated[list[str], Query(max_length=50)],
    first: int | None = None,
    last: int | None = None,
    buckets: Annotated[int, Query(ge=1, le=4000)] = 1000,
) -> Curves:
    """Return the envelope of each series (`group:name`) of each trial, between two steps."""
    ids, wanted = numbers("trials", trials), series_names(series)
    with session.read() as conn:
        found = [_envelope(each) for each in store.metrics.drawn.draw(conn, ids, wanted, Range(first, last, buckets))]
        drawn = {(each.group, each.name) for each in found}
        rest = [each for each in wanted if each not in drawn]
        found += _over_time(conn, ids, rest, Range(first, last, buckets)) if rest else []
    return Curves.model_construct(curves=found)


def _over_time(
    conn: sa.Connection, trial_ids: list[int], wanted: list[tuple[str, str]], asked: Range
) -> list[Envelope]:
    """Return the curves of samples that belong to no step."""
    known = store.metrics.sampled.names(conn, trial_ids, [group for group, _ in wanted])
    series = [each for each in known if (each.group, each.name) in wanted]
    share = asked.shared(len(series))
    last = None if share.last is None else share.last + 0.999999
    found = store.metrics.sampled.draw(conn, series, first=share.first, last=last, buckets=share.buckets)
    return [_sampled(each) for each in found]


def _sampled(drawn: Sampled) -> Envelope:
    found = drawn.envelope
    return Envelope.model_construct(
        trial_id=drawn.series.trial_id,
        group=drawn.series.group,
        name=drawn.series.name,
        steps=[time // 1000 for time in found.steps],
        ends=[time // 1000 for time in found.ends],
        epochs=[None] * len(found),
        seconds=[time / 1000 for time in found.ends],
        odd=[
            OddPoint.model_construct(steps=time // 1000, value=spelled(value)) for time, value in drawn.odd[:MOST_ODD]
        ],
        points=drawn.points,
        total=drawn.series.samples,
        is_sampled=True,
        **_values(found),
    )


def _values(found: Buckets) -> dict[str, Any]:
    return {
        "min": found.min,
        "mean": [None if mean is None or not math.isfinite(mean) else mean for mean in found.mean],
        "max": found.max,
        "shown": len(found),
    }


def _envelope(drawn: Drawn) -> Envelope:
    """Return a curve as JSON has it; nothing is checked twice, there may be many thousand numbers."""
    found = drawn.envelope
    return Envelope.model_construct(
        trial_id=drawn.trial_id,
        group=drawn.group,
        name=drawn.name,
        steps=found.steps,
        ends=found.ends,
        epochs=drawn.epochs,
        seconds=drawn.seconds,
        odd=[OddPoint.model_construct(steps=steps, value=spelled(value)) for steps, value in drawn.odd],
        points=drawn.points,
        total=drawn.total,
        is_sampled=False,
        **_values(found),
    )


@router.get("/curves/csv", response_class=StreamingResponse, **READS)
def curves_csv(
    session: StoreSession,
    trials: Annotated[str, Query(max_length=4000)],
    series: Annotated[list[str], Query(max_length=50)],
    first: int | None = None,
    last: int | None = None,
) -> StreamingResponse:
    """Return all points of the series as CSV."""
    lines = _csv(session, numbers("trials", trials), series_names(series), first, last)
    headers = {"Content-Disposition": 'attachment; filename="curves.csv"'}
    return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)


def _csv(
    session: Session, trial_ids: list[int], wanted: list[tuple[str, str]], first: int | None, last: int | None
) -> Iterator[str]:
    """Yield the points a page at a time; no transaction is open while the browser takes its time."""
    yield _csv_lines([("trial_id", "group", "name", "steps", "time", "value")])
    for trial_id, (group, name) in itertools.product(trial_ids, wanted):
        after, named = first, (trial_id, _harmless(group), _harmless(name))
        while True:
            with session.read() as conn:
                found = store.metrics.curves.points(conn, trial_id, group, name, first=after, last=last, limit=PAGE)
            columns = zip(found.steps, found.time, found.value, strict=True)
            yield _csv_lines((*named, steps, time.isoformat(), value) for steps, time, value in columns)
            if len(found) < PAGE:
                break
            after = found.steps[-1] + 1


def _csv_lines(rows: Iterable[tuple[object, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _harmless(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
