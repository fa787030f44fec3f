"""Trials and attempts as a live view needs them: without bulky columns, and only those that may have changed."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from determined.store import rows
from determined.store.experiments import TERMINAL
from determined.store.schema import allocations, experiments, tasks, trials

ENDED = "TERMINATED"
_COLUMNS = ("id", "request_id", "state", "state_reason", "hparams", "attempt", "restarts", "start_time", "end_time",
            "total_batches", "progress", "searcher_metric_value", "latest_metric_value")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Launch:
    """One attempt of a trial, as far as time and slots go."""

    experiment_id: int
    trial_id: int
    attempt: int
    state: str
    slots: int
    slot_ids: list[Any]
    node: str
    start_time: datetime.datetime
    end_time: datetime.datetime | None


@dataclasses.dataclass(frozen=True)
class TrialNow:
    """A trial as it is now. `launches` are its attempts, oldest first."""

    id: int
    request_id: str
    state: str
    state_reason: str
    hparams: dict[str, Any]
    attempt: int
    restarts: int
    start_time: datetime.datetime
    end_time: datetime.datetime | None
    total_batches: int
    progress: float | None
    searcher_metric_value: float | None
    latest_metric_value: float | None
    launches: tuple[Launch, ...] = ()


def changed(conn: sa.Connection, experiment_id: int, *, newest: int = 0, going: Collection[int] = ()) -> list[TrialNow]:
    """Return the trials of an experiment that may have changed since they were read.

    Those are the ones that have not ended, those that had not ended then, and new ones. Ended ones that were continued
    have not ended, so they are among them.

    Args:
        conn: A connection.
        experiment_id: Whose trials.
        newest: The greatest id that was read before; 0 reads all.
        going: Ids of the trials that had not ended when they were read.
    """
    column = trials.c
    unsettled = sa.or_(column.state.not_in(TERMINAL), column.id > newest, column.id.in_(going))
    query = sa.select(*(column[name] for name in _COLUMNS)).where(column.experiment_id == experiment_id, unsettled)
    found = conn.execute(query.order_by(column.id)).mappings().all()
    launches = of_trials(conn, [row["id"] for row in found])
    return [rows.build(TrialNow, row, launches=tuple(launches.get(row["id"], ()))) for row in found]


def of_trials(conn: sa.Connection, trial_ids: Sequence[int]) -> dict[int, list[Launch]]:
    """Return the attempts of these trials, oldest first."""
    found: dict[int, list[Launch]] = {}
    for some in rows.chunks(trial_ids):
        for launch in _launches(conn, tasks.c.trial_id.in_(some)):
            found.setdefault(launch.trial_id, []).append(launch)
    return found


def holding_slots(conn: sa.Connection) -> list[Launch]:
    """Return the attempts of managed experiments whose processes have not ended: they are what holds slots."""
    return _launches(conn, allocations.c.state != ENDED, experiments.c.unmanaged.is_(False))


def _launches(conn: sa.Connection, *which: sa.ColumnElement[bool]) -> list[Launch]:
    column = allocations.c
    own = (column.attempt, column.state, column.slots, column.slot_ids, column.node, column.start_time, column.end_time)
    query = (
        sa.select(trials.c.experiment_id, tasks.c.trial_id, *own)
        .select_from(allocations.join(tasks).join(trials, trials.c.id == tasks.c.trial_id).join(experiments))
        .where(*which)
        .order_by(tasks.c.trial_id, column.attempt)
    )
    return [rows.build(Launch, row) for row in conn.execute(query).mappings()]


def states(launches: Iterable[Launch]) -> list[str]:
    """Return the states of those attempts whose processes have not ended."""
    return [launch.state for launch in launches if launch.state != ENDED]


def going(conn: sa.Connection, experiment_id: int) -> list[Launch]:
    """Return the attempts of an experiment whose processes have not ended."""
    return _launches(conn, trials.c.experiment_id == experiment_id, allocations.c.state != ENDED)


def has_event_files(conn: sa.Connection, experiment_id: int) -> bool:
    """Return whether an attempt of an experiment has written event files."""
    query = sa.select(allocations.c.task_id).select_from(
        allocations.join(tasks).join(trials, trials.c.id == tasks.c.trial_id)
    )
    wrote = query.where(trials.c.experiment_id == experiment_id, allocations.c.tensorboard.is_not(None))
    return conn.execute(wrote.limit(1)).first() is not None


def live(conn: sa.Connection, experiment_ids: Sequence[int]) -> dict[int, list[Launch]]:
    """Return the attempts of several experiments whose processes have not ended."""
    found: dict[int, list[Launch]] = {}
    for some in rows.chunks(experiment_ids):
        for launch in _launches(conn, trials.c.experiment_id.in_(some), allocations.c.state != ENDED):
            found.setdefault(launch.experiment_id, []).append(launch)
    return found


def live_states(conn: sa.Connection, experiment_ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the states of the attempts of each experiment whose processes have not ended."""
    return {ident: states(launches) for ident, launches in live(conn, experiment_ids).items()}
