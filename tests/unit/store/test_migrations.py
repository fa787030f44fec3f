"""An old store is brought up to date when it is opened: whole or not at all, with a copy kept aside."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from determined import errors
from determined.store import migrations, schema
from determined.store.database import opening
from determined.store.database.connection import Store, open_store
from determined.store.messages import now

STEP = """
import sqlalchemy as sa
from alembic import op

revision = {next!r}
down_revision = {current!r}
branch_labels = None
depends_on = None


def upgrade():
    with op.batch_alter_table("workspaces", recreate="auto") as batch:
        batch.add_column(sa.Column("motto", sa.Text(), nullable=False, server_default="onward"))
        batch.alter_column("name", new_column_name="title")
    {more}
"""


CURRENT = schema.VERSION
NEXT = f"{int(CURRENT) + 1:04}"


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Code that knows one more step."""
    yield from later(tmp_path, monkeypatch, "pass")


def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str) -> Iterator[None]:
    steps = tmp_path / "steps"
    steps.mkdir()
    (steps / f"{NEXT}_motto.py").write_text(STEP.format(next=NEXT, current=CURRENT, more=more))
    monkeypatch.setattr(migrations, "STEPS", [*migrations.STEPS, str(steps)])
    monkeypatch.setattr(schema, "VERSION", NEXT)
    yield


def shape(store: Store) -> dict[str, object]:
    """Everything about the tables that a program can see."""
    with store.read() as conn:
        look = sa.inspect(conn)
        found: dict[str, object] = {}
        for table in sorted(look.get_table_names()):
            found[table] = {
                "columns": [{**column, "type": str(column["type"])} for column in look.get_columns(table)],
                "key": look.get_pk_constraint(table),
                "foreign": sorted(map(str, look.get_foreign_keys(table))),
                "unique": sorted(map(str, look.get_unique_constraints(table))),
                "indexes": sorted(map(str, look.get_indexes(table))),
            }
        if store.is_sqlite:  # AUTOINCREMENT and WITHOUT ROWID are seen only here
            words = "SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%' OR sql LIKE '%WITHOUT ROWID%'"
            found["special"] = sorted(conn.scalars(sa.text(words)))
        return found


def make_old_store(place: str) -> str:
    """A store of the first layout, with a project in it that a careless table rebuild would take along."""
    store = open_store(place)
    with store.write() as conn:
        conn.execute(schema.projects.insert().values(workspace_id=1, name="kept", created_at=now()))
    store.close()
    return store.id


def test_all_steps_lead_to_the_tables_of_today(store_place: str) -> None:
    """A store made at once and one that went through every step have the same tables."""
    at_once = open_store(store_place)
    expected = shape(at_once)
    with at_once.write() as conn:
        if at_once.is_sqlite:
            everything = sa.MetaData()
            everything.reflect(conn)
            conn.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
            everything.drop_all(conn)
        else:
            conn.execute(sa.text("DROP SCHEMA public CASCADE"))
            conn.execute(sa.text("CREATE SCHEMA public"))
    with at_once.write() as conn:
        migrations.upgrade(conn, schema.VERSION)
        opening.furnish(conn)
    assert shape(at_once) == expected
    at_once.close()


def test_an_old_store_is_upgraded_on_opening(store_place: str, request: pytest.FixtureRequest) -> None:
    """Rows stay, also those that refer to a table that was rebuilt; the id stays."""
    ident = make_old_store(store_place)
    request.getfixturevalue("next_version")
    store = open_store(store_place)
    assert store.id == ident
    with store.read() as conn:
        assert conn.execute(sa.text("SELECT title, motto FROM workspaces")).all() == [("Uncategorized", "onward")]
        assert conn.scalars(sa.text("SELECT name FROM projects ORDER BY id")).all() == ["Uncategorized", "kept"]
        assert opening.version(conn) == NEXT
    store.close()
    open_store(store_place).close()


def test_the_file_is_copied_aside_first(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """`determined.db.before-<version>` is the store as it was, and opens by itself."""
    path = tmp_path / "determined.db"
    make_old_store(str(path))
    request.getfixturevalue("next_version")
    open_store(path).close()
    copy = tmp_path / f"determined.db.before-{NEXT}"
    with sqlite3.connect(copy) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert conn.execute("SELECT name FROM workspaces").fetchall() == [("Uncategorized",)]
        assert conn.execute("SELECT version_num FROM store_version").fetchall() == [(CURRENT,)]
    conn.close()
    assert not list(tmp_path.glob("*.part"))


def test_a_step_that_fails_changes_nothing(store_place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The upgrade is one transaction: a failure in its middle leaves the old store, which opens with the old code."""
    make_old_store(store_place)
    with monkeypatch.context() as patch:
        steps = later(tmp_path, patch, 'op.execute("SELECT no_such_column FROM workspaces")')
        next(steps)
        with pytest.raises(errors.DeterminedError):
            open_store(store_place)
    store = open_store(store_place)
    with store.read() as conn:
        assert conn.scalars(sa.select(schema.workspaces.c.name)).all() == ["Uncategorized"]
        assert conn.scalars(sa.select(schema.projects.c.name).order_by(schema.projects.c.id)).all()[1] == "kept"
    store.close()


def test_an_upgrade_is_not_done_for_looking(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """`read_only` says what to do instead."""
    make_old_store(str(tmp_path / "determined.db"))
    request.getfixturevalue("next_version")
    with pytest.raises(errors.StoreError, match=f"{CURRENT}.*{NEXT}.*for writing"):
        open_store(tmp_path / "determined.db", read_only=True)
