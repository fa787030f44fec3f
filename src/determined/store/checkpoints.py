"""Checkpoints as rows: which there are, where they lie, how good they are. `artifacts` keeps their bytes."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from determined import errors
from determined._redact import is_secret, redacted
from determined.store import attempts, rows, trials, values
from determined.store.attempts import Attempt
from determined.store.messages import CheckpointReport
from determined.store.schema import allocations, checkpoints, experiments, metrics, model_versions, storage_backends
from determined.store.schema import trials as trials_table

GONE = "DELETED"
"""The state of a checkpoint whose files were deleted. Its row stays."""

_LISTING = "det checkpoint ls <experiment id>"
_TRIALS_AT_ONCE = 20  # of which checkpoints are read to find the best
_RETENTION = ("save_experiment_best", "save_trial_best", "save_trial_latest")  # not where it is, but how long


@dataclasses.dataclass(frozen=True)
class CheckpointRow:
    """A checkpoint, with what was measured at exactly its steps."""

    uuid: str
    task_id: str
    allocation_id: str | None
    trial_id: int
    experiment_id: int
    steps: int
    report_time: datetime.datetime
    state: str
    metadata: dict[str, Any]
    resources: dict[str, int]
    size: int
    storage: dict[str, Any] | None
    validation_metrics: dict[str, Any] | None
    searcher_metric: float | None  # None also for NaN and for what is no number


def record(
    conn: sa.Connection, attempt: Attempt, report: CheckpointReport, storage: dict[str, Any] | None = None
) -> None:
    """Write down what a process says of a checkpoint; the same report twice is one.

    Raises:
        InvalidValue: The metadata has no whole number `steps_completed`.
        StaleAttempt: It is complete, but a newer attempt of the trial has begun.
        Refused: The id belongs to another trial's checkpoint.
    """
    if report.state == "COMPLETED":
        _record_complete(conn, attempt, report, storage)
    elif conn.scalar(sa.select(checkpoints.c.uuid).where(checkpoints.c.uuid == report.storage_id)):
        set_state(conn, report.storage_id, report.state, resources=report.resources)


def _record_complete(
    conn: sa.Connection, attempt: Attempt, report: CheckpointReport, storage: dict[str, Any] | None
) -> None:
    steps = report.metadata.get("steps_completed")
    if not isinstance(steps, int) or isinstance(steps, bool):
        raise errors.InvalidValue(
            f"The metadata of checkpoint {report.storage_id} needs a whole number steps_completed; it has {steps!r}."
        )
    attempts.check_current(conn, attempt)
    owner = conn.scalar(sa.select(checkpoints.c.trial_id).where(checkpoints.c.uuid == report.storage_id))
    if owner == attempt.trial_id:
        return
    if owner is not None:
        raise errors.Refused(f"Checkpoint {report.storage_id} belongs to trial {owner}; an id is used once.")
    row = {
        "uuid": report.storage_id,
        "task_id": attempt.task_id,
        "trial_id": attempt.trial_id,
        "allocation_id": attempt.allocation_id,
        "steps": steps,
        "report_time": report.time,
        "state": report.state,
        "metadata": report.metadata,
        "resources": report.resources,
        "size": sum(report.resources.values()),
        "storage_id": None if storage is None else backend_id(conn, storage),
    }
    conn.execute(checkpoints.insert().values(row))
    refresh_sizes(conn, attempt.trial_id)


def backend_id(conn: sa.Connection, storage: dict[str, Any]) -> int:
    """Return the id of a place where checkpoints lie; the same place is one row, without the keys to it."""
    config = redacted({k: value for k, value in storage.items() if k not in _RETENTION and not is_secret(k)})
    fingerprint = hashlib.sha256(values.dump(dict(sorted(config.items()))).encode()).hexdigest()
    query = sa.select(storage_backends.c.id).where(storage_backends.c.fingerprint == fingerprint)
    if (known := conn.scalar(query)) is not None:
        return int(known)
    if conn.dialect.name == "postgresql":  # two runs may meet a new place at the same moment
        from sqlalchemy.dialects.postgresql import insert

        conn.execute(insert(storage_backends).values(fingerprint=fingerprint, config=config).on_conflict_do_nothing())
        return int(conn.scalar(query) or 0)
    return rows.insert(conn, storage_backends, {"fingerprint": fingerprint, "config": config})


def get(conn: sa.Connection, uuid: str) -> CheckpointRow:
    """Return one checkpoint by its id; those of hidden experiments are not there."""
    found = _load(conn, checkpoints.c.uuid == uuid)
    return rows.required(found[0] if found else None, "checkpoint", uuid, _LISTING)


def get_many(conn: sa.Connection, uuids: Sequence[str]) -> dict[str, CheckpointRow]:
    """Return the checkpoints of these ids that there are."""
    found = (row for some in rows.chunks(uuids) for row in _load(conn, checkpoints.c.uuid.in_(some)))
    return {row.uuid: row for row in found}


def complete_uuid(conn: sa.Connection, prefix: str) -> str:
    """Return the id that begins so, if just one does.

    Example::

        uuid = complete_uuid(conn, "4f1c")
    """
    like = checkpoints.c.uuid.startswith(prefix, autoescape=True)
    found = conn.scalars(
        _visible(sa.select(checkpoints.c.uuid)).where(like).order_by(checkpoints.c.uuid).limit(3)
    ).all()
    if len(found) > 1 and prefix not in found:
        raise errors.InvalidValue(f"Several checkpoints begin with {prefix}: {', '.join(found)}, ... Type more of it.")
    only: str | None = prefix if prefix in found else found[0] if found else None
    return rows.required(only, "checkpoint", prefix, _LISTING)


def find(
    conn: sa.Connection,
    *,
    experiment_id: int | None = None,
    trial_id: int | None = None,
    states: Sequence[str] | None = ("COMPLETED",),
    sort_by: str = "searcher_metric",
    metric: str | None = None,
    descending: bool | None = None,
    limit: int | None = None,
) -> list[CheckpointRow]:
    """Return the checkpoints of an experiment or a trial, or all.

    Args:
        conn: Where to look.
        experiment_id: Of this experiment only.
        trial_id: Of this trial only.
        states: In one of these states; None is any.
        sort_by: `uuid`, `trial_id`, `steps`, `time`, `state` or `searcher_metric`. What has no such value comes last,
            what was never validated last of all; ties are in the order of their validation.
        metric: Sort by this validation metric instead, whatever it is called.
        descending: The largest first. None is: the best metric first, and anything else from the smallest.
        limit: At most so many.
    """
    conditions: list[sa.ColumnElement[bool]] = [] if states is None else [checkpoints.c.state.in_(states)]
    if trial_id is not None:
        conditions.append(checkpoints.c.trial_id == trial_id)
    if experiment_id is not None:
        conditions.append(trials_table.c.experiment_id == experiment_id)
    found = _load(conn, *conditions)
    if descending is None:
        is_metric = metric is not None or sort_by == "searcher_metric"
        descending = is_metric and bool(found) and not _smaller_is_better(conn, found[0].experiment_id)
    return _sorted(found, sort_by, descending, metric)[:limit]


def page(
    conn: sa.Connection,
    *,
    trial_id: int | None = None,
    experiment_id: int | None = None,
    limit: int = 100,
    offset: int = 0,
) -> tuple[list[CheckpointRow], int]:
    """Return checkpoints of a trial or an experiment in any state, the newest first, and how many there are."""
    which = (
        checkpoints.c.trial_id == trial_id if experiment_id is None else trials_table.c.experiment_id == experiment_id
    )
    total = conn.scalar(_visible(sa.select(sa.func.count()).select_from(checkpoints)).where(which)) or 0
    order = (checkpoints.c.report_time.desc(), checkpoints.c.uuid)
    uuids = conn.scalars(
        _visible(sa.select(checkpoints.c.uuid)).where(which).order_by(*order).limit(limit).offset(offset)
    )
    wanted = list(uuids)
    found = get_many(conn, wanted)
    return [found[uuid] for uuid in wanted], int(total)


def newest(conn: sa.Connection, trial_id: int) -> CheckpointRow | None:
    """Return the complete checkpoint of a trial that its newest attempt with one has trained furthest."""
    column = checkpoints.c
    attempt = sa.func.coalesce(allocations.c.attempt, 0)  # not the time: a clock may be set back
    query = sa.select(column.uuid).outerjoin(allocations, allocations.c.allocation_id == column.allocation_id)
    query = query.where(column.trial_id == trial_id, column.state == "COMPLETED")
    uuid = conn.scalar(query.order_by(attempt.desc(), column.steps.desc(), column.report_time.desc()).limit(1))
    return None if uuid is None else get(conn, uuid)


def best(conn: sa.Connection, *, trial_id: int | None = None, experiment_id: int | None = None) -> CheckpointRow | None:
    """Return the complete checkpoint with the best searcher metric; None if none has one."""
    if experiment_id is not None and trial_id is None:
        return _best_of_experiment(conn, experiment_id)
    at_best = [] if trial_id is None else _at_best_validation(conn, trial_id)
    found = at_best or find(conn, trial_id=trial_id, limit=1)
    return found[0] if found and found[0].searcher_metric is not None else None


def _at_best_validation(conn: sa.Connection, trial_id: int) -> list[CheckpointRow]:
    """Return the complete checkpoints at the best validation of a trial, if any: then no other has to be looked at."""
    joined = metrics.join(trials_table, trials_table.c.best_validation_id == metrics.c.id)
    steps = conn.scalar(sa.select(metrics.c.steps).select_from(joined).where(trials_table.c.id == trial_id))
    there = (checkpoints.c.trial_id == trial_id, checkpoints.c.state == "COMPLETED", checkpoints.c.steps == steps)
    return [] if steps is None else _load(conn, *there)


def _best_of_experiment(conn: sa.Connection, experiment_id: int) -> CheckpointRow | None:
    """Look at the best trials only: no checkpoint is better than the best validation of its trial."""
    value = trials_table.c.searcher_metric_value
    is_smaller = _smaller_is_better(conn, experiment_id)
    query = (
        sa.select(trials_table.c.id, value)
        .where(trials_table.c.experiment_id == experiment_id, trials_table.c.checkpoint_count > 0, value.is_not(None))
        .order_by(value if is_smaller else value.desc(), trials_table.c.id)
    )
    sign = 1.0 if is_smaller else -1.0
    best: CheckpointRow | None = None
    with conn.execute(query) as ranked:
        while page := ranked.fetchmany(_TRIALS_AT_ONCE):
            if best is not None and sign * page[0][1] > sign * (best.searcher_metric or 0.0):
                break
            complete = (checkpoints.c.trial_id.in_([row.id for row in page]), checkpoints.c.state == "COMPLETED")
            rivals = [] if best is None else [best]
            rivals += [row for row in _load(conn, *complete) if row.searcher_metric is not None]
            best = min(rivals, key=lambda row: sign * (row.searcher_metric or 0.0), default=None)
    return best


def saved(conn: sa.Connection, trial_id: int) -> list[tuple[str, int, datetime.datetime]]:
    """Return id, steps and time of each checkpoint of a trial that was complete once, in order of time."""
    column = checkpoints.c
    query = sa.select(column.uuid, column.steps, column.report_time).where(column.trial_id == trial_id)
    return [(row.uuid, row.steps, row.report_time) for row in conn.execute(query.order_by(column.report_time))]


def set_state(conn: sa.Connection, uuid: str, state: str, *, resources: dict[str, int] | None = None) -> None:
    """Set the state, and with `resources` the files that are left; update the sizes of trial and experiment."""
    query = sa.select(checkpoints.c.trial_id).where(checkpoints.c.uuid == uuid)
    trial_id = rows.required(conn.scalar(query), "checkpoint", uuid, _LISTING)
    trials.lock(conn, trial_id)
    fields: dict[str, Any] = {"state": state}
    if state == GONE:
        resources = {}
    if resources is not None:
        fields |= {"resources": resources, "size": sum(resources.values())}
    conn.execute(checkpoints.update().where(checkpoints.c.uuid == uuid).values(fields))
    refresh_sizes(conn, trial_id)


def set_metadata(conn: sa.Connection, uuid: str, metadata: dict[str, Any]) -> None:
    """Replace the metadata of a checkpoint in the store; its files stay as they are."""
    changed = conn.execute(checkpoints.update().where(checkpoints.c.uuid == uuid).values({"metadata": metadata}))
    rows.required(changed.rowcount or None, "checkpoint", uuid, _LISTING)


def check_deletable(conn: sa.Connection, uuids: Sequence[str]) -> None:
    """Refuse if one of them is in the model registry: its files must stay."""
    for some in rows.chunks(uuids):
        query = sa.select(model_versions.c.checkpoint_uuid).where(model_versions.c.checkpoint_uuid.in_(some)).limit(1)
        if (uuid := conn.scalar(query)) is not None:
            raise errors.Refused(f"Checkpoint {uuid} is in the model registry, so it stays. {rows.UNREGISTER}")


def protected(conn: sa.Connection, experiment_id: int) -> set[str]:
    """Return the checkpoints of an experiment that must stay: registered, or what some trial started from."""
    mine = sa.select(checkpoints.c.uuid).join(trials_table).where(trials_table.c.experiment_id == experiment_id)
    registered = sa.select(model_versions.c.checkpoint_uuid).where(model_versions.c.checkpoint_uuid.in_(mine))
    started = sa.select(trials_table.c.warm_start_checkpoint_uuid).where(
        trials_table.c.warm_start_checkpoint_uuid.in_(mine)
    )
    return {*conn.scalars(registered), *conn.scalars(started)}


def refresh_sizes(conn: sa.Connection, trial_id: int) -> None:
    """Update count and size of the trial and of its experiment. The caller has locked the trial."""
    query = sa.select(trials_table.c.experiment_id, trials_table.c.checkpoint_size, trials_table.c.checkpoint_count)
    experiment_id, size, count = conn.execute(query.where(trials_table.c.id == trial_id)).one()
    there = sa.select(sa.func.coalesce(sa.func.sum(checkpoints.c.size), 0), sa.func.count())
    there = there.where(checkpoints.c.trial_id == trial_id, checkpoints.c.state != GONE)
    new_size, new_count = (int(number) for number in conn.execute(there).one())
    fields = {"checkpoint_size": new_size, "checkpoint_count": new_count}
    conn.execute(trials_table.update().where(trials_table.c.id == trial_id).values(fields))
    column = experiments.c
    moved = {
        "checkpoint_size": column.checkpoint_size + (new_size - size),
        "checkpoint_count": column.checkpoint_count + (new_count - count),
    }
    conn.execute(experiments.update().where(column.id == experiment_id).values(moved))


def _visible(query: sa.Select[Any]) -> sa.Select[Any]:
    joined = query.join(trials_table, trials_table.c.id == checkpoints.c.trial_id)
    joined = joined.join(experiments, experiments.c.id == trials_table.c.experiment_id)
    return joined.where(experiments.c.deleted_at.is_(None))


def _load(conn: sa.Connection, *conditions: sa.ColumnElement[bool]) -> list[CheckpointRow]:
    same_steps = sa.and_(
        metrics.c.trial_id == checkpoints.c.trial_id,
        metrics.c.metric_group == "validation",
        metrics.c.archived.is_(False),
        metrics.c.steps == checkpoints.c.steps,
    )
    columns = (trials_table.c.experiment_id, experiments.c.searcher_metric.label("metric_name"), metrics.c.body)
    query = _visible(sa.select(checkpoints, *columns, storage_backends.c.config.label("storage")))
    query = query.outerjoin(storage_backends, storage_backends.c.id == checkpoints.c.storage_id)
    query = query.outerjoin(metrics, same_steps).where(*conditions).order_by(metrics.c.id, checkpoints.c.report_time)
    found: dict[str, CheckpointRow] = {}
    for row in conn.execute(query).mappings():
        measured = None if row["body"] is None else values.load(row["body"])
        value = number(measured.get(row["metric_name"])) if measured else None
        found.setdefault(
            row["uuid"], rows.build(CheckpointRow, row, validation_metrics=measured, searcher_metric=value)
        )
    return list(found.values())


def number(value: Any) -> float | None:
    """Return the value if it is a number to compare by, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return None
    return float(value)


def _sorted(
    found: list[CheckpointRow], sort_by: str, descending: bool, metric: str | None = None
) -> list[CheckpointRow]:
    def key(row: CheckpointRow) -> Any:
        if metric is not None:
            return number((row.validation_metrics or {}).get(metric))
        return getattr(row, "report_time" if sort_by == "time" else sort_by)

    known = sorted((row for row in found if key(row) is not None), key=key, reverse=descending)
    rest = sorted((row for row in found if key(row) is None), key=lambda row: row.validation_metrics is None)
    return known + rest


def _smaller_is_better(conn: sa.Connection, experiment_id: int) -> bool:
    return bool(conn.scalar(sa.select(experiments.c.smaller_is_better).where(experiments.c.id == experiment_id)))
