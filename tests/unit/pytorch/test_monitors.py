"""Callbacks that come with the package, in real trainings of one weight."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from determined import pytorch
from determined.pytorch import Batch
from tests.trials import OneWeightTrial, Run, train

pytestmark = pytest.mark.usefixtures("elsewhere")


def losses(*values: float) -> Any:
    """An `evaluates` whose validations, of two batches each, come out at these values one after the other."""
    left = iter([value for value in values for _ in range(2)])
    return lambda batch: {"loss": next(left)}


def fit(stopping: pytorch.EarlyStopping, evaluates: Any, **options: Any) -> Run:
    trial = {"callbacks": {"stop": stopping}, "evaluates": evaluates}
    return train(trial=trial, **{"validation_period": Batch(1), "max_length": Batch(9), **options})


def test_training_stops_after_validations_that_are_not_better() -> None:
    """Issue 12, 14: the count begins anew with each better value, and the last validation is saved."""
    run = fit(pytorch.EarlyStopping("loss", patience=2), losses(5, 4, 4.5, 3, 3, 3.5, 1))
    assert run.at("validation") == [1, 2, 3, 4, 5, 6]
    assert run.at("checkpoint") == [6]


@pytest.mark.parametrize(
    ("options", "values", "stopped"),
    [
        ({"patience": 1, "mode": "max"}, (1, 2, 1.5, 9), 3),
        ({"patience": 1, "min_delta": 0.5}, (5, 4.5, 1), 2),  # better by no more than that
        ({"patience": 2}, (float("nan"), float("nan"), 1), 2),
        ({"patience": 1}, (5, float("nan"), 1), 2),
    ],
)
def test_what_counts_as_better(options: dict[str, Any], values: tuple[float, ...], stopped: int) -> None:
    """More than `min_delta` in the direction of `mode`; NaN is never better."""
    assert fit(pytorch.EarlyStopping("loss", **options), losses(*values)).at("validation")[-1] == stopped


def test_a_resumed_run_stops_where_an_uninterrupted_one_would() -> None:
    """Issue 12, 14: best value and count are part of the checkpoint; a run that has stopped trains no more."""
    first = fit(pytorch.EarlyStopping("loss", patience=3), losses(2, 3), max_length=Batch(2))
    second = fit(pytorch.EarlyStopping("loss", patience=3), losses(2, 2), latest_checkpoint=first.checkpoint)
    assert second.at("validation") == [3, 4]  # the second and the third that are not better
    third = fit(pytorch.EarlyStopping("loss", patience=3), losses(), latest_checkpoint=second.checkpoint)
    assert third.batches == []
    more = fit(pytorch.EarlyStopping("loss", patience=4), losses(2), latest_checkpoint=second.checkpoint)
    assert more.batches == [4]


def test_a_metric_that_is_not_there_is_named() -> None:
    """A misspelt name ends training with the names that there are."""
    with pytest.raises(ValueError, match=r"EarlyStopping\('los'\): .* it has \['loss'\]"):
        fit(pytorch.EarlyStopping("los"), losses(1))


@pytest.mark.parametrize("wrong", [{"patience": 0}, {"patience": 1.5}, {"min_delta": -1}, {"mode": "lower"}])
def test_arguments_out_of_range(wrong: dict[str, Any]) -> None:
    """Each is a sentence with its value."""
    (name,) = wrong
    with pytest.raises(ValueError, match=rf"EarlyStopping\({name}="):
        pytorch.EarlyStopping("loss", **wrong)


def reported(callback: pytorch.PyTorchCallback, **options: Any) -> list[tuple[Any, ...]]:
    """What was reported in groups of its own."""
    said: list[tuple[Any, ...]] = []

    class Trial(OneWeightTrial):
        def __init__(self, context: Any, log: Any, **more: Any) -> None:
            super().__init__(context, log, **more)
            context.core_context.train.report_metrics = lambda *report: said.append(report)

    trial = {"callbacks": {"it": callback}, **options}
    train(Trial, trial=trial, max_length=Batch(4), reporting_period=Batch(2))
    return said


def test_learning_rates_are_reported() -> None:
    """Issue 12, 14: the rate at the end of each window."""
    assert reported(pytorch.LRMonitor(), decays=True) == [
        ("learning_rate", 2, {"lr": 1.0}),
        ("learning_rate", 4, {"lr": 0.5}),
    ]


def test_gradient_norms_are_reported() -> None:
    """Issue 12, 14: mean and largest norm of the window; the gradients of one weight are 1.5, 3.5, 5.5 and 7.5."""
    callback = pytorch.GradientNorm()
    assert reported(callback) == [
        ("gradients", 2, {"norm": 2.5, "norm_max": 3.5}),
        ("gradients", 4, {"norm": 6.5, "norm_max": 7.5}),
    ]
    optimizer = callback.context.optimizers[0]
    assert not optimizer._optimizer_step_pre_hooks  # it is gone with the training
    assert torch.is_grad_enabled()
