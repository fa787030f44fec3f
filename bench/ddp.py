"""What the training loop costs with two processes: the same work in a hand-written DDP loop, on the same gloo group.

    python bench/ddp.py            # about two minutes

A ratio of 1.00 means: as fast as the hand-written loop. Both sides take turns of 100 batches within the same two
processes, so that whatever else the machine does meets both alike. The median turn of each side is compared, in CPU
time of the whole process (gloo has threads of its own), averaged over both ranks: waiting is not work.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from turns import Turns

os.environ.setdefault("DET_HOME", tempfile.mkdtemp(prefix="determined-bench-"))
os.environ.setdefault("DET_PROGRESS", "off")

from determined import pytorch

RECORDS, FEATURES, HIDDEN, BATCH_SIZE, TURN = 4096, 64, 128, 32, 100


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2))


def make_batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Data that lies in memory as batches, so that loading costs neither side anything."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(RECORDS, FEATURES, generator=generator)
    targets = torch.randint(0, 2, (RECORDS,), generator=generator)
    return list(zip(inputs.split(BATCH_SIZE), targets.split(BATCH_SIZE), strict=True))


BATCHES = make_batches()


def by_hand(agg: int) -> Iterator[None]:
    """The loop that a careful person writes: no_sync around batches without a step, a report every 100 batches."""
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    total: Any = 0.0
    for done, (inputs, targets) in enumerate(itertools.cycle(BATCHES), start=1):
        steps = done % agg == 0
        with contextlib.nullcontext() if steps else model.no_sync():
            loss = nn.functional.cross_entropy(model(inputs), targets) / agg
            loss.backward()
        if steps:
            optimizer.step()
            optimizer.zero_grad()
        total = total + loss.detach()
        if done % TURN == 0:
            torch.distributed.all_reduce(total)
            _ = total.item() / TURN
            total = 0.0
            yield


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, turns: Turns) -> None:
        self.context = context
        self.turns = turns
        self.model = context.wrap_model(make_model())
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))
        context.experimental.disable_dataset_reproducibility_checks()  # the data is a list of ready batches

    def build_training_data_loader(self) -> Any:
        return BATCHES

    def build_validation_data_loader(self) -> Any:
        return BATCHES[:1]

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx % TURN == 0:
            self.turns.switch()
        inputs, targets = batch
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        return {"loss": torch.tensor(0.0)}


def compare(agg: int, batches: int) -> list[str]:
    """A row: CPU time per batch and rank of both, and their ratio."""
    turns = Turns(by_hand(agg), time.process_time_ns)
    with pytorch.init(seed=0, aggregation_frequency=agg) as context:
        pytorch.Trainer(Trial(context, turns), context).fit(
            max_length=pytorch.Batch(batches), checkpoint_policy="none", reporting_period=pytorch.Batch(TURN)
        )
    spent = torch.tensor(turns.medians()) / TURN / 1e3
    torch.distributed.all_reduce(spent)
    ours, theirs = (spent / torch.distributed.get_world_size()).tolist()
    name = "every batch steps" if agg == 1 else f"aggregation {agg}"
    return [name, f"{ours:.0f} µs", f"{theirs:.0f} µs", f"{ours / theirs:.2f}x"]


def rank(args: argparse.Namespace) -> None:
    """What each of the two processes does."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    torch.distributed.init_process_group("gloo")
    rows = [compare(agg, args.batches) for agg in (1, 4)]
    if torch.distributed.get_rank() == 0:
        title = f"{FEATURES}-{HIDDEN}-2 MLP, batch {BATCH_SIZE}, SGD, two ranks, report every 100"
        table = Table("CPU time per batch and rank", "Trainer.fit", "by hand", "ratio", title=title)
        for row in rows:
            table.add_row(*row)
        Console(width=100).print(table)
    gc.collect()  # what is left of the models keeps the group alive, and its threads must not outlive Python
    torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=12_000, help="batches of each side (default: %(default)s)")
    args = parser.parse_args()
    if "RANK" in os.environ:
        rank(args)
        return
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(subprocess.call([*launcher, __file__, *sys.argv[1:]]))


if __name__ == "__main__":
    main()
