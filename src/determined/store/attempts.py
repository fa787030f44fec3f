"""Attempts: each launch of a trial's processes, who may report for a trial, and the requests to its processes."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from determined import errors
from determined.store import rows, trials
from determined.store.messages import Signal, now
from determined.store.schema import allocations, checkpoints, experiments, logs, metrics, tasks
from determined.store.schema import trials as trials_table

_SUPERSEDED = "A newer attempt has begun."
_GOING = ("PENDING", "ASSIGNED", "STARTING", "RUNNING", "TERMINATING")  # each by the index; "not TERMINATED" reads all


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One launch of a trial, as reports name it."""

    allocation_id: str
    task_id: str
    trial_id: int
    experiment_id: int
    attempt: int
    run_name: str | None


@dataclasses.dataclass(frozen=True)
class AttemptRow:
    """One launch, with all its columns."""

    allocation_id: str
    task_id: str
    trial_id: int
    experiment_id: int
    attempt: int
    run_name: str | None
    state: str
    slots: int
    slot_ids: list[Any]
    node: str
    pid: int | None
    process_started: float | None
    start_time: datetime.datetime
    end_time: datetime.datetime | None
    last_activity: datetime.datetime | None
    exit_code: int | None
    exit_reason: str | None
    preempt_requested: bool
    preempt_acked: bool
    kill_at: datetime.datetime | None
    kill_reason: str | None
    killed: bool
    environment: dict[str, Any]
    tensorboard: str | None


def begin(
    conn: sa.Connection,
    trial_id: int,
    *,
    run_name: str | None = None,
    node: str = "",
    pid: int | None = None,
    process_started: float | None = None,
    environment: dict[str, Any] | None = None,
    slots: int = 1,
    slot_ids: list[Any] | None = None,
    tensorboard: str | None = None,
    state: str = "RUNNING",
    time: datetime.datetime | None = None,
) -> Attempt:
    """Start the next attempt of a trial; from now on older ones can no longer report.

    Asking again with the same `run_name` gives the same attempt, so a caller that did not hear the answer may repeat.
    An unmanaged trial is RUNNING afterwards; what a managed one is, its controller decides.
    """
    if run_name is not None and (known := of_run(conn, run_name)):
        return known
    moment = time or now()
    before = trials.lock(conn, trial_id)
    is_unmanaged = _is_unmanaged(conn, before.experiment_id)
    if is_unmanaged is None:
        trials.get(conn, trial_id)  # there is none: its experiment is hidden
    number = before.attempt + 1
    if before.attempt:
        _end_older(conn, trial_id, moment)
    task_id = _current_task(conn, before.id, before.experiment_id, moment)
    allocation_id = f"{task_id}.{number}"
    row = {
        "allocation_id": allocation_id,
        "task_id": task_id,
        "attempt": number,
        "state": state,
        "run_name": run_name,
        "node": node,
        "pid": pid,
        "process_started": process_started,
        "environment": environment or {},
        "slots": slots,
        "slot_ids": slot_ids or [],
        "tensorboard": tensorboard,
        "start_time": moment,
        "last_activity": moment,
    }
    conn.execute(allocations.insert(), row)
    fields = {"attempt": number, "last_activity": moment}
    conn.execute(trials_table.update().where(trials_table.c.id == trial_id), fields)
    if is_unmanaged:
        trials.set_state(conn, trial_id, "RUNNING", time=moment)
    return Attempt(allocation_id, task_id, trial_id, before.experiment_id, number, run_name)


def of_run(conn: sa.Connection, run_name: str) -> Attempt | None:
    """Return the attempt that a process of this name is, or None if it is not recorded."""
    row = conn.execute(_query().where(allocations.c.run_name == run_name)).mappings().one_or_none()
    return rows.build(Attempt, row) if row else None


def get(conn: sa.Connection, allocation_id: str) -> AttemptRow:
    """Return one attempt, by the id of its allocation."""
    row = conn.execute(_query().where(allocations.c.allocation_id == allocation_id)).mappings().one_or_none()
    return rows.build(AttemptRow, rows.required(row, "allocation", allocation_id, "det trial describe <id>"))


def of_trial(conn: sa.Connection, trial_id: int) -> list[AttemptRow]:
    """Return the attempts of a trial, oldest first."""
    query = _query().where(tasks.c.trial_id == trial_id).order_by(allocations.c.attempt)
    return [rows.build(AttemptRow, row) for row in conn.execute(query).mappings()]


def newest(conn: sa.Connection, trial_ids: Sequence[int]) -> dict[int, AttemptRow]:
    """Return the newest attempt of each of these trials; those without one are left out."""
    found: dict[int, AttemptRow] = {}
    for some in rows.chunks(trial_ids):
        query = _query().where(tasks.c.trial_id.in_(some), allocations.c.attempt == trials_table.c.attempt)
        for row in conn.execute(query).mappings():
            found[row["trial_id"]] = rows.build(AttemptRow, row)
    return found


def check_current(conn: sa.Connection, attempt: Attempt) -> None:
    """Lock the trial until the transaction ends, and refuse an attempt that is no longer the newest."""
    newest = trials.lock(conn, attempt.trial_id).attempt
    if newest != attempt.attempt:
        raise errors.StaleAttempt(
            f"Attempt {attempt.attempt} of trial {attempt.trial_id} can no longer report: attempt {newest} has begun."
        )


def beat(conn: sa.Connection, attempt: Attempt, time: datetime.datetime | None = None) -> None:
    """Record that the process is alive. A trial that was ended because its process seemed gone runs again."""
    moment = time or now()
    check_current(conn, attempt)
    one = allocations.c.allocation_id == attempt.allocation_id
    conn.execute(allocations.update().where(one).values(last_activity=moment))
    conn.execute(trials_table.update().where(trials_table.c.id == attempt.trial_id).values(last_activity=moment))
    trial = trials.lock(conn, attempt.trial_id)
    if trial.state == "ERROR" and trial.state_reason == trials.GONE:
        conn.execute(allocations.update().where(one).values(state="RUNNING", end_time=None, exit_reason=None))
        trials.set_state(conn, attempt.trial_id, "RUNNING", "The process is back.", time=moment)


def claim(
    conn: sa.Connection,
    allocation_id: str,
    *,
    node: str,
    pid: int,
    process_started: float | None,
    slot_ids: list[str] | None = None,
) -> AttemptRow | None:
    """Record the agent that runs an attempt, which is STARTING now; return None if the attempt has ended already.

    `slot_ids` are the slots that it was given after all, where a cluster decides that.
    """
    one = sa.and_(allocations.c.allocation_id == allocation_id, allocations.c.state != "TERMINATED")
    fields = {"state": "STARTING", "node": node, "pid": pid, "process_started": process_started}
    fields.update({} if slot_ids is None else {"slot_ids": slot_ids})
    is_claimed = conn.execute(allocations.update().where(one).values(fields)).rowcount == 1
    return get(conn, allocation_id) if is_claimed else None


def end(
    conn: sa.Connection,
    allocation_id: str,
    *,
    exit_code: int | None = None,
    reason: str | None = None,
    time: datetime.datetime | None = None,
) -> None:
    """Record that the processes of an attempt have exited. The caller decides what that means for the trial."""
    moment = time or now()
    get(conn, allocation_id)
    fields = {"state": "TERMINATED", "end_time": moment, "exit_code": exit_code, "exit_reason": reason}
    conn.execute(allocations.update().where(allocations.c.allocation_id == allocation_id).values(fields))


def set_state(conn: sa.Connection, allocation_id: str, state: str) -> None:
    """Set the state: PENDING, ASSIGNED, STARTING, RUNNING, TERMINATING or TERMINATED."""
    get(conn, allocation_id)
    conn.execute(allocations.update().where(allocations.c.allocation_id == allocation_id).values(state=state))


def contacted(conn: sa.Connection, allocation_id: str) -> None:
    """Note that the training process of an attempt that has not ended is up: it is RUNNING now."""
    going = sa.and_(allocations.c.allocation_id == allocation_id, allocations.c.state != "TERMINATED")
    conn.execute(allocations.update().where(going).values(state="RUNNING"))


def request_preemption(conn: sa.Connection, allocation_id: str) -> None:
    """Ask the processes to save a checkpoint and exit."""
    get(conn, allocation_id)
    one = allocations.c.allocation_id == allocation_id
    conn.execute(allocations.update().where(one).values(preempt_requested=True))


def kill_at(conn: sa.Connection, allocation_id: str, time: datetime.datetime, reason: str) -> None:
    """Have the controller end the processes at this time, if they have not ended by then."""
    one = allocations.c.allocation_id == allocation_id
    conn.execute(allocations.update().where(one).values(kill_at=time, kill_reason=reason))


def mark_killed(conn: sa.Connection, allocation_id: str) -> None:
    """Record that the controller ends the processes now."""
    one = allocations.c.allocation_id == allocation_id
    conn.execute(allocations.update().where(one).values(killed=True))


def of_controller(conn: sa.Connection) -> list[AttemptRow]:
    """Return the attempts of managed experiments that have not ended, in the order of their trials."""
    query = _query().join(experiments, experiments.c.id == trials_table.c.experiment_id)
    query = query.where(allocations.c.state.in_(_GOING), sa.not_(experiments.c.unmanaged))
    return [rows.build(AttemptRow, row) for row in conn.execute(query.order_by(tasks.c.trial_id)).mappings()]


def acknowledge_preemption(conn: sa.Connection, allocation_id: str) -> None:
    """Record that the processes have seen the request, and will exit."""
    get(conn, allocation_id)
    one = allocations.c.allocation_id == allocation_id
    conn.execute(allocations.update().where(one).values(preempt_acked=True))


def signals(conn: sa.Connection, allocation_id: str) -> Signal:
    """Return what the processes of this attempt are asked. One that a newer attempt has replaced is asked to leave."""
    row = get(conn, allocation_id)
    if row.preempt_requested or (row.state == "TERMINATED" and row.exit_reason == _SUPERSEDED):
        return Signal.PREEMPT
    return Signal.NONE


def move(conn: sa.Connection, run_name: str, trial_id: int, *, time: datetime.datetime | None = None) -> Attempt:
    """Make a run that was recorded as new the next attempt of an older trial, which it turned out to continue.

    Its logs, samples and allocation move there, and the experiment that was made for it disappears.

    Raises:
        Refused: It has reported metrics or checkpoints of its own already, so it is something of its own.
    """
    known = of_run(conn, run_name)
    if known is None:
        raise errors.NotFound(f"There is no run {run_name} in this store.")
    if known.trial_id == trial_id:
        return known
    for ident in sorted((known.trial_id, trial_id)):  # always in this order, so that two that meet do not wait forever
        trials.lock(conn, ident)
    _refuse_if_used(conn, known)
    old = get(conn, known.allocation_id)
    one = allocations.c.allocation_id == old.allocation_id
    conn.execute(allocations.update().where(one).values(run_name=None))
    new = begin(
        conn,
        trial_id,
        run_name=run_name,
        node=old.node,
        pid=old.pid,
        process_started=old.process_started,
        environment=old.environment,
        slots=old.slots,
        slot_ids=old.slot_ids,
        tensorboard=old.tensorboard,
        time=time or now(),
    )
    to = {"task_id": new.task_id, "allocation_id": new.allocation_id}
    conn.execute(logs.update().where(logs.c.task_id == old.task_id).values(to))
    from determined.store.metrics.metric_reports import move_samples  # it needs to know what an attempt is

    move_samples(conn, old.trial_id, new)
    conn.execute(experiments.delete().where(experiments.c.id == old.experiment_id))
    _give_back_ids(conn, experiments=old.experiment_id, trials=old.trial_id)
    return new


def _give_back_ids(conn: sa.Connection, **ids: int) -> None:
    """Reuse this id for the next row of each table, if it was the last one given: lists then show no gap.

    On PostgreSQL the gap stays: its sequences are no part of a transaction.
    """
    if conn.dialect.name == "sqlite":
        undo = sa.text("UPDATE sqlite_sequence SET seq = seq - 1 WHERE name = :name AND seq = :ident")
        conn.execute(undo, [{"name": name, "ident": ident} for name, ident in ids.items()])


def _refuse_if_used(conn: sa.Connection, run: Attempt) -> None:
    stepped = sa.select(metrics.c.id).where(metrics.c.trial_id == run.trial_id, metrics.c.steps.is_not(None)).limit(1)
    saved = sa.select(checkpoints.c.uuid).where(checkpoints.c.trial_id == run.trial_id).limit(1)
    others = sa.select(trials_table.c.id).where(
        trials_table.c.experiment_id == run.experiment_id, trials_table.c.id != run.trial_id
    )
    has_others = conn.execute(others.limit(1)).first() is not None
    if run.attempt > 1 or has_others or conn.execute(stepped).first() or conn.execute(saved).first():
        raise errors.Refused(f"Run {run.run_name} has results of its own already, so it stays trial {run.trial_id}.")


def _end_older(conn: sa.Connection, trial_id: int, moment: datetime.datetime) -> None:
    older = sa.select(tasks.c.task_id).where(tasks.c.trial_id == trial_id)
    going = sa.and_(allocations.c.task_id.in_(older), allocations.c.state != "TERMINATED")
    last = sa.func.coalesce(allocations.c.last_activity, sa.literal(moment, allocations.c.last_activity.type))
    fields = {"state": "TERMINATED", "end_time": last, "exit_reason": _SUPERSEDED}
    conn.execute(allocations.update().where(going).values(fields))


def _current_task(conn: sa.Connection, trial_id: int, experiment_id: int, moment: datetime.datetime) -> str:
    """Return the trial's task: one for all attempts, until an ended trial is continued (`continue_trial`)."""
    query = sa.select(tasks.c.task_id).where(tasks.c.trial_id == trial_id)
    if newest := conn.scalar(query.order_by(tasks.c.start_time.desc(), tasks.c.task_id.desc()).limit(1)):
        return str(newest)
    request_id = conn.scalar(sa.select(trials_table.c.request_id).where(trials_table.c.id == trial_id))
    return _add_task(conn, f"{experiment_id}.{request_id}", trial_id, moment)


def continue_trial(conn: sa.Connection, trial_id: int, *, time: datetime.datetime | None = None) -> str:
    """Give an ended trial a new task (`<first>-1`, `-2`, ...), whose restarts are counted from 0; returns its id."""
    moment = time or now()
    trial = trials.lock(conn, trial_id)
    conn.execute(tasks.update().where(tasks.c.trial_id == trial_id, tasks.c.end_time.is_(None)).values(end_time=moment))
    number = conn.scalar(sa.select(sa.func.count()).where(tasks.c.trial_id == trial_id)) or 0
    trials.update(conn, trial_id, restarts=0, progress=0.0, end_time=None)
    first = f"{trial.experiment_id}.{trials.get(conn, trial_id).request_id}"
    return _add_task(conn, f"{first}-{number}" if number else first, trial_id, moment)


def _add_task(conn: sa.Connection, task_id: str, trial_id: int, moment: datetime.datetime) -> str:
    row = {"task_id": task_id, "type": "TRIAL", "trial_id": trial_id, "start_time": moment}
    conn.execute(tasks.insert().values(row))
    return task_id


def _is_unmanaged(conn: sa.Connection, experiment_id: int) -> bool | None:
    """Return whether no controller drives the experiment; None if it is hidden."""
    shown = (experiments.c.id == experiment_id, experiments.c.deleted_at.is_(None))
    return conn.scalar(sa.select(experiments.c.unmanaged).where(*shown))


def _query() -> sa.Select[Any]:
    return sa.select(allocations, tasks.c.trial_id, trials_table.c.experiment_id).select_from(
        allocations.join(tasks).join(trials_table, trials_table.c.id == tasks.c.trial_id)
    )
