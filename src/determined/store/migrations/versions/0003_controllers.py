"""A controller drives experiments: its lease, the events it has not handled, when it kills, matched log policies.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# As they were then, whatever `schema.py` makes of them later.
MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the tables and columns. No experiment of an older store has a controller."""
    op.add_column("allocations", sa.Column("kill_at", MOMENT, nullable=True))
    op.add_column("allocations", sa.Column("kill_reason", sa.Text(), nullable=True))
    op.add_column("allocations", sa.Column("killed", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_index("ix_allocations_state", "allocations", ["state"])
    op.create_table(
        "pending_events",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("experiment_id", ID, nullable=False),
        sa.Column("trial_id", ID, nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("time", MOMENT, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], "fk_pending_events_experiment_id",
                                ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], "fk_pending_events_trial_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_pending_events"),
        sqlite_autoincrement=True,
    )  # fmt: skip
    op.create_index("ix_pending_events_experiment_id", "pending_events", ["experiment_id"])
    op.create_index("ix_pending_events_trial_id", "pending_events", ["trial_id"])
    op.create_table(
        "controllers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("process_started", sa.Double(), nullable=True),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("last_beat", MOMENT, nullable=False),
        sa.Column("launcher", sa.Text(), nullable=False),
        sa.Column("info", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_controllers"),
    )
    op.create_table(
        "log_policy_hits",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("pattern", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("action", sa.Text(), nullable=True),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
        sa.Column("time", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("task_id", "pattern", name="pk_log_policy_hits"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], "fk_log_policy_hits_task_id", ondelete="CASCADE"),
    )
