"""Many processes make, upgrade and use one store at once, and any of them may be killed at any moment."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from determined.store import migrations, schema
from determined.store.database import connection
from determined.store.database.connection import Store, open_store
from determined.store.messages import now

STEP = """
import pathlib
import time
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = {next!r}, {current!r}, None, None


def upgrade():
    op.add_column("workspaces", sa.Column("motto", sa.Text()))
    with open({note!r}, "a") as note:
        note.write("half\\n")
    while pathlib.Path({gate!r}).exists():
        time.sleep(0.005)
    op.add_column("projects", sa.Column("motto", sa.Text()))
"""


NEXT = f"{int(schema.VERSION) + 1:04}"


class Child:
    """A process that does one thing. It is forked, so that it is there at once."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            connection.BUSY_SECONDS = 200.0  # whatever the machine has to do besides
            with contextlib.suppress(BaseException):
                work()
                code = 0
            os._exit(code)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def has_ended(self) -> bool:
        return os.waitpid(self.pid, os.WNOHANG)[0] != 0

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def fill(place: str, name: str, rows: int) -> Store:
    store = open_store(place)
    for number in range(rows):
        with store.write() as conn:
            conn.execute(schema.workspaces.insert().values(name=f"{name}-{number}", created_at=now()))
    return store


def assert_whole(path: Path) -> None:
    with sqlite3.connect(path) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert conn.execute("PRAGMA foreign_key_check").fetchall() == []
    conn.close()


def test_eight_processes_make_one_store(store_place: str) -> None:
    """All of them find the same store, and all their rows are in it."""
    gate, opener = os.pipe()

    def work(number: int) -> None:
        os.close(opener)
        os.read(gate, 1)  # returns when the parent opens the gate
        fill(store_place, str(number), 5)

    children = [Child(lambda number=number: work(number)) for number in range(8)]  # type: ignore[misc]
    os.close(opener)
    assert [child.wait() for child in children] == [0] * 8
    os.close(gate)
    store = open_store(store_place, create=False)
    with store.read() as conn:
        assert conn.scalar(sa.select(sa.func.count()).select_from(schema.workspaces)) == 41
        assert conn.scalar(sa.select(sa.func.count()).select_from(schema.store_facts)) == 1
    store.close()


def test_killed_while_making_a_store(tmp_path: Path) -> None:
    """kill -9 at any moment of the making: the next process opens it."""
    draw = random.Random(6)
    for number in range(40):
        path = tmp_path / str(number) / "determined.db"
        child = Child(lambda path=path: fill(str(path), "x", 3))  # type: ignore[misc]
        time.sleep(draw.uniform(0, 0.08))
        child.kill()
        store = open_store(path)
        with store.read() as conn:
            assert conn.scalar(sa.select(schema.workspaces.c.name).limit(1)) == "Uncategorized"
        store.close()
        assert_whole(path)


def test_killed_while_upgrading(store_place: str, tmp_path: Path) -> None:
    """kill -9 in the middle of an upgrade leaves the old store, and the next process upgrades it, once."""
    old = open_store(store_place)
    old.close()
    steps, note, gate = tmp_path / "steps", tmp_path / "note", tmp_path / "closed gate"
    steps.mkdir()
    note.touch()
    gate.touch()
    step = STEP.format(next=NEXT, current=schema.VERSION, note=str(note), gate=str(gate))
    (steps / f"{NEXT}_motto.py").write_text(step)

    def work() -> None:
        migrations.STEPS.append(str(steps))
        schema.VERSION = NEXT
        assert open_store(store_place).id == old.id

    child = Child(work)
    while "half" not in note.read_text():
        assert not child.has_ended()
        time.sleep(0.005)
    child.kill()
    with old.read() as conn:
        assert "motto" not in {column["name"] for column in sa.inspect(conn).get_columns("workspaces")}
    old.close()
    gate.unlink()
    assert [child.wait() for child in [Child(work), Child(work)]] == [0, 0]
    assert note.read_text().split() == ["half", "half"]  # the killed one, and one of the two
    if old.path is not None:
        assert_whole(old.path)


def test_killed_while_writing(sqlite_store: Store, tmp_path: Path) -> None:
    """kill -9 of a writer at random moments: what was committed is there, and the file is whole."""
    path = sqlite_store.path
    assert path is not None
    draw = random.Random(7)
    for life in range(20):
        said = tmp_path / f"said-{life}"
        said.touch()

        def work(life: int = life, said: Path = said) -> None:
            store = open_store(path)
            with said.open("ab", buffering=0) as words:
                for number in range(10**6):
                    with store.write() as conn:
                        conn.execute(schema.workspaces.insert().values(name=f"{life}-{number}", created_at=now()))
                    words.write(b".")

        child = Child(work)
        time.sleep(draw.uniform(0.02, 0.15))
        child.kill()
        with sqlite_store.read() as conn:
            mine = schema.workspaces.c.name.startswith(f"{life}-")
            kept = conn.scalar(sa.select(sa.func.count()).select_from(schema.workspaces).where(mine))
        assert said.stat().st_size <= kept <= said.stat().st_size + 1
        assert_whole(path)


@pytest.mark.parametrize("writers", [6])
def test_many_processes_write_at_once(store: Store, writers: int) -> None:
    """Nobody is turned away, and nothing is lost."""
    place = str(store.path) if store.path else store.place.url.render_as_string(hide_password=False)
    children = [Child(lambda name=name: fill(place, str(name), 30)) for name in range(writers)]  # type: ignore[misc]
    assert [child.wait() for child in children] == [0] * writers
    with store.read() as conn:
        assert conn.scalar(sa.select(sa.func.count()).select_from(schema.workspaces)) == writers * 30 + 1
