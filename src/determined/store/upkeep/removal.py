"""Removes hidden (deleted) experiments for good when the time for second thoughts is over."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from determined import errors
from determined.store import rows
from determined.store.messages import now
from determined.store.schema import (
    allocations,
    checkpoints,
    code_snapshots,
    experiments,
    storage_backends,
    tasks,
    trials,
)

DAYS = 7.0


@dataclasses.dataclass(frozen=True)
class RemovedCheckpoint:
    """A checkpoint whose row is, or is about to be, gone, and where its files are."""

    uuid: str
    trial_id: int
    experiment_id: int
    storage: dict[str, Any] | None


@dataclasses.dataclass(frozen=True)
class Removal:
    """What belongs to hidden experiments: ids, and the files that are theirs alone."""

    experiment_ids: list[int]
    checkpoints: list[RemovedCheckpoint]
    tensorboard: list[str]  # directories of event files
    experiment_uuids: list[str]
    code: list[str] = dataclasses.field(default_factory=list)  # once purged: sha256 of code that nobody has any more


def window() -> datetime.timedelta:
    """Return how long a deleted experiment can be brought back: `DET_UNDELETE_DAYS`, else 7 days."""
    text = os.environ.get("DET_UNDELETE_DAYS", "")
    try:
        return datetime.timedelta(days=float(text) if text else DAYS)
    except (ValueError, OverflowError) as wrong:
        raise errors.InvalidValue(f"DET_UNDELETE_DAYS={text!r} is not a number of days.") from wrong


def condemned(conn: sa.Connection, time: datetime.datetime | None = None) -> Removal:
    """Return what `purge` would remove now.

    Remove the files first and call `purge` then: whoever is interrupted in between finds the rows again.
    """
    limit = (time or now()) - window()
    query = sa.select(experiments.c.id).where(experiments.c.deleted_at <= limit).order_by(experiments.c.id)
    return _collect(conn, list(conn.scalars(query)))


def purge(
    conn: sa.Connection, experiment_ids: Sequence[int] | None = None, *, time: datetime.datetime | None = None
) -> Removal:
    """Remove the rows of hidden experiments, and of all below them; returns what files were theirs.

    Args:
        conn: A write transaction.
        experiment_ids: Hidden experiments to remove, however long they have been; None is those whose time is over.
        time: Now.
    """
    if experiment_ids is None:
        found = condemned(conn, time)
    else:
        hidden = sa.select(experiments.c.id).where(experiments.c.deleted_at.is_not(None))
        found = _collect(conn, sorted(set(conn.scalars(hidden)) & set(experiment_ids)))
    for some in rows.chunks(found.experiment_ids):
        conn.execute(experiments.delete().where(experiments.c.id.in_(some)))
    if found.experiment_ids:
        used = sa.select(experiments.c.code_snapshot_id).where(experiments.c.code_snapshot_id.is_not(None))
        unused = code_snapshots.c.id.not_in(used)
        found.code.extend(conn.scalars(sa.select(code_snapshots.c.sha256).where(unused)))
        conn.execute(code_snapshots.delete().where(unused))
    return found


def _collect(conn: sa.Connection, ids: list[int]) -> Removal:
    removed: list[RemovedCheckpoint] = []
    tensorboard: list[str] = []
    uuids: list[str] = []
    for some in rows.chunks(ids):
        mine = trials.c.experiment_id.in_(some)
        columns = (checkpoints.c.uuid, checkpoints.c.trial_id, trials.c.experiment_id, storage_backends.c.config)
        query = sa.select(*columns).select_from(checkpoints.join(trials).outerjoin(storage_backends))
        query = query.where(mine, checkpoints.c.state != "DELETED").order_by(checkpoints.c.uuid)
        removed += [RemovedCheckpoint(*row) for row in conn.execute(query)]
        files = sa.select(allocations.c.tensorboard).select_from(allocations.join(tasks).join(trials))
        tensorboard += conn.scalars(files.where(mine, allocations.c.tensorboard.is_not(None)).distinct()).all()
        uuids += conn.scalars(sa.select(experiments.c.uuid).where(experiments.c.id.in_(some))).all()
    return Removal(ids, removed, tensorboard, uuids)
