"""The first tables.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# As they were then, whatever `schema.py` makes of them later.
MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DOCUMENT = sa.JSON()


def upgrade() -> None:
    """Make all of them, empty."""
    op.create_table(
        "code_snapshots",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_code_snapshots")),
        sa.UniqueConstraint("sha256", name=op.f("uq_code_snapshots_sha256")),
    )
    op.create_table(
        "storage_backends",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("config", DOCUMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_storage_backends")),
        sa.UniqueConstraint("fingerprint", name=op.f("uq_storage_backends_fingerprint")),
    )
    op.create_table(
        "store_facts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_store_facts")),
    )
    op.create_table(
        "workspaces",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("immutable", sa.Boolean(), nullable=False),
        sa.Column("checkpoint_storage", DOCUMENT, nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workspaces")),
        sa.UniqueConstraint("name", name=op.f("uq_workspaces_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "models",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("metadata", DOCUMENT, nullable=False),
        sa.Column("labels", DOCUMENT, nullable=False),
        sa.Column("workspace_id", ID, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("creation_time", MOMENT, nullable=False),
        sa.Column("last_updated_time", MOMENT, nullable=False),
        sa.Column("next_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name=op.f("fk_models_workspace_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", name=op.f("uq_models_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "projects",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("workspace_id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("notes", DOCUMENT, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_projects_workspace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("workspace_id", "name", name=op.f("uq_projects_workspace_id_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "experiments",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("project_id", ID, nullable=False),
        sa.Column("parent_id", ID, nullable=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=False),
        sa.Column("original_config", sa.Text(), nullable=False),
        sa.Column("config", DOCUMENT, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("start_time", MOMENT, nullable=False),
        sa.Column("end_time", MOMENT, nullable=True),
        sa.Column("progress", sa.Double(), nullable=True),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("unmanaged", sa.Boolean(), nullable=False),
        sa.Column("external_experiment_id", sa.Text(), nullable=True),
        sa.Column("script", sa.Text(), nullable=True),
        sa.Column("code_snapshot_id", ID, nullable=True),
        sa.Column("searcher_snapshot", DOCUMENT, nullable=True),
        sa.Column("searcher_metric", sa.Text(), nullable=True),
        sa.Column("smaller_is_better", sa.Boolean(), nullable=False),
        sa.Column("best_trial_id", ID, nullable=True),
        sa.Column("checkpoint_size", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint_count", sa.BigInteger(), nullable=False),
        sa.Column("warnings", DOCUMENT, nullable=False),
        sa.Column("deleted_at", MOMENT, nullable=True),
        sa.ForeignKeyConstraint(
            ["code_snapshot_id"], ["code_snapshots.id"], name=op.f("fk_experiments_code_snapshot_id")
        ),
        sa.ForeignKeyConstraint(
            ["parent_id"], ["experiments.id"], name=op.f("fk_experiments_parent_id"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_experiments_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiments")),
        sa.UniqueConstraint("external_experiment_id", name=op.f("uq_experiments_external_experiment_id")),
        sa.UniqueConstraint("uuid", name=op.f("uq_experiments_uuid")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_experiments_code_snapshot_id"), "experiments", ["code_snapshot_id"], unique=False)
    op.create_index(op.f("ix_experiments_deleted_at"), "experiments", ["deleted_at"], unique=False)
    op.create_index(op.f("ix_experiments_parent_id"), "experiments", ["parent_id"], unique=False)
    op.create_index(op.f("ix_experiments_project_id_archived"), "experiments", ["project_id", "archived"], unique=False)
    op.create_index(op.f("ix_experiments_script"), "experiments", ["script"], unique=False)
    op.create_index(op.f("ix_experiments_state"), "experiments", ["state"], unique=False)
    op.create_table(
        "experiment_labels",
        sa.Column("experiment_id", ID, nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_experiment_labels_experiment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("experiment_id", "label", name=op.f("pk_experiment_labels")),
    )
    op.create_index(op.f("ix_experiment_labels_label"), "experiment_labels", ["label"], unique=False)
    op.create_table(
        "trials",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("experiment_id", ID, nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=False),
        sa.Column("exit_reason", sa.Text(), nullable=True),
        sa.Column("hparams", DOCUMENT, nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("start_time", MOMENT, nullable=False),
        sa.Column("end_time", MOMENT, nullable=True),
        sa.Column("warm_start_checkpoint_uuid", sa.Text(), nullable=True),
        sa.Column("total_batches", sa.BigInteger(), nullable=False),
        sa.Column("runner_state", sa.Text(), nullable=False),
        sa.Column("progress", sa.Double(), nullable=True),
        sa.Column("best_validation_id", ID, nullable=True),
        sa.Column("latest_validation_id", ID, nullable=True),
        sa.Column("searcher_metric_value", sa.Double(), nullable=True),
        sa.Column("latest_metric_value", sa.Double(), nullable=True),
        sa.Column("summary_metrics", DOCUMENT, nullable=False),
        sa.Column("metadata", DOCUMENT, nullable=False),
        sa.Column("checkpoint_size", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint_count", sa.BigInteger(), nullable=False),
        sa.Column("external_trial_id", sa.Text(), nullable=True),
        sa.Column("last_activity", MOMENT, nullable=True),
        sa.Column("log_policy_matched", sa.Text(), nullable=True),
        sa.Column("log_retention_days", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_trials_experiment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trials")),
        sa.UniqueConstraint(
            "experiment_id", "external_trial_id", name=op.f("uq_trials_experiment_id_external_trial_id")
        ),
        sa.UniqueConstraint("experiment_id", "request_id", name=op.f("uq_trials_experiment_id_request_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        op.f("ix_trials_experiment_id_searcher_metric_value"),
        "trials",
        ["experiment_id", "searcher_metric_value"],
        unique=False,
    )
    op.create_index(op.f("ix_trials_state"), "trials", ["state"], unique=False)
    op.create_table(
        "checkpoint_uses",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("trial_id", ID, nullable=False),
        sa.Column("checkpoint_uuid", sa.Text(), nullable=False),
        sa.Column("model_version", ID, nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name=op.f("fk_checkpoint_uses_trial_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoint_uses")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_checkpoint_uses_checkpoint_uuid"), "checkpoint_uses", ["checkpoint_uuid"], unique=False)
    op.create_index(op.f("ix_checkpoint_uses_trial_id"), "checkpoint_uses", ["trial_id"], unique=False)
    op.create_table(
        "events",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("experiment_id", ID, nullable=False),
        sa.Column("trial_id", ID, nullable=True),
        sa.Column("time", MOMENT, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("body", DOCUMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_events_experiment_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_events_trial_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_events_experiment_id_id"), "events", ["experiment_id", "id"], unique=False)
    op.create_index(op.f("ix_events_trial_id"), "events", ["trial_id"], unique=False)
    op.create_table(
        "metric_series",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("trial_id", ID, nullable=False),
        sa.Column("metric_group", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("last", sa.Text(), nullable=False),
        sa.Column("last_steps", sa.BigInteger(), nullable=True),
        sa.Column("points", sa.BigInteger(), nullable=False),
        sa.Column("rollup", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name=op.f("fk_metric_series_trial_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metric_series")),
        sa.UniqueConstraint(
            "trial_id", "metric_group", "name", name=op.f("uq_metric_series_trial_id_metric_group_name")
        ),
    )
    op.create_table(
        "metrics",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("trial_id", ID, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("metric_group", sa.Text(), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=True),
        sa.Column("report_time", MOMENT, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("batch_metrics", sa.LargeBinary(), nullable=True),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_metrics_trial_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metrics")),
        sa.UniqueConstraint(
            "trial_id", "attempt", "metric_group", "steps", name=op.f("uq_metrics_trial_id_attempt_metric_group_steps")
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(
        op.f("ix_metrics_trial_id_metric_group_archived_steps"),
        "metrics",
        ["trial_id", "metric_group", "archived", "steps"],
        unique=False,
    )
    op.create_table(
        "tasks",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("trial_id", ID, nullable=True),
        sa.Column("start_time", MOMENT, nullable=False),
        sa.Column("end_time", MOMENT, nullable=True),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_tasks_trial_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("task_id", name=op.f("pk_tasks")),
    )
    op.create_index(op.f("ix_tasks_trial_id"), "tasks", ["trial_id"], unique=False)
    op.create_table(
        "allocations",
        sa.Column("allocation_id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("run_name", sa.Text(), nullable=True),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("slot_ids", DOCUMENT, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("process_started", sa.Double(), nullable=True),
        sa.Column("start_time", MOMENT, nullable=False),
        sa.Column("end_time", MOMENT, nullable=True),
        sa.Column("last_activity", MOMENT, nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("exit_reason", sa.Text(), nullable=True),
        sa.Column("preempt_requested", sa.Boolean(), nullable=False),
        sa.Column("preempt_acked", sa.Boolean(), nullable=False),
        sa.Column("environment", DOCUMENT, nullable=False),
        sa.Column("tensorboard", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["task_id"], ["tasks.task_id"], name=op.f("fk_allocations_task_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("allocation_id", name=op.f("pk_allocations")),
        sa.UniqueConstraint("run_name", name=op.f("uq_allocations_run_name")),
    )
    op.create_index(op.f("ix_allocations_task_id"), "allocations", ["task_id"], unique=False)
    op.create_table(
        "checkpoints",
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("trial_id", ID, nullable=False),
        sa.Column("allocation_id", sa.Text(), nullable=True),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("report_time", MOMENT, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("metadata", DOCUMENT, nullable=False),
        sa.Column("resources", DOCUMENT, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("storage_id", ID, nullable=True),
        sa.ForeignKeyConstraint(["storage_id"], ["storage_backends.id"], name=op.f("fk_checkpoints_storage_id")),
        sa.ForeignKeyConstraint(
            ["task_id"], ["tasks.task_id"], name=op.f("fk_checkpoints_task_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_checkpoints_trial_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("uuid", name=op.f("pk_checkpoints")),
    )
    op.create_index(op.f("ix_checkpoints_task_id"), "checkpoints", ["task_id"], unique=False)
    op.create_index(
        op.f("ix_checkpoints_trial_id_state_steps"), "checkpoints", ["trial_id", "state", "steps"], unique=False
    )
    op.create_table(
        "logs",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("allocation_id", sa.Text(), nullable=True),
        sa.Column("timestamp", MOMENT, nullable=False),
        sa.Column("level", sa.Text(), nullable=True),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("stdtype", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("process_id", sa.Integer(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name=op.f("fk_logs_task_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_logs")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_logs_task_id_id"), "logs", ["task_id", "id"], unique=False)
    op.create_table(
        "metric_cells",
        sa.Column("series_id", ID, nullable=False),
        sa.Column("level", sa.SmallInteger(), nullable=False),
        sa.Column("cell", sa.BigInteger(), nullable=False),
        sa.Column("first_steps", sa.BigInteger(), nullable=False),
        sa.Column("last_steps", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("odd", sa.BigInteger(), nullable=False),
        sa.Column("min", sa.Double(), nullable=True),
        sa.Column("max", sa.Double(), nullable=True),
        sa.Column("sum", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["series_id"], ["metric_series.id"], name=op.f("fk_metric_cells_series_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("series_id", "level", "first_steps", name=op.f("pk_metric_cells")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "model_versions",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("model_id", ID, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("checkpoint_uuid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("metadata", DOCUMENT, nullable=False),
        sa.Column("labels", DOCUMENT, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("creation_time", MOMENT, nullable=False),
        sa.Column("last_updated_time", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["checkpoint_uuid"], ["checkpoints.uuid"], name=op.f("fk_model_versions_checkpoint_uuid")
        ),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_model_versions_model_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_versions")),
        sa.UniqueConstraint("model_id", "version", name=op.f("uq_model_versions_model_id_version")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_model_versions_checkpoint_uuid"), "model_versions", ["checkpoint_uuid"], unique=False)
