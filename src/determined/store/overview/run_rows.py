"""All runs as a table needs them: plain columns of experiments and trials, and the text of their JSON, not yet read.

Ten thousand documents are parsed by whoever wants them, when they have changed: the text tells. For the same reason
times are left as the database keeps them: on SQLite, text that ends with Z.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from determined.store.rows import chunks
from determined.store.schema import Moment, experiment_labels, experiments, projects, trials

PAGE = 500
EXPERIMENT = ("id", "state", "name", "owner", "description", "start_time", "end_time", "progress", "archived",
              "unmanaged", "parent_id", "project_id", "external_experiment_id", "searcher_metric", "smaller_is_better",
              "best_trial_id", "checkpoint_size", "checkpoint_count", "project", "searcher", "resource_pool",
              "max_restarts")  # fmt: skip
TRIAL = ("id", "state", "experiment_id", "seed", "restarts", "start_time", "end_time", "total_batches", "progress",
         "searcher_metric_value", "latest_metric_value", "checkpoint_size", "checkpoint_count",
         "external_trial_id")  # fmt: skip
Row = Sequence[Any]


def of_experiments(
    conn: sa.Connection, *, ids: Sequence[int] | None = None, states: Sequence[str] | None = None
) -> Iterator[Row]:
    """Yield the columns `EXPERIMENT` of experiments that are not hidden, a few of them from the configuration.

    Args:
        conn: Where.
        ids: Only these.
        states: Only those in one of these states.
    """
    config = experiments.c.config
    more = {
        "project": projects.c.name,
        "searcher": config[("searcher", "name")].as_string(),
        "resource_pool": config[("resources", "resource_pool")].as_string(),
        "max_restarts": config["max_restarts"].as_integer(),
    }
    columns = [more[name] if name in more else _raw(experiments.c[name]) for name in EXPERIMENT]
    query = sa.select(*columns).join(projects, projects.c.id == experiments.c.project_id)
    return _found(conn, query.where(experiments.c.deleted_at.is_(None)), experiments.c.id, ids, experiments, states)


def of_trials(
    conn: sa.Connection,
    *,
    ids: Sequence[int] | None = None,
    states: Sequence[str] | None = None,
    experiment_ids: Sequence[int] | None = None,
) -> Iterator[Row]:
    """Yield the columns `TRIAL` of trials; also of those of hidden experiments."""
    query = sa.select(*(_raw(trials.c[name]) for name in TRIAL))
    if experiment_ids is not None:
        return _found(conn, query, trials.c.experiment_id, experiment_ids, trials, states)
    return _found(conn, query, trials.c.id, ids, trials, states)


def _raw(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    return sa.type_coerce(column, sa.Text()) if isinstance(column.type, Moment) else column


def _found(
    conn: sa.Connection,
    query: sa.Select[Any],
    column: sa.ColumnElement[Any],
    ids: Sequence[int] | None,
    table: sa.Table,
    states: Sequence[str] | None,
) -> Iterator[Row]:
    if states is not None:
        query = query.where(table.c.state.in_(states))
    pages = [query.order_by(table.c.id)] if ids is None else [query.where(column.in_(some)) for some in chunks(ids)]
    for page in pages:
        with conn.execute(page.execution_options(yield_per=PAGE)) as result:
            yield from result


def newest_experiments(conn: sa.Connection, most: int) -> list[int]:
    """Return the newest experiments that are not hidden."""
    query = sa.select(experiments.c.id).where(experiments.c.deleted_at.is_(None))
    return list(conn.scalars(query.order_by(experiments.c.id.desc()).limit(most)))


def newest_trials(conn: sa.Connection, most: int) -> dict[int, int]:
    """Return the newest trials of experiments that are not hidden, each with its experiment."""
    query = sa.select(trials.c.id, trials.c.experiment_id).join(experiments).where(experiments.c.deleted_at.is_(None))
    return {row.id: row.experiment_id for row in conn.execute(query.order_by(trials.c.id.desc()).limit(most))}


def count_trials(conn: sa.Connection, *, project_id: int | None = None, archived: bool | None = None) -> int:
    """Return how many trials there are of experiments that are not hidden."""
    query = sa.select(sa.func.count()).select_from(trials.join(experiments)).where(experiments.c.deleted_at.is_(None))
    if project_id is not None:
        query = query.where(experiments.c.project_id == project_id)
    if archived is not None:
        query = query.where(experiments.c.archived.is_(archived))
    return int(conn.scalar(query) or 0)


def labels(conn: sa.Connection, ids: Sequence[int] | None = None) -> dict[int, tuple[str, ...]]:
    """Return the labels of experiments that have any, sorted."""
    table = experiment_labels.c
    query = sa.select(table.experiment_id, table.label).order_by(table.experiment_id, table.label)
    found: dict[int, list[str]] = {}
    pages = [query] if ids is None else [query.where(table.experiment_id.in_(some)) for some in chunks(ids)]
    for page in pages:
        for ident, label in conn.execute(page):
            found.setdefault(ident, []).append(label)
    return {ident: tuple(several) for ident, several in found.items()}


def documents(conn: sa.Connection, ids: Sequence[int] | None = None) -> Iterator[Row]:
    """Yield a trial's id, and the text of its hyperparameters, metric summaries and metadata; of all without `ids`."""
    texts = (sa.cast(column, sa.Text) for column in (trials.c.hparams, trials.c.summary_metrics, trials.c.metadata))
    return _found(conn, sa.select(trials.c.id, *texts), trials.c.id, ids, trials, None)
