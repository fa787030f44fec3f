"""Runs side by side: differences only."""

from __future__ import annotations

import math

from determined.client._compare import Difference, differences


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
