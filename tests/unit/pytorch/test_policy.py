"""Which validations earn a checkpoint."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest

from determined.pytorch.checkpoint import save_policy

SEARCHER = {"metric": "loss", "smaller_is_better": True}


def earns(value: object, best: float | None, *, smaller: bool = True) -> bool:
    searcher = {"metric": "loss", "smaller_is_better": smaller}
    return save_policy.choose("best", searcher, lambda: best).earns_checkpoint({"loss": value})


def test_strictly_better_saves() -> None:
    """T89: with 0.5 so far, smaller is better: 0.4 saves, 0.5 does not; none known saves."""
    assert earns(0.4, 0.5)
    assert not earns(0.5, 0.5)
    assert earns(9.0, None)
    assert earns(0.6, 0.5, smaller=False)
    assert not earns(0.4, 0.5, smaller=False)


def test_nan_is_not_better() -> None:
    """4.7: NaN is not better than a known value; infinities compare as numbers."""
    assert not earns(math.nan, 0.5)
    assert not earns(math.inf, 0.5)
    assert earns(np.float64(0.1), 0.5)
    assert earns(np.asarray(0.1), 0.5)


@pytest.mark.parametrize("metrics", [{"accuracy": 1.0}, {"loss": "low"}, {"loss": np.ones(2)}, {"loss": None}])
def test_the_metric_must_be_there(metrics: dict[str, object]) -> None:
    """T88: a searcher metric that is missing or not one number is a RuntimeError under `best`, and only there."""
    with pytest.raises(RuntimeError, match=r"searcher\.metric"):
        save_policy.choose("best", SEARCHER, lambda: None).earns_checkpoint(metrics)
    assert save_policy.choose("all", SEARCHER, lambda: None).earns_checkpoint(metrics)
    assert not save_policy.choose("none", SEARCHER, lambda: None).earns_checkpoint(metrics)


def test_a_near_miss_is_suggested() -> None:
    """A metric with nearly that name is offered."""
    with pytest.raises(RuntimeError, match="Did you mean 'validation_loss'"):
        save_policy.searcher_value("loss", {"validation_loss": 1.0})


def test_best_without_a_metric_saves_all(caplog: pytest.LogCaptureFixture) -> None:
    """T13: policy `best` without a known metric warns, once for all ranks, and every validation saves."""
    with caplog.at_level(logging.WARNING, "determined.pytorch"):
        policies = [save_policy.choose("best", None, lambda: None, is_chief=rank == 0) for rank in range(2)]
    assert all(policy.earns_checkpoint({}) for policy in policies)
    assert caplog.text.count("every validation is saved") == 1


def test_unknown_policies_are_refused() -> None:
    """T14, W25: an unknown policy is a ValueError."""
    with pytest.raises(ValueError, match="bogus"):
        save_policy.choose("bogus", None, lambda: None)


@pytest.mark.parametrize(
    ("numbers", "kept"),
    [
        ((None, None), None),
        ((1, 1), {"save_trial_best": 1, "save_trial_latest": 1}),
        ((3, None), {"save_trial_best": 3, "save_trial_latest": 1}),
        ((0, 2), {"save_trial_best": 0, "save_trial_latest": 2}),
    ],
)
def test_how_many_are_kept(numbers: tuple[int | None, int | None], kept: dict[str, int] | None) -> None:
    """fit(keep_best=, keep_latest=): all are kept without either; one of the other kind with one of them."""
    assert save_policy.retention(*numbers, {"metric": "loss"}, is_managed=False) == kept


@pytest.mark.parametrize("number", [-1, 1.5, True, "1"])
def test_a_number_to_keep_that_cannot_be_is_refused(number: Any) -> None:
    """Before the first batch, with the value."""
    with pytest.raises(ValueError, match=f"keep_latest is {number!r}"):
        save_policy.retention(None, number, {}, is_managed=False)


def test_the_best_are_kept_only_if_a_metric_says_which() -> None:
    """Without a metric nobody knows the best, and all would be removed: refused with what to pass."""
    with pytest.raises(ValueError, match=r"keep_best=1 needs to know which metric.*exp_conf"):
        save_policy.retention(1, None, {}, is_managed=False)
