"""det experiment best and metrics: what the trials of an experiment reported."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from determined.store import trials
from tests.history import History, Run
from tests.launchers import submit
from tests.running import Search
from tests.unit.cli.conftest import Det
from tests.unit.client.test_replay import ASHA, drive


@pytest.fixture
def search(history: History) -> Search:
    """Three trials: the second is the best by loss, the first by accuracy; the third has reported nothing."""
    made = Search(history)
    for lr, loss, accuracy in ((0.1, 0.5, 0.9), (0.2, 0.25, 0.8)):
        run = made.start(made.queue(lr=lr, hidden=64))
        history.report(run, "training", {100: {"loss": loss / 2}})
        history.report(
            run, "validation", {50: {"loss": 1.0, "accuracy": 0.1}, 100: {"loss": loss, "accuracy": accuracy}}
        )
        history.save(run, 100)
        made.end(run)
    made.queue(lr=0.3, hidden=64)
    return made


def test_the_best_trial_with_its_checkpoint(det: Det, history: History, search: Search) -> None:
    """Issue 14: `e best` shows the best trial, its hyperparameters, its checkpoint and where that is."""
    found = json.loads(det("e", "best", search.id, "--json").stdout)
    assert (found["trial_id"], found["metric"], found["value"]) == (2, "loss", 0.25)
    assert found["hparams"] == {"lr": 0.2, "hidden": 64}
    assert found["checkpoint_batches"] == 100
    assert (Path(found["path"]) / "state_dict.pth").is_file()
    shown = det("e", "best", search.id).stdout
    assert f"Best of experiment {search.id}" in shown
    assert found["path"] in shown
    [row] = csv.DictReader(io.StringIO(det("e", "best", search.id, "--csv").stdout))
    assert row["Checkpoint"] == found["checkpoint"]


def test_the_best_by_another_metric(det: Det, search: Search) -> None:
    """`--metric` ranks by another metric; what is better of it is said, as for lists."""
    by = ("e", "best", search.id, "--json", "-m")
    assert json.loads(det(*by, "accuracy", "--larger-is-better").stdout)["trial_id"] == 1
    assert json.loads(det(*by, "training.loss").stdout)["value"] == 0.125
    assert json.loads(det(*by, "loss").stdout)["trial_id"] == 2
    assert (
        "reported no 'acuracy'. Did you mean 'accuracy'?" in det("e", "best", search.id, "-m", "acuracy", code=1).stderr
    )
    assert "--metric" in det("e", "best", search.id, "--larger-is-better", code=2).stderr


def test_nothing_is_best_yet(det: Det, history: History) -> None:
    """An experiment without a value has no best trial, and that is said with what to type."""
    search = Search(history)
    search.queue()
    said = det("e", "best", search.id, code=1).stderr
    assert f"No trial of experiment {search.id} has reported loss yet. See them: det e list-trials {search.id}" in said


def test_metrics_of_each_trial(det: Det, search: Search) -> None:
    """Issue 14: `e metrics` lists trials, the best first, with chosen metrics; --csv and --json have everything."""
    rows = json.loads(det("e", "metrics", search.id, "--json").stdout)
    assert [row["trial_id"] for row in rows] == [2, 1, 3]
    assert (rows[0]["best_metric"], rows[0]["loss"], rows[0]["accuracy"]) == (0.25, 0.25, 0.8)
    assert rows[2]["loss"] is None
    assert rows[0]["hparams"] == {"lr": 0.2, "hidden": 64}
    chosen = ("-m", "training.loss", "-m", "accuracy", "--figure", "min", "--csv")
    header, first, *_ = csv.reader(io.StringIO(det("e", "metrics", search.id, *chosen).stdout))
    assert header[4:6] == ["training.loss", "accuracy"]
    assert first[4:6] == ["0.125", "0.1"]
    table = det("e", "metrics", search.id).stdout
    assert "lr=0.2" in table
    assert "hidden" not in table, "what is the same for all takes no room"
    assert "reported no 'los'" in det("e", "metrics", search.id, "-m", "los", code=1).stderr


def test_logs_of_another_trial(det: Det, history: History, search: Search) -> None:
    """6.2: `e logs` prints the log of the first trial, or of one that is named; not that of another experiment."""
    for ident, line in ((1, "first"), (2, "second")):
        run = history.attempt(Run(search.id, ident, None))  # type: ignore[arg-type]  # the attempt is what is made
        history.log(run, [line])
    assert "first" in det("e", "logs", search.id).stdout
    assert "second" in det("e", "logs", search.id, "--trial", 2).stdout
    other = history.run("other")
    said = det("e", "logs", search.id, "--trial", other.trial_id, code=1).stderr
    assert f"Trial {other.trial_id} is one of experiment {other.experiment_id}, not {search.id}." in said
    empty = Search(history)
    assert "has no trial yet. Wait for it with -f." in det("e", "logs", empty.id, code=1).stderr


def test_rungs_in_the_terminal(det: Det, history: History) -> None:
    """Issue 14: `e rungs` shows per bracket and rung the units, who arrived, passed and ended there, and the best."""
    ident = submit(history.store, ASHA)
    drive(history)
    rows = list(csv.DictReader(io.StringIO(det("e", "rungs", ident, "--csv").stdout)))
    assert list(rows[0]) == ["Bracket", "Rung", "At", "Arrived", "Passed", "Waiting", "Ended here", "Best"]
    assert sum(int(row["Ended here"]) for row in rows) == 8
    shown = det("e", "rungs", ident).stdout
    assert "4 batches" in shown
    assert shown.splitlines()[1:] == det("e", "describe", ident).stdout.splitlines()[-len(shown.splitlines()) + 1 :]
    other = Search(history)
    assert "(random) has no rungs" in det("e", "rungs", other.id).stderr
    assert det("e", "rungs", other.id, "--json").stdout == "[]\n"


def test_verify_in_the_terminal(det: Det, history: History) -> None:
    """Issue 14: exit 0 and one line when all agrees, else exit 1 with each difference."""
    ident = submit(history.store, ASHA)
    drive(history)
    agreed = det("e", "verify", ident)
    assert (agreed.stdout, agreed.stderr.count("\n")) == ("", 1)
    assert "give the 8 trials, their states and rungs that are stored" in agreed.stderr
    with history.store.write() as conn:
        trials.update(conn, 1, restarts=3)
    failed = det("e", "verify", ident, code=1)
    assert failed.stdout == "Trial 1: restarts is stored as 3, and the events give 0.\n"
    assert "1 difference between" in failed.stderr


def test_the_end_of_a_watched_search_has_its_rungs(det: Det, history: History) -> None:
    """Issue 14: the rung table is part of what `watch` ends with."""
    ident = submit(history.store, ASHA)
    drive(history)
    shown = det("e", "watch", ident).stdout
    assert "\nRungs\n" in shown
    assert "Ended here" in shown
