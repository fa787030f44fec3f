"""Experiments: make, find, change, and hide them. Removing hidden ones for good is in `removal.py`."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from determined import errors
from determined._redact import redacted
from determined.store import events, rows
from determined.store.messages import now
from determined.store.schema import checkpoints, experiment_labels, experiments, model_versions, projects, trials

TERMINAL = frozenset({"COMPLETED", "CANCELED", "ERROR"})
"""States in which nothing runs, and nothing will unless somebody asks for it."""

_LISTING = "det experiment ls"
_KEPT_BY_US = {
    "id",
    "uuid",
    "state",
    "state_reason",
    "deleted_at",
    "checkpoint_size",
    "checkpoint_count",
    "unmanaged",
    "owner",
}
_SETTABLE = frozenset(experiments.c.keys()) - _KEPT_BY_US - {"external_experiment_id"}
_HEAVY = ("config", "original_config", "searcher_snapshot", "warnings")


@dataclasses.dataclass(frozen=True)
class ExperimentRow:
    """An experiment. The bulky fields (`config` and below) are None in what `find` returns."""

    id: int
    uuid: str
    name: str
    state: str
    state_reason: str
    owner: str
    project_id: int
    workspace_id: int
    parent_id: int | None
    description: str
    notes: str
    start_time: datetime.datetime
    end_time: datetime.datetime | None
    progress: float | None
    archived: bool
    unmanaged: bool
    external_experiment_id: str | None
    script: str | None
    code_snapshot_id: int | None
    searcher_metric: str | None
    smaller_is_better: bool
    best_trial_id: int | None
    checkpoint_size: int
    checkpoint_count: int
    deleted_at: datetime.datetime | None
    trial_count: int
    best_metric: float | None  # the best searcher metric of its trials
    labels: tuple[str, ...] = ()
    config: dict[str, Any] | None = None
    original_config: str | None = None
    searcher_snapshot: dict[str, Any] | None = None
    warnings: list[Any] | None = None


@dataclasses.dataclass(frozen=True)
class ExperimentFilter:
    """Which experiments: those that fit all that is given. Hidden (deleted) ones only with `deleted=True`."""

    states: Sequence[str] | None = None
    name: str | None = None  # a part of the name, whatever its case
    labels: Sequence[str] | None = None  # all of them
    owners: Sequence[str] | None = None
    project_id: int | None = None
    archived: bool | None = None
    ids: Sequence[int] | None = None
    unmanaged: bool | None = None
    script: str | None = None
    deleted: bool = False


def create(
    conn: sa.Connection,
    *,
    name: str,
    config: dict[str, Any],
    owner: str,
    original_config: str = "",
    state: str = "PAUSED",
    unmanaged: bool = False,
    script: str | None = None,
    external_experiment_id: str | None = None,
    labels: Iterable[str] = (),
    parent_id: int | None = None,
    project_id: int = 1,
    searcher_metric: str | None = None,
    smaller_is_better: bool = True,
    description: str = "",
    notes: str = "",
    code_snapshot_id: int | None = None,
    warnings: list[Any] | None = None,
    start_time: datetime.datetime | None = None,
) -> int:
    """Add an experiment without trials and return its id."""
    if external_experiment_id is not None:
        _free_external_id(conn, external_experiment_id)
    row = {
        "name": name,
        "config": config,
        "owner": owner,
        "original_config": without_secrets(config, original_config),
        "state": state,
        "unmanaged": unmanaged,
        "script": script,
        "external_experiment_id": external_experiment_id,
        "parent_id": parent_id,
        "project_id": project_id,
        "searcher_metric": searcher_metric,
        "smaller_is_better": smaller_is_better,
        "description": description,
        "notes": notes,
        "code_snapshot_id": code_snapshot_id,
        "warnings": warnings or [],
        "start_time": start_time or now(),
    }
    ident = rows.insert(conn, experiments, row)
    set_labels(conn, ident, labels)
    return ident


def without_secrets(config: dict[str, Any], original_config: str) -> str:
    """Return a config as its user wrote it; None if it holds secrets, which may be anywhere, in any notation."""
    return original_config if redacted(config) == config else ""


def _free_external_id(conn: sa.Connection, external_id: str) -> None:
    """Take the external name from a hidden experiment, so that a new one can have it."""
    taken = experiments.c.external_experiment_id == external_id
    conn.execute(
        experiments.update().where(taken, experiments.c.deleted_at.is_not(None)).values(external_experiment_id=None)
    )
    if other := conn.scalar(sa.select(experiments.c.id).where(taken)):
        raise errors.Refused(f"The external_experiment_id {external_id!r} belongs to experiment {other}.")


def get(conn: sa.Connection, experiment_id: int, *, deleted: bool = False) -> ExperimentRow:
    """Return one experiment with all its fields; hidden ones only with `deleted=True`."""
    query = _query(heavy=True).where(experiments.c.id == experiment_id)
    if not deleted:
        query = query.where(experiments.c.deleted_at.is_(None))
    row = rows.required(conn.execute(query).mappings().one_or_none(), "experiment", experiment_id, _LISTING)
    return rows.build(ExperimentRow, row, labels=tuple(labels_of(conn, [experiment_id]).get(experiment_id, ())))


def find_external(conn: sa.Connection, external_experiment_id: str) -> int | None:
    """Return the experiment that has this name outside, or None."""
    query = sa.select(experiments.c.id).where(
        experiments.c.external_experiment_id == external_experiment_id, experiments.c.deleted_at.is_(None)
    )
    return conn.scalar(query)


def find(
    conn: sa.Connection,
    which: ExperimentFilter | None = None,
    *,
    sort_by: str = "id",
    descending: bool = False,
    limit: int | None = None,
    offset: int = 0,
) -> list[ExperimentRow]:
    """Return the experiments that fit, without their bulky fields.

    Args:
        which: What to look for; all that are not hidden by default.
        sort_by: `id`, `name`, `description`, `state`, `owner`, `start_time`, `end_time`, `progress`, `num_trials`,
            `searcher_metric_val`, `checkpoint_size`, `checkpoint_count`, `parent_id` or `project_id`.
        descending: The largest first. What has no value comes last either way.
        limit: At most so many.
        offset: Leave out the first so many.
    """
    query = _query(heavy=False).where(*_conditions(which or ExperimentFilter()))
    query = query.order_by(*rows.ordering(_SORTABLE, sort_by, descending, experiments.c.id))
    # SQLite knows no offset without a limit.
    query = query.limit(limit if limit is not None or not offset else 2**62).offset(offset or None)
    result = conn.execute(query)
    names, found = [*result.keys(), "labels"], result.all()
    labels = labels_of(conn, [row.id for row in found])
    return rows.build_all(ExperimentRow, names, ((*row, tuple(labels.get(row.id, ()))) for row in found))


def count(conn: sa.Connection, which: ExperimentFilter | None = None) -> int:
    """Return how many experiments fit."""
    query = sa.select(sa.func.count()).select_from(experiments).where(*_conditions(which or ExperimentFilter()))
    return int(conn.scalar(query) or 0)


def trial_counts(conn: sa.Connection, experiment_ids: Sequence[int]) -> dict[int, dict[str, int]]:
    """Return how many trials each experiment has in each state."""
    found: dict[int, dict[str, int]] = {ident: {} for ident in experiment_ids}
    for some in rows.chunks(experiment_ids):
        query = sa.select(trials.c.experiment_id, trials.c.state, sa.func.count()).where(
            trials.c.experiment_id.in_(some)
        )
        for ident, state, number in conn.execute(query.group_by(trials.c.experiment_id, trials.c.state)):
            found[ident][state] = number
    return found


def update(conn: sa.Connection, experiment_id: int, **fields: Any) -> None:
    """Set columns of one experiment. States are set by `set_state`, labels by `set_labels`."""
    rows.check_fields("an experiment", fields, _SETTABLE)
    changed = conn.execute(experiments.update().where(experiments.c.id == experiment_id).values(fields)).rowcount
    rows.required(changed or None, "experiment", experiment_id, _LISTING)


def set_state(
    conn: sa.Connection, experiment_id: int, state: str, reason: str = "", *, time: datetime.datetime | None = None
) -> None:
    """Set the state, and add an event. Which moves are legal is decided in `experiment.lifecycle`."""
    moment = time or now()
    locked = sa.select(experiments.c.state).where(experiments.c.id == experiment_id).with_for_update(key_share=True)
    before = rows.required(conn.scalar(locked), "experiment", experiment_id, _LISTING)
    end = moment if state in TERMINAL else None
    if before == state:
        fields: dict[str, Any] = {"state_reason": reason} if reason else {}
    else:
        fields = {"state": state, "state_reason": reason, "end_time": end}
        if state == "COMPLETED":  # a run of one's own that ended before its length keeps what it has said
            said = sa.func.coalesce(experiments.c.progress, 1.0)
            fields["progress"] = sa.case((experiments.c.unmanaged, said), else_=1.0)
        body = {"from": before, "to": state, "reason": reason}
        events.append(conn, experiment_id, "STATE", body, time=moment)
    if fields:
        conn.execute(experiments.update().where(experiments.c.id == experiment_id).values(fields))


def labels_of(conn: sa.Connection, experiment_ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the labels of each experiment that has any, sorted."""
    found: dict[int, list[str]] = {}
    table = experiment_labels.c
    query = sa.select(table.experiment_id, table.label).order_by(table.experiment_id, table.label)
    if len(experiment_ids) > 500:  # a whole listing: one look at a stretch of ids is faster than naming each
        ids = frozenset(experiment_ids)
        stretch = table.experiment_id.between(min(ids), max(ids))
        pairs = [pair for pair in conn.execute(query.where(stretch)) if pair[0] in ids]
    else:
        pairs = list(conn.execute(query.where(table.experiment_id.in_(experiment_ids)))) if experiment_ids else []
    for ident, label in pairs:
        found.setdefault(ident, []).append(label)
    return found


def set_labels(conn: sa.Connection, experiment_id: int, labels: Iterable[str]) -> None:
    """Replace the labels."""
    wanted = sorted(set(labels))
    for label in wanted:
        if not label.strip() or len(label) > 500:
            raise errors.InvalidValue(
                f"A label has 1 to 500 characters that are not all blank; {label[:50]!r} does not."
            )
    conn.execute(experiment_labels.delete().where(experiment_labels.c.experiment_id == experiment_id))
    if wanted:
        conn.execute(experiment_labels.insert(), [{"experiment_id": experiment_id, "label": label} for label in wanted])


def delete(conn: sa.Connection, experiment_id: int, *, time: datetime.datetime | None = None) -> None:
    """Hide an experiment from everything; `removal.purge` removes it for good after some days.

    Raises:
        Refused: It has not ended, or a model version is one of its checkpoints.
    """
    row = get(conn, experiment_id, deleted=True)
    if row.deleted_at is not None:
        return
    check_deletable(conn, row)
    moment = time or now()
    conn.execute(experiments.update().where(experiments.c.id == experiment_id).values(deleted_at=moment))
    events.append(conn, experiment_id, "DELETED", {}, time=moment)


def check_deletable(conn: sa.Connection, row: ExperimentRow) -> None:
    """Refuse if an experiment cannot be deleted now."""
    is_over = row.state in TERMINAL | {"DELETE_FAILED"} or (row.unmanaged and row.state == "PAUSED")  # nobody holds it
    if not is_over:
        raise errors.Refused(f"Experiment {row.id} is {row.state}, so it cannot be deleted. Stop it first.")
    registered = (
        sa.select(model_versions.c.checkpoint_uuid)
        .join(checkpoints, checkpoints.c.uuid == model_versions.c.checkpoint_uuid)
        .join(trials, trials.c.id == checkpoints.c.trial_id)
        .where(trials.c.experiment_id == row.id)
    )
    if uuid := conn.scalar(registered.limit(1)):
        raise errors.Refused(
            f"Experiment {row.id} cannot be deleted: its checkpoint {uuid} is in the model registry. " + rows.UNREGISTER
        )


def undelete(conn: sa.Connection, experiment_id: int) -> None:
    """Show a hidden experiment again, as it was."""
    row = get(conn, experiment_id, deleted=True)
    if row.deleted_at is not None:
        conn.execute(experiments.update().where(experiments.c.id == experiment_id).values(deleted_at=None))
        events.append(conn, experiment_id, "UNDELETED", {})


def _best_metric() -> sa.ColumnElement[Any]:
    of_it = trials.c.experiment_id == experiments.c.id
    value = trials.c.searcher_metric_value
    lowest = sa.select(sa.func.min(value)).where(of_it).scalar_subquery()
    highest = sa.select(sa.func.max(value)).where(of_it).scalar_subquery()
    return sa.case((experiments.c.smaller_is_better, lowest), else_=highest)


_trial_count = sa.select(sa.func.count()).where(trials.c.experiment_id == experiments.c.id).scalar_subquery()
_SORTABLE: dict[str, sa.ColumnElement[Any]] = {
    **{column.name: column for column in experiments.c if column.name not in (*_HEAVY, "notes", "deleted_at")},
    "num_trials": _trial_count,
    "searcher_metric_val": _best_metric(),
}


def _query(*, heavy: bool) -> sa.Select[Any]:
    left_out = () if heavy else _HEAVY
    columns = [column for column in experiments.c if column.name not in left_out]
    return sa.select(
        *columns, projects.c.workspace_id, _trial_count.label("trial_count"), _best_metric().label("best_metric")
    ).join(projects, projects.c.id == experiments.c.project_id)


def _conditions(which: ExperimentFilter) -> list[sa.ColumnElement[bool]]:
    column = experiments.c
    found: list[sa.ColumnElement[bool]] = [
        column.deleted_at.is_not(None) if which.deleted else column.deleted_at.is_(None)
    ]
    if which.states is not None:
        found.append(column.state.in_(which.states))
    if which.name is not None:
        found.append(column.name.icontains(which.name, autoescape=True))
    if which.owners is not None:
        found.append(column.owner.in_(which.owners))
    if which.project_id is not None:
        found.append(column.project_id == which.project_id)
    if which.archived is not None:
        found.append(column.archived.is_(which.archived))
    if which.unmanaged is not None:
        found.append(column.unmanaged.is_(which.unmanaged))
    if which.script is not None:
        found.append(column.script == which.script)
    if which.ids is not None:
        found.append(column.id.in_(which.ids))
    for label in which.labels or ():
        labelled = experiment_labels.c.experiment_id == column.id
        found.append(sa.exists().where(labelled, experiment_labels.c.label == label))
    return found
