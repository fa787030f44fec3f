"""Experiments as one file that any store takes in: JSON lines, compressed, without files of checkpoints and code.

The first line says what it is. Then come, experiment by experiment, its row and all rows below it, each as
`{"table": ..., "row": {...}}`. Curves are left out: they follow from the metrics. Secrets are redacted, also those of
rows that an older version wrote.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime
import gzip
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa

from determined import errors
from determined._redact import by_shape, is_secret, redacted
from determined.store import checkpoints as checkpoint_rows
from determined.store import experiments as experiment_rows
from determined.store import schema, values, workspaces
from determined.store.database.connection import Store
from determined.store.messages import now
from determined.store.metrics import metric_reports as metric_rows

FORMAT = "resolute-experiments"
VERSION = 1

_BATCH = 1000
# Below an experiment, in an order in which each row finds what it refers to.
_BELOW = ("trials", "tasks", "allocations", "metrics", "checkpoints", "checkpoint_uses", "logs", "events")
_DERIVED = {"trials": ("summary_metrics", "best_validation_id", "latest_validation_id", "total_batches")}


@dataclasses.dataclass(frozen=True)
class Imported:
    """What an import did: new ids by old ones, and what was in the store already."""

    experiments: dict[int, int]
    skipped: list[int]


def export(store: Store, path: str | os.PathLike[str], experiment_ids: Sequence[int] | None = None) -> int:
    """Write experiments to a file, all that are not hidden by default; returns how many.

    The file appears under its name when it is complete.
    """
    target = Path(path)
    unfinished = target.with_name(target.name + ".part")
    with store.read() as conn:
        if experiment_ids is None:
            experiment_ids = [row.id for row in experiment_rows.find(conn)]
        found = [experiment_rows.get(conn, ident).id for ident in experiment_ids]
        try:
            with gzip.open(unfinished, "wt", encoding="utf-8", compresslevel=5) as file:
                header = {"format": FORMAT, "version": VERSION, "layout": schema.VERSION, "store": store.id}
                _write_line(file, {**header, "time": now().isoformat(), "experiments": len(found)})
                for ident in found:
                    for table, row in _rows_of(conn, ident):
                        _write_line(file, {"table": table, "row": row})
            unfinished.replace(target)
        except OSError as failed:
            raise errors.StoreError(f"{target} cannot be written: {failed.strerror or failed}.") from failed
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)
    return len(found)


def import_from(store: Store, path: str | os.PathLike[str]) -> Imported:
    """Import the experiments of a file under new ids; those that are here already are left as they are.

    Each experiment is taken in as a whole: an import that was interrupted can simply be repeated.
    """
    taken: dict[int, int] = {}
    skipped: list[int] = []
    for experiment, below in _experiments_of(Path(path)):
        with store.write() as conn:
            known = conn.scalar(
                sa.select(schema.experiments.c.id).where(schema.experiments.c.uuid == experiment["uuid"])
            )
            if known is not None:
                skipped.append(experiment["id"])
                taken[experiment["id"]] = known
                for _ in below:
                    pass
                continue
            taken[experiment["id"]] = _Arrival(conn, experiment, taken).take(below)
    return Imported({old: new for old, new in taken.items() if old not in skipped}, skipped)


def _write_line(file: IO[str], value: Any) -> None:
    file.write(values.dump(value) + "\n")


def _rows_of(conn: sa.Connection, experiment_id: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of one experiment as JSON values, its own first."""
    table = schema.experiments
    row = conn.execute(sa.select(table).where(table.c.id == experiment_id)).mappings().one()
    project = workspaces.get_project(conn, row["project_id"])
    workspace = workspaces.find_workspace(conn, project.workspace_id)
    own = _packed(table, row) | {"project": [workspace.name, project.name]}
    own["original_config"] = experiment_rows.without_secrets(row["config"], row["original_config"])
    own["labels"] = experiment_rows.labels_of(conn, [experiment_id]).get(experiment_id, [])
    yield "experiments", own
    trial_ids = sa.select(schema.trials.c.id).where(schema.trials.c.experiment_id == experiment_id)
    task_ids = sa.select(schema.tasks.c.task_id).where(schema.tasks.c.trial_id.in_(trial_ids))
    for name in _BELOW:
        table = schema.metadata.tables[name]
        if "experiment_id" in table.c:
            mine = table.c.experiment_id == experiment_id
        elif name in ("allocations", "logs"):
            mine = table.c.task_id.in_(task_ids)
        else:
            mine = table.c.trial_id.in_(trial_ids)
        query = sa.select(table).where(mine).order_by(*table.primary_key.columns)
        for row in conn.execute(query.execution_options(yield_per=_BATCH)).mappings():
            packed = _packed(table, row)
            if name == "checkpoints" and row["storage_id"] is not None:
                packed["storage"] = _storage(conn, row["storage_id"])
            yield name, packed


def _storage(conn: sa.Connection, storage_id: int) -> dict[str, Any]:
    backends = schema.storage_backends
    config: dict[str, Any] = conn.scalar(sa.select(backends.c.config).where(backends.c.id == storage_id)) or {}
    return redacted({name: value for name, value in config.items() if not is_secret(name)})


def _packed(table: sa.Table, row: sa.RowMapping) -> dict[str, Any]:
    """Return a row as JSON values, without columns that follow from other rows."""
    left_out = _DERIVED.get(table.name, ())
    return {
        name: _pack(by_shape(value) if isinstance(table.c[name].type, schema.Words) else redacted(value))
        for name, value in row.items()
        if value is not None and name not in left_out
    }


def _pack(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _unpacked(table: sa.Table, row: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that we know, as Python values. What a later version has added is dropped."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name in table.c:
            kind = table.c[name].type
            if isinstance(kind, schema.Moment):
                value = datetime.datetime.fromisoformat(value)
            elif isinstance(kind, sa.LargeBinary):
                value = base64.b64decode(value)
            found[name] = value
    return found


def _experiments_of(path: Path) -> Iterator[tuple[dict[str, Any], Iterator[tuple[str, dict[str, Any]]]]]:
    """Yield each experiment of a file with an iterator over its rows, to be used up before the next."""
    lines = _lines_of(path)
    header = next(lines, {})
    if header.get("format") != FORMAT:
        raise errors.StoreError(f"{path} was not written by det store export, so it cannot be imported.")
    if header["version"] > VERSION:
        raise errors.StoreTooNew(f"{path} was written by a later version. Install it with: pip install -U resolute")
    waiting = next(lines, None)

    def below() -> Iterator[tuple[str, dict[str, Any]]]:
        nonlocal waiting
        while (waiting := next(lines, None)) is not None and waiting["table"] != "experiments":
            yield waiting["table"], waiting["row"]

    while waiting is not None:
        yield waiting["row"], below()


def _lines_of(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                yield values.load(line)
    except FileNotFoundError:
        raise errors.NotFound(f"There is no file {path}.") from None
    except (OSError, EOFError, UnicodeDecodeError, json.JSONDecodeError) as failed:
        raise errors.StoreError(
            f"{path} is damaged or was not written by det store export ({failed}). Complete experiments were taken in."
        ) from failed


class _Arrival:
    """Imports one experiment: gives new ids, and replaces references to old ones."""

    def __init__(self, conn: sa.Connection, experiment: dict[str, Any], others: dict[int, int]) -> None:
        self._conn = conn
        self._trials: dict[int, int] = {}
        self._waiting: dict[str, list[dict[str, Any]]] = {}
        row = _unpacked(schema.experiments, experiment)
        row |= {
            "project_id": _project_id(conn, *experiment["project"]),
            "parent_id": others.get(experiment.get("parent_id", -1)),
        }
        row |= {"checkpoint_size": 0, "checkpoint_count": 0, "best_trial_id": None, "code_snapshot_id": None}
        if experiment_rows.find_external(conn, row.get("external_experiment_id") or "") is not None:
            row["external_experiment_id"] = None
        del row["id"]
        key = conn.execute(schema.experiments.insert().values(row)).inserted_primary_key
        assert key is not None
        self.id = int(key[0])
        experiment_rows.set_labels(conn, self.id, experiment["labels"])

    def take(self, below: Iterator[tuple[str, dict[str, Any]]]) -> int:
        """Add the rows and bring up to date what follows from them; returns the new id."""
        for name, row in below:
            table = schema.metadata.tables.get(name)
            if table is None:
                continue  # of a later version
            if name == "trials":
                self._add_trial(row)
            elif (changed := self._changed(name, row)) is not None:
                self._add(table, changed)
        self._flush()
        for trial_id in self._trials.values():
            metric_rows.recount(self._conn, trial_id)
            checkpoint_rows.refresh_sizes(self._conn, trial_id)
        return self.id

    def _add_trial(self, row: dict[str, Any]) -> None:
        fields = _unpacked(schema.trials, row) | {"experiment_id": self.id}
        fields |= {"checkpoint_size": 0, "checkpoint_count": 0, "searcher_metric_value": None}
        del fields["id"]
        key = self._conn.execute(schema.trials.insert().values(fields)).inserted_primary_key
        assert key is not None
        self._trials[row["id"]] = int(key[0])

    def _changed(self, name: str, row: dict[str, Any]) -> dict[str, Any] | None:
        """Return the row with new ids; None if it is here already."""
        fields = _unpacked(schema.metadata.tables[name], row)
        if name not in ("tasks", "allocations", "checkpoints"):
            fields.pop("id", None)
        if fields.get("trial_id") is not None:
            fields["trial_id"] = self._trials[fields["trial_id"]]
        for column in ("task_id", "allocation_id"):
            if fields.get(column) is not None:
                _, dot, rest = fields[column].partition(".")  # <experiment id>.<request id>...
                fields[column] = f"{self.id}.{rest if dot else fields[column]}"
        if "experiment_id" in fields:
            fields["experiment_id"] = self.id
        if name == "checkpoints":
            if self._exists(schema.checkpoints.c.uuid, row["uuid"]):
                return None
            storage = row.get("storage")
            fields["storage_id"] = checkpoint_rows.backend_id(self._conn, storage) if storage else None
        if name == "allocations" and self._exists(schema.allocations.c.run_name, row.get("run_name")):
            fields["run_name"] = None
        return fields

    def _exists(self, column: sa.Column[Any], value: Any) -> bool:
        return value is not None and self._conn.execute(sa.select(column).where(column == value)).first() is not None

    def _add(self, table: sa.Table, row: dict[str, Any]) -> None:
        waiting = self._waiting.setdefault(table.name, [])
        waiting.append(row)
        if len(waiting) >= _BATCH or len(self._waiting) > 1:
            self._flush()

    def _flush(self) -> None:
        for name, found in self._waiting.items():
            table = schema.metadata.tables[name]
            # One statement for all: each row names every column that one of them has.
            columns = sorted({column for row in found for column in row})
            self._conn.execute(table.insert(), [{column: row.get(column) for column in columns} for row in found])
        self._waiting = {}


def _project_id(conn: sa.Connection, workspace: str, project: str) -> int:
    """Return the project of that name, made if need be."""
    try:
        workspaces.find_workspace(conn, workspace)
    except errors.NotFound:
        workspaces.create_workspace(conn, workspace)
    try:
        return workspaces.find_project(conn, workspace, project).id
    except errors.NotFound:
        return workspaces.create_project(conn, workspace, project)
