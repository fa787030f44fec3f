"""Reports say how many batches they are averages of, and roll-ups weigh them by it.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns. What was reported before says nothing about its windows: each report counts once."""
    op.add_column("metrics", sa.Column("window_batches", sa.BigInteger(), nullable=True))
    op.add_column("metric_cells", sa.Column("weight", sa.BigInteger(), nullable=True))
    op.add_column("metric_cells", sa.Column("weighted", sa.Double(), nullable=True))
