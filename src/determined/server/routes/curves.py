"""Curves of metrics, of one trial or of several."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from determined.server.answers.curves import Curves, SeriesList
from determined.server.depends import Client
from determined.server.rules import READS

router = APIRouter(tags=["curves"])


@router.get("/series", **READS)
def series(client: Client, trials: Annotated[str, Query(max_length=4000)]) -> SeriesList:
    """Return which curves these trials (comma-separated ids, at most 100) have."""
    raise NotImplementedError


@router.get("/curves", **READS)
def curves(
    client: Client,
    trials: Annotated[str, Query(max_length=4000)],
    series: Annotated[list[str], Query(max_length=50)],
    first: int | None = None,
    last: int | None = None,
    buckets: Annotated[int, Query(ge=1, le=4000)] = 1000,
) -> Curves:
    """Return the envelope of each series (`group:name`) of each trial, between two steps."""
    raise NotImplementedError


@router.get("/curves/csv", response_class=StreamingResponse, **READS)
def curves_csv(
    client: Client,
    trials: Annotated[str, Query(max_length=4000)],
    series: Annotated[list[str], Query(max_length=50)],
    first: int | None = None,
    last: int | None = None,
) -> StreamingResponse:
    """Return all points of the series as CSV."""
    raise NotImplementedError
