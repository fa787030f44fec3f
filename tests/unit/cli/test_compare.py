"""det compare: what differs, and which run was best."""

from __future__ import annotations

import csv
import io
import json

import pytest

from determined.cli.output import terminal
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
    assert "You have no run yet" in det("compare", "--last", 3, code=1).stderr, "other people's are not ours"


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


def test_one_run_is_said_to_be_one(det: Det, history: History) -> None:
    """`--last 10` where there is one run says that there is one, and what to type to see it."""
    run = history.run("digits")
    said = det("-u", "ada", "compare", "--last", 10, code=1).stderr
    about, typed = f"experiment {run.experiment_id} (digits)", f"det experiment describe {run.experiment_id}"
    assert said == f"There is only one run: {about}. Look at it with: {typed}\n"


def test_ranks_are_compared(det: Det, history: History) -> None:
    """How many ranks trained a run is shown where it differs."""
    one, two = history.run("a").experiment_id, history.run("a", slots=2).experiment_id
    found = json.loads(det("compare", one, two, "--json").stdout)
    assert found["environment"]["ranks"] == {str(one): 1, str(two): 2}


LONG = "--data /mnt/storage/datasets/imagenet/2026-01-31/train --workers 4 --lr {lr} --schedule cosine --warmup 500"


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize("count", [2, 5, 12])
def test_what_differs_is_never_cut_off(
    count: int, columns: int, det: Det, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the texts and however many the runs, the part that differs is there whole, within the terminal."""
    rates = [f"0.00{i:02}1" for i in range(count)]
    numbers = [
        history.run("a", environment={"arguments": LONG.format(lr=lr).split(), "note": f"{'x' * 70}{lr}"}).experiment_id
        for lr in rates
    ]
    monkeypatch.setattr(terminal, "is_terminal", lambda stream=None: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    text = det("compare", *numbers).stdout
    assert max(map(len, text.splitlines())) <= columns
    assert all(f"--lr {lr}" in text for lr in rates)
    assert "--workers 4" not in text, "what all have in common is left out"
    headers = [line for line in text.splitlines() if line.strip().startswith(("Key", "Run"))]
    assert all(any(str(number) in line for line in (headers if "Key" in text else [text])) for number in numbers)
