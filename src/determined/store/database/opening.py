"""Makes a store, or brings it up to date, on opening; several processes may at once, and any may die doing it."""

from __future__ import annotations

import os
import time
import urllib.parse
import uuid
from pathlib import Path

import sqlalchemy as sa

from determined import errors
from determined.store import schema
from determined.store.database.location import StorePlace, on_network
from determined.store.messages import now

VERSION_TABLE = "store_version"
_LOCK = 0x7265736F6C757465  # "resolute": the advisory lock of whoever makes or upgrades a PostgreSQL store
_PATIENCE_SECONDS = 30.0


def sqlite_url(path: Path, *, read_only: bool) -> sa.URL:
    """Return the URL that opens the file; for reading only, also where nothing at all may be written."""
    if not read_only:
        return sa.URL.create("sqlite", database=str(path))
    query = {"mode": "ro", "uri": "true"}
    if not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists():
        query["immutable"] = "1"  # SQLite could not put its shared memory next to the file
    return sa.URL.create("sqlite", database="file:" + urllib.parse.quote(str(path)), query=query)


def has_log(path: Path) -> bool:
    """Return whether there is something beside the file that has not been written back to it."""
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def prepare(engine: sa.Engine, place: StorePlace, *, read_only: bool) -> str:
    """Make the store usable with this code, and return its id."""
    with engine.connect() as conn:
        found = version(conn)
        if found == schema.VERSION:
            return identify(conn, place)
    _refuse_newer(place, found)
    if read_only:
        what = "is empty" if found is None else f"has the layout {found}, and this version reads {schema.VERSION}"
        raise errors.StoreError(f"The store {place} {what}. Open it once for writing to bring it up to date.")
    if place.path is not None:
        _turn_on_wal(engine, place.path)
    _make_or_upgrade(engine, place)
    with engine.connect() as conn:
        return identify(conn, place)


def version(conn: sa.Connection) -> str | None:
    """Return the layout that the store has, or None if it has none yet."""
    if not sa.inspect(conn).has_table(VERSION_TABLE):
        return None
    found: str | None = conn.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return found


def identify(conn: sa.Connection, place: StorePlace) -> str:
    """Return the id of a store that is up to date; an error for anything else."""
    found = version(conn)
    _refuse_newer(place, found)
    facts = schema.store_facts
    ident = conn.scalar(sa.select(facts.c.value).where(facts.c.name == "store_id")) if found else None
    if ident is None:
        raise errors.StoreUnavailable(f"The store {place} is empty: its file was replaced. Open it again.")
    return str(ident)


def _refuse_newer(place: StorePlace, found: str | None) -> None:
    if found is not None and found > schema.VERSION:
        raise errors.StoreTooNew(
            f"The store {place} has the layout {found}, and this version of resolute knows {schema.VERSION}. "
            "Nothing was changed. Install a later one with: pip install -U resolute"
        )


def _turn_on_wal(engine: sa.Engine, path: Path) -> None:
    """Switch the file to WAL, so that readers and a writer work at the same time. The file keeps the setting."""
    wanted = "DELETE" if on_network(path.parent) else "WAL"  # WAL needs memory that all its users share
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        connection = engine.raw_connection()
        try:
            connection.cursor().execute(f"PRAGMA journal_mode = {wanted}")
            return
        except Exception as failed:
            # SQLite does not wait here while another process does the same.
            if "locked" not in str(failed) or time.monotonic() > deadline:
                raise sa.exc.OperationalError("PRAGMA journal_mode", None, failed) from failed
            time.sleep(0.02)
        finally:
            connection.close()


def _make_or_upgrade(engine: sa.Engine, place: StorePlace) -> None:
    with engine.connect() as conn:
        if place.path is not None:
            # Rebuilding a table drops it, which must not take along the rows that refer to it. Checked at the end.
            conn.connection.cursor().execute("PRAGMA foreign_keys = OFF")
        conn = conn.execution_options(det_writes=True)
        try:
            with conn.begin():
                if place.path is None:
                    conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
                _make_or_upgrade_alone(conn, place)
        finally:
            conn.detach()  # this connection does not watch over foreign keys: nobody else gets it
            conn.close()


def _make_or_upgrade_alone(conn: sa.Connection, place: StorePlace) -> None:
    """Whoever comes second finds it done."""
    found = version(conn)
    _refuse_newer(place, found)
    if found == schema.VERSION:
        return
    if found is None:
        _make(conn, place)
        return
    from determined.store import migrations  # alembic is slow to load, and rarely needed

    if place.path is not None:
        _copy_aside(place.path)
    migrations.upgrade(conn, schema.VERSION)
    if place.path is not None and (broken := conn.exec_driver_sql("PRAGMA foreign_key_check").fetchone()):
        raise errors.StoreError(f"The store {place} could not be brought up to date: {broken[0]} lost a row it needs.")


def _make(conn: sa.Connection, place: StorePlace) -> None:
    there = set(sa.inspect(conn).get_table_names())
    if there & schema.metadata.tables.keys() or (there and place.path is not None):
        raise errors.StoreError(
            f"{place} holds tables of something else ({', '.join(sorted(there)[:3])}), so it is left alone. "
            "Choose another place with DET_STORE."
        )
    schema.metadata.create_all(conn, checkfirst=False)
    key = f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num)"  # to the letter as alembic makes it
    conn.execute(sa.text(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, {key})"))
    conn.execute(sa.text(f"INSERT INTO {VERSION_TABLE} (version_num) VALUES (:version)"), {"version": schema.VERSION})
    furnish(conn)


def furnish(conn: sa.Connection) -> None:
    """Insert the rows that every store begins with."""
    moment = now()
    conn.execute(schema.store_facts.insert().values(name="store_id", value=str(uuid.uuid4())))
    conn.execute(schema.workspaces.insert().values(name="Uncategorized", immutable=True, created_at=moment))
    conn.execute(schema.projects.insert().values(workspace_id=1, name="Uncategorized", created_at=moment))


def _copy_aside(path: Path) -> None:
    """Keep the file as it was before the upgrade, next to it. It is complete, or it is not there."""
    kept = path.with_name(f"{path.name}.before-{schema.VERSION}")
    unfinished = kept.with_name(kept.name + ".part")
    unfinished.unlink(missing_ok=True)
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)), poolclass=sa.NullPool)
    with engine.connect() as conn:
        conn.connection.cursor().execute("VACUUM INTO ?", (str(unfinished),))
    unfinished.replace(kept)
