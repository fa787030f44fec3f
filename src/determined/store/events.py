"""Events of an experiment, in order: changes of state with their reason, and the events of its search."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import sqlalchemy as sa

from determined.store import rows
from determined.store.messages import now
from determined.store.schema import events


@dataclasses.dataclass(frozen=True)
class EventRow:
    """One event."""

    id: int
    experiment_id: int
    trial_id: int | None
    time: datetime.datetime
    kind: str
    body: dict[str, Any]


def append(
    conn: sa.Connection,
    experiment_id: int,
    kind: str,
    body: dict[str, Any],
    *,
    trial_id: int | None = None,
    time: datetime.datetime | None = None,
) -> int:
    """Add one event and return its id; ids of one experiment rise with time."""
    row = {"experiment_id": experiment_id, "trial_id": trial_id, "time": time or now(), "kind": kind, "body": body}
    return rows.insert(conn, events, row)


def of_experiment(
    conn: sa.Connection, experiment_id: int, *, after_id: int = 0, kinds: tuple[str, ...] = (), limit: int | None = None
) -> list[EventRow]:
    """Return the events of an experiment after event `after_id`, oldest first."""
    query = sa.select(events).where(events.c.experiment_id == experiment_id, events.c.id > after_id)
    if kinds:
        query = query.where(events.c.kind.in_(kinds))
    return [EventRow(**row) for row in conn.execute(query.order_by(events.c.id).limit(limit)).mappings()]


def newest(
    conn: sa.Connection, experiment_id: int, *, before_id: int | None, kinds: tuple[str, ...], limit: int
) -> list[EventRow]:
    """Return events of an experiment before event `before_id`, the newest first."""
    query = sa.select(events).where(events.c.experiment_id == experiment_id, events.c.kind.in_(kinds))
    if before_id is not None:
        query = query.where(events.c.id < before_id)
    return [EventRow(**row) for row in conn.execute(query.order_by(events.c.id.desc()).limit(limit)).mappings()]


def of_trial(
    conn: sa.Connection, trial_id: int, *, kinds: tuple[str, ...] = (), limit: int | None = None
) -> list[EventRow]:
    """Return the events of a trial, oldest first; with `limit` the last so many."""
    query = sa.select(events).where(events.c.trial_id == trial_id)
    if kinds:
        query = query.where(events.c.kind.in_(kinds))
    found = conn.execute(query.order_by(events.c.id.desc()).limit(limit)).mappings().all()
    return [EventRow(**row) for row in reversed(found)]
