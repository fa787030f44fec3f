"""The proof that matters most for data: nothing is trained, and what each rank sees is recorded, byte for byte.

A run straight through is compared with runs that stop and go on, in a new stream with new workers, at every batch of
two epochs. Records are augmented with random numbers of `random`, `numpy` and `torch`, in `__getitem__` and in
`collate_fn`.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import numpy as np
import pytest
import torch

from determined.pytorch import DataLoader
from determined.pytorch.data.stream import TrainingStream, training_stream

RANKS = 2
RECORDS = 13  # 7 batches of 2: they divide neither by the batch size nor by the ranks
STEPS = 8  # two epochs


class Augmented:
    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> torch.Tensor:
        noise = [random.random(), float(np.random.rand()), torch.rand(()).item()]
        return torch.tensor([float(index), *noise], dtype=torch.float64)


def collate(records: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(records) + torch.rand(()) + random.random()


class Run:
    """One rank's training process, as far as data sees it: a stream, and random streams that checkpoints keep."""

    def __init__(self, rank: int, workers: int, checkpoint: dict[str, Any] | None = None) -> None:
        loader = DataLoader(Augmented(), 2, shuffle=True, num_workers=workers, collate_fn=collate)
        self.stream: TrainingStream = training_stream(loader, seed=5, rank=rank, size=RANKS)
        if checkpoint is None:
            random.seed(rank)
            np.random.seed(rank)
            torch.manual_seed(rank)
        else:
            self.stream.load_state_dict(json.loads(checkpoint["data"]))
            random.setstate(checkpoint["random"])
            np.random.set_state(checkpoint["numpy"])
            torch.set_rng_state(checkpoint["torch"])

    def train(self, batches: int) -> list[bytes]:
        seen = []
        for _ in range(batches):
            seen.append(next(self.stream).numpy().tobytes())
            torch.rand(3)  # dropout, say
            random.random()
        return seen

    def checkpoint(self) -> dict[str, Any]:
        return {
            "data": json.dumps(self.stream.state_dict()),
            "random": random.getstate(),
            "numpy": copy.deepcopy(np.random.get_state()),
            "torch": torch.get_rng_state(),
        }

    def stop(self) -> dict[str, Any]:
        state = self.checkpoint()
        self.stream.close()
        # A new process would have other streams.
        random.seed(99)
        np.random.seed(99)
        torch.manual_seed(99)
        return state


@pytest.mark.parametrize("rank", range(RANKS))
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_stop_and_go_equals_straight_through(workers: int, rank: int) -> None:
    """D-69 Stopped after every batch; and, for each batch, stopped there once and run to the end: identical bytes."""
    straight = Run(rank, workers)
    whole, checkpoints = [], [straight.checkpoint()]
    for _ in range(STEPS):
        whole += straight.train(1)
        checkpoints.append(straight.checkpoint())
    straight.stop()
    assert len(set(whole)) == STEPS

    stopping: list[bytes] = []
    state: dict[str, Any] | None = None
    for _ in range(STEPS):
        run = Run(rank, workers, state)
        stopping += run.train(1)
        state = run.stop()
    assert stopping == whole

    for batch, checkpoint in enumerate(checkpoints[:-1]):
        run = Run(rank, workers, checkpoint)
        assert run.train(STEPS - batch) == whole[batch:]
        run.stop()


def test_the_number_of_workers_does_not_matter() -> None:
    """1, 2 or 4 workers augment alike, for each rank; and a resume may change their number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch._utils, "cpu_count", lambda: 8)  # torch would warn about 4 workers on a small machine
        runs = {}
        for workers in (1, 2, 4):
            run = Run(1, workers)
            runs[workers] = run.train(STEPS)
            run.stop()
        assert runs[1] == runs[2] == runs[4]

        run = Run(1, 1)
        assert run.train(3) == runs[1][:3]
        resumed = Run(1, 2, run.stop())
        assert resumed.train(STEPS - 3) == runs[1][3:]
        resumed.stop()


def test_ranks_augment_differently() -> None:
    """Each batch has random numbers of its own: no two batches of two epochs on two ranks are alike."""
    seen = []
    for rank in range(RANKS):
        run = Run(rank, 1)
        seen += run.train(STEPS)
        run.stop()
    assert len(set(seen)) == RANKS * STEPS
