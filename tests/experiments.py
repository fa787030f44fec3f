"""Real searches for tests: trials that train without torch, a real controller, and what they leave behind."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy as sa

from determined.client import Determined
from determined.experiment.controller import history
from determined.store import attempts, experiments, trials
from determined.store.control import controllers
from determined.store.database.connection import Store
from determined.store.upkeep import checks

SCRIPT = """
import json, pathlib, sys, time
import determined
from determined import core

info = determined.get_cluster_info()
lr = info.trial.hparams["lr"]
log = pathlib.Path(sys.argv[1]) / f"{info.trial.trial_id}.jsonl"

def note(**what):
    with log.open("a") as file:
        file.write(json.dumps(what) + "\\n")

with core.init() as context:
    done = 0
    if info.latest_checkpoint is not None:
        with context.checkpoint.restore_path(info.latest_checkpoint) as path:
            done = json.loads((path / "state.json").read_text())["step"]
    note(attempt=info.trial._trial_run_id, start=done)
    for step in range(done + 1, 5):
        time.sleep(float(sys.argv[2]))
        note(trained=step)
        context.train.report_validation_metrics(step, {"loss": abs(lr - 0.5) + 0.001 / step, "batches": step})
        with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "state.json").write_text(json.dumps({"step": step}))
        note(saved=step)
        if context.preempt.should_preempt():
            break
"""

ASHA: dict[str, Any] = {
    "name": "crash",
    "max_restarts": 50,
    "hyperparameters": {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}},
    "searcher": {
        "name": "adaptive_asha", "metric": "loss", "max_trials": 16, "time_metric": "batches", "max_time": 4,
        "max_concurrent_trials": 4, "divisor": 2,
    },
    "reproducibility": {"experiment_seed": 11},
    "checkpoint_policy": "none",
}  # fmt: skip


def submit_search(directory: Path, *, seconds: float = 0.05, **changes: Any) -> int:
    """Submit a search whose trials note what they do in `directory`/notes; return its id."""
    directory.mkdir(exist_ok=True)
    code, notes = directory / "code", directory / "notes"
    code.mkdir(exist_ok=True)
    notes.mkdir()
    (code / "train.py").write_text(SCRIPT)
    config = {**ASHA, "entrypoint": f"python3 train.py {notes} {seconds}", **changes}
    with Determined() as client:
        return int(client.create_experiment(config, code).id)


def controller_pid(store: Store) -> int | None:
    """Return the process that holds the lease, if it lives."""
    with store.read() as conn:
        row = controllers.current(conn)
    return row.pid if row is not None and row.is_alive else None


def engine_events(store: Store, experiment_id: int) -> int:
    """Return how many events the engine has handled."""
    with store.read() as conn:
        query = sa.text("SELECT count(*) FROM events WHERE kind = 'ENGINE' AND experiment_id = :experiment")
        return int(conn.execute(query, {"experiment": experiment_id}).scalar() or 0)


def is_over(store: Store, experiment_id: int) -> bool:
    with store.read() as conn:
        return experiments.get(conn, experiment_id).state in experiments.TERMINAL


def wait_until_over(store: Store, experiment_id: int, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_over(store, experiment_id):
        assert time.monotonic() < deadline, "the search does not end"
        time.sleep(0.05)


def wait_until_alone(seconds: float = 120.0) -> None:
    """Wait until the controller and all agents of this test's data directory have left."""
    deadline = time.monotonic() + seconds
    while found := processes():
        assert time.monotonic() < deadline, f"processes are left: {found}"
        time.sleep(0.1)


def processes() -> list[psutil.Process]:
    """Return all other processes of this test's data directory."""
    home = os.environ["DET_HOME"]
    found = []
    for process in psutil.process_iter():
        try:
            is_ours = process.pid != os.getpid() and process.environ().get("DET_HOME") == home
            if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            pass
    return found


def decisions(store: Store, experiment_id: int) -> dict[str, Any]:
    """Return what a search has decided: its trials, its rungs, its best trial."""
    with store.read() as conn:
        engine = history.replay(conn, experiment_id)
        rows = trials.of_experiment(conn, experiment_id)
    best = min((row.searcher_metric_value, row.request_id) for row in rows if row.searcher_metric_value is not None)
    return {
        "trials": [(row.request_id, row.hparams, row.state) for row in rows],
        "rungs": engine.searcher.snapshot()["method"],
        "best": best[1],
    }


def starts_of_trials(directory: Path) -> list[list[int]]:
    """Return for each trial the steps from which its scripts began to train."""
    found = []
    for path in sorted((directory / "notes").iterdir(), key=lambda path: int(path.stem)):
        notes = [json.loads(line) for line in path.read_text().splitlines()]
        found.append([note["start"] for note in notes if "start" in note])
    return found


def check_intact(store: Store, experiment_id: int, directory: Path) -> None:
    """The replay agrees with the rows, the store passes its check, and no attempt begins before a saved checkpoint."""
    with store.read() as conn:
        engine = history.replay(conn, experiment_id)
        rows = trials.of_experiment(conn, experiment_id)
        assert engine.state.value == experiments.get(conn, experiment_id).state == "COMPLETED"
        assert {row.request_id: row.state for row in rows} == {r: t.state.value for r, t in engine.trials.items()}
        assert {row.request_id: row.restarts for row in rows} == {r: t.restarts for r, t in engine.trials.items()}
        for row in rows:
            assert [each.state for each in attempts.of_trial(conn, row.id)] == ["TERMINATED"] * row.attempt
    assert checks.check(store) == []
    for row in rows:
        saved = 0
        for line in (directory / "notes" / f"{row.id}.jsonl").read_text().splitlines():
            note = json.loads(line)
            assert note.get("start", saved) >= saved, f"trial {row.id} began before its checkpoint at {saved}"
            saved = note.get("saved", saved)
