"""det compare: what differs, and which run was best."""

from __future__ import annotations

import csv
import io
import json

import pytest

from determined.cli import terminal
from tests.history import History, Run
from tests.unit.cli.conftest import Det


@pytest.fixture
def runs(history: History) -> list[Run]:
    return [
        history.run(
            "a", hparams={"lr": lr, "hidden": 64}, validation={10: loss}, environment={"git": {"commit": "c" * 40}}
        )
        for lr, loss in ((0.1, 0.5), (0.2, 0.25), (0.3, 0.75))
    ]


def test_only_what_differs_is_shown(det: Det, runs: list[Run]) -> None:
    """The hyperparameter that differs and how the runs did; nothing that is the same; --all shows everything."""
    numbers = [run.experiment_id for run in runs]
    document = json.loads(det("compare", *numbers, "--json").stdout)
    assert document["hparams"] == {"lr": dict(zip(map(str, numbers), (0.1, 0.2, 0.3), strict=True))}
    assert document["metrics"]["validation.loss.best"] == dict(zip(map(str, numbers), (0.5, 0.25, 0.75), strict=True))
    assert "environment" not in document
    everything = json.loads(det("compare", *numbers, "--all", "--json").stdout)
    assert everything["hparams"]["hidden"] == dict.fromkeys(map(str, numbers), 64)
    assert set(everything["environment"]["git.commit"].values()) == {"c" * 40}


def test_the_best_is_named_with_what_to_type(det: Det, runs: list[Run]) -> None:
    """Which of the last runs was best, and how to get its weights."""
    result = det("-u", "ada", "compare", "--last", 3)
    best = runs[1]
    assert f"Best: experiment {best.experiment_id}, loss 0.25." in result.stderr
    assert f"det trial download {best.trial_id} --best" in result.stderr
    first, *_ = csv.DictReader(io.StringIO(det("-u", "ada", "compare", "--last", 3, "--csv").stdout))
    assert first["Key"] == "lr"
    assert list(first)[2:] == [str(run.experiment_id) for run in runs], "the newest last"
    assert "two experiments" in det("compare", "--last", 3, code=2).stderr, "other people's are not ours"


def test_trials_of_one_experiment_are_compared(det: Det, history: History) -> None:
    """-t compares trials; an experiment is seen through its best one."""
    experiment = history.experiment("search")
    worse = history.trial(experiment, hparams={"lr": 0.1}, validation={10: 0.9})
    better = history.trial(experiment, hparams={"lr": 0.2}, validation={10: 0.1})
    other = history.run("other", hparams={"lr": 0.3}, validation={10: 0.5})
    lr = json.loads(det("compare", "-t", f"{worse.trial_id},{better.trial_id}", "--json").stdout)["hparams"]["lr"]
    assert lr == {f"trial {worse.trial_id}": 0.1, f"trial {better.trial_id}": 0.2}
    lr = json.loads(det("compare", experiment, other.experiment_id, "--json").stdout)["hparams"]["lr"]
    assert lr == {str(experiment): 0.2, str(other.experiment_id): 0.3}


def test_it_takes_two(det: Det, runs: list[Run]) -> None:
    """One run cannot be compared: misuse."""
    assert "two experiments" in det("compare", runs[0].experiment_id, code=2).stderr


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_it_fits_the_terminal(columns: int, det: Det, runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """However narrow the terminal, every run is there."""
    monkeypatch.setattr(terminal, "is_terminal", lambda stream=None: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    text = det("-u", "ada", "compare", "--last", 3).stdout
    assert max(map(len, text.splitlines())) <= columns
    assert all(value in text for value in ("0.1", "0.2", "0.3"))
