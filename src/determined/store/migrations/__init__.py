"""How the tables came to be, step by step; each step is a file in `versions/` and is never edited after a release.

Only an old store that is opened loads this, and alembic with it. To change the tables: edit `schema.py`, add a step,
raise `schema.VERSION`; a test compares a store made at once with one that went through all steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from determined.store.database.opening import VERSION_TABLE

STEPS = [str(Path(__file__).with_name("versions"))]
"""Where the steps are; tests add to it."""


def upgrade(conn: sa.Connection, version: str) -> None:
    """Take the steps up to `version`, inside the caller's transaction."""
    script = ScriptDirectory(str(Path(__file__).parent), version_locations=STEPS)

    def steps(found: Any, _: MigrationContext) -> Any:
        return script._upgrade_revs(version, found)  # what alembic's own `upgrade` command calls

    context = MigrationContext.configure(
        connection=conn,
        opts={"fn": steps, "script": script, "version_table": VERSION_TABLE, "render_as_batch": True},
    )
    with Operations.context(context):
        context.run_migrations()
