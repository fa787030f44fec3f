"""A `torchmetrics.Metric` is wrapped like a MetricReducer."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from determined.pytorch.metrics.reducer import _PyTorchReducerContext
from tests.unit.pytorch.thread_ranks import ThreadRank, on_ranks

torchmetrics = pytest.importorskip("torchmetrics")

from torchmetrics.classification import (  # noqa: E402  only where it is installed
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassF1Score,
)
from torchmetrics.regression import MeanSquaredError, PearsonCorrCoef  # noqa: E402

CLASSES = 4


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.rand(6, CLASSES, generator=generator), torch.randperm(6, generator=generator) % CLASSES)
        for _ in range(count)
    ]


def regression(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(p[:, 0], t.float()) for p, t in batches(count)]


class MeanOfRanks(torchmetrics.Metric):
    """Its state is averaged over ranks, so a rank that has nothing must not take part."""

    def __init__(self) -> None:
        super().__init__()
        self.add_state("value", default=torch.tensor(0.0), dist_reduce_fx="mean")

    def update(self, value: torch.Tensor) -> None:
        self.value = value

    def compute(self) -> torch.Tensor:
        return self.value


CASES = {
    "mean of ranks": (MeanOfRanks, lambda count: [(torch.tensor(2.5),)] * count),
    "sums": (lambda: MulticlassAccuracy(CLASSES), batches),
    "lists": (lambda: MulticlassAUROC(CLASSES), batches),
    "moments": (PearsonCorrCoef, regression),
    "composition": (lambda: MeanSquaredError() + 1, regression),
    "mean of means": (lambda: torchmetrics.MeanMetric(), lambda count: [(p.mean(),) for p, _ in batches(count)]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_any_sharding_gives_the_single_process_value(case: str, size: int, count: int):
    """Issue 3: a wrapped torchmetrics metric has the value of one process over all batches, empty shards included."""
    make, data = CASES[case]
    alone = make()
    for batch in data(count):
        alone.update(*batch)
    expected = alone.compute()

    def work(rank: ThreadRank) -> Any:
        context = _PyTorchReducerContext(rank.allgather, rank=rank.rank, size=rank.size)
        metric = context.wrap_reducer(make(), name="m")
        for batch in data(count)[rank.rank :: size]:
            metric.update(*batch)
        return context.reduce_metrics(for_training=False)["m"]

    for found in on_ranks(size, work):
        assert found == pytest.approx(expected.numpy(), rel=1e-5)


def test_the_metric_itself_comes_back_and_goes_on():
    """The user keeps the object: reducing does not disturb its own state, and reset empties it."""
    context = _PyTorchReducerContext()
    mine = MeanSquaredError()
    assert context.wrap_reducer(mine, name="mse") is mine
    mine.update(torch.tensor([1.0]), torch.tensor([3.0]))
    assert context.reduce_metrics(for_training=True)["mse"] == pytest.approx(4.0)
    mine.update(torch.tensor([1.0]), torch.tensor([1.0]))
    assert context.reduce_metrics(for_training=True)["mse"] == pytest.approx(2.0)
    context.reset_reducers()
    assert not mine.update_called
    with pytest.raises(AssertionError):
        context.wrap_reducer(mine, name="again")


def test_a_collection_reports_its_names():
    """A MetricCollection needs no name; compute groups and prefix are its own affair."""
    data = batches(5)
    alone = torchmetrics.MetricCollection([MulticlassAccuracy(CLASSES), MulticlassF1Score(CLASSES)], prefix="my_")
    for batch in data:
        alone.update(*batch)
    expected = {name: value.item() for name, value in alone.compute().items()}

    def work(rank: ThreadRank) -> Any:
        context = _PyTorchReducerContext(rank.allgather, rank=rank.rank, size=rank.size)
        made = torchmetrics.MetricCollection([MulticlassAccuracy(CLASSES), MulticlassF1Score(CLASSES)], prefix="my_")
        metric = context.wrap_reducer(made)
        for batch in data[rank.rank :: rank.size]:
            metric.update(*batch)
        return context.reduce_metrics(for_training=False)

    for found in on_ranks(2, work):
        assert {name: value.item() for name, value in found.items()} == pytest.approx(expected)


def test_a_metric_that_nobody_updated_is_left_out():
    """Wrapped with the defaults but only updated in validation, it does not disturb training reports."""
    context = _PyTorchReducerContext()
    context.wrap_reducer(MulticlassAUROC(CLASSES), name="auroc")
    assert context.reduce_metrics(for_training=True) == {}


def test_a_class_of_theirs_is_instantiated_too():
    """`wrap_reducer(MeanSquaredError)` makes one."""
    context = _PyTorchReducerContext()
    assert isinstance(context.wrap_reducer(MeanSquaredError, name="mse"), MeanSquaredError)


def test_a_metric_moves_to_the_device_of_the_trial():
    """The trial's device is where batches are, so wrapped metrics go there."""
    context = _PyTorchReducerContext(device=torch.device("meta"))
    assert context.wrap_reducer(MeanSquaredError(), name="mse").device.type == "meta"
