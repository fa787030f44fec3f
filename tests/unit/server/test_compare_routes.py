"""Comparisons over the API."""

from __future__ import annotations

import math

import pytest

from determined.errors import InvalidValue, NotFound
from tests.asking import Asker
from tests.history import History


def test_only_what_differs_is_answered(history: History, page: Asker) -> None:
    """8.2: differences by section and key, and how many keys are equal; NaN equals NaN and is a word."""
    runs = [
        history.run(
            f"run {lr}",
            config={"name": "same", "max_restarts": 1},
            hparams={"lr": lr, "depth": 2, "odd": math.nan},
            validation={10: lr},
            environment={"packages": {"torch": "2"}},
        )
        for lr in (0.1, math.inf)
    ]
    answer = page.get("/compare", trials=",".join(str(run.trial_id) for run in runs))
    assert [(each["id"], each["experiment"], each["best_metric"]) for each in answer["trials"]] == [
        (runs[0].trial_id, "run 0.1", 0.1),
        (runs[1].trial_id, "run inf", "Infinity"),
    ]
    one, two = (str(run.trial_id) for run in runs)
    assert answer["differences"][0] == {"section": "hparams", "key": "lr", "values": {one: 0.1, two: "Infinity"}}
    assert {each["section"] for each in answer["differences"]} == {"hparams", "metrics"}
    assert answer["hyperparameters"] == ["lr"]
    assert (answer["equal"]["hparams"], answer["equal"]["config"], answer["equal"]["environment"]) == (2, 2, 2)


def test_experiments_are_compared_by_their_best_trials(history: History, page: Asker) -> None:
    """An experiment stands for its best trial, or its first; what was deleted is left out."""
    search = history.experiment("search")
    history.trial(search, validation={1: 0.5})
    best = history.trial(search, validation={1: 0.1})
    other = history.run("no validation")
    answer = page.get("/compare", experiments=f"{search},{other.experiment_id},99", trials=str(other.trial_id))
    assert [each["id"] for each in answer["trials"]] == [other.trial_id, best.trial_id]


def test_fifty_at_once_is_the_most(page: Asker) -> None:
    """More than fifty are refused, and so is nothing."""
    with pytest.raises(InvalidValue, match="50 at once is the most"):
        page.get("/compare", trials=",".join(map(str, range(51))))
    with pytest.raises(NotFound, match="None of these trials"):
        page.get("/compare", trials="7")
