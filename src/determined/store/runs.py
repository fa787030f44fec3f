"""Queries of a training process about itself and about earlier runs of its script."""

from __future__ import annotations

import dataclasses
from typing import Any

import sqlalchemy as sa

from determined.store.attempts import Attempt, of_run
from determined.store.schema import (
    allocations,
    checkpoint_uses,
    checkpoints,
    events,
    experiments,
    model_versions,
    storage_backends,
    trials,
)


@dataclasses.dataclass(frozen=True)
class Saved:
    """A complete checkpoint that an earlier run of a script has left."""

    uuid: str
    metadata: dict[str, Any]
    experiment_id: int
    hparams: dict[str, Any]


def saved_by(
    conn: sa.Connection, script: str, storage: dict[str, Any] | None, own_trial: int | None = None
) -> list[Saved]:
    """Return the complete checkpoints of plain runs of a script that lie in this storage, oldest first.

    What is older goes by the order in which the store learned of it, since a clock may be set back: first the trials
    that have ended, in the order of their ends, then those that run, then `own_trial`; in each, by attempt and steps.
    """
    last = sa.select(sa.func.max(events.c.id)).where(events.c.trial_id == trials.c.id, events.c.kind == "TRIAL_STATE")
    columns = (checkpoints.c.uuid, checkpoints.c.metadata, trials.c.experiment_id, trials.c.hparams)
    query = (
        sa.select(*columns, storage_backends.c.config)
        .select_from(checkpoints.join(trials, trials.c.id == checkpoints.c.trial_id))
        .join(experiments, experiments.c.id == trials.c.experiment_id)
        .outerjoin(storage_backends, storage_backends.c.id == checkpoints.c.storage_id)
        .outerjoin(allocations, allocations.c.allocation_id == checkpoints.c.allocation_id)
        .where(
            experiments.c.script == script,
            experiments.c.unmanaged,
            experiments.c.deleted_at.is_(None),
            checkpoints.c.state == "COMPLETED",
        )
        .order_by(
            sa.case((trials.c.id == own_trial, 2), (trials.c.state == "RUNNING", 1), else_=0),
            sa.func.coalesce(last.scalar_subquery(), 0),
            trials.c.id,
            sa.func.coalesce(allocations.c.attempt, 0),
            checkpoints.c.steps,
            checkpoints.c.report_time,
        )
    )
    return [Saved(*found) for *found, config in conn.execute(query) if config == storage]


def recorded_uuids(conn: sa.Connection) -> set[str]:
    """Return the ids of all checkpoints that the store knows, whatever became of them."""
    return set(conn.scalars(sa.select(checkpoints.c.uuid)))


def owner_of(conn: sa.Connection, uuid: str) -> int | None:
    """Return the trial that a checkpoint is of, hidden or not; None if the store does not know it."""
    return conn.scalar(sa.select(checkpoints.c.trial_id).where(checkpoints.c.uuid == uuid))


def last_life(conn: sa.Connection, run_name: str) -> Attempt | None:
    """Return the newest attempt that a process was: one that begins to train again is `<name>+2`, `<name>+3`, ..."""
    found, number = of_run(conn, run_name), 2
    while found is not None and (later := of_run(conn, f"{run_name}+{number}")) is not None:
        found, number = later, number + 1
    return found


def update_attempt(conn: sa.Connection, allocation_id: str, **fields: Any) -> None:
    """Set columns that a process knows of its own attempt: `run_name` or `environment`."""
    conn.execute(allocations.update().where(allocations.c.allocation_id == allocation_id).values(fields))


def record_use(
    conn: sa.Connection, trial_id: int, uuid: str, model_id: int | None = None, version: int | None = None
) -> None:
    """Record that a trial uses a checkpoint that it has not made, for example to run inference."""
    of_model = (model_versions.c.model_id == model_id, model_versions.c.version == version)
    ident = None if version is None else conn.scalar(sa.select(model_versions.c.id).where(*of_model))
    row = {"trial_id": trial_id, "checkpoint_uuid": uuid, "model_version": ident, "kind": "INFERENCE"}
    conn.execute(checkpoint_uses.insert().values(row))
