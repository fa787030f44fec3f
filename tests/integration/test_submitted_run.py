"""Submitted experiments with a real controller: the snapshot, secrets and the warm start reach the trial."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from determined.client import Determined
from determined.store import trials
from tests.experiments import wait_until_alone, wait_until_over
from tests.history import History

SCRIPT = """
import json, os, pathlib, sys, time
import determined

info = determined.get_cluster_info()
place = pathlib.Path(sys.argv[1])
attempt = os.environ["DET_TRIAL_RUN_ID"]
seen = {
    "code": "as submitted", "secrets": info.user_data["secrets"], "hparams": info.trial.hparams,
    "latest": info.latest_checkpoint, "steps": os.environ["DET_STEPS_COMPLETED"], "key": os.environ["SOME_KEY"],
    "files": sorted(path.name for path in pathlib.Path().iterdir()), "cwd": os.getcwd(),
}
(place / f"{attempt}.json").write_text(json.dumps(seen))
while attempt == "1" and not (place / "go").exists():
    time.sleep(0.05)
sys.exit(3 if attempt == "1" else 0)
"""


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    with History(tmp_path) as made:
        monkeypatch.setenv("DET_STORE", str(made.place))
        monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
        monkeypatch.delenv("DET_CONTROLLER", raising=False)
        yield made
        wait_until_alone()


def wait_for(path: Path, seconds: float = 120.0) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} never came"
        time.sleep(0.05)
    time.sleep(0.1)  # it is being written
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_restart_runs_what_was_submitted(history: History, tmp_path: Path) -> None:
    """P-69, P-09, P-62: edits after submission change nothing; secrets are in clear; the newer checkpoint, steps 0."""
    source = history.run(validation={1: 0.5, 2: 0.4}, checkpoints=[1, 2])
    code, notes = tmp_path / "code", tmp_path / "notes"
    code.mkdir()
    notes.mkdir()
    (code / "train.py").write_text(SCRIPT)
    (code / ".detignore").write_text("*.csv\n")
    (code / "data.csv").write_text("1,2\n")
    config = {
        "entrypoint": ["python3", "train.py", str(notes)],
        "hyperparameters": {"lr": 0.1, "password": "p w"},
        "data": {"secrets": {"t": "abc"}},
        "environment": {"environment_variables": ["SOME_KEY=in clear"]},
        "searcher": {"name": "single", "metric": "loss", "source_trial_id": source.trial_id},
        "max_restarts": 1,
    }
    file = tmp_path / "e.yaml"
    file.write_text(json.dumps(config))
    command = [sys.executable, "-m", "determined.cli", "e", "create", str(file), str(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    experiment_id = int(done.stdout.split()[-1])
    first = wait_for(notes / "1.json")
    (code / "train.py").write_text(SCRIPT.replace("as submitted", "edited"))
    (notes / "go").touch()
    wait_until_over(history.store, experiment_id)
    second = wait_for(notes / "2.json")
    for seen in (first, second):
        assert (seen["code"], seen["secrets"], seen["key"]) == ("as submitted", {"t": "abc"}, "in clear")
        assert seen["hparams"] == {"lr": 0.1, "password": "p w"}
        assert (seen["latest"], seen["steps"]) == (source.checkpoints[2], "0")
        assert seen["files"] == ["train.py"]
    with Determined() as client:
        experiment = client.get_experiment(experiment_id)
        assert str(experiment.state) == "COMPLETED"
        assert experiment.config["data"] == {"secrets": {"t": "********"}}
    with history.store.read() as conn:
        (trial,) = trials.of_experiment(conn, experiment_id)
    assert (trial.restarts, trial.attempt, trial.warm_start_checkpoint_uuid) == (1, 2, source.checkpoints[2])


def test_a_paused_submission_runs_nothing(history: History, tmp_path: Path) -> None:
    """P-53: its initial trials exist in PAUSED; cancelled, it is CANCELED, and no process ever ran."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    space = {"lr": {"type": "double", "minval": 0, "maxval": 1}}
    config = {
        "entrypoint": "python3 train.py",
        "hyperparameters": space,
        "searcher": {"name": "random", "metric": "loss", "max_trials": 3},
    }
    with Determined() as client:
        experiment = client.create_experiment(config, code, paused=True)
        deadline = time.monotonic() + 120
        while len(experiment.list_trials()) < 3:
            assert time.monotonic() < deadline, "the trials never came"
            time.sleep(0.05)
        assert {str(trial.state) for trial in experiment.list_trials()} == {"PAUSED"}
        experiment.cancel()
        wait_until_over(history.store, experiment.id)
        experiment.reload()
        assert str(experiment.state) == "CANCELED"
        assert {str(trial.state) for trial in experiment.list_trials()} == {"CANCELED"}
    assert not (tmp_path / "ran").exists()


CONTINUED = """
import os, pathlib, sys, time
import determined

info = determined.get_cluster_info()
place = pathlib.Path(sys.argv[1])
lr = info.trial.hparams["lr"]
with (place / f"{lr}.log").open("a") as file:
    file.write(os.environ["DET_TASK_ID"] + "\\n")
if lr == 0.2 and not (place / "go").exists():
    if sys.argv[2] == "fail":
        sys.exit(1)
    time.sleep(600)
if sys.argv[2] == "fail" and len((place / f"{lr}.log").read_text().splitlines()) < 3:
    sys.exit(1)  # the second attempt fails once more
"""


def script(tmp_path: Path, how: str) -> tuple[Path, Path, str]:
    code, notes = tmp_path / "code", tmp_path / "notes"
    code.mkdir()
    notes.mkdir()
    (code / "train.py").write_text(CONTINUED)
    return code, notes, f"python3 train.py {notes} {how}"


def test_a_failed_trial_is_continued(history: History, tmp_path: Path) -> None:
    """P-59: with `max_restarts=1` restarts are counted from 0, and the task id ends in -1; the replay agrees."""
    code, notes, entrypoint = script(tmp_path, "fail")
    config = {
        "entrypoint": entrypoint,
        "hyperparameters": {"lr": 0.2},
        "searcher": {"name": "single", "metric": "loss"},
        "max_restarts": 0,
    }
    with Determined() as client:
        experiment = client.create_experiment(config, code)
        assert str(experiment.wait(interval=0.1)) == "ERROR"
        started = experiment.start_time
        (notes / "go").touch()
        experiment.continue_(settings=["max_restarts=1"])
        assert str(experiment.wait(interval=0.1)) == "COMPLETED"
        (trial,) = experiment.list_trials()
        first, *later = (notes / "0.2.log").read_text().split()
        assert (later, trial.restarts) == ([f"{first}-1"] * 2, 1)
        assert (experiment.start_time, experiment.config["max_restarts"]) == (started, 1)
        assert experiment.verify().differences == []


def test_only_what_did_not_complete_is_continued(history: History, tmp_path: Path) -> None:
    """P-60: of a grid with one COMPLETED and one killed trial only the killed one runs again."""
    code, notes, entrypoint = script(tmp_path, "sleep")
    config = {
        "entrypoint": entrypoint,
        "hyperparameters": {"lr": {"type": "categorical", "vals": [0.1, 0.2]}},
        "searcher": {"name": "grid", "metric": "loss"},
        "max_restarts": 0,
    }
    with Determined() as client:
        experiment = client.create_experiment(config, code)
        deadline = time.monotonic() + 120
        while not (notes / "0.2.log").exists():
            assert time.monotonic() < deadline, "the trial never came"
            time.sleep(0.05)
        (slow,) = (trial for trial in experiment.list_trials() if trial.hparams["lr"] == 0.2)
        slow.kill()
        assert str(experiment.wait(interval=0.1)) == "COMPLETED"
        (notes / "go").touch()
        experiment.continue_()
        assert str(experiment.wait(interval=0.1)) == "COMPLETED"
        assert {str(trial.state) for trial in experiment.list_trials()} == {"COMPLETED"}
        assert experiment.verify().differences == []
    assert len((notes / "0.1.log").read_text().split()) == 1
    first, second = (notes / "0.2.log").read_text().split()
    assert second == f"{first}-1"
