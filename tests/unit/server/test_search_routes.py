"""What a search found, over the API: learning curves, hyperparameters against the metric, rungs."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from determined import errors
from determined.client import Determined
from determined.store.messages import MetricReport
from determined.store.metrics import metric_reports
from tests.asha import ASHA, drive
from tests.asking import Asker
from tests.history import History, Run
from tests.launchers import submit

DECLARED: dict[str, Any] = {
    "optimizer": {
        "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
        "name": {"type": "categorical", "vals": ["sgd", "adam"]},
    },
    "layers": {"type": "int", "minval": 1, "maxval": 4},
    "dropout": {"type": "double", "minval": 0.0, "maxval": 0.5},
    "width": 64,
}


def make(history: History, searcher: str = "random") -> int:
    """A search of four trials: 2 is the best, 1 and 3 are longer, 4 has only NaN."""
    config = {"searcher": {"name": searcher, "metric": "loss"}, "hyperparameters": DECLARED}
    experiment = history.experiment("search", config=config, unmanaged=False)
    for lr, kind, layers, values in (
        (1e-3, "adam", 2, {100: 0.9, 200: 0.4}),
        (1e-2, "sgd", 1, {100: 0.3}),
        (1e-4, "adam", 2, {100: 0.8, 200: 0.6}),
        (1e-1, "sgd", 4, {100: math.nan}),
    ):
        hparams = {"optimizer": {"lr": lr, "name": kind}, "layers": layers, "dropout": lr * 2, "width": 64}
        history.trial(experiment, hparams=hparams, validation=values)
    return experiment


def fill(history: History, run: Run, points: int, *, every: int = 1) -> None:
    reports = [
        MetricReport(
            "validation", {"loss": 1.0 / step, "accuracy": 0.5, "epochs": step / 10}, step, time=history.tick(0)
        )
        for step in range(every, points * every + 1, every)
    ]
    with history.store.write() as conn:
        metric_reports.append(conn, run.attempt, reports)


@pytest.mark.parametrize(("trials", "points"), [(1, 100_000), (125, 800)])
def test_a_chart_of_many_rows_has_few_points(history: History, page: Asker, trials: int, points: int) -> None:
    """P-96: of 100 000 metric rows the chart gets at most 200 points per series, whether of one trial or of many."""
    experiment = history.experiment("long", config={"searcher": {"name": "random", "metric": "loss"}}, unmanaged=False)
    for number in range(trials):
        fill(history, history.trial(experiment, hparams={"lr": number}), points)
    found = page.get(f"/experiments/{experiment}/curves", top=200)
    assert len(found["curves"]) == found["trials_total"] == trials
    for curve in found["curves"]:
        assert 50 <= len(curve["steps"]) <= 200
        columns = (curve["epochs"], curve["time"], curve["value"])
        assert {len(column) for column in columns} == {len(curve["steps"])}
        assert curve["points"] == points
        assert curve["steps"][-1] == points, "the end of a curve is there"
        assert curve["steps"] == sorted(set(curve["steps"]))


def test_log_parameters_have_logarithmic_axes(history: History, page: Asker) -> None:
    """P-97: a hyperparameter that was declared with `type: log` is marked so, and no other one."""
    found = page.get(f"/experiments/{make(history)}/search")
    kinds = {each["name"]: (each["is_log"], each["is_whole"], each["categories"]) for each in found["hyperparameters"]}
    assert kinds == {
        "dropout": (False, False, []),
        "layers": (False, True, []),
        "optimizer.lr": (True, False, []),
        "optimizer.name": (False, False, ["sgd", "adam"]),
    }
    assert [(result["trial_id"], result["value"]) for result in found["results"]] == [
        (2, 0.3), (1, 0.4), (3, 0.6), (4, None)
    ]  # fmt: skip
    assert found["results"][0]["hparams"] == {
        "optimizer.lr": 1e-2, "optimizer.name": "sgd", "layers": 1, "dropout": 0.02
    }  # fmt: skip
    assert (found["metric"], found["trials_total"], found["said"]) == ("validation.loss", 4, "")


@pytest.mark.parametrize(
    ("searcher", "is_by_length", "order"), [("random", False, [2, 1, 3]), ("adaptive_asha", True, [2, 1, 3])]
)
def test_the_top_trials_are_drawn(
    history: History, page: Asker, searcher: str, is_by_length: bool, order: list[int]
) -> None:
    """8.2: the best first; where trials are stopped early the longest follow; or those that were asked for."""
    experiment = make(history, searcher)
    found = page.get(f"/experiments/{experiment}/curves")
    assert [curve["trial_id"] for curve in found["curves"]] == order
    assert found["is_by_length"] is is_by_length
    assert [curve["trial_id"] for curve in page.get(f"/experiments/{experiment}/curves", top=1)["curves"]] == [2]
    chosen = page.get(f"/experiments/{experiment}/curves", trials="3,4")["curves"]
    assert [(curve["trial_id"], curve["value"]) for curve in chosen] == [(3, [0.8, 0.6]), (4, [None])]
    with pytest.raises(errors.InvalidValue, match="such as 3,5"):
        page.get(f"/experiments/{experiment}/curves", trials="3;4")


def test_an_asha_search_shows_the_longest_after_the_best(history: History, page: Asker) -> None:
    """8.2: in a search that stops trials early, a long one comes before a better one that was stopped."""
    config = {"searcher": {"name": "adaptive_asha", "metric": "loss"}}
    experiment = history.experiment("asha", config=config, unmanaged=False)
    for lr, values in ((1, {100: 0.5}), (2, {100: 0.9, 400: 0.8}), (3, {100: 0.6, 200: 0.1})):
        history.trial(experiment, hparams={"lr": lr}, validation=values)
    assert [curve["trial_id"] for curve in page.get(f"/experiments/{experiment}/curves", top=2)["curves"]] == [3, 2]


@pytest.mark.parametrize(
    ("steps", "margin", "values"),
    [
        (100, 0, {1: 0.9, 2: 0.3, 3: 0.8, 4: None}),
        (190, 10, {1: 0.4, 2: None, 3: 0.6, 4: None}),
        (190, 5, {1: None, 2: None, 3: None, 4: None}),
        (150, 50, {1: 0.4, 2: 0.3, 3: 0.6, 4: None}),
    ],
)
def test_trials_are_compared_at_a_step(
    history: History, page: Asker, steps: int, margin: float, values: dict[int, float | None]
) -> None:
    """8.2: the value of a trial is that of the step nearest to the one asked for, within the margin in percent."""
    found = page.get(f"/experiments/{make(history)}/search", steps=steps, margin=margin)
    assert {result["trial_id"]: result["value"] for result in found["results"]} == values
    assert found["steps"] == steps
    if not any(values.values()):
        assert found["said"] == "No trial of experiment 1 has a finite validation.loss within 5 % of step 190."


def test_what_is_not_there_yet_is_said(history: History, page: Asker) -> None:
    """Issue 15: a search without trials, values or differences is no error: the page reads why there is nothing."""
    empty = history.experiment("empty", config={"searcher": {"name": "random", "metric": "loss"}}, unmanaged=False)
    for path in ("curves", "search"):
        found = page.get(f"/experiments/{empty}/{path}")
        assert found["said"] == f"Experiment {empty} has no trials yet."
        assert found["trials_total"] == 0
    history.trial(empty, hparams={"lr": 1})
    assert page.get(f"/experiments/{empty}/curves")["said"] == f"Experiment {empty} has reported no metric yet."
    run = history.run("one", validation={100: 0.5})
    assert "same hyperparameters" in page.get(f"/experiments/{run.experiment_id}/search")["said"]
    assert "Did you mean" in page.get(f"/experiments/{run.experiment_id}/search", metric="los")["said"]
    assert "has no rungs" in page.get(f"/experiments/{run.experiment_id}/rungs")["said"]


def test_importance_needs_some_trials(history: History, page: Asker) -> None:
    """8.2: with a few trials no share is claimed; with more, the hyperparameter that matters has the greatest."""
    few = page.get(f"/experiments/{make(history)}/search")
    assert {each["importance"] for each in few["hyperparameters"]} == {None}
    assert few["is_uncertain"]
    experiment = history.experiment("more", unmanaged=False)
    for number in range(40):
        hparams = {"lr": number / 40, "noise": (number * 7919) % 40}
        history.trial(experiment, hparams=hparams, validation={100: number / 40})
    shares = {
        each["name"]: each["importance"] for each in page.get(f"/experiments/{experiment}/search")["hyperparameters"]
    }
    assert shares["lr"] > 0.5 > shares["noise"]


@pytest.mark.parametrize("form", ["stopping", "promotion"])
@pytest.mark.parametrize("rounds", [8, 5000])
def test_rungs_name_their_trials(history: History, page: Asker, runs: Determined, form: str, rounds: int) -> None:
    """8.2: at each rung the trials that arrived, where each stopped and who waits, as many as `det e rungs` counts."""
    ident = submit(history.store, {**ASHA, "searcher": {**ASHA["searcher"], "form": form}})
    drive(history, rounds=rounds)
    found = page.get(f"/experiments/{ident}/rungs")
    for answer, row in zip(found["rungs"], runs.get_experiment(ident).rungs(), strict=True):
        assert (answer["bracket"], answer["rung"], answer["units"]) == (row.bracket, row.rung, f"{row.units} batches")
        there = answer["trials"]
        counts = (len(there), sum(t["is_stopped_here"] for t in there), sum(t["is_waiting"] for t in there))
        assert counts == (row.arrived, row.stopped, row.waiting)
        assert [t["value"] for t in there] == sorted(t["value"] for t in there)
        assert answer["best"] == (there[0]["value"] if there else None)
    if rounds == 5000:
        ends = [t["trial_id"] for answer in found["rungs"] for t in answer["trials"] if t["is_stopped_here"]]
        assert sorted(ends) == [trial.id for trial in runs.get_experiment(ident).list_trials()]
    assert page.get(f"/experiments/{ident}/rungs") == found, "reading on from where it was gives the same"


def test_rungs_grow_while_the_search_goes_on(history: History, page: Asker, runs: Determined) -> None:
    """Issue 15: rungs that were read before are read on, and show what has happened since."""
    ident = submit(history.store, ASHA)
    drive(history, rounds=6)
    before = [rung["arrived"] for rung in page.get(f"/experiments/{ident}/rungs")["rungs"]]
    drive(history)
    after = page.get(f"/experiments/{ident}/rungs")
    assert [rung["arrived"] for rung in after["rungs"]] == [row.arrived for row in runs.get_experiment(ident).rungs()]
    assert sum(rung["arrived"] for rung in after["rungs"]) > sum(before)


def test_what_stopping_early_saved(history: History, page: Asker, runs: Determined) -> None:
    """8.2: the batches that were trained against those of trainings to the end, in plain words."""
    ident = submit(history.store, ASHA)
    drive(history)
    found = page.get(f"/experiments/{ident}/rungs")
    trained = sum(trial.total_batches for trial in runs.get_experiment(ident).list_trials())
    assert (found["batches_trained"], found["batches_full"]) == (trained, 8 * 4)
    assert found["saved"] == pytest.approx(1 - trained / 32)
    assert found["said"] == f"Stopping early saved {100 - round(100 * trained / 32)} % of 32 batches."
    going = submit(history.store, {**ASHA, "searcher": {**ASHA["searcher"], "time_metric": "epochs"}})
    assert "not known" in page.get(f"/experiments/{going}/rungs")["said"]


def test_each_trial_climbs_without_a_gap(history: History, page: Asker) -> None:
    """8.2: who is at a rung was at all rungs below it, and ended or waits at the last one only."""
    ident = submit(history.store, ASHA)
    drive(history)
    rungs = page.get(f"/experiments/{ident}/rungs")["rungs"]
    for lower, upper in itertools.pairwise(rungs):
        if lower["bracket"] == upper["bracket"]:
            went_on = {trial["trial_id"] for trial in lower["trials"] if not trial["is_stopped_here"]}
            assert went_on == {trial["trial_id"] for trial in upper["trials"]}
