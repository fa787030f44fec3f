"""What happens in the store, as it happens: server-sent events.

`hello` begins each stream: what is stored from then on is told. `change` says what to ask for again, `store` whether
the database can be reached.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, HTTPException
from fastapi.responses import StreamingResponse

from determined._version import __version__
from determined.server.changes import Listener, Watcher
from determined.server.depends import Changes
from determined.server.rules import READS
from determined.store.overview.changes import Change

router = APIRouter(tags=["events"])

HEARTBEAT_SECONDS = 15.0
MOST_IDS = 200


class EventStream(StreamingResponse):
    """An answer that goes on until somebody leaves."""

    media_type = "text/event-stream"


@router.get("/events", response_class=EventStream, **READS)
async def events(changes: Changes) -> EventStream:
    """Say what changes in the store, until the connection ends."""
    listener = changes.listen()
    if listener is None:
        raise HTTPException(503, "Too many pages are open on this server. Close some, then reload this one.")
    return EventStream(_stream(changes, listener), headers={"X-Accel-Buffering": "no"})


async def _stream(watcher: Watcher, listener: Listener) -> AsyncIterator[str]:
    try:
        await watcher.first_look()
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        yield _event("hello", {"version": __version__, "time": now})
        while True:
            news = await listener.news(HEARTBEAT_SECONDS)
            if listener.is_over:
                return
            if news is None:
                yield ": still here\n\n"
                continue
            if news.is_available is not None:
                yield _event("store", {"available": news.is_available, "reason": news.reason})
            if news.change:
                yield _event("change", _body(news.change))
    finally:
        watcher.leave(listener)


def _body(change: Change) -> dict[str, Any]:
    """Return a change as JSON; of long lists the page is told the newest, and to look at everything."""
    lists = {"experiments": change.experiments, "trials": change.trials, "logs": change.logs}
    is_cut = any(len(ids) > MOST_IDS for ids in lists.values())
    return {**{name: sorted(ids)[-MOST_IDS:] for name, ids in lists.items()}, "other": change.other or is_cut}


def _event(name: str, body: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(body)}\n\n"
