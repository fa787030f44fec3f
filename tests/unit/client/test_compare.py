"""Runs side by side: differences only."""

from __future__ import annotations

import math

from determined.client import Determined, compare
from determined.client._compare import Difference, differences
from determined.client._listing import flat
from tests.history import History


def test_only_what_differs_is_told() -> None:
    """5.3 (compare): equal keys are left out, missing ones are told as missing, sections keep their order."""
    found = differences(
        {
            7: {"hparams": {"lr": 0.1, "depth": 2}, "metrics": {"validation.loss.min": 0.5}},
            3: {"hparams": {"lr": 0.2, "depth": 2, "new": None}, "metrics": {"validation.loss.min": 0.4}},
        }
    )
    assert found.trial_ids == [7, 3]
    assert found.differences == [
        Difference("hparams", "lr", {7: 0.1, 3: 0.2}),
        Difference("hparams", "new", {3: None}),
        Difference("metrics", "validation.loss.min", {7: 0.5, 3: 0.4}),
    ]
    assert found.to_dict()["hparams"]["lr"] == {7: 0.1, 3: 0.2}
    assert list(found.to_pandas().columns) == ["section", "key", "7", "3"]


def test_values_are_compared_as_they_are_written() -> None:
    """NaN equals itself, 1 and True differ, lists are compared whole."""
    same = {"hparams": {"a": math.nan, "b": [1, 2]}}
    assert differences({1: same, 2: {"hparams": {"a": math.nan, "b": [1, 2]}}}).differences == []
    odd = differences({1: {"hparams": {"a": 1, "b": [1, 2]}}, 2: {"hparams": {"a": True, "b": [2, 1]}}})
    assert [d.key for d in odd.differences] == ["a", "b"]


def test_one_run_differs_from_nothing() -> None:
    """A single trial has no differences."""
    assert differences({1: {"hparams": {"a": 1}}}).differences == []


def test_two_runs_of_a_store(history: History, runs: Determined) -> None:
    """5.3 (compare): hyperparameters, config, environment and metrics of real rows."""
    common = {"executable": "/usr/bin/python", "packages": {"torch": "2.13.0"}}
    one = history.run(
        config={"name": "a", "hyperparameters": {"lr": 1}, "searcher": {"metric": "loss"}},
        hparams={"lr": 0.1, "depth": 2},
        training={1: 2.0},
        validation={1: 0.5},
        environment={**common, "git": {"commit": "4f1c22", "dirty": False}, "arguments": ["--fast"]},
    )
    two = history.run(
        config={"name": "b", "hyperparameters": {"lr": 2}, "searcher": {"metric": "loss"}},
        hparams={"lr": 0.2, "depth": 2},
        training={1: 2.0},
        validation={1: 0.4},
        environment={**common, "git": {"commit": "99aa00", "dirty": False}, "arguments": []},
    )
    found = compare([runs.get_trial(one.trial_id), runs.get_trial(two.trial_id)]).to_dict()
    assert {section: sorted(keys) for section, keys in found.items()} == {
        "hparams": ["lr"],
        "config": ["name"],
        "environment": ["arguments", "git.commit"],
        "metrics": ["validation.loss.last", "validation.loss.max", "validation.loss.min"],
    }
    assert found["metrics"]["validation.loss.min"] == {one.trial_id: 0.5, two.trial_id: 0.4}


def test_flat_names_have_dots() -> None:
    """2.1: flattened names use dots."""
    assert flat({"optimizer": {"lr": 1, "betas": [1, 2]}, "a": 0}) == {
        "optimizer.lr": 1, "optimizer.betas": [1, 2], "a": 0
    }  # fmt: skip
