"""Opens a store and hands out transactions. `schema` defines the tables; there is one module for each noun."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from determined import errors
from determined._home import data_directory, make_data_directory
from determined._redact import redacted
from determined.store import values
from determined.store.database import damage, failures, forks, opening, postgresql
from determined.store.database.location import StorePlace, find_place, on_network

BUSY_SECONDS = 10.0
"""How long a transaction waits for others before it fails."""

_left_to_parents: list[sa.Pool] = []  # a child does not close the connections that a server has with its parent
_warned: set[Path] = set()


class Store:
    """An open store. Threads may share it; a forked child gets connections of its own. Made by `open_store`."""

    def __init__(self, place: StorePlace, *, read_only: bool = False) -> None:
        self.place = place
        self.read_only = read_only
        self.id = ""
        self._pid = os.getpid()
        self._engine = _make_engine(place, read_only)
        self._file = damage.identity(place.path)
        self._log: tuple[int, int] | None = None
        self._seen: tuple[int, int] | None = None
        self._writes = 0

    @property
    def url(self) -> str:
        """Where it is, without the password."""
        return self.place.masked_url

    @property
    def path(self) -> Path | None:
        """The file, or None for a server."""
        return self.place.path

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file of its own."""
        return self.place.path is not None

    @property
    def is_same_file(self) -> bool:
        """Whether the file that was opened still has its name."""
        return damage.identity(self.place.path) == self._file

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a read transaction: the store as it is at one moment, however long reading takes.

        Example::

            with store.read() as conn:
                rows = experiments.find(conn)
        """
        with self._explained(), self._ours().connect() as conn:
            if not self.is_sqlite:  # SQLite reads like this anyway
                conn = conn.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            yield conn

    @contextlib.contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a write transaction: all of it is kept when the block ends without an error, none of it otherwise.

        On SQLite there is one writer at a time, from the first line of the block on. On PostgreSQL functions lock the
        rows whose values they build on: trials in the order of their ids, then the experiment.
        """
        if self.read_only:
            advice = "Check who may write to the file"
            raise errors.StoreUnavailable(f"The store {self.place} may only be read, so nothing was changed. {advice}.")
        with self._explained(), self._ours().connect() as conn:
            conn = conn.execution_options(det_writes=True)
            self._writes += 1
            with conn.begin():
                yield conn

    def change_mark(self) -> object:
        """Return a mark that equals an earlier one only if nothing was stored between. Cheap, for those who poll.

        On a server that has other databases, marks differ when something was stored in those, too.
        """
        with self._explained(), self._ours().connect() as conn:
            if not self.is_sqlite:  # which transactions have written or are about to
                return conn.exec_driver_sql("SELECT txid_current_snapshot()::text").scalar_one()
            others = conn.exec_driver_sql("PRAGMA data_version").scalar_one()  # commits of other connections
            return (id(conn.connection.driver_connection), others, self._writes)

    def close(self) -> None:
        """Close the connections. A later transaction opens new ones."""
        if self._pid == os.getpid():
            self._engine.dispose()

    def rest(self) -> None:
        """Give back the connections to a server, which has a limited number for all. A file stays open."""
        if not self.is_sqlite:
            self.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.SQLAlchemyError as failed:
            raise failures.explain(str(self.place), failed) from failed
        except OverflowError as large:
            if "SQLite" not in str(large):
                raise
            raise errors.InvalidValue(failures.TOO_LARGE) from large

    def _ours(self) -> sa.Engine:
        """Return the engine of this process, on the file that has the name now."""
        if self._pid != os.getpid():
            self._leave_to_parent()
        if self._file is not None and self.place.path is not None:
            self._look_at_file(self.place.path)
        return self._engine

    def _look_at_file(self, path: Path) -> None:
        """Check whether the file was changed by other means than SQLite, which would continue from its cache."""
        if not self.is_same_file:
            self._replaced(path)
        self._log = damage.identity(path.with_name(path.name + "-wal"))
        if (seen := damage.state(path)) == self._seen:
            return
        # Most often this is our own log that was written back. It shrinks when space is given back, which is rare.
        has_shrunk = self._seen is not None and seen is not None and seen[0] < self._seen[0]
        if self.id and (reason := damage.find(path, self.id, thoroughly=has_shrunk)):
            raise errors.StoreDamaged(f"The store {path} was damaged while in use: {reason}.")
        self._seen = seen

    def _leave_to_parent(self) -> None:
        """In a forked child, open new connections instead of using those of the parent; keep compiled statements."""
        if self.place.path is not None:
            forks.let_go_of_inherited(self.place.path)
        _left_to_parents.append(self._engine.pool)
        self._engine.dispose(close=False)
        self._pid = os.getpid()

    def _replaced(self, path: Path) -> None:
        """The file was removed, or another one has its name. Writing on into a removed file would lose everything."""
        found = damage.identity(path)
        if found is not None:
            damage.leave_old_log(path, self._log)  # while we have it open: no other file can have its identity
        self._engine.dispose()
        if found is None:
            raise errors.StoreUnavailable(f"The store {self.place} was removed while in use. Put the file back.")
        with self._engine.connect() as conn:
            self.id = opening.identify(conn, self.place)
        self._file, self._log, self._seen = found, None, damage.state(path)


def open_store(place: str | os.PathLike[str] | None = None, *, create: bool = True, read_only: bool = False) -> Store:
    """Open a store, making it or bringing it up to date if need be. Any number of processes may do so at once.

    Args:
        place: A file, `sqlite:///...`, `postgresql://...`, or `file:` and a file that holds such a URL; None is
            `$DET_STORE`, else the data directory's own.
        create: Make it if it is not there.
        read_only: Neither make nor change anything.

    Raises:
        StoreUnavailable: It cannot be used now: locked, no space, no server. The same call may work later.
        StoreTooNew: It was written by a later version of this package.
        StoreError: It cannot be used: damaged, something else's file, or missing with `create=False`.

    Example::

        store = open_store("runs.db")
        with store.write() as conn:
            experiments.create(conn, name="first", owner="ada", config={})
    """
    found = find_place(place)
    read_only = _look_before(found, create=create, read_only=read_only)
    store = Store(found, read_only=read_only)
    try:
        with store._explained():
            store.id = opening.prepare(store._engine, found, read_only=read_only)
        store._file, store._seen = damage.identity(found.path), damage.state(found.path)
    except BaseException:
        store.close()
        raise
    return store


def _look_before(place: StorePlace, *, create: bool, read_only: bool) -> bool:
    """Check the file, or make its directory; return whether the store is read-only."""
    if place.path is None:
        return read_only
    path = place.path
    if path.exists():
        _warn_about_network(path)
        if path.stat().st_size == 0 and opening.has_log(path):
            raise errors.StoreDamaged(f"The store {path} is empty, and the log beside it ({path.name}-wal) is not.")
        return read_only or not os.access(path, os.W_OK)
    if read_only or not create:
        raise errors.StoreError(
            f"There is no store at {path} yet. It is made by the first run, or name one: DET_STORE=..."
        )
    try:
        if path.parent == data_directory():
            make_data_directory()
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as failed:
        raise errors.StoreUnavailable(
            f"The store {path} cannot be made ({failed.strerror or failed}): choose a place with DET_HOME or DET_STORE."
        ) from failed
    _warn_about_network(path)
    return False


def _warn_about_network(path: Path) -> None:
    if path not in _warned and (kind := on_network(path.parent)):
        _warned.add(path)
        advice = "Put it on a local disk with DET_STORE, or use PostgreSQL when several machines share it."
        warnings.warn(
            f"The store {path} is on a network file system ({kind}), where locks may fail. {advice}", stacklevel=4
        )


def _dump_redacted(value: Any) -> str:
    """Return the one way of dicts and lists into any table."""
    return values.dump(redacted(value))


def _make_engine(place: StorePlace, read_only: bool) -> sa.Engine:
    common: dict[str, Any] = {"json_serializer": _dump_redacted, "json_deserializer": values.load}
    if place.path is None:
        return postgresql.make_engine(place, BUSY_SECONDS, common)
    forks.let_go_of_inherited(place.path)
    engine = sa.create_engine(
        opening.sqlite_url(place.path, read_only=read_only),
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        pool_timeout=BUSY_SECONDS,
        **common,
    )
    sa.event.listen(engine, "connect", _set_up_sqlite)
    forks.OpenConnections(engine, place.path)  # lives as long as the engine
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves: Python's own comes late, and never for reads
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")


def _begin_sqlite(conn: sa.Connection) -> None:
    writes = conn.get_execution_options().get("det_writes", False)
    conn.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
