"""Two ranks that are processes train one trial: who runs which hook, and who evaluates."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from determined import pytorch
from determined.core import DistributedContext
from determined.pytorch import Batch
from tests.forks import Nursery
from tests.trials import OneWeightTrial, train


class FullTrial(OneWeightTrial):
    evaluate_batch = pytorch.PyTorchTrial.evaluate_batch

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        self.log.append(("all", len(list(data_loader))))
        return {"loss": 1.0}


def train_in_batches(distributed: DistributedContext) -> Any:
    os.chdir(tempfile.mkdtemp())
    run = train(init={"distributed": distributed}, hooks={}, max_length=Batch(2))
    return run.hooks(), run.data, run.trial.weight


def evaluate_in_full(distributed: DistributedContext) -> Any:
    os.chdir(tempfile.mkdtemp())
    run = train(FullTrial, init={"distributed": distributed}, max_length=Batch(2))
    return run.of("all"), run.batches, [entry[1]["loss"] for entry in run.of("validation")]


def test_hooks_of_two_ranks(nursery: Nursery) -> None:
    """T93, T22: rank 1 has no state, save-start or write-end calls; data is dealt, and both have one weight."""
    (hooks, data, weight), (other_hooks, other_data, other_weight) = nursery.run(2, train_in_batches, joined=True)
    of_chief = {"state_dict", "on_checkpoint_save_start", "on_checkpoint_write_end"}
    assert [hook for hook in hooks if hook not in of_chief] == other_hooks
    assert of_chief <= set(hooks)
    assert {"on_checkpoint_upload_end", "on_training_workload_end"} <= set(other_hooks)
    assert (data, other_data) == ([[1, 2], [5, 6]], [[3, 4], [7, 8]])
    assert weight == other_weight == -((1.5 + 3.5) / 2 + (5.5 + 7.5) / 2)


def test_full_datasets_on_two_ranks(nursery: Nursery) -> None:
    """T41, W54: evaluate_full_dataset runs once, on rank 0, over the unsharded loader, and training completes."""
    chief, other = nursery.run(2, evaluate_in_full, joined=True)
    assert chief == [[[2]], [0, 1], [1.0]]
    assert other == [[], [0, 1], [1.0]]
