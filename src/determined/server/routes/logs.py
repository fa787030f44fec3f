"""Logs of trials: pages in both directions, search, download."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from determined import store
from determined.client._logs import moment
from determined.client._session import Session
from determined.server.answers.logs import Lines, LogInfo, Matches
from determined.server.depends import StoreSession
from determined.server.paging import Limit
from determined.server.reading.log_lines import Flags, answers, plain
from determined.server.reading.patterns import Pattern
from determined.server.rules import READS
from determined.store.control import log_policies
from determined.store.log_pages import Log, Matcher
from determined.store.logs import LEVELS, LogFilter

router = APIRouter(tags=["logs"])

MOST_MATCHES = 1000
DOWNLOADED_AT_ONCE = 2000

Text = Annotated[str | None, Query(max_length=500)]
Ranks = Annotated[list[int] | None, Query()]


@router.get("/trials/{trial_id}/logs", **READS)
def lines(
    session: StoreSession,
    trial_id: int,
    after: int | None = None,
    before: int | None = None,
    around: int | None = None,
    level: str | None = None,
    rank: Ranks = None,
    node: str | None = None,
    text: Text = None,
    regex: Text = None,
    time: datetime.datetime | None = None,
    limit: Limit = 500,
) -> Lines:
    """Return lines after, before or around a line, or from a time on; without any of these, the last ones.

    Where few lines fit, an answer may have less than `limit`, or none, before the end: go on with `oldest` or `newest`.
    """
    which = LogFilter(min_level=level or None, ranks=rank, nodes=[node] if node else None, text=text or None)
    place = {"after": after, "before": before, "around": around}
    from_time = None if time is None else moment(time)
    with _matcher(regex) as matcher, session.read() as conn:
        store.trials.get(conn, trial_id)
        found = store.log_pages.page(conn, trial_id, which, time=from_time, limit=limit, matcher=matcher, **place)
        attempts = {row.allocation_id: row.attempt for row in store.attempts.of_trial(conn, trial_id)}
        flags = Flags(log_policies.of_trial(conn, trial_id))
    return Lines.model_construct(lines=answers(found.lines, attempts, flags), oldest=found.oldest, newest=found.newest)


@contextlib.contextmanager
def _matcher(regex: str | None) -> Iterator[Matcher | None]:
    if not regex:
        yield None
        return
    with Pattern(regex) as pattern:
        yield pattern.matches


@router.get("/trials/{trial_id}/logs/info", **READS)
def info(session: StoreSession, trial_id: int) -> LogInfo:
    """Return what its log can be filtered by."""
    with session.read() as conn:
        store.trials.get(conn, trial_id)
        ranks, nodes = store.log_pages.seen(conn, trial_id)
        attempts = store.attempts.of_trial(conn, trial_id)
        hits = log_policies.of_trial(conn, trial_id)
    slots = max((row.slots for row in attempts), default=1)
    return LogInfo(
        ranks=sorted({*ranks, *(range(slots) if slots > 1 else ())}),
        nodes=nodes,
        levels=list(LEVELS),
        policies=list(dict.fromkeys(hit.name or hit.pattern for hit in hits)),
    )


@router.get("/trials/{trial_id}/logs/matches", **READS)
def matches(
    session: StoreSession,
    trial_id: int,
    text: Text = None,
    regex: Text = None,
    level: str | None = None,
    rank: Ranks = None,
    node: str | None = None,
    after: int = 0,
) -> Matches:
    """Return the ids of lines in which a text or a regular expression is found, after the line of an id."""
    which = LogFilter(min_level=level or None, ranks=rank, nodes=[node] if node else None, text=text or None)
    with _matcher(regex) as matcher, session.read() as conn:
        store.trials.get(conn, trial_id)
        found = Log(conn, trial_id, which, matcher).scan(after, MOST_MATCHES, descending=False)
    next_after = None if found.is_end else found.reached
    return Matches(ids=[row.id for row in found.lines], is_all=found.is_end, next_after=next_after)


@router.get("/trials/{trial_id}/logs/download", response_class=StreamingResponse, **READS)
def download(session: StoreSession, trial_id: int) -> StreamingResponse:
    """Return the whole log as text."""
    with session.read() as conn:
        store.trials.get(conn, trial_id)
    headers = {"Content-Disposition": f'attachment; filename="trial_{trial_id}_logs.txt"'}
    return StreamingResponse(_text(session, trial_id), media_type="text/plain; charset=utf-8", headers=headers)


def _text(session: Session, trial_id: int) -> Iterator[str]:
    """Yield the log a page at a time; no transaction is open while the browser takes its time."""
    after = 0
    while True:
        with session.read() as conn:
            found = store.log_pages.page(conn, trial_id, LogFilter(), after=after, limit=DOWNLOADED_AT_ONCE)
        yield "".join(f"{plain(str(row))}\n" for row in found.lines)
        if len(found.lines) < DOWNLOADED_AT_ONCE:
            return
        after = found.newest
