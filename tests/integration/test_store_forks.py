"""A store in forked and in fresh processes: connections of their own, and no package that is not needed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import sqlalchemy as sa

from determined import errors
from determined.store import schema
from determined.store.database.connection import Store, open_store
from determined.store.messages import now


def add_workspace(store: Store, name: str) -> None:
    with store.write() as conn:
        conn.execute(schema.workspaces.insert().values(name=name, created_at=now()))


def workspace_names(store: Store) -> list[str]:
    with store.read() as conn:
        return list(conn.scalars(sa.select(schema.workspaces.c.name).order_by(schema.workspaces.c.id)))


def test_a_forked_child_writes_and_reads(store: Store) -> None:
    """A child uses connections of its own; the parent's stay whole."""
    add_workspace(store, "parent")

    pid = os.fork()
    if pid == 0:  # the child never comes back here
        try:
            add_workspace(store, "child")
            os._exit(len(workspace_names(store)))
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    add_workspace(store, "parent again")
    assert workspace_names(store) == ["Uncategorized", "parent", "child", "parent again"]


def test_a_parent_that_closes_does_not_take_a_childs_rows_along(sqlite_store: Store) -> None:
    """SQLite's trap with forks: whoever closes last removes the log, and must know of the child that still writes."""
    second = open_store(sqlite_store.path)  # the child inherits its connections, too
    add_workspace(second, "parent")
    add_workspace(sqlite_store, "parent too")
    (heard, said), (resumed, resume) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            add_workspace(sqlite_store, "child")
            os.write(said, b".")
            os.read(resumed, 1)
            for number in range(20):
                add_workspace(second, f"child {number}")
            os._exit(0)
        finally:
            os._exit(99)
    os.read(heard, 1)
    second.close()
    sqlite_store.close()
    add_workspace(sqlite_store, "parent again")
    os.write(resume, b".")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(workspace_names(sqlite_store)) == 25
    for end in (heard, said, resumed, resume):
        os.close(end)


def test_a_child_of_a_thread_at_work_is_told(sqlite_store: Store) -> None:
    """Forked in the middle of a transaction, SQLite cannot be used: said, rather than spoiling the file."""
    with sqlite_store.write() as conn:
        pid = os.fork()
        if pid == 0:
            try:
                with contextlib.suppress(errors.StoreUnavailable):
                    add_workspace(sqlite_store, "child")
                    os._exit(1)
                os._exit(0)
            finally:
                os._exit(99)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        conn.execute(schema.workspaces.insert().values(name="parent", created_at=now()))
    assert workspace_names(sqlite_store) == ["Uncategorized", "parent"]


def test_up_to_date_stores_open_without_alembic(tmp_path: Path) -> None:
    """Making a store, and opening one that is up to date, load no migrations."""
    script = (
        "import sys; from determined.store.database.connection import open_store\n"
        "open_store('a.db').close(); open_store('a.db').close(); assert 'alembic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
