"""PostgreSQL is killed with SIGKILL under real experiments, and started again: all wait for it, nothing is lost."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from determined.client import Determined, Experiment
from determined.store.database.connection import open_store
from tests.browsers import Server as PageServer
from tests.experiments import (
    ASHA,
    check_intact,
    controller_pid,
    engine_events,
    is_over,
    processes,
    starts_of_trials,
    submit_search,
    wait_until_alone,
    wait_until_over,
)
from tests.lifecycles import BASE, Lab
from tests.stores import Database

DET = [sys.executable, "-m", "determined.cli"]

# Both report all the time; one ends while there is no server, the other goes on till it is back.
TRAIN = """
last = "early" if info.trial.hparams["early"] else "late"
with core.init() as context:
    note(start=restored(context), pid=os.getpid(), last=last)
    step = 0
    while not is_told(last):
        step += 1
        context.train.report_training_metrics(step, {"loss": 1 / step})
        if step % 20 == 0:
            context.train.report_validation_metrics(step, {"loss": 1 / step})
            print("at step", step)
            save(context, step)
        time.sleep(0.01)
    context.train.report_validation_metrics(step, {"loss": 1 / step})
note(steps=step)
"""


@pytest.fixture
def home(leaves_nothing_behind: None, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory, with the store on a server."""
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DET_STORE", database.url)
    return tmp_path / "home"


def create(lab: Lab, script: str, **changes: Any) -> Experiment:
    """Submit an experiment by the command, as users do."""
    code = lab.code(script)
    environment = {"environment_variables": [f"NOTES={lab.directory / 'notes'}"]}
    (code / "config.yaml").write_text(yaml.safe_dump({**BASE, "environment": environment, **changes}))
    command = [*DET, "experiment", "create", str(code / "config.yaml"), str(code)]
    subprocess.run(command, check=True, capture_output=True)
    return lab.client.list_experiments()[0]


def metrics(experiment: Experiment, trial_id: int, group: str) -> list[int]:
    """Return the steps that a trial has reported, in order."""
    (trial,) = [each for each in experiment.list_trials() if each.id == trial_id]
    return sorted(row.steps_completed for row in trial.iter_metrics(group) if row.steps_completed is not None)


@pytest.mark.slow
def test_the_server_is_killed_and_comes_back(
    lab: Lab, database: Database, page_server: Callable[..., PageServer]
) -> None:
    """Issue 16: PostgreSQL is killed -9 while two trials train; one ends meanwhile. When it is back, both have one
    attempt, no restart, every metric and every line; the controller is the same process, and so is the page, which said
    that it had no store.
    """
    searcher = {"name": "grid", "metric": "loss", "max_concurrent_trials": 2}
    space = {"early": {"type": "categorical", "vals": [True, False]}}
    experiment = create(lab, TRAIN, searcher=searcher, hyperparameters=space)
    pids = {note["last"]: note["pid"] for note in lab.started(experiment, 2)}
    controller = controller_pid(lab.store)
    page = page_server()
    headers = {"Authorization": f"Bearer {page.token}"}
    address = f"{page.address}/api/v1/experiments/{experiment.id}"
    lab.until(lambda: all(len(metrics(experiment, trial.id, "training")) > 50 for trial in experiment.list_trials()))
    assert httpx.get(address, headers=headers).status_code == 200

    database.kill()
    refused = httpx.get(address, headers=headers, timeout=60)
    assert (refused.status_code, "cannot be reached" in refused.json()["detail"]) == (503, True)
    lab.tell("early")
    lab.until(lambda: not psutil.pid_exists(pids["early"]))
    assert psutil.pid_exists(pids["late"])
    database.start()
    lab.until(lambda: httpx.get(address, headers=headers, timeout=60).status_code == 200)
    lab.tell("late")

    assert lab.end(experiment) == "COMPLETED"
    assert controller_pid(lab.store) == controller
    assert [(row.attempt, row.exit_code) for row in lab.attempts(experiment)] == [(1, 0)] * 2
    ended = lab.noted(experiment, "steps", 2)
    for note in ended:
        assert metrics(experiment, note["trial"], "training") == list(range(1, note["steps"] + 1))
        validated = {*range(20, note["steps"] + 1, 20), note["steps"]}
        assert metrics(experiment, note["trial"], "validation") == sorted(validated)
        lines = lab.client.get_trial(note["trial"]).iter_logs(search_text="at step")
        assert {int(line.split()[-1]) for line in lines} == set(range(20, note["steps"] + 1, 20))
    for trial in experiment.list_trials():
        assert (trial.restarts, trial.state.value) == (0, "COMPLETED")
    page.stop()


@pytest.mark.slow
def test_the_server_is_killed_again_and_again(
    home: Path, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 16: PostgreSQL is killed -9 three times while trials of a search start, report, are stopped and end: no
    restart is charged, none trains anything twice, replaying the events agrees with the rows, and the check is clean.
    """
    monkeypatch.setenv("DET_SLOTS", "2")
    store = open_store()
    try:
        ident = submit_search(tmp_path / "search", seconds=0.2, searcher={**ASHA["searcher"], "max_trials": 6})
        for done in (2, 9, 16):
            while engine_events(store, ident) < done and not is_over(store, ident):
                time.sleep(0.02)
            database.kill()
            time.sleep(1.5)  # what happens without a server is part of the test
            database.start()
        wait_until_over(store, ident)
        with Determined() as client:
            client.controller.stop()
        wait_until_alone()
        check_intact(store, ident, tmp_path / "search")
        with Determined() as client:
            again = [trial for trial in client.get_experiment(ident).list_trials() if trial.restarts]
            assert not again, "".join(line for trial in again for line in trial.iter_logs())
        assert all(starts == [0] for starts in starts_of_trials(tmp_path / "search"))
    finally:
        for process in processes():
            process.kill()
        store.close()
