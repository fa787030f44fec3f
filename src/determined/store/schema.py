"""The tables, as SQLAlchemy sees them: the same on SQLite and PostgreSQL. Their history is in `migrations/`.

Numbers are ids unless said, and an id never comes back; all times are UTC with microseconds; JSON columns and metric
bodies hold plain JSON, with NaN and the infinities written as `"NaN"`, `"Infinity"`, `"-Infinity"` (see `values.py`).
A number column that is null may have been a NaN: SQLite cannot tell them apart, so nobody writes one there.

    workspaces ─< projects ─< experiments ─< trials ─< tasks ─< allocations
                                  │            ├─< metrics, metric_series ─< metric_cells
                                  │            └─< checkpoints >─ storage_backends
                                  └─< experiment_labels, events,         models ─< model_versions >─ checkpoints
                                      pending_events                     controllers
"""

from __future__ import annotations

import datetime
import uuid
from typing import Any

import sqlalchemy as sa

from determined._redact import by_shape
from determined.store import values

VERSION = "0004"
"""The revision that this code reads and writes; a store of a later one is refused."""


class Moment(sa.TypeDecorator[datetime.datetime]):
    """An aware UTC time. SQLite keeps it as text that sorts by time."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.DateTime(timezone=True))
        return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: datetime.datetime | None, dialect: sa.Dialect) -> Any:
        if value is None:
            return None
        moment = value.astimezone(datetime.timezone.utc)
        return moment if dialect.name == "postgresql" else moment.isoformat(timespec="microseconds")[:-6] + "Z"

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> datetime.datetime | None:  # noqa: ARG002
        if value is None:
            return None
        if isinstance(value, datetime.datetime):
            return value.astimezone(datetime.timezone.utc)
        return datetime.datetime.fromisoformat(value[:-1] + "+00:00")


class Words(sa.TypeDecorator[str]):
    """Text as people and programs write it. Secrets known by their shape become stars, and
    what a database cannot hold (a NUL, half a character) U+FFFD."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else values.clean(by_shape(value))


# SQLite gives ids by itself only to a column that is INTEGER to the letter.
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Real: sa.Double[float] = sa.Double()
Document = sa.JSON(none_as_null=True)

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _id() -> sa.Column[int]:
    return sa.Column("id", Id, primary_key=True, autoincrement=True)


def _below(table: str, column: str | None = None, *, nullable: bool = False) -> sa.Column[int]:
    """A row that goes when the row above it goes."""
    name = column or f"{table.removesuffix('s')}_id"
    return sa.Column(name, Id, sa.ForeignKey(f"{table}.id", ondelete="CASCADE"), nullable=nullable)


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, default=False)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, default=0)


store_facts = sa.Table(  # one row each: "store_id", ...
    "store_facts",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

workspaces = sa.Table(
    "workspaces",
    metadata,
    _id(),
    sa.Column("name", Words, nullable=False, unique=True),
    _flag("archived"),
    _flag("immutable"),
    sa.Column("checkpoint_storage", Document),
    sa.Column("created_at", Moment, nullable=False),
    sqlite_autoincrement=True,
)

projects = sa.Table(
    "projects",
    metadata,
    _id(),
    _below("workspaces"),
    sa.Column("name", Words, nullable=False),
    sa.Column("description", Words, nullable=False, default=""),
    sa.Column("key", Words),
    _flag("archived"),
    sa.Column("notes", Document, nullable=False, default=list),
    sa.Column("created_at", Moment, nullable=False),
    sa.UniqueConstraint("workspace_id", "name"),
    sqlite_autoincrement=True,
)

code_snapshots = sa.Table(
    "code_snapshots",
    metadata,
    _id(),
    sa.Column("sha256", sa.Text, nullable=False, unique=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("path", sa.Text),  # below the data directory; or
    sa.Column("content", sa.LargeBinary),  # a tar.gz in the row
)

experiments = sa.Table(
    "experiments",
    metadata,
    _id(),
    # The same wherever it is exported to.
    sa.Column("uuid", sa.Text, nullable=False, unique=True, default=lambda: str(uuid.uuid4())),
    sa.Column("project_id", Id, sa.ForeignKey("projects.id"), nullable=False, default=1),
    sa.Column("parent_id", Id, sa.ForeignKey("experiments.id", ondelete="SET NULL")),
    sa.Column("owner", Words, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("state_reason", Words, nullable=False, default=""),
    sa.Column("original_config", Words, nullable=False, default=""),
    sa.Column("config", Document, nullable=False, default=dict),
    sa.Column("name", Words, nullable=False),
    sa.Column("description", Words, nullable=False, default=""),
    sa.Column("notes", Words, nullable=False, default=""),
    sa.Column("start_time", Moment, nullable=False),
    sa.Column("end_time", Moment),
    sa.Column("progress", Real),
    _flag("archived"),
    _flag("unmanaged"),  # no controller acts on it: a plain `python train.py`, or a detached run
    sa.Column("external_experiment_id", Words, unique=True),
    sa.Column("script", Words, index=True),  # what was started, by absolute path; None for managed ones
    sa.Column("code_snapshot_id", Id, sa.ForeignKey("code_snapshots.id")),
    sa.Column("searcher_snapshot", Document),
    sa.Column("searcher_metric", sa.Text),
    sa.Column("smaller_is_better", sa.Boolean, nullable=False, default=True),
    sa.Column("best_trial_id", Id),
    _count("checkpoint_size"),
    _count("checkpoint_count"),
    sa.Column("warnings", Document, nullable=False, default=list),
    sa.Column("deleted_at", Moment),  # set: hidden, and removed for good when the undelete window is over
    sa.Index(None, "state"),
    sa.Index(None, "project_id", "archived"),
    sa.Index(None, "deleted_at"),
    sa.Index(None, "parent_id"),
    sa.Index(None, "code_snapshot_id"),
    sqlite_autoincrement=True,
)

experiment_labels = sa.Table(
    "experiment_labels",
    metadata,
    _below("experiments"),
    sa.Column("label", Words, nullable=False, index=True),
    sa.PrimaryKeyConstraint("experiment_id", "label"),
)

trials = sa.Table(
    "trials",
    metadata,
    _id(),
    _below("experiments"),
    sa.Column("request_id", Words, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("state_reason", Words, nullable=False, default=""),
    sa.Column("exit_reason", Words),
    sa.Column("hparams", Document, nullable=False, default=dict),
    sa.Column("seed", sa.BigInteger, nullable=False, default=0),
    sa.Column("attempt", sa.Integer, nullable=False, default=0),
    sa.Column("restarts", sa.Integer, nullable=False, default=0),
    sa.Column("start_time", Moment, nullable=False),
    sa.Column("end_time", Moment),
    sa.Column("warm_start_checkpoint_uuid", sa.Text),
    _count("total_batches"),
    sa.Column("runner_state", Words, nullable=False, default=""),
    sa.Column("progress", Real),
    sa.Column("best_validation_id", Id),
    sa.Column("latest_validation_id", Id),
    sa.Column("searcher_metric_value", Real),  # of the best validation; never NaN: a NaN is no best
    sa.Column("latest_metric_value", Real),
    sa.Column("summary_metrics", Document, nullable=False, default=dict),
    sa.Column("metadata", Document, nullable=False, default=dict),
    _count("checkpoint_size"),
    _count("checkpoint_count"),
    sa.Column("external_trial_id", Words),
    sa.Column("last_activity", Moment),
    sa.Column("log_policy_matched", Words),
    sa.Column("log_retention_days", sa.Integer),
    sa.UniqueConstraint("experiment_id", "request_id"),
    sa.UniqueConstraint("experiment_id", "external_trial_id"),
    sa.Index(None, "state"),
    sa.Index(None, "experiment_id", "searcher_metric_value"),
    sqlite_autoincrement=True,
)

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("task_id", sa.Text, primary_key=True),
    sa.Column("type", sa.Text, nullable=False),  # TRIAL, CHECKPOINT_GC, TENSORBOARD, COMMAND
    _below("trials", nullable=True),
    sa.Column("start_time", Moment, nullable=False),
    sa.Column("end_time", Moment),
    sa.Index(None, "trial_id"),
)

allocations = sa.Table(  # one attempt's processes
    "allocations",
    metadata,
    sa.Column("allocation_id", sa.Text, primary_key=True),
    sa.Column("task_id", sa.Text, sa.ForeignKey("tasks.task_id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("state", sa.Text, nullable=False),  # PENDING, ASSIGNED, STARTING, RUNNING, TERMINATING, TERMINATED
    sa.Column("run_name", Words, unique=True),  # a process's own name for this life of it; also its event files'
    sa.Column("slots", sa.Integer, nullable=False, default=1),
    sa.Column("slot_ids", Document, nullable=False, default=list),
    sa.Column("node", Words, nullable=False, default=""),
    sa.Column("pid", sa.Integer),
    sa.Column("process_started", Real),  # the kernel's word for when `pid` began, so that a reused number is not it
    sa.Column("start_time", Moment, nullable=False),
    sa.Column("end_time", Moment),
    sa.Column("last_activity", Moment),
    sa.Column("exit_code", sa.Integer),
    sa.Column("exit_reason", Words),
    _flag("preempt_requested"),
    _flag("preempt_acked"),
    sa.Column(
        "environment", Document, nullable=False, default=dict
    ),  # arguments, git, packages, host: see core/recording/run_description.py
    sa.Column("tensorboard", Words),  # directory of this attempt's event files
    sa.Column("kill_at", Moment),  # when its controller ends the processes, if they have not ended by then
    sa.Column("kill_reason", Words),
    # Its controller has ended them.
    sa.Column("killed", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
    sa.Index(None, "state"),  # a controller asks many times a second which are going on
)

metrics = sa.Table(
    "metrics",
    metadata,
    _id(),
    _below("trials"),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("metric_group", Words, nullable=False),
    sa.Column("steps", sa.BigInteger),  # null: a sample that belongs to no step
    sa.Column("report_time", Moment, nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # JSON, read only when wanted
    sa.Column("batch_metrics", sa.LargeBinary),  # compressed JSON of the batches, read only when asked for
    _flag("archived"),
    sa.Column("window_batches", sa.BigInteger),  # how many batches the body's values are averages of; null: not said
    sa.UniqueConstraint("trial_id", "attempt", "metric_group", "steps"),
    sa.Index(None, "trial_id", "metric_group", "archived", "steps"),
    sqlite_autoincrement=True,
)

metric_series = sa.Table(  # one metric of a trial: its curve, and what its summary says
    "metric_series",
    metadata,
    _id(),
    _below("trials"),
    sa.Column("metric_group", Words, nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("type", sa.Text, nullable=False),  # number, string, boolean, date, object, array, null, mixed
    sa.Column("last", sa.Text, nullable=False),  # JSON: the value at the greatest step
    sa.Column("last_steps", sa.BigInteger),  # null: only samples that belong to no step
    _count("points"),
    sa.Column("rollup", sa.Text, nullable=False),  # JSON: the total, and the cells that are not full yet (rollups.py)
    sa.UniqueConstraint("trial_id", "metric_group", "name"),
)

metric_cells = sa.Table(  # full roll-ups: `cell` n of level k sums up the points n * width(k) ... of a curve
    "metric_cells",
    metadata,
    sa.Column("series_id", Id, sa.ForeignKey("metric_series.id", ondelete="CASCADE"), nullable=False),
    sa.Column("level", sa.SmallInteger, nullable=False),
    sa.Column("cell", sa.BigInteger, nullable=False),
    sa.Column("first_steps", sa.BigInteger, nullable=False),
    sa.Column("last_steps", sa.BigInteger, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),  # finite values; min, max and sum are theirs
    sa.Column("odd", sa.BigInteger, nullable=False),  # NaN and infinities
    sa.Column("min", Real),
    sa.Column("max", Real),
    sa.Column("sum", Real),
    sa.Column("weight", sa.BigInteger),  # batches behind the finite values; null: a cell of before, each counts once
    sa.Column("weighted", Real),  # the sum of value times batches
    sa.Column("time", Real),  # of the last point, in seconds since 1970; null: a cell of before
    sa.Column("epochs", Real),  # at the last point, if they are counted
    sa.PrimaryKeyConstraint("series_id", "level", "first_steps"),
    sqlite_with_rowid=False,
)

storage_backends = sa.Table(
    "storage_backends",
    metadata,
    _id(),
    sa.Column("fingerprint", sa.Text, nullable=False, unique=True),  # of the config, written canonically
    sa.Column("config", Document, nullable=False),
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("uuid", sa.Text, primary_key=True),
    sa.Column("task_id", sa.Text, sa.ForeignKey("tasks.task_id", ondelete="CASCADE"), nullable=False),
    _below("trials"),
    sa.Column("allocation_id", sa.Text),
    sa.Column("steps", sa.BigInteger, nullable=False, default=0),
    sa.Column("report_time", Moment, nullable=False),
    sa.Column("state", sa.Text, nullable=False),  # ACTIVE, COMPLETED, ERROR, DELETED, PARTIALLY_DELETED
    sa.Column("metadata", Document, nullable=False, default=dict),
    sa.Column("resources", Document, nullable=False, default=dict),
    _count("size"),
    sa.Column("storage_id", Id, sa.ForeignKey("storage_backends.id")),
    sa.Index(None, "trial_id", "state", "steps"),
    sa.Index(None, "task_id"),
)

checkpoint_uses = sa.Table(
    "checkpoint_uses",
    metadata,
    _id(),
    _below("trials"),
    sa.Column("checkpoint_uuid", sa.Text, nullable=False, index=True),
    sa.Column("model_version", Id),
    sa.Column("kind", sa.Text, nullable=False),  # INFERENCE, FINE_TUNING
    sa.Index(None, "trial_id"),
    sqlite_autoincrement=True,
)

models = sa.Table(
    "models",
    metadata,
    _id(),
    sa.Column("name", Words, nullable=False, unique=True),
    sa.Column("description", Words, nullable=False, default=""),
    sa.Column("notes", Words, nullable=False, default=""),
    sa.Column("metadata", Document, nullable=False, default=dict),
    sa.Column("labels", Document, nullable=False, default=list),
    sa.Column("workspace_id", Id, sa.ForeignKey("workspaces.id"), nullable=False, default=1),
    sa.Column("owner", Words, nullable=False),
    _flag("archived"),
    sa.Column("creation_time", Moment, nullable=False),
    sa.Column("last_updated_time", Moment, nullable=False),
    sa.Column("next_version", sa.Integer, nullable=False, default=1),  # a number is never used twice
    sqlite_autoincrement=True,
)

model_versions = sa.Table(
    "model_versions",
    metadata,
    _id(),
    _below("models"),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("checkpoint_uuid", sa.Text, sa.ForeignKey("checkpoints.uuid"), nullable=False, index=True),
    sa.Column("name", Words, nullable=False, default=""),
    sa.Column("comment", Words, nullable=False, default=""),
    sa.Column("notes", Words, nullable=False, default=""),
    sa.Column("metadata", Document, nullable=False, default=dict),
    sa.Column("labels", Document, nullable=False, default=list),
    sa.Column("owner", Words, nullable=False),
    sa.Column("creation_time", Moment, nullable=False),
    sa.Column("last_updated_time", Moment, nullable=False),
    sa.UniqueConstraint("model_id", "version"),
    sqlite_autoincrement=True,
)

logs = sa.Table(
    "logs",
    metadata,
    _id(),
    sa.Column("task_id", sa.Text, sa.ForeignKey("tasks.task_id", ondelete="CASCADE"), nullable=False),
    sa.Column("allocation_id", sa.Text),
    sa.Column("timestamp", Moment, nullable=False),
    sa.Column("level", Words),
    sa.Column("rank", sa.Integer),
    sa.Column("source", sa.Text, nullable=False, default="trial"),  # or "controller"
    sa.Column("stdtype", sa.Text, nullable=False),
    sa.Column("node", Words, nullable=False, default=""),
    sa.Column("process_id", sa.Integer),
    sa.Column("text", Words, nullable=False),
    sa.Index(None, "task_id", "id"),
    sqlite_autoincrement=True,
)

events = sa.Table(  # what happened to an experiment: state changes with their reason, and what a search was told
    "events",
    metadata,
    _id(),
    _below("experiments"),
    _below("trials", nullable=True),
    sa.Column("time", Moment, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", Document, nullable=False, default=dict),
    sa.Index(None, "experiment_id", "id"),
    sa.Index(None, "trial_id"),
    sqlite_autoincrement=True,
)

pending_events = sa.Table(  # what the controller has not handled yet: requests of people, reports of trials, exits
    "pending_events",
    metadata,
    _id(),
    _below("experiments"),
    _below("trials", nullable=True),
    sa.Column("attempt", sa.Integer),
    sa.Column("time", Moment, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", Document, nullable=False, default=dict),
    sa.Index(None, "experiment_id"),
    sa.Index(None, "trial_id"),
    sqlite_autoincrement=True,
)

controllers = sa.Table(  # the lease of the one process that drives the experiments of this store
    "controllers",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("node", Words, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("process_started", Real),
    sa.Column("started_at", Moment, nullable=False),
    sa.Column("last_beat", Moment, nullable=False),
    sa.Column("launcher", sa.Text, nullable=False),
    sa.Column("info", Document, nullable=False, default=dict),
)

log_policy_hits = sa.Table(  # the first line of a task that matched each pattern of its log policies
    "log_policy_hits",
    metadata,
    sa.Column("task_id", sa.Text, sa.ForeignKey("tasks.task_id", ondelete="CASCADE"), nullable=False),
    sa.Column("pattern", Words, nullable=False),
    sa.Column("name", Words),
    sa.Column("action", sa.Text),
    sa.Column("node", Words, nullable=False, default=""),
    sa.Column("line", Words, nullable=False),
    sa.Column("time", Moment, nullable=False),
    sa.PrimaryKeyConstraint("task_id", "pattern"),
)
