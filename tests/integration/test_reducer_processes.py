"""Metrics and reducers over ranks that are real processes."""

from __future__ import annotations

from typing import Any

import torch

from determined import pytorch
from determined.core import DistributedContext
from determined.pytorch.metrics.reducer import _PyTorchReducerContext
from determined.pytorch.metrics.reduction import TrainingWindow, ValidationPass
from tests.forks import Nursery

BATCHES = 7


def train_and_validate(distributed: DistributedContext) -> dict[str, Any]:
    reducers = _PyTorchReducerContext(distributed.allgather, rank=distributed.rank, size=distributed.size)
    order = reducers.wrap_reducer(list, "order")
    mean = reducers.wrap_reducer(pytorch.MeanReducer, "mean")
    window = TrainingWindow(distributed)
    for batch_idx in range(4):
        window.add({"loss": torch.tensor(float(2 * batch_idx + distributed.rank), requires_grad=True) * 1, "word": "x"})
    training = window.close(reducers)
    reducers.reset_reducers()
    validation = ValidationPass(distributed)
    for batch_idx in range(distributed.rank, BATCHES, distributed.size):
        validation.add({"sum": torch.tensor(batch_idx), "max": batch_idx}, records=1)
        order.update(batch_idx)
        mean.update(torch.tensor([float(batch_idx)]))
    plan = {"sum": pytorch.Reducer.SUM, "max": pytorch.Reducer.MAX}
    validated = validation.reduce(plan, reducers)
    return {
        "training": training.metrics["loss"],
        "word": training.metrics["word"],
        "batches": [float(batch["loss"]) for batch in training.batch_metrics],
        "validation": {n: v if isinstance(v, list) else float(v) for n, v in validated.metrics.items()},
    }


def fail_on_rank_1(distributed: DistributedContext) -> None:
    window = TrainingWindow(distributed)
    window.add({"loss": 1.0})
    window.add({"loss": 1.0} if distributed.rank == 0 else {"lost": 1.0})
    window.close()


def fail_to_pickle(distributed: DistributedContext) -> None:
    reducers = _PyTorchReducerContext(distributed.allgather, rank=distributed.rank, size=distributed.size)
    reducer = reducers.wrap_reducer(list, "values")
    if distributed.rank == 1:
        reducer.update(lambda: None)
    reducers.reduce_metrics(for_training=True)


def test_two_processes_agree(nursery: Nursery) -> None:
    """D-39, T72, T80: two real processes report the same metrics, those of one process over all batches."""
    expected = {
        "training": 3.5,
        "word": None,
        "batches": [0.5, 2.5, 4.5, 6.5],
        "validation": {"sum": 21.0, "max": 6.0, "order": list(range(BATCHES)), "mean": 3.0},
    }
    assert nursery.run(2, train_and_validate, joined=True) == [expected, expected]


def test_what_one_process_cannot_return_stops_both(nursery: Nursery) -> None:
    """Issue 3: refused in one sentence on every rank, never a hang."""
    for outcome in nursery.start(2, fail_on_rank_1, joined=True).wait():
        assert outcome.error == "ValueError"
        assert "['lost'] for batch 1 (rank 1)" in outcome.text


def test_what_cannot_be_sent_stops_both(nursery: Nursery) -> None:
    """Contract 5.1: a contribution has to be picklable; both ranks hear of one that is not."""
    chief, other = nursery.start(2, fail_to_pickle, joined=True).wait()
    assert (chief.error, other.error) == ("CollectiveError", "ReducerFailed")
    assert "could not be pickled" in chief.text
    assert "per_slot_reduce()" in other.text
