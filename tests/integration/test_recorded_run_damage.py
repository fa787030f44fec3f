"""The database damaged in the middle of a run, or before it: said once, set aside, and what comes next is kept."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from determined import core
from determined.store.database.connection import open_store
from determined.store.upkeep import checks
from tests import records

GARBAGE = b"\xa5\x5a" * 60_000


def overwrite(path: Path, other: Path) -> None:
    shutil.copyfile(other, path)


def replace(path: Path, other: Path) -> None:
    shutil.copyfile(other, other.with_name("copy"))
    other.with_name("copy").rename(path)


def header(path: Path, other: Path) -> None:
    with path.open("r+b") as file:
        file.write(GARBAGE[:100])


def truncate(path: Path, other: Path) -> None:
    os.truncate(path, path.stat().st_size // 8192 * 4096)


def empty(path: Path, other: Path) -> None:
    os.truncate(path, 0)


@pytest.fixture
def garbage(tmp_path: Path) -> Path:
    path = tmp_path / "garbage"
    path.write_bytes(GARBAGE)
    return path


@pytest.fixture
def another_store(tmp_path: Path) -> Path:
    """A store with an experiment of its own, which has the ids that a first run gets too."""
    path = tmp_path / "another" / "determined.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_HOME", str(path.parent))
        with core.init() as context:
            context.train.report_validation_metrics(1, {"theirs": 1.0})
    return path


def write_back(path: Path) -> None:
    """Have nothing left in the log, as after a while."""
    conn = sqlite3.connect(path)
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    conn.close()


def steps(path: Path | None = None) -> set[int]:
    """Which of our steps are there."""
    rows = records.reported("training", None if path is None else str(path))
    return {step for step, values in rows if "loss" in values}


def run_through(damage: Callable[[], None], before_damage: Callable[[], None] = lambda: None) -> None:
    """Report ten steps, with damage after the fifth, and a second wave of trouble never."""
    with core.init() as context:
        for step in range(1, 6):
            context.train.report_training_metrics(step, {"loss": 1.0})
        assert context._shipper.flush(240)
        before_damage()
        damage()
        for step in range(6, 11):
            context.train.report_training_metrics(step, {"loss": 1.0})
            assert context._shipper.flush(240)


def damage_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def asides(home: Path) -> list[Path]:
    return [path for path in home.glob("determined.db.*") if not path.name.endswith(("-wal", "-shm"))]


@pytest.mark.parametrize("damage", [overwrite, replace, header, truncate, empty])
def test_damage_in_the_middle(
    home: Path, garbage: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path, Path], None]
) -> None:
    """Issue 11: the damaged file is set aside as it is, one line says so, and no later report is lost."""
    path = home / "determined.db"
    found: list[bytes] = []

    def strike() -> None:
        damage(path, garbage)
        found.append(path.read_bytes())

    run_through(strike, lambda: write_back(path))
    (line,) = damage_lines(caplog)
    (aside,) = asides(home)
    assert "is damaged" in line
    assert aside.name in line
    assert ".damaged-" in aside.name
    assert aside.read_bytes() == found[0], "never overwritten"
    assert steps() == {6, 7, 8, 9, 10}
    with records.opened() as store:
        assert checks.check(store) == []
    assert not list(home.glob("runs/*"))


@pytest.mark.parametrize("damage", [overwrite, header, truncate, empty])
def test_damage_while_all_is_in_the_log(home: Path, garbage: Path, damage: Callable[[Path, Path], None]) -> None:
    """Issue 11: where SQLite's log still has every page, it mends the file itself; either way nothing later is lost."""
    run_through(lambda: damage(home / "determined.db", garbage))
    assert steps() >= {6, 7, 8, 9, 10}
    assert steps() == set(range(1, 11)) or asides(home)
    with records.opened() as store:
        assert checks.check(store) == []


@pytest.mark.parametrize("how", [overwrite, replace])
def test_another_store_in_its_place(
    home: Path, another_store: Path, caplog: pytest.LogCaptureFixture, how: Callable[[Path, Path], None]
) -> None:
    """Issue 11: what a run reports never ends up in a trial of another store that happens to have its number."""
    path = home / "determined.db"
    run_through(lambda: how(path, another_store), lambda: write_back(path))
    assert len(damage_lines(caplog)) == 1
    assert steps() == {6, 7, 8, 9, 10}
    for row in records.table("trials"):
        names = {name for group in row["summary_metrics"].values() for name in group}
        assert names in ({"loss"}, {"theirs"})
    with records.opened() as store:
        assert checks.check(store) == []


def test_a_removed_store_is_delivered_to_the_next(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Issue 11: removed, and made anew by somebody else: the run goes on there."""

    def remove() -> None:
        for path in home.glob("determined.db*"):
            path.unlink()
        open_store().close()

    run_through(remove)
    assert len(damage_lines(caplog)) == 1
    assert steps() == {6, 7, 8, 9, 10}


@pytest.mark.parametrize("is_usual", [True, False])
def test_damage_before_the_start(
    home: Path, garbage: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_usual: bool
) -> None:
    """Issue 11: the same treatment; but a file that only DET_STORE names may be anything, and is left where it is."""
    path = home / ("determined.db" if is_usual else "notes.txt")
    home.mkdir(mode=0o700)
    shutil.copyfile(garbage, path)
    monkeypatch.setenv("DET_STORE", str(path))
    monkeypatch.setattr("determined.core.recording.shipper.LAST_CHANCE_SECONDS", 0.5)
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
    if is_usual:
        (line,) = damage_lines(caplog)
        (aside,) = asides(home)
        assert aside.read_bytes() == GARBAGE
        assert aside.name in line
        assert steps(path) == {1}
        return
    assert path.read_bytes() == GARBAGE
    assert "They are kept" in damage_lines(caplog)[-1]
    path.unlink()
    with core.init():
        pass
    assert steps(path) == {1}


def test_two_that_notice_at_once(home: Path, garbage: Path) -> None:
    """Issue 11: the second finds the new store of the first, and leaves it alone."""
    with core.init(), core.init() as one, core.init() as other:
        for context in (one, other):
            context.train.report_training_metrics(1, {"loss": 1.0})
            assert context._shipper.flush(240)
        write_back(home / "determined.db")
        shutil.copyfile(garbage, home / "determined.db")
        for context in (one, other):
            context.train.report_training_metrics(2, {"loss": 1.0})
        for context in (one, other):
            assert context._shipper.flush(240)
    assert len(asides(home)) == 1
    assert len([step for step, _ in records.reported("training") if step == 2]) == 2
