"""Curves of metrics, of one trial or of several."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from determined import store
from determined.client._session import Session
from determined.server.answers.common import spelled
from determined.server.answers.curves import Curves, Envelope, OddPoint, SeriesAnswer, SeriesList
from determined.server.depends import StoreSession
from determined.server.reading.asked import numbers, series_names
from determined.server.rules import READS
from determined.store.metrics.drawn import Drawn, Range

router = APIRouter(tags=["curves"])

PREFIXES = ("training_", "train_", "t_", "validation_", "val_", "v_")
PAGE = 2000


@router.get("/series", **READS)
def series(session: StoreSession, trials: Annotated[str, Query(max_length=4000)]) -> SeriesList:
    """Return which curves these trials (comma-separated ids, at most 100) have."""
    with session.read() as conn:
        rows = store.metrics.metric_reports.series(conn, numbers("trials", trials))
    found: dict[tuple[str, str], SeriesAnswer] = {}
    for row in rows:
        if row.points:
            fresh = SeriesAnswer(group=row.group, name=row.name, chart=base_name(row.name), points=0, trials=0)
            answer = found.setdefault((row.group, row.name), fresh)
            answer.points += row.points
            answer.trials += 1
    return SeriesList(series=sorted(found.values(), key=lambda each: (each.chart, each.group, each.name)))


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
        found = store.metrics.drawn.draw(conn, ids, wanted, Range(first, last, buckets))
    return Curves.model_construct(curves=[_envelope(each) for each in found])


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
        min=found.min,
        mean=[None if mean is None or not math.isfinite(mean) else mean for mean in found.mean],
        max=found.max,
        odd=[OddPoint.model_construct(steps=steps, value=spelled(value)) for steps, value in drawn.odd],
        shown=len(found),
        points=drawn.points,
        total=drawn.total,
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
        after = first
        while True:
            with session.read() as conn:
                found = store.metrics.curves.points(conn, trial_id, group, name, first=after, last=last, limit=PAGE)
            columns = zip(found.steps, found.time, found.value, strict=True)
            yield _csv_lines((trial_id, group, name, steps, time.isoformat(), value) for steps, time, value in columns)
            if len(found) < PAGE:
                break
            after = found.steps[-1] + 1


def _csv_lines(rows: Iterable[tuple[object, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
