"""Inspect a whole store: its size, its integrity, and how to shrink its file. `portable` exports and imports."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from determined.store import schema
from determined.store.database import failures, opening
from determined.store.database.connection import Store
from determined.store.metrics.rollups import real, width
from determined.store.metrics.series import pages
from determined.store.schema import checkpoints, experiments, metric_cells, metric_series, metrics, tasks, trials

_COUNTED = ("experiments", "trials", "metrics", "checkpoints", "logs", "models", "model_versions")


@dataclasses.dataclass(frozen=True)
class StoreInfo:
    """What a store is, in a few words."""

    place: str
    id: str
    kind: str  # "sqlite" or "postgresql"
    size: int  # bytes
    version: str  # of its layout
    counts: dict[str, int]
    deleted: int  # experiments that can still be brought back


def info(store: Store) -> StoreInfo:
    """Return where a store is, how large, and how much is in it."""
    with store.read() as conn:
        counts = {name: _count(conn, schema.metadata.tables[name]) for name in _COUNTED}
        hidden = _count(conn, experiments, experiments.c.deleted_at.is_not(None))
        version = opening.version(conn) or ""
        kind = conn.dialect.name
    return StoreInfo(str(store.place), store.id, kind, size(store), version, counts, hidden)


def size(store: Store) -> int:
    """Bytes that the store takes on its disk."""
    if store.path is not None:
        beside = [store.path, *(store.path.with_name(store.path.name + end) for end in ("-wal", "-shm"))]
        return sum(path.stat().st_size for path in beside if path.exists())
    with store.read() as conn:
        return int(conn.scalar(sa.select(sa.func.pg_database_size(sa.func.current_database()))) or 0)


def check(store: Store) -> list[str]:
    """Return all that is wrong with a store, one sentence each; an empty list is good news. Nothing is changed."""
    if store.path is not None and (broken := check_file(store.path)):
        return broken  # what the file says about itself cannot be trusted any further
    with store.read() as conn:
        return [*_check_metrics(conn), *_check_checkpoints(conn), *_check_curves(conn)]


def check_file(path: Path) -> list[str]:
    """Return what SQLite finds wrong with a file, also with one that cannot be opened as a store."""
    engine = sa.create_engine(opening.sqlite_url(path, read_only=True), poolclass=sa.NullPool)
    try:
        with engine.connect() as conn:
            said = conn.exec_driver_sql("PRAGMA integrity_check").scalars().all()
            lost = conn.exec_driver_sql("PRAGMA foreign_key_check").all()
    except sa.exc.DBAPIError as failed:
        return [str(failures.explain(str(path), failed))]
    found = [] if said == ["ok"] else [f"SQLite says: {line}" for line in said]
    return found + [f"Row {row[1]} of {row[0]} refers to a row of {row[2]} that is not there." for row in lost]


def vacuum(store: Store) -> tuple[int, int]:
    """Shrink the file by what was removed, and return its bytes before and after.

    Others wait meanwhile, and the file needs its size once more.
    """
    before = size(store)
    with store._explained(), store._ours().connect() as conn:
        if store.is_sqlite:
            raw = conn.connection.cursor()  # not inside a transaction
            raw.execute("VACUUM")
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            raw.close()
        else:
            conn.execution_options(isolation_level="AUTOCOMMIT").execute(sa.text("VACUUM (ANALYZE)"))
    return before, size(store)


def _count(conn: sa.Connection, table: sa.Table, *where: sa.ColumnElement[bool]) -> int:
    return int(conn.scalar(sa.select(sa.func.count()).select_from(table).where(*where)) or 0)


def _check_metrics(conn: sa.Connection) -> Iterator[str]:
    place = (metrics.c.trial_id, metrics.c.metric_group, metrics.c.steps)
    visible = sa.and_(metrics.c.archived.is_(False), metrics.c.steps.is_not(None))
    query = sa.select(*place, sa.func.count()).where(visible).group_by(*place).having(sa.func.count() > 1)
    for trial_id, group, steps, number in conn.execute(query):
        yield f"Trial {trial_id} has {number} visible reports of {group} at step {steps}; one is right."
    query = sa.select(metrics.c.trial_id).join(trials).where(metrics.c.attempt > trials.c.attempt).distinct()
    for trial_id in conn.scalars(query):
        yield f"Trial {trial_id} has reports of an attempt that has not begun."


def _check_checkpoints(conn: sa.Connection) -> Iterator[str]:
    query = sa.select(checkpoints.c.uuid).join(tasks, tasks.c.task_id == checkpoints.c.task_id)
    for uuid in conn.scalars(query.where(tasks.c.trial_id != checkpoints.c.trial_id)):
        yield f"Checkpoint {uuid} belongs to one trial, and its task to another."
    there = sa.and_(checkpoints.c.trial_id == trials.c.id, checkpoints.c.state != "DELETED")
    totals = (sa.func.count(checkpoints.c.uuid), sa.func.coalesce(sa.func.sum(checkpoints.c.size), 0))
    said = (trials.c.checkpoint_count, trials.c.checkpoint_size)
    counted = sa.select(trials.c.id, *said, *totals).select_from(trials.outerjoin(checkpoints, there))
    yield from _compare(conn, counted.group_by(trials.c.id, *said), "Trial")
    sums = (
        sa.func.coalesce(sa.func.sum(trials.c.checkpoint_count), 0),
        sa.func.coalesce(sa.func.sum(trials.c.checkpoint_size), 0),
    )
    said = (experiments.c.checkpoint_count, experiments.c.checkpoint_size)
    summed = sa.select(experiments.c.id, *said, *sums).select_from(experiments.outerjoin(trials))
    yield from _compare(conn, summed.group_by(experiments.c.id, *said), "Experiment")


def _compare(conn: sa.Connection, query: sa.Select[Any], what: str) -> Iterator[str]:
    for row in conn.execute(query):
        ident, count, total, real_count, real_total = tuple(row)
        if (count, total) != (real_count, int(real_total)):
            yield (
                f"{what} {ident} says it has {count} checkpoints of {total} bytes; "
                f"it has {real_count} of {int(real_total)}."
            )


def _check_curves(conn: sa.Connection) -> Iterator[str]:
    """Count the points of every curve again, and the cells that roll them up."""
    groups = sa.select(metrics.c.trial_id, metrics.c.metric_group).distinct()
    for trial_id, group in conn.execute(groups.order_by(metrics.c.trial_id, metrics.c.metric_group)).all():
        counted: dict[str, int] = {}
        for page in pages(conn, trial_id, group):
            for steps, body, *_ in page:
                for name, value in body.items():
                    counted[name] = counted.get(name, 0) + (steps is not None and real(value) is not None)
        of_group = (metric_series.c.trial_id == trial_id, metric_series.c.metric_group == group)
        columns = (metric_series.c.id, metric_series.c.name, metric_series.c.points)
        for ident, name, points in conn.execute(sa.select(*columns).where(*of_group)).all():
            if points != counted.pop(name, None):
                yield f"The curve {group}/{name} of trial {trial_id} says it has {points} points, which is wrong."
            elif not _cells_fit(conn, ident, points):
                yield f"The roll-ups of the curve {group}/{name} of trial {trial_id} do not sum up its points."
        for name in counted:
            yield f"The curve {group}/{name} of trial {trial_id} is missing."


def _cells_fit(conn: sa.Connection, series_id: int, points: int) -> bool:
    number = sa.func.coalesce(sa.func.sum(metric_cells.c.count + metric_cells.c.odd), 0)
    lowest = (metric_cells.c.series_id == series_id, metric_cells.c.level == 0)
    cells, summed = conn.execute(sa.select(sa.func.count(), number).where(*lowest)).one()
    return int(cells) == points // width(0) and int(summed) == int(cells) * width(0)
