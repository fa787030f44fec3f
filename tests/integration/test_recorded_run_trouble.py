"""The database slow, locked, read-only, full, gone or killed: training never notices, and what is lost is said."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from determined import core
from determined.core.recording import shipper
from determined.store.database import connection
from tests import records
from tests.stores import started_postgres

RUN = """
import sys, time
from determined import core
from determined.core.recording import shipper
shipper.LAST_CHANCE_SECONDS = 200.0
with core.init() as context:
    for step in range(100):
        context.train.report_training_metrics(step, {"loss": 1.0})
        assert not context.preempt.should_preempt()
        time.sleep(0.01)
    print("trained", flush=True)
"""


@contextlib.contextmanager
def hurried() -> Iterator[None]:
    """Nobody waits long for a database that is away."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "BUSY_SECONDS", 0.2)
        patch.setattr(shipper, "LAST_CHANCE_SECONDS", 0.5)
        yield


@contextlib.contextmanager
def locked(home: Path) -> Iterator[None]:
    """The store, while another process writes and writes."""
    with core.init():
        pass  # makes it
    other = sqlite3.connect(home / "determined.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.rollback()
        other.close()


def steps(trial_id: int, place: str | None = None) -> list[int]:
    rows = records.table("metrics", place)
    return sorted(row["steps"] for row in rows if row["trial_id"] == trial_id and row["metric_group"] == "training")


def eventually(claim: Callable[[], bool], seconds: float = 240) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if claim():
            return True
        time.sleep(0.05)
    return False


def test_a_locked_store_does_not_hold_up_training(home: Path) -> None:
    """Decision 4: training runs through while another process has the store; then everything is written."""
    with locked(home):
        process = subprocess.Popen(
            [sys.executable, "-c", RUN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "trained\n", "although nothing could be written"
    _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert steps(2) == list(range(100))


def test_a_store_that_stays_locked_is_caught_up_later(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Decision 4: the run ends, one line says that its reports are kept, and the next run delivers them."""
    with locked(home), hurried(), core.init() as context, caplog.at_level(logging.WARNING, "determined.core"):
        for step in range(100):
            context.train.report_training_metrics(step, {"loss": 1.0})
    said = [record.getMessage() for record in caplog.records]
    assert len([line for line in said if "cannot be written now" in line]) == 1
    assert len([line for line in said if "the next run delivers them" in line]) == 1
    assert len(records.table("experiments")) == 1
    with core.init():
        pass
    assert [row["state"] for row in records.table("experiments")] == ["COMPLETED"] * 3
    assert list(range(100)) in [steps(trial["id"]) for trial in records.table("trials")]
    assert list((home / "runs").iterdir()) == []


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Decision 4: what SQLite says on a full disk is waited out, and all of it is there once there is space."""
    pages = 150
    begin = connection._begin_sqlite

    def with_little_space(conn: Any) -> None:
        conn.exec_driver_sql(f"PRAGMA max_page_count = {pages}")  # SQLite's own "database or disk is full"
        begin(conn)

    monkeypatch.setattr(connection, "_begin_sqlite", with_little_space)
    with caplog.at_level(logging.WARNING, "determined.core"), core.init() as context:
        for step in range(300):
            context.train.report_training_metrics(step, {"loss": 1.0, "text": "x" * 5000})
        assert eventually(lambda: any("full" in record.getMessage() for record in caplog.records))
        pages = 100_000
        assert context._shipper.flush(240)
    assert steps(1) == list(range(300))
    assert [row["state"] for row in records.table("experiments")] == ["COMPLETED"]


def test_a_store_that_may_only_be_read(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Decision 4: a read-only store is one line, and no reason not to train."""
    with core.init():
        pass
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "determined.core"):
        patch.setattr(connection.os, "access", lambda *_: False)  # root may write everywhere
        with hurried(), core.init() as context:
            context.train.report_training_metrics(1, {"loss": 1.0})
    assert (
        len([r for r in caplog.records if "may only be read" in r.getMessage() and "cannot be" in r.getMessage()]) == 1
    )
    with core.init():
        pass
    assert len(records.table("experiments")) == 3


def test_the_data_directory_cannot_be_written(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Decision 4: where not even a file can be kept, the loss is said in one line."""
    home.write_text("a file where the directory should be")
    with caplog.at_level(logging.WARNING, "determined.core"), hurried():
        with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
            context.train.report_training_metrics(1, {"loss": 1.0})
    assert len([record for record in caplog.records if "were lost" in record.getMessage()]) == 1


def test_a_removed_store_is_missed(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Decision 4: the file goes while the run goes on; its reports are kept, and nothing is raised."""
    with hurried(), caplog.at_level(logging.WARNING, "determined.core"), core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
        assert context._shipper.flush(240)
        for path in home.glob("determined.db*"):
            path.unlink()
        context.train.report_training_metrics(2, {"loss": 1.0})
    assert any("removed while in use" in record.getMessage() for record in caplog.records)


@pytest.fixture
def server() -> Iterator[Any]:
    """A PostgreSQL of this test's own, which may be killed."""
    with started_postgres() as running:
        yield running


@pytest.mark.slow
def test_a_server_that_is_killed_and_comes_back(
    server: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Decision 4: PostgreSQL is killed -9 in the middle of a run and started again: every report is there, once."""
    place = server.get_uri()
    monkeypatch.setenv("DET_STORE", place)
    done = threading.Event()
    count = 0
    with caplog.at_level(logging.WARNING, "determined.core"), core.init() as context:

        def train() -> None:
            nonlocal count
            while not done.is_set():
                context.train.report_training_metrics(count, {"loss": count * 0.5})
                count += 1
                time.sleep(0.002)

        thread = threading.Thread(target=train)
        thread.start()
        try:
            assert eventually(lambda: len(steps(1, place)) > 100 if context._link.place != "the store" else False)
            postmaster = psutil.Process(server.get_pid())
            family = [postmaster, *postmaster.children()]
            os.kill(postmaster.pid, signal.SIGKILL)
            psutil.wait_procs(family, timeout=240)
            assert eventually(lambda: any("cannot be written now" in record.getMessage() for record in caplog.records))
            server.ensure_postgres_running()
            before = count
            assert eventually(lambda: count > before + 100)
        finally:
            done.set()
            thread.join()
        assert context._shipper.flush(240), "the server needs some time to recover"
    assert steps(1, place) == list(range(count))
    assert [row["state"] for row in records.table("experiments", place)] == ["COMPLETED"]
