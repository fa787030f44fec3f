"""Trials: create, find and change them, and end those whose process is gone."""

from __future__ import annotations

import dataclasses
import datetime
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from determined import _process, errors
from determined.store import events, experiments, rows
from determined.store.messages import now
from determined.store.schema import allocations, tasks, trials
from determined.store.schema import experiments as experiments_table

SILENCE = datetime.timedelta(minutes=5)
"""How long an unmanaged process may be silent before it counts as gone."""
GONE = "The process ended without reporting how."
"""The reason of trials that `settle` ended; if the process reports again, the trial runs again."""

_LISTING = "det trial ls"
_KEPT_BY_US = {
    "id",
    "experiment_id",
    "request_id",
    "state",
    "attempt",
    "metadata",
    "checkpoint_size",
    "checkpoint_count",
}
_SETTABLE = frozenset(trials.c.keys()) - _KEPT_BY_US
# Of an unmanaged experiment: the furthest of its trials counts.
_ADVANCE = {"PAUSED": 0, "ERROR": 1, "CANCELED": 2, "COMPLETED": 3, "ACTIVE": 4, "RUNNING": 4}


@dataclasses.dataclass(frozen=True)
class TrialRow:
    """A trial."""

    id: int
    experiment_id: int
    request_id: str
    state: str
    state_reason: str
    exit_reason: str | None
    hparams: dict[str, Any]
    seed: int
    attempt: int
    restarts: int
    start_time: datetime.datetime
    end_time: datetime.datetime | None
    warm_start_checkpoint_uuid: str | None
    total_batches: int
    runner_state: str
    progress: float | None
    best_validation_id: int | None
    latest_validation_id: int | None
    searcher_metric_value: float | None
    latest_metric_value: float | None
    summary_metrics: dict[str, Any]
    metadata: dict[str, Any]
    checkpoint_size: int
    checkpoint_count: int
    external_trial_id: str | None
    last_activity: datetime.datetime | None
    log_policy_matched: str | None
    log_retention_days: int | None


@dataclasses.dataclass(frozen=True)
class TrialBrief:
    """A trial as far as a search is judged by it: many are read at once."""

    id: int
    request_id: str
    state: str
    hparams: dict[str, Any]
    total_batches: int
    summary_metrics: dict[str, Any]


class LockedTrial(NamedTuple):
    """Columns of a trial that is locked until the transaction ends."""

    id: int
    experiment_id: int
    state: str
    state_reason: str
    attempt: int


def hparams_by_experiment(conn: sa.Connection, experiment_ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the hyperparameters of each experiment's best trial, or of its first where none is best."""
    query = sa.select(trials.c.experiment_id, trials.c.hparams).select_from(_best_trials())
    found = conn.execute(query.where(experiments_table.c.id.in_(experiment_ids)))
    return {row.experiment_id: row.hparams for row in found}


def _best_trials() -> sa.Join:
    """Experiments, each with its best trial, or its first where none is best."""
    others = trials.alias()
    first = sa.select(sa.func.min(others.c.id)).where(others.c.experiment_id == experiments_table.c.id)
    chosen = sa.func.coalesce(experiments_table.c.best_trial_id, first.correlate(experiments_table).scalar_subquery())
    return experiments_table.join(trials, trials.c.id == chosen)


def create(
    conn: sa.Connection,
    experiment_id: int,
    *,
    hparams: dict[str, Any],
    request_id: str | None = None,
    state: str = "PAUSED",
    seed: int = 0,
    external_trial_id: str | None = None,
    warm_start_checkpoint_uuid: str | None = None,
    log_retention_days: int | None = None,
    start_time: datetime.datetime | None = None,
) -> int:
    """Add a trial without attempts and return its id."""
    row = {
        "experiment_id": experiment_id,
        "hparams": hparams,
        "request_id": request_id or secrets.token_hex(8),
        "state": state,
        "seed": seed,
        "external_trial_id": external_trial_id,
        "warm_start_checkpoint_uuid": warm_start_checkpoint_uuid,
        "log_retention_days": log_retention_days,
        "start_time": start_time or now(),
    }
    return rows.insert(conn, trials, row)


def get(conn: sa.Connection, trial_id: int, *, deleted: bool = False) -> TrialRow:
    """Return one trial; those of hidden experiments only with `deleted=True`."""
    query = sa.select(trials).where(trials.c.id == trial_id)
    if not deleted:
        query = query.join(experiments_table).where(experiments_table.c.deleted_at.is_(None))
    row = rows.required(conn.execute(query).mappings().one_or_none(), "trial", trial_id, _LISTING)
    return rows.build(TrialRow, row)


def get_many(conn: sa.Connection, trial_ids: Sequence[int]) -> list[TrialRow]:
    """Return the trials of these ids that there are, in this order; those of hidden experiments are not there."""
    found: dict[int, TrialRow] = {}
    for some in rows.chunks(trial_ids):
        query = sa.select(trials).join(experiments_table).where(experiments_table.c.deleted_at.is_(None))
        for row in conn.execute(query.where(trials.c.id.in_(some))).mappings():
            found[row["id"]] = rows.build(TrialRow, row)
    return [found[trial_id] for trial_id in dict.fromkeys(trial_ids) if trial_id in found]


def best_ids(conn: sa.Connection, experiment_ids: Sequence[int]) -> dict[int, int]:
    """Return the best trial of each experiment, or its first where none is best; those without trials are left out."""
    query = sa.select(trials.c.experiment_id, trials.c.id).select_from(_best_trials())
    return {row.experiment_id: row.id for row in conn.execute(query.where(experiments_table.c.id.in_(experiment_ids)))}


def find_external(conn: sa.Connection, experiment_id: int, external_trial_id: str) -> int | None:
    """Return the trial of this experiment that has this name outside, or None."""
    named = (trials.c.experiment_id == experiment_id, trials.c.external_trial_id == external_trial_id)
    return conn.scalar(sa.select(trials.c.id).where(*named))


def of_experiment(
    conn: sa.Connection,
    experiment_id: int | None,
    *,
    sort_by: str = "id",
    descending: bool = False,
    states: tuple[str, ...] = (),
    limit: int | None = None,
    offset: int = 0,
) -> list[TrialRow]:
    """Return the trials of an experiment.

    Args:
        experiment_id: The experiment; it may be a hidden one. None is all that are not hidden.
        sort_by: `id`, `state`, `start_time`, `end_time`, `duration`, `best_metric`, `latest_metric`, `batches`,
            `restarts`, `checkpoint_size`, `checkpoint_count` or `log_retention_days`.
        descending: The largest first. What has no value comes last either way.
        states: Only those in one of these states.
        limit: At most so many.
        offset: Leave out the first so many.
    """
    if experiment_id is None:
        query = sa.select(trials).join(experiments_table).where(experiments_table.c.deleted_at.is_(None))
    else:
        query = sa.select(trials).where(trials.c.experiment_id == experiment_id)
    if states:
        query = query.where(trials.c.state.in_(states))
    columns = {**_SORTABLE, "duration": _duration(conn)}
    order = rows.ordering(columns, sort_by, descending, trials.c.id)
    if sort_by == "best_metric":
        order[-1] = trials.c.id.asc()  # of equal ones the earlier is better, whichever way is better
    query = query.order_by(*order)
    query = query.limit(limit if limit is not None or not offset else 2**62).offset(offset or None)
    return [rows.build(TrialRow, row) for row in conn.execute(query).mappings()]


def briefs(conn: sa.Connection, experiment_id: int) -> list[TrialBrief]:
    """Return all trials of an experiment in few columns, by id."""
    names = [field.name for field in dataclasses.fields(TrialBrief)]
    query = sa.select(*(trials.c[name] for name in names)).where(trials.c.experiment_id == experiment_id)
    return rows.build_all(TrialBrief, names, conn.execute(query.order_by(trials.c.id)))


def progress_of(conn: sa.Connection, trial_ids: Sequence[int]) -> dict[int, float]:
    """Return how far each of these trials has said it is, 0 to 1; those that have said nothing are left out."""
    found: dict[int, float] = {}
    for some in rows.chunks(trial_ids):
        query = sa.select(trials.c.id, trials.c.progress).where(trials.c.id.in_(some), trials.c.progress.is_not(None))
        found.update((row.id, row.progress) for row in conn.execute(query))
    return found


def ids_by_request(conn: sa.Connection, experiment_id: int) -> dict[str, int]:
    """Return the trials of an experiment by the ids that its search gave them."""
    query = sa.select(trials.c.request_id, trials.c.id).where(trials.c.experiment_id == experiment_id)
    return {row.request_id: row.id for row in conn.execute(query)}


def in_state(conn: sa.Connection, trial_ids: Sequence[int], state: str) -> list[int]:
    """Return those of these trials that are in a state."""
    queries = (sa.select(trials.c.id).where(trials.c.id.in_(some)) for some in rows.chunks(trial_ids))
    return [ident for query in queries for ident in conn.scalars(query.where(trials.c.state == state))]


def total_restarts(conn: sa.Connection, experiment_id: int, most: int | None) -> int:
    """Return how often the trials of an experiment were started again; of each at most `most` count."""
    each: sa.ColumnElement[int] = trials.c.restarts
    if most is not None:  # the last failure was not followed by a start
        each = sa.case((trials.c.restarts > most, most), else_=trials.c.restarts)
    return int(conn.scalar(sa.select(sa.func.sum(each)).where(trials.c.experiment_id == experiment_id)) or 0)


def update(conn: sa.Connection, trial_id: int, **fields: Any) -> None:
    """Set columns of one trial. States are set by `set_state`, metadata by `set_metadata`."""
    rows.check_fields("a trial", fields, _SETTABLE)
    changed = conn.execute(trials.update().where(trials.c.id == trial_id).values(fields)).rowcount
    rows.required(changed or None, "trial", trial_id, _LISTING)


def set_metadata(conn: sa.Connection, trial_id: int, metadata: dict[str, Any]) -> None:
    """Replace the user's own notes on the trial."""
    _check_metadata(metadata)
    changed = conn.execute(trials.update().where(trials.c.id == trial_id).values({"metadata": metadata})).rowcount
    rows.required(changed or None, "trial", trial_id, _LISTING)


def set_state(
    conn: sa.Connection,
    trial_id: int,
    state: str,
    reason: str = "",
    *,
    exit_reason: str | None = None,
    time: datetime.datetime | None = None,
) -> None:
    """Set the state, whatever it was before, and add an event; an unmanaged experiment follows."""
    moment = time or now()
    before = lock(conn, trial_id)
    if _write_state(conn, before, state, reason, exit_reason, moment):
        _follow(conn, before.experiment_id, reason, moment)


def _write_state(
    conn: sa.Connection,
    before: LockedTrial,
    state: str,
    reason: str,
    exit_reason: str | None,
    moment: datetime.datetime,
) -> bool:
    """Set the state of a locked trial, and return whether it was another one before."""
    fields: dict[str, Any] = {} if exit_reason is None else {"exit_reason": exit_reason}
    if before.state != state:
        end = moment if state in experiments.TERMINAL else None
        fields |= {"state": state, "state_reason": reason, "end_time": end}
        body = {"from": before.state, "to": state, "reason": reason}
        events.append(conn, before.experiment_id, "TRIAL_STATE", body, trial_id=before.id, time=moment)
    elif reason:
        fields["state_reason"] = reason
    if fields:
        conn.execute(trials.update().where(trials.c.id == before.id), fields)
    return before.state != state


def lock(conn: sa.Connection, trial_id: int) -> LockedTrial:
    """Lock a trial until the transaction ends, and return its present state."""
    columns = (trials.c.id, trials.c.experiment_id, trials.c.state, trials.c.state_reason, trials.c.attempt)
    query = sa.select(*columns).where(trials.c.id == trial_id).with_for_update(key_share=True)
    return LockedTrial(*rows.required(conn.execute(query).one_or_none(), "trial", trial_id, _LISTING))


def settle(conn: sa.Connection, time: datetime.datetime | None = None) -> list[int]:
    """End the unmanaged trials whose process is gone, and return their ids.

    A process is gone if it ran on this machine and does not any more; or, on another machine, if it has been silent
    for 5 minutes. Such a trial becomes ERROR, and its end is the time of its last report.
    """
    moment = time or now()
    latest = sa.and_(allocations.c.task_id == tasks.c.task_id, allocations.c.attempt == trials.c.attempt)
    columns = (
        trials.c.attempt,
        *(allocations.c.allocation_id, allocations.c.node, allocations.c.pid, allocations.c.process_started),
    )
    moments = (trials.c.start_time, trials.c.last_activity, allocations.c.last_activity)
    query = (
        sa.select(trials.c.id, *columns, *moments)
        .select_from(trials.join(experiments_table).join(tasks, tasks.c.trial_id == trials.c.id))
        .join(allocations, latest)
        .where(trials.c.state == "RUNNING", experiments_table.c.unmanaged)
        .order_by(trials.c.id)
    )
    settled: list[int] = []
    followers: dict[int, datetime.datetime] = {}  # experiments, and when their last trial was heard
    for trial_id, attempt, allocation_id, node, pid, process_started, *signs in conn.execute(query).all():
        heard = max(sign for sign in signs if sign is not None)
        if pid is not None and node == _process.this_node():
            gone = not _process.is_alive(pid, process_started)
        else:
            gone = moment - heard > SILENCE
        # Others settle too, and a new attempt may have begun since we looked.
        if gone and (before := lock(conn, trial_id)).attempt == attempt and before.state == "RUNNING":
            _write_state(conn, before, "ERROR", GONE, None, heard)
            ended = allocations.update().where(allocations.c.allocation_id == allocation_id)
            conn.execute(ended.values(state="TERMINATED", end_time=heard, exit_reason=GONE))
            settled.append(trial_id)
            followers[before.experiment_id] = max(heard, followers.get(before.experiment_id, heard))
    for experiment_id in sorted(followers):  # after all trials: the order in which everybody locks
        _follow(conn, experiment_id, GONE, followers[experiment_id])
    return settled


def _follow(conn: sa.Connection, experiment_id: int, reason: str, moment: datetime.datetime) -> None:
    """Set the state of an unmanaged experiment to that of its most advanced trial."""
    query = sa.select(experiments_table.c.unmanaged).where(experiments_table.c.id == experiment_id)
    if not conn.scalar(query):
        return
    conn.execute(query.with_for_update(key_share=True))  # of two trials that end at once, one sees how the other ended
    states = conn.scalars(sa.select(trials.c.state).where(trials.c.experiment_id == experiment_id).distinct()).all()
    furthest = max(states, key=lambda state: _ADVANCE.get(state, 0))
    experiments.set_state(conn, experiment_id, furthest, reason, time=moment)


def _check_metadata(value: Any, depth: int = 0, where: str = "metadata") -> None:
    if isinstance(value, (dict, list)) and depth >= 10:
        raise errors.InvalidValue(f"{where} is nested more than 10 levels deep. Put it into a file of a checkpoint.")
    if isinstance(value, dict):
        for key, inner in value.items():
            if len(str(key)) > 50:
                raise errors.InvalidValue(f"A key of {where} has {len(str(key))} characters; 50 are allowed.")
            _check_metadata(inner, depth + 1, f"{where}.{key}")
    elif isinstance(value, list):
        if len(value) > 100:
            raise errors.InvalidValue(f"{where} has {len(value)} items; 100 are allowed.")
        for index, inner in enumerate(value):
            _check_metadata(inner, depth + 1, f"{where}[{index}]")
    elif isinstance(value, str) and len(value) > 5000:
        raise errors.InvalidValue(f"{where} has {len(value)} characters; 5000 are allowed.")


def _duration(conn: sa.Connection) -> sa.ColumnElement[Any]:
    start, end = trials.c.start_time, trials.c.end_time
    if conn.dialect.name == "sqlite":
        return sa.func.julianday(sa.func.coalesce(end, sa.literal(now(), end.type))) - sa.func.julianday(start)
    clock = sa.DateTime(timezone=True)
    return sa.func.coalesce(sa.type_coerce(end, clock), sa.func.now()) - sa.type_coerce(start, clock)


_SORTABLE: dict[str, sa.ColumnElement[Any]] = {
    **{column.name: column for column in trials.c if column.name not in ("hparams", "summary_metrics", "metadata")},
    "best_metric": trials.c.searcher_metric_value,
    "latest_metric": trials.c.latest_metric_value,
    "batches": trials.c.total_batches,
}
