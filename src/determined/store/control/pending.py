"""Pending events: what the controller of an experiment has not handled yet, in the order in which it was stored.

Whoever has something to tell (a person, a training process, an agent) adds a row in the transaction that stores what
it is about. The controller removes it in the transaction that stores what follows from it, so nothing is handled twice.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from determined.store import rows
from determined.store.messages import now
from determined.store.schema import pending_events


@dataclasses.dataclass(frozen=True)
class PendingEvent:
    """One event that waits for the controller."""

    id: int
    experiment_id: int
    trial_id: int | None
    attempt: int | None
    time: datetime.datetime
    kind: str
    body: dict[str, Any]


def append(
    conn: sa.Connection,
    experiment_id: int,
    kind: str,
    body: dict[str, Any] | None = None,
    *,
    trial_id: int | None = None,
    attempt: int | None = None,
) -> int:
    """Add an event and return its id. `kind` is one of those that `experiment.controller.managed` lists."""
    row = {
        "experiment_id": experiment_id,
        "trial_id": trial_id,
        "attempt": attempt,
        "time": now(),
        "kind": kind,
        "body": body or {},
    }
    return rows.insert(conn, pending_events, row)


def read(conn: sa.Connection, limit: int | None = None, *, experiment_id: int | None = None) -> list[PendingEvent]:
    """Return what waits, oldest first: of one experiment or of all."""
    query = sa.select(pending_events).order_by(pending_events.c.id).limit(limit)
    if experiment_id is not None:
        query = query.where(pending_events.c.experiment_id == experiment_id)
    return [PendingEvent(**row) for row in conn.execute(query).mappings()]


def waits(conn: sa.Connection, event_id: int | None = None, *, trial_id: int | None = None) -> bool:
    """Return whether this event waits, or any event of this trial; without either, whether any does."""
    query = sa.select(pending_events.c.id).limit(1)
    if event_id is not None:
        query = query.where(pending_events.c.id == event_id)
    if trial_id is not None:
        query = query.where(pending_events.c.trial_id == trial_id)
    return conn.scalar(query) is not None


def remove(conn: sa.Connection, ids: Sequence[int]) -> None:
    """Remove events that were handled."""
    for some in rows.chunks(ids):
        conn.execute(pending_events.delete().where(pending_events.c.id.in_(some)))
