"""A loop of the Core API, in real processes: described to lists, and going on with its own trial."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from determined import client

SCRIPT = """
import sys
from determined import core

lr, source, last = float(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with core.init(name="loop", hparams={"lr": lr}, metric="accuracy", smaller_is_better=False, labels=["mine"]) as context:
    steps = 0
    found = context.checkpoint.latest() if source == "latest" else source
    if found and found != "none":
        with context.checkpoint.restore_path(found) as path:
            steps = int((path / "steps").read_text())
    print("from", steps)
    while steps < last:
        steps += 1
        context.train.report_training_metrics(steps, {"loss": 1 / steps})
        context.train.report_validation_metrics(steps, {"accuracy": steps / 10})
        with context.checkpoint.store_path({"steps_completed": steps}) as (path, storage_id):
            (path / "steps").write_text(str(steps))
    if len(sys.argv) > 4:
        with context.checkpoint.restore_path(context.checkpoint.latest()):  # the best one, to look at it once more
            context.train.report_metrics("test", steps, {"accuracy": 0.5})
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    path = tmp_path / "project" / "loop.py"
    path.parent.mkdir()
    path.write_text(SCRIPT)
    return path


def run(script: Path, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_plain_loop_is_described(script: Path) -> None:
    """core.init(name=, hparams=, metric=, smaller_is_better=, labels=) is what lists and comparisons show."""
    run(script, 0.1, "latest", 2)
    (experiment,) = client.list_experiments()
    assert (experiment.name, experiment.labels) == ("loop", {"mine"})
    (trial,) = experiment.list_trials()
    assert trial.hparams == {"lr": 0.1}
    assert (trial.searcher_metric, trial.best_metric) == ("accuracy", 0.2)


def test_a_resumed_loop_goes_on_with_its_trial(script: Path) -> None:
    """latest() finds what this script saved with these hyperparameters, and the run is the trial's next attempt."""
    assert run(script, 0.1, "latest", 2) == "from 0"
    assert run(script, 0.1, "latest", 4) == "from 2"
    (experiment,) = client.list_experiments()
    (trial,) = experiment.list_trials()
    assert trial.points("accuracy", "validation").steps == [1, 2, 3, 4]


def test_other_hyperparameters_start_afresh(script: Path) -> None:
    """With another learning rate there is nothing to go on from."""
    run(script, 0.1, "latest", 2)
    assert run(script, 0.2, "latest", 2) == "from 0"
    assert len(client.list_experiments()) == 2


def test_an_explicit_checkpoint_is_a_new_experiment_with_a_parent(script: Path) -> None:
    """Restoring a checkpoint by its id goes on from it, as an experiment that remembers where it came from."""
    run(script, 0.1, "none", 2)
    (first,) = client.list_experiments()
    saved = first.list_trials()[0].list_checkpoints()
    newest = max(saved, key=lambda checkpoint: checkpoint.metadata["steps_completed"]).uuid
    assert run(script, 0.1, newest, 3) == "from 2"
    second = next(one for one in client.list_experiments() if one.id != first.id)
    assert second.parent_id == first.id


def test_restoring_at_the_end_hides_nothing(script: Path) -> None:
    """A checkpoint that is restored after training, to evaluate it, takes nothing back of what was reported."""
    run(script, 0.1, "none", 3, "evaluate")
    (experiment,) = client.list_experiments()
    (trial,) = experiment.list_trials()
    assert trial.points("loss", "training").steps == [1, 2, 3]
    assert trial.points("accuracy", "test").steps == [3]
