"""Training under the local launcher: several slots, the torch launcher, a trial class as entry point."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.store import checkpoints
from determined.store.database.connection import open_store
from tests.launching import Bench, Starter, all_gone

LAUNCH = "python3 -m determined.launch.torch_distributed"
MODEL = """
import torch
from determined import pytorch

class Line(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))
        print(f"rank {context.distributed.rank} of {context.distributed.size}")

    def build_training_data_loader(self):
        return pytorch.DataLoader(torch.arange(16.0).reshape(16, 1), batch_size=2)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.model(batch).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"validation_loss": self.model(batch).mean()}
"""


@pytest.fixture
def bench(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("DET_CONTROLLER", "off")
    store = open_store(home / "determined.db")
    yield Bench(store, home, str(home / "determined.db"))
    store.close()


@pytest.fixture
def starter() -> Iterator[Starter]:
    starter = Starter()
    yield starter
    starter.kill()


@pytest.mark.slow
def test_a_trial_class_on_two_slots(bench: Bench, starter: Starter) -> None:
    """An entry point `module:Class` trains on all slots of the trial, and its checkpoint is the trial's."""
    searcher = {"name": "single", "metric": "validation_loss", "max_length": {"batches": 4}}
    task = bench.task({"model_def.py": MODEL}, slots=2, entrypoint="model_def:Line", searcher=searcher)
    starter.start(task)
    assert bench.end(task).exit_code == 0, bench.text(task)
    ranks = {(row.rank, row.text) for row in bench.lines(task) if " of 2" in row.text}
    assert ranks == {(0, "rank 0 of 2"), (1, "rank 1 of 2")}
    with bench.store.read() as conn:
        newest = checkpoints.newest(conn, task.trial_id)
        assert newest is not None
        assert newest.steps == 4


@pytest.mark.slow
def test_one_rank_that_fails_ends_the_others(bench: Bench, starter: Starter) -> None:
    """P-92: When rank 1 of a two-slot trial raises, rank 0 is terminated and the attempt has failed."""
    script = """
import os, time
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
if os.environ["RANK"] == "1":
    while not os.path.exists("zero"):
        time.sleep(0.05)
    raise RuntimeError("rank 1 cannot go on")
open("zero", "w").close()
time.sleep(1000)
"""
    task = bench.task({"train.py": script}, slots=2, entrypoint=f"{LAUNCH} python3 train.py")
    starter.start(task)
    bench.printed(task, "rank 0 of 2")
    processes = bench.processes(task)
    assert bench.end(task).exit_code == 1
    assert all_gone(processes)
    assert any(row.rank == 1 and "rank 1 cannot go on" in row.text for row in bench.lines(task))
