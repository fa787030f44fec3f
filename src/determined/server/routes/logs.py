"""Logs of trials: pages in both directions, search, download."""

from __future__ import annotations

import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from determined.server.answers.logs import Lines, LogInfo, Matches
from determined.server.depends import Client
from determined.server.paging import Limit
from determined.server.rules import READS

router = APIRouter(tags=["logs"])


@router.get("/trials/{trial_id}/logs", **READS)
def lines(
    client: Client,
    trial_id: int,
    after: int | None = None,
    before: int | None = None,
    around: int | None = None,
    level: str | None = None,
    rank: Annotated[list[int] | None, Query()] = None,
    node: str | None = None,
    text: Annotated[str | None, Query(max_length=500)] = None,
    regex: Annotated[str | None, Query(max_length=500)] = None,
    time: datetime.datetime | None = None,
    limit: Limit = 500,
) -> Lines:
    """Return lines after, before or around a line, or from a time on; without any of these, the last ones."""
    raise NotImplementedError


@router.get("/trials/{trial_id}/logs/info", **READS)
def info(client: Client, trial_id: int) -> LogInfo:
    """Return what its log can be filtered by."""
    raise NotImplementedError


@router.get("/trials/{trial_id}/logs/matches", **READS)
def matches(
    client: Client,
    trial_id: int,
    text: Annotated[str | None, Query(max_length=500)] = None,
    regex: Annotated[str | None, Query(max_length=500)] = None,
    level: str | None = None,
    rank: Annotated[list[int] | None, Query()] = None,
) -> Matches:
    """Return the ids of lines in which a text or a regular expression is found."""
    raise NotImplementedError


@router.get("/trials/{trial_id}/logs/download", response_class=StreamingResponse, **READS)
def download(client: Client, trial_id: int) -> StreamingResponse:
    """Return the whole log as text."""
    raise NotImplementedError
