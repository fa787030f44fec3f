"""A place to run real experiments in a test: scripts without torch that note what they do, and wait to be told.

def test_something(lab):
    experiment = lab.submit("note(began=True)")
    assert lab.end(experiment) == "COMPLETED"
    assert lab.notes(experiment) == [{"trial": 1, "attempt": 1, "began": True}]
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from determined.client import Determined, Experiment, Trial
from determined.store.attempts import AttemptRow
from determined.store.database.connection import Store, open_store
from determined.store.upkeep import checks
from tests.experiments import processes, wait_until_alone

# What scripts begin with: `core` runs, `note` writes down, `wait_for` waits until the test says so.
ACTING = """
import json, os, pathlib, sys, time
import determined
from determined import core

info = determined.get_cluster_info()
notes = pathlib.Path(os.environ["NOTES"])
attempt = info.trial._trial_run_id


def note(**what):
    line = json.dumps({"trial": info.trial.trial_id, "attempt": attempt, **what}) + "\\n"
    with (notes / "notes.jsonl").open("a") as file:
        file.write(line)


def is_told(name):
    return (notes / name).exists()


def wait_for(name):
    while not is_told(name):
        time.sleep(0.02)


def save(context, step):
    with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
        (path / "step").write_text(str(step))


def restored(context):
    if info.latest_checkpoint is None:
        return 0
    with context.checkpoint.restore_path(info.latest_checkpoint) as path:
        return int((path / "step").read_text())
"""

BASE: dict[str, Any] = {
    "entrypoint": "python3 train.py",
    "max_restarts": 0,
    "searcher": {"name": "single", "metric": "loss"},
    "checkpoint_policy": "none",
}

PATIENCE_SECONDS = 60.0  # for a machine with much else to do


class Lab:
    """Real experiments of one test.

    Attributes:
        directory: Where code and notes are.
        client: The client.
        store: The store, open.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.client = Determined()
        self.store: Store = open_store()
        self._notes = directory / "notes"
        self._notes.mkdir(parents=True)
        self._numbers = itertools.count(1)

    def code(self, script: str, **files: str) -> Path:
        """Return a new directory with `train.py`; `files` are others, with `_` for the dot of their names."""
        place = self.directory / f"code{next(self._numbers)}"
        place.mkdir()
        (place / "acting.py").write_text(ACTING)
        (place / "train.py").write_text("from acting import *\n" + textwrap.dedent(script))
        for name, text in files.items():
            (place / name.replace("__", "-").replace("_", ".")).write_text(textwrap.dedent(text))
        return place

    def submit(self, script: str | Path, **changes: Any) -> Experiment:
        """Submit an experiment of one trial, unless `changes` say otherwise."""
        code = script if isinstance(script, Path) else self.code(script)
        environment = {"environment_variables": [f"NOTES={self._notes}"]}
        return self.client.create_experiment({**BASE, "environment": environment, **changes}, code)

    def tell(self, name: str) -> None:
        """Let scripts that `wait_for` this go on."""
        (self._notes / name).touch()

    def notes(self, experiment: Experiment, **which: Any) -> list[dict[str, Any]]:
        """Return what the scripts of an experiment have noted; only notes that say what `which` says."""
        file = self._notes / "notes.jsonl"
        written = file.read_text() if file.exists() else ""
        mine = {trial.id for trial in experiment.list_trials()}
        found = [json.loads(line) for line in written.splitlines(keepends=True) if line.endswith("\n")]
        return [note for note in found if note["trial"] in mine and which.items() <= note.items()]

    def until(self, holds: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
        """Wait until something holds, and return it."""
        deadline = time.monotonic() + seconds
        while not (found := holds()):
            assert time.monotonic() < deadline, "this does not come to hold"
            time.sleep(0.02)
        return found

    def noted(self, experiment: Experiment, word: str, count: int = 1, **which: Any) -> list[dict[str, Any]]:
        """Wait until notes with this word are there, so many of them, and return those."""

        def found() -> list[dict[str, Any]]:
            words = [note for note in self.notes(experiment, **which) if word in note]
            return words if len(words) >= count else []

        notes: list[dict[str, Any]] = self.until(found)
        return notes

    def started(self, experiment: Experiment, count: int = 1) -> list[dict[str, Any]]:
        """Wait until scripts have noted their `start` so often, and count as RUNNING: they are asked to stop then,
        and not killed as those that have not come so far.
        """
        notes = self.noted(experiment, "start", count)
        self.until(lambda: all(row.state in ("RUNNING", "TERMINATED") for row in self.attempts(experiment)))
        return notes

    def end(self, experiment: Experiment) -> str:
        """Wait for the end of an experiment, and return its state."""
        return str(experiment.wait(interval=0.05).value)

    def only_trial(self, experiment: Experiment) -> Trial:
        """Return the trial of an experiment that has one."""
        (trial,) = experiment.list_trials()
        return trial

    def attempts(self, experiment: Experiment) -> list[AttemptRow]:
        """Return the attempts of all trials of an experiment."""
        return [row for trial in experiment.list_trials() for row in trial.attempts()]

    def no_attempt_runs(self, experiment: Experiment) -> bool:
        """Return whether all attempts there were have ended."""
        return all(row.state == "TERMINATED" for row in self.attempts(experiment))

    def log(self, experiment: Experiment) -> str:
        """Return the log of all trials of an experiment."""
        return "".join(line for trial in experiment.list_trials() for line in trial.iter_logs())

    def leave(self) -> None:
        """Hold that nothing is left: no process, no working directory, and a store that passes its check."""
        self.until(lambda: not self.running())
        self.client.controller.stop()
        wait_until_alone()
        assert checks.check(self.store) == []
        left = [str(path) for path in (Path(os.environ["DET_HOME"]) / "work").rglob("*")]
        assert not left, f"in working directories there is left: {left}"

    def running(self) -> list[int]:
        """Return the process ids of agents of this test's data directory, and of all below them."""
        holder = self.client.controller.status().pid
        return [process.pid for process in processes() if process.pid != holder]

    def close(self) -> None:
        """Kill what a test that failed has left."""
        for process in processes():
            process.kill()
        self.client.close()
        self.store.close()


@contextlib.contextmanager
def opened_lab(directory: Path) -> Iterator[Lab]:
    """Real experiments until the end of a block; nothing of them is left then."""
    opened = Lab(directory)
    try:
        yield opened
        opened.leave()
    finally:
        opened.close()


@pytest.fixture
def lab(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Two slots, real processes; nothing of them is left at the end."""
    monkeypatch.setenv("DET_SLOTS", "2")
    with opened_lab(tmp_path / "lab") as opened:
        yield opened
