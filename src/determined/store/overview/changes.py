"""What is new since a reader last looked, found by the ids that were given out since: never a scan of a table.

seen = changes.marks(conn)
...
seen, change = changes.since(conn, seen)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

import sqlalchemy as sa

from determined.store import rows
from determined.store.schema import checkpoints, events, experiments, logs, metrics, tasks, trials

MOST_ROWS = 10_000
"""How many new rows of a table are looked at one by one; beyond, a reader is told to look at everything."""

MOST_MISSING = 1_000
_PATIENCE = 20  # looks at an id that was given out and has no row: its transaction goes on, or was undone
_EDITED = ("workspaces", "projects", "experiments", "experiment_labels", "checkpoints", "models", "model_versions")


@dataclasses.dataclass(frozen=True)
class Change:
    """What changed. `logs` are trials that printed; `other` is anything else, such as a name or a note."""

    experiments: frozenset[int] = frozenset()
    trials: frozenset[int] = frozenset()
    logs: frozenset[int] = frozenset()
    other: bool = False

    def __bool__(self) -> bool:
        return bool(self.experiments or self.trials or self.logs or self.other)

    def __or__(self, also: Change) -> Change:
        return Change(
            self.experiments | also.experiments, self.trials | also.trials, self.logs | also.logs,
            self.other or also.other,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Marks:
    """How far a reader has seen each table.

    Args:
        high: The greatest id of each table.
        missing: Ids below it that had no row yet, and how often they were looked for. A server gives out ids before
            the transactions that use them end, and these end in any order.
        edits: How many rows of tables that people edit were written, as far as the server counts.
    """

    high: Mapping[str, int]
    missing: Mapping[str, Mapping[int, int]] = dataclasses.field(default_factory=dict)
    edits: int = 0


def marks(conn: sa.Connection) -> Marks:
    """Return how far the tables have come now."""
    return Marks(_high(conn), {}, _edits(conn))


def since(conn: sa.Connection, seen: Marks) -> tuple[Marks, Change]:
    """Return how far the tables have come now, and what is new since `seen`.

    On SQLite edits of rows that were there are not noticed: that is what `Store.change_mark()` is for.
    """
    high, edits = _high(conn), _edits(conn)
    change = Change(other=edits != seen.edits)
    missing: dict[str, dict[int, int]] = {}
    for name, look in _LOOKS.items():
        late, last = seen.missing.get(name, {}), seen.high[name]
        if high[name] <= last and not late:
            continue
        if high[name] - last > MOST_ROWS:
            change |= Change(other=True)
            last = high[name] - MOST_ROWS
        found, new = look(conn, last, late)
        change |= new
        if conn.dialect.name != "sqlite":  # there is one writer at a time
            missing[name] = _still_missing(found, last, high[name], late)
    return Marks({name: max(high[name], seen.high[name]) for name in high}, missing, edits), change


def _still_missing(found: Iterable[int], last: int, high: int, late: Mapping[int, int]) -> dict[int, int]:
    """Return the ids up to `high` that may still get a row, and how often each was looked for."""
    here = set(found)
    again = {number: times + 1 for number, times in late.items() if number not in here and times < _PATIENCE}
    fresh = {number: 1 for number in range(last + 1, high + 1) if number not in here}
    return dict(list({**again, **fresh}.items())[-MOST_MISSING:])


def _id(table: sa.Table) -> sa.ColumnElement[int]:
    """Return the column that rises with each row; checkpoints are numbered by SQLite only."""
    return table.c.id if "id" in table.c else sa.literal_column("checkpoints.rowid", sa.Integer)


def _high(conn: sa.Connection) -> dict[str, int]:
    """Return the greatest id of each table: one question, a step down an index for each."""
    tables = [metrics, logs, events, trials, experiments]
    if conn.dialect.name == "sqlite":
        tables.append(checkpoints)
    newest = [sa.select(sa.func.max(_id(table))).select_from(table).scalar_subquery() for table in tables]
    found = conn.execute(sa.select(*newest)).one()
    high = {table.name: value or 0 for table, value in zip(tables, found, strict=True)}
    return {"checkpoints": 0, **high}


def _edits(conn: sa.Connection) -> int:
    """Return how often rows were written, as PostgreSQL counts them (a second late or so); 0 on SQLite."""
    if conn.dialect.name == "sqlite":
        return 0
    query = sa.text(
        "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) FROM pg_stat_user_tables"
        " WHERE relname = ANY(:names)"
    )
    return int(conn.execute(query, {"names": list(_EDITED)}).scalar_one())


def _new(table: sa.Table, last: int, late: Iterable[int]) -> sa.ColumnElement[bool]:
    column = _id(table)
    return sa.or_(column > last, column.in_(list(late))) if late else column > last


Found = tuple[list[int], Change]


def _look_at_metrics(conn: sa.Connection, last: int, late: Iterable[int]) -> Found:
    found = conn.execute(sa.select(metrics.c.id, metrics.c.trial_id).where(_new(metrics, last, late))).all()
    return [row.id for row in found], _of_trials(conn, {row.trial_id for row in found})


def _look_at_checkpoints(conn: sa.Connection, last: int, late: Iterable[int]) -> Found:
    number = _id(checkpoints).label("number")
    found = conn.execute(sa.select(number, checkpoints.c.trial_id).where(_new(checkpoints, last, late))).all()
    return [row.number for row in found], _of_trials(conn, {row.trial_id for row in found})


def _look_at_logs(conn: sa.Connection, last: int, late: Iterable[int]) -> Found:
    query = sa.select(logs.c.id, tasks.c.trial_id).join(tasks, tasks.c.task_id == logs.c.task_id)
    found = conn.execute(query.where(_new(logs, last, late))).all()
    return [row.id for row in found], Change(logs=frozenset(row.trial_id for row in found if row.trial_id is not None))


def _look_at_events(conn: sa.Connection, last: int, late: Iterable[int]) -> Found:
    query = sa.select(events.c.id, events.c.experiment_id, events.c.trial_id)
    found = conn.execute(query.where(_new(events, last, late))).all()
    touched = frozenset(row.trial_id for row in found if row.trial_id is not None)
    return [row.id for row in found], Change(frozenset(row.experiment_id for row in found), touched)


def _look_at_trials(conn: sa.Connection, last: int, late: Iterable[int]) -> Found:
    found = conn.execute(sa.select(trials.c.id, trials.c.experiment_id).where(_new(trials, last, late))).all()
    numbers = [row.id for row in found]
    return numbers, Change(frozenset(row.experiment_id for row in found), frozenset(numbers))


def _look_at_experiments(conn: sa.Connection, last: int, late: Iterable[int]) -> Found:
    numbers = list(conn.scalars(sa.select(experiments.c.id).where(_new(experiments, last, late))))
    return numbers, Change(frozenset(numbers))


def _of_trials(conn: sa.Connection, ids: set[int]) -> Change:
    """Return trials that changed, and with them their experiments."""
    touched: set[int] = set()
    for some in rows.chunks(sorted(ids)):
        touched.update(conn.scalars(sa.select(trials.c.experiment_id).where(trials.c.id.in_(some)).distinct()))
    return Change(frozenset(touched), frozenset(ids))


_LOOKS: dict[str, Callable[[sa.Connection, int, Iterable[int]], Found]] = {
    "metrics": _look_at_metrics,
    "checkpoints": _look_at_checkpoints,
    "logs": _look_at_logs,
    "events": _look_at_events,
    "trials": _look_at_trials,
    "experiments": _look_at_experiments,
}
