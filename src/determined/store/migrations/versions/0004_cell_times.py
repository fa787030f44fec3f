"""Roll-ups say when the last of their points was reported, and after how many epochs.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns. Where older cells have nothing in them, the reports are read."""
    op.add_column("metric_cells", sa.Column("time", sa.Double(), nullable=True))
    op.add_column("metric_cells", sa.Column("epochs", sa.Double(), nullable=True))
