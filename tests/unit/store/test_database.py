"""A store opens, holds transactions together, and says what is wrong in a sentence."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from determined import errors
from determined.store import schema
from determined.store.database import connection, opening
from determined.store.database.connection import Store, open_store
from determined.store.database.location import find_place
from determined.store.messages import now
from tests.stores import PostgresServer, name_of


def add_workspace(store: Store, name: str) -> None:
    with store.write() as conn:
        conn.execute(schema.workspaces.insert().values(name=name, created_at=now()))


def workspace_names(store: Store) -> list[str]:
    with store.read() as conn:
        return list(conn.scalars(sa.select(schema.workspaces.c.name).order_by(schema.workspaces.c.id)))


def test_a_fresh_store_has_its_first_rows(store: Store) -> None:
    """Platform 5.1: workspace 1 and project 1 are Uncategorized, and the store has an id."""
    with store.read() as conn:
        assert conn.execute(sa.select(schema.workspaces.c.id, schema.workspaces.c.immutable)).all() == [(1, True)]
        assert conn.execute(sa.select(schema.projects.c.id, schema.projects.c.name)).all() == [(1, "Uncategorized")]
    assert len(store.id) == 36


def test_opening_again_finds_the_same_store(store_place: str) -> None:
    """The id and the rows stay."""
    first = open_store(store_place)
    add_workspace(first, "mine")
    first.close()
    again = open_store(store_place, create=False)
    assert again.id == first.id
    assert workspace_names(again) == ["Uncategorized", "mine"]
    again.close()


def test_a_transaction_is_kept_whole_or_not_at_all(store: Store) -> None:
    """An error inside `write` undoes everything in it."""
    with pytest.raises(KeyError), store.write() as conn:
        conn.execute(schema.workspaces.insert().values(name="lost", created_at=now()))
        raise KeyError
    assert workspace_names(store) == ["Uncategorized"]


def test_a_look_sees_one_moment(store: Store) -> None:
    """What another writes meanwhile is not seen until the next look."""
    with store.read() as conn:
        query = sa.select(sa.func.count()).select_from(schema.workspaces)
        before = conn.scalar(query)
        add_workspace(store, "later")
        assert conn.scalar(query) == before
    assert workspace_names(store) == ["Uncategorized", "later"]


def test_foreign_keys_are_watched(store: Store) -> None:
    """A row that refers to nothing is refused."""
    with pytest.raises(errors.StoreError, match="refused"), store.write() as conn:
        conn.execute(schema.projects.insert().values(workspace_id=77, name="stray", created_at=now()))


def test_ids_do_not_come_back(store: Store) -> None:
    """An id that was given once is not given to something else after a removal."""
    add_workspace(store, "a")
    with store.write() as conn:
        conn.execute(schema.workspaces.delete().where(schema.workspaces.c.name == "a"))
    add_workspace(store, "b")
    with store.read() as conn:
        assert conn.scalar(sa.select(schema.workspaces.c.id).where(schema.workspaces.c.name == "b")) == 3


def test_times_and_odd_text_come_back(store: Store) -> None:
    """Microseconds stay, in UTC; a NUL and half a character are replaced, not refused."""
    moment = now()
    with store.write() as conn:
        conn.execute(schema.workspaces.insert().values(name="a\0b\ud800é", created_at=moment))
    with store.read() as conn:
        table = schema.workspaces.c
        name, time = conn.execute(sa.select(table.name, table.created_at).where(table.id == 2)).one()
    assert (name, time, time.tzinfo) == ("a\ufffdb\ufffdé", moment, moment.tzinfo)


def test_threads_share_a_store(store: Store) -> None:
    """Several threads write through one store, and nothing is lost."""
    threads = [
        threading.Thread(target=lambda n=n: [add_workspace(store, f"{n}-{i}") for i in range(10)]) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(workspace_names(store)) == 41


def test_sqlite_is_set_up_for_many_processes(sqlite_store: Store) -> None:
    """WAL, foreign keys, and a synchronous setting that survives kill -9."""
    with sqlite_store.read() as conn:
        pragmas = {name: conn.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "foreign_keys")}
        assert pragmas == {"journal_mode": "wal", "foreign_keys": 1}
        assert conn.exec_driver_sql("PRAGMA synchronous").scalar() == 1


def test_where_a_store_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Decision 4: DET_STORE, else the data directory; a path, a directory or a URL."""
    assert find_place().path == home / "determined.db"
    monkeypatch.setenv("DET_STORE", "postgres://ada:secret@db.example/runs?sslpassword=x")
    place = find_place()
    assert place.path is None
    assert "secret" not in str(place)
    assert "sslpassword=x" not in str(place)
    assert str(place).startswith("postgresql://ada:********@db.example/runs")
    assert find_place(tmp_path).path == tmp_path / "determined.db"
    assert find_place(f"{tmp_path}/new/").path == tmp_path / "new" / "determined.db"
    assert find_place(f"sqlite:///{tmp_path}/x.db").path == tmp_path / "x.db"


@pytest.mark.parametrize("place", ["mysql://host/db", "sqlite://", "sqlite:///:memory:", "http://[bad"])
def test_places_that_are_no_store(place: str) -> None:
    """A place that cannot work is refused in a sentence."""
    with pytest.raises(errors.StoreError):
        open_store(place)


def test_the_data_directory_is_made_for_this_user_alone(home: Path) -> None:
    """Decision 4: the data directory is made with mode 0700, for this user alone."""
    open_store().close()
    assert (home / "determined.db").exists()
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_missing_store_is_not_made_for_looking(tmp_path: Path) -> None:
    """`create=False` and `read_only=True` make nothing."""
    for arguments in ({"create": False}, {"read_only": True}):
        with pytest.raises(errors.StoreError, match="There is no store at"):
            open_store(tmp_path / "none" / "x.db", **arguments)
    assert not (tmp_path / "none").exists()


def test_a_newer_store_is_refused_kindly(store_place: str) -> None:
    """The message names both layouts and what to type, and nothing is changed."""
    store = open_store(store_place)
    with store.write() as conn:
        conn.execute(sa.text("UPDATE store_version SET version_num = '9000'"))
    store.close()
    with pytest.raises(errors.StoreTooNew, match=rf"9000.*{schema.VERSION}.*pip install -U resolute"):
        open_store(store_place)


def test_a_store_opened_for_reading_is_not_written_to(sqlite_store: Store) -> None:
    """Reading works, writing is refused as something that may pass."""
    assert sqlite_store.path is not None
    looking = open_store(sqlite_store.path, read_only=True)
    assert workspace_names(looking) == ["Uncategorized"]
    with pytest.raises(errors.StoreUnavailable, match="may only be read"), looking.write():
        pass
    looking.close()


def test_a_store_can_be_read_where_nothing_may_be_written(sqlite_store: Store) -> None:
    """A store on a disk that is read-only can still be looked at."""
    path = sqlite_store.path
    assert path is not None
    sqlite_store.close()
    assert not path.with_name(path.name + "-wal").exists()
    path.parent.chmod(0o500)
    try:
        looking = open_store(path, read_only=True)
        assert workspace_names(looking) == ["Uncategorized"]
        looking.close()
    finally:
        path.parent.chmod(0o700)


def test_other_peoples_files_are_left_alone(tmp_path: Path) -> None:
    """A database of something else, or a file that is no database, is refused and stays as it is."""
    other, text = tmp_path / "other.db", tmp_path / "notes.txt"
    with sqlite3.connect(other) as conn:
        conn.execute("CREATE TABLE birds (name)")
    conn.close()
    text.write_text("not a database, whatever it is called" * 50)
    kept = {path: path.read_bytes() for path in (other, text)}
    with pytest.raises(errors.StoreError, match="birds"):
        open_store(other)
    with pytest.raises(errors.StoreError, match="not an SQLite database"):
        open_store(text)
    assert text.read_bytes() == kept[text]
    with sqlite3.connect(other) as conn:
        assert conn.execute("SELECT name FROM sqlite_master").fetchall() == [("birds",)]
    conn.close()


def test_a_damaged_file_is_reported_and_kept(sqlite_store: Store) -> None:
    """The sentence names `det store check`; the file is neither removed nor overwritten."""
    path = sqlite_store.path
    assert path is not None
    sqlite_store.close()
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xa5" * 3996
    path.write_bytes(content)
    with pytest.raises(errors.StoreError, match="det store check"):
        open_store(path)
    assert path.read_bytes() == bytes(content)


def test_a_locked_store_may_pass(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer that does not let go: StoreUnavailable, and it works once the lock is gone."""
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.1)
    impatient = open_store(sqlite_store.path)
    with sqlite_store.write():
        with pytest.raises(errors.StoreUnavailable, match="locked"):
            add_workspace(impatient, "early")
    add_workspace(impatient, "late")
    assert workspace_names(sqlite_store) == ["Uncategorized", "late"]
    impatient.close()


def test_a_full_disk_may_pass(sqlite_store: Store) -> None:
    """No space: StoreUnavailable, nothing half-written, and it works once there is space."""
    with sqlite_store.write() as conn:
        pages = conn.exec_driver_sql("PRAGMA page_count").scalar()
        conn.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(errors.StoreUnavailable, match="no space left"):
        add_workspace(sqlite_store, "x" * 100_000)
    with sqlite_store.write() as conn:
        conn.exec_driver_sql("PRAGMA max_page_count = 1000000")
    add_workspace(sqlite_store, "small")
    assert workspace_names(sqlite_store) == ["Uncategorized", "small"]


def test_a_removed_file_is_noticed(sqlite_store: Store) -> None:
    """Writing on into a file that was removed would lose everything in silence."""
    path = sqlite_store.path
    assert path is not None
    aside = path.with_name("aside.db")
    sqlite_store.close()
    path.rename(aside)
    with pytest.raises(errors.StoreUnavailable, match="was removed"):
        add_workspace(sqlite_store, "lost")
    aside.rename(path)
    other = open_store(path.with_name("other.db"))
    other.close()
    add_workspace(sqlite_store, "kept")
    sqlite_store.close()  # folds in what SQLite keeps beside the file
    path.unlink()
    path.with_name("other.db").rename(path)
    assert workspace_names(sqlite_store) == ["Uncategorized"]
    assert sqlite_store.id == other.id


def test_a_network_file_system_is_warned_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the journal there is one that needs no shared memory."""
    for module in (connection, opening):
        monkeypatch.setattr(module, "on_network", lambda path: "nfs4")
    with pytest.warns(UserWarning, match=r"network file system \(nfs4\).*PostgreSQL"):
        store = open_store(tmp_path / "x.db")
    with store.read() as conn:
        assert conn.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
    store.close()
    open_store(tmp_path / "x.db").close()  # a second warning would be an error


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_made_may_pass(tmp_path: Path) -> None:
    """The sentence says what to set."""
    tmp_path.chmod(0o500)
    with pytest.raises(errors.StoreUnavailable, match="DET_HOME"):
        open_store(tmp_path / "deep" / "x.db")
    tmp_path.chmod(0o700)


def test_a_server_that_does_not_answer_may_pass() -> None:
    """Connection refused is StoreUnavailable and shows no password."""
    with pytest.raises(errors.StoreUnavailable, match="cannot be reached") as caught:
        open_store("postgresql://ada:secret@127.0.0.1:1/runs")
    assert "secret" not in str(caught.value)


def test_a_lost_connection_comes_back(postgres: PostgresServer) -> None:
    """A server that drops our connections: StoreUnavailable at most once, then all is well."""
    url = postgres.database()
    store = open_store(url)
    name = name_of(url)
    drop = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    with pytest.raises(errors.StoreUnavailable), store.write() as conn:
        postgres.execute(drop)
        conn.execute(schema.workspaces.insert().values(name="lost", created_at=now()))
    add_workspace(store, "kept")
    postgres.execute(drop)
    assert workspace_names(store) == ["Uncategorized", "kept"]
    store.close()
    postgres.drop(url)


def test_a_database_that_is_not_there(postgres: PostgresServer) -> None:
    """PostgreSQL says no such database: waiting does not help."""
    url = postgres.empty_database()
    postgres.drop(url)
    with pytest.raises(errors.StoreError, match="createdb"):
        open_store(url)
