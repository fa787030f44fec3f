"""Scripts in the style of the original run unmodified under `det experiment create`, with every search method."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined import client
from determined.client import Determined

ROOT = Path(__file__).parents[2]
SEARCH = ROOT / "examples" / "search"
BATCHES = 4 * 45  # of most of the files: four epochs


class Desk:
    """A data directory with two slots, and a person who types."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {
            **os.environ,
            "DET_HOME": str(home),
            "DET_STORE": "",
            "DET_SLOTS": "2",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "100",
        }

    def types(self, *arguments: str, code: int | None = 0) -> str:
        """Run det to its end and return what it prints; all of it, if it fails."""
        done = subprocess.run(
            [sys.executable, "-m", "determined.cli", *arguments],
            cwd=self.home.parent,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr + self.controller_log()
        return done.stdout

    def creates(self, name: str, *arguments: str) -> client.Experiment:
        """Submit one of the files and wait for the end of the experiment."""
        out = self.types(
            "experiment", "create", str(SEARCH / f"{name}.yaml"), str(SEARCH), "--follow", *arguments, code=None
        )
        found = re.search(r"experiment (\d+)", out)
        assert found, out
        return self.finds(int(found[1]))

    def finds(self, experiment_id: int) -> client.Experiment:
        return Determined(store=self.home / "determined.db").get_experiment(experiment_id)

    def logs(self, experiment: client.Experiment) -> str:
        """What the trials of an experiment and the controller said, to explain a failed test."""
        lines = [line for trial in experiment.list_trials() for line in trial.iter_logs()]
        return f"{experiment.state}: {experiment.state_reason}\n" + "".join(lines) + self.controller_log()

    def controller_log(self) -> str:
        path = self.home / "logs" / "controller.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "home")
    yield made
    made.types("controller", "stop", code=None)


def completed(desk: Desk, experiment: client.Experiment) -> list[client.Trial]:
    """The trials of an experiment in which everything went well, in the order in which they were created."""
    trials = list(experiment.list_trials())
    assert experiment.state.value == "COMPLETED", desk.logs(experiment)
    assert {trial.state.value for trial in trials} == {"COMPLETED"}, desk.logs(experiment)
    assert {trial.restarts for trial in trials} == {0}, desk.logs(experiment)
    assert experiment.progress == 1.0
    return trials


def test_one_trial_trains_as_the_file_says(desk: Desk) -> None:
    """1.11: a script that reads its hyperparameters from the cluster info trains, validates and saves; one command."""
    experiment = desk.creates("single")
    [trial] = completed(desk, experiment)
    assert trial.hparams == {"global_batch_size": 32, "lr": 0.1, "channels": 16, "dropout": 0.1}
    assert trial.total_batches == BATCHES
    assert [report.metrics["epochs"] for report in trial.iter_metrics("validation")] == [1, 2, 3, 4]
    assert trial.best_metric is not None
    assert trial.best_metric > 0.8
    best = experiment.top_checkpoint()
    assert (desk.home / "checkpoints" / best.uuid / "state_dict.pth").is_file()


@pytest.mark.slow
def test_random_trains_every_sample_to_its_end(desk: Desk) -> None:
    """P-34: three samples, two at a time."""
    trials = completed(desk, desk.creates("random", "--config", "searcher.max_trials=3"))
    assert [trial.total_batches for trial in trials] == [BATCHES] * 3
    assert len({trial.hparams["lr"] for trial in trials}) == 3


@pytest.mark.slow
def test_grid_trains_every_point_the_last_first(desk: Desk) -> None:
    """P-36: every combination, from the last one back."""
    trials = completed(desk, desk.creates("grid", "--config", "hyperparameters.lr.count=2"))
    points = [(trial.hparams["channels"], round(trial.hparams["lr"], 6)) for trial in trials]
    assert points == [(size, lr) for size in (32, 4) for lr in (0.1, 0.001)]
    assert [trial.total_batches for trial in trials] == [BATCHES] * 4


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("adaptive_asha", 4), ("async_halving", 3)])
def test_a_halving_search_stops_weak_trials(desk: Desk, name: str, count: int) -> None:
    """P-41: trials are stopped at their rungs with a checkpoint, one trains to the end, and replaying agrees."""
    changes = (f"searcher.max_trials={count}", "searcher.max_time=16", "hyperparameters.channels=4")
    experiment = desk.creates(name, *(word for change in changes for word in ("--config", change)))
    trials = completed(desk, experiment)
    assert len(trials) == count
    lengths = sorted(trial.total_batches for trial in trials)
    assert lengths[0] < 64 * 45, "nobody was stopped"
    assert lengths[-1] >= 16 * 45
    assert all(trial.list_checkpoints() for trial in trials)
    desk.types("experiment", "verify", str(experiment.id))


@pytest.mark.slow
def test_optuna_proposes_trials(desk: Desk) -> None:
    """A sampler of Optuna decides in the controller what to train next."""
    pytest.importorskip("optuna")
    trials = completed(desk, desk.creates("optuna", "--config", "searcher.max_trials=2"))
    assert [trial.total_batches for trial in trials] == [BATCHES] * 2


@pytest.mark.slow
def test_two_slots_train_one_model(desk: Desk) -> None:
    """1.11: with slots_per_trial 2 the launcher starts one process per slot; together they train each batch."""
    experiment = desk.creates("distributed")
    [trial] = completed(desk, experiment)
    assert trial.total_batches == BATCHES
    ranks = {row.rank for row in trial.iter_log_rows() if row.rank is not None}
    assert ranks >= {0}, desk.logs(experiment)
    [attempt] = trial.attempts()
    assert attempt.slots == 2


@pytest.mark.slow
def test_a_trial_class_needs_no_script(desk: Desk) -> None:
    """1.3: `model_def:DigitsTrial` trains as long as searcher.max_length says, with a warning."""
    experiment = desk.creates("trial_class")
    [trial] = completed(desk, experiment)
    assert trial.total_batches == BATCHES
    assert [report.metrics["epochs"] for report in trial.iter_metrics("validation")] == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_search_of_the_users_own_decides(desk: Desk) -> None:
    """3.7: the class next to the training code is loaded from the snapshot, and ends the search when it likes."""
    experiment = desk.creates("custom", "--config", "searcher.args.max_trials=3")
    trials = completed(desk, experiment)
    assert 1 <= len(trials) <= 3
    assert max(trial.best_metric or 0 for trial in trials) >= 0.9 or len(trials) == 3


def test_a_search_method_that_cannot_be_loaded_is_an_error_of_its_experiment(desk: Desk, tmp_path: Path) -> None:
    """3.7: it ends with ERROR and a sentence; the controller goes on, and runs the next experiment."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "mine.py").write_text("raise RuntimeError('not today')\n")
    (code / "e.yaml").write_text(
        "entrypoint: 'true'\nsearcher: {name: custom, metric: loss, method: 'mine:Search'}\nname: broken\n"
    )
    out = desk.types("experiment", "create", str(code / "e.yaml"), str(code))
    ident = int(re.findall(r"experiment (\d+)", out)[0])
    desk.types("experiment", "wait", str(ident), code=1)
    experiment = desk.finds(ident)
    reasons = " ".join(str(event.body.get("reason", "")) for event in experiment.events())
    assert (experiment.state.value, len(experiment.list_trials())) == ("ERROR", 0)
    assert "Importing searcher.method 'mine:Search' raised RuntimeError: not today" in reasons


@pytest.mark.slow
def test_the_demo_of_a_search(desk: Desk) -> None:
    """`make demo-search` ends with the trials, what stopping early saved, the best checkpoint and a picture."""
    output = desk.home.parent / "output"
    command = [sys.executable, str(ROOT / "examples" / "demo_search.py"), "--trials", "3", "--epochs", "4"]
    done = subprocess.run(
        command,
        cwd=desk.home.parent,
        env={**desk.environment, "DET_HOME": str(output)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    desk.environment["DET_HOME"] = str(output / "search")  # so that its controller is stopped
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d of 3 trials trained to the end.*: [\d,]+ batches instead of 540\.", done.stdout), done.stdout
    assert re.search(r"saved \d+% of the training", done.stdout)
    checkpoint = re.search(r"The best checkpoint lies in\s+(\S+)", done.stdout)
    assert checkpoint
    assert (desk.home.parent / checkpoint[1] / "state_dict.pth").is_file()
    assert "<svg" in (output / "search.svg").read_text()


RUNNER = '''
import sys, uuid
from pathlib import Path
from determined import searcher


class Three(searcher.SearchMethod):
    """Three trials one after another, in the words of releases before 0.38; remembers which one is next."""

    def __init__(self):
        self.number = 0

    def _next(self):
        self.number += 1
        ident = uuid.uuid4()
        hparams = {"global_batch_size": 32, "lr": 0.1, "channels": 4 * self.number, "dropout": 0.1}
        return [searcher.Create(ident, hparams, None), searcher.ValidateAfter(ident, 90)]

    def initial_operations(self, state):
        return self._next()

    def on_trial_created(self, state, request_id):
        return []

    def on_validation_completed(self, state, request_id, metric, train_length):
        print("heard of", metric, flush=True)
        return [searcher.Close(request_id)]

    def on_trial_closed(self, state, request_id):
        return self._next() if self.number < 3 else [searcher.Shutdown()]

    def on_trial_exited_early(self, state, request_id, reason):
        return [searcher.Shutdown(failure=True)]

    def progress(self, state):
        return len(state.trials_closed) / 3

    def save_method_state(self, path):
        (path / "number").write_text(str(self.number))

    def load_method_state(self, path):
        self.number = int((path / "number").read_text())


config = {
    "name": "outside",
    "entrypoint": "python3 train.py --epochs 200",
    "searcher": {"name": "custom", "metric": "accuracy", "smaller_is_better": False, "unit": "batches"},
}
ident = searcher.LocalSearchRunner(Three(), Path(sys.argv[1])).run(config, sys.argv[2])
print("experiment", ident, flush=True)
'''


@pytest.mark.slow
def test_a_search_in_the_users_process_survives_its_death(desk: Desk, tmp_path: Path) -> None:
    """3.7: LocalSearchRunner.run() returns the id; killed in the middle, the same call goes on and repeats nothing."""
    script = tmp_path / "search.py"
    script.write_text(RUNNER)
    command = [sys.executable, str(script), str(tmp_path / "saved"), str(SEARCH)]
    first = subprocess.Popen(command, env=desk.environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert first.stdout is not None
    with first:
        assert first.stdout.readline().startswith("heard of")
        first.send_signal(signal.SIGKILL)
    done = subprocess.run(
        command, env=desk.environment, capture_output=True, text=True, timeout=400, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr + desk.controller_log()
    experiment = desk.finds(int(done.stdout.split()[-1]))
    trials = completed(desk, experiment)
    assert [trial.hparams["channels"] for trial in trials] == [4, 8, 12]
    assert all(90 <= trial.total_batches < 200 * 45 for trial in trials)
    assert experiment.id == 1, "a second experiment was submitted"
    again = subprocess.run(command, env=desk.environment, capture_output=True, text=True, timeout=60, check=False)
    assert again.stdout.split() == ["experiment", "1"], "it is over, and the same call says so"
