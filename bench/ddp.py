"""What the training loop costs with two processes: the same work in a hand-written DDP loop, on the same gloo group.

    python bench/ddp.py            # about two minutes

A ratio of 1.00 means: as fast as the hand-written loop. CPU time of both ranks together is compared: waiting for the
other rank is not work. Runs alternate; of each kind the least disturbed counts, and the range is that of pairs.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn.parallel import DistributedDataParallel

os.environ.setdefault("DET_HOME", tempfile.mkdtemp(prefix="determined-bench-"))
os.environ.setdefault("DET_PROGRESS", "off")

from determined import pytorch

RECORDS, FEATURES, HIDDEN, BATCH_SIZE = 4096, 64, 128, 32


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


def by_hand(batches: int, agg: int) -> None:
    """The loop that a careful person writes: no_sync around batches without a step, a report every 100 batches."""
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    total: Any = 0.0
    for done, (inputs, targets) in endlessly(batches):
        steps = done % agg == 0
        with contextlib.nullcontext() if steps else model.no_sync():
            loss = nn.functional.cross_entropy(model(inputs), targets) / agg
            loss.backward()
        if steps:
            optimizer.step()
            optimizer.zero_grad()
        total = total + loss.detach()
        if done % 100 == 0:
            torch.distributed.all_reduce(total)
            _ = total.item() / 100
            total = 0.0


def endlessly(batches: int) -> Iterator[tuple[int, tuple[torch.Tensor, torch.Tensor]]]:
    done = 0
    while True:
        for batch in BATCHES:
            done += 1
            yield done, batch
            if done >= batches:
                return


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(make_model())
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))
        context.experimental.disable_dataset_reproducibility_checks()  # the data is a list of ready batches

    def build_training_data_loader(self) -> Any:
        return BATCHES

    def build_validation_data_loader(self) -> Any:
        return BATCHES[:1]

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        inputs, targets = batch
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        return {"loss": torch.tensor(0.0)}


def by_trainer(batches: int, agg: int) -> None:
    with pytorch.init(seed=0, aggregation_frequency=agg) as context:
        pytorch.Trainer(Trial(context), context).fit(
            max_length=pytorch.Batch(batches), checkpoint_policy="none", reporting_period=pytorch.Batch(100)
        )


def cpu_seconds(work: Callable[[int, int], None], batches: int, agg: int) -> float:
    """CPU time of all ranks together."""
    torch.distributed.barrier()
    started = time.process_time()
    work(batches, agg)
    spent = torch.tensor(time.process_time() - started)
    torch.distributed.all_reduce(spent)
    return float(spent)


def compare(agg: int, args: argparse.Namespace) -> list[str]:
    """A row: CPU time per batch and rank of both, without what starting and ending costs, and their ratio."""
    spent: dict[Any, list[float]] = {}
    ratios = []
    for _ in range(args.rounds):
        for side in (by_trainer, by_hand):
            for batches in (args.batches // 10, args.batches):
                spent.setdefault((side, batches), []).append(cpu_seconds(side, batches, agg))
        ratios.append(_per_batch(spent, by_trainer, args, -1) / _per_batch(spent, by_hand, args, -1))
    ours, theirs = (_per_batch(spent, side, args) for side in (by_trainer, by_hand))
    name = "every batch steps" if agg == 1 else f"aggregation {agg}"
    spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
    return [name, f"{ours:.0f} µs", f"{theirs:.0f} µs", f"{ours / theirs:.2f}x", spread]


def _per_batch(spent: dict[Any, list[float]], side: Any, args: argparse.Namespace, round: int | None = None) -> float:
    """Microseconds per batch and rank in one round, or in the least disturbed runs of all."""
    short, long = (
        min(runs) if round is None else runs[round]
        for runs in (spent[side, args.batches // 10], spent[side, args.batches])
    )
    return (long - short) / (args.batches * 0.9) / torch.distributed.get_world_size() * 1e6


def rank(args: argparse.Namespace) -> None:
    """What each of the two processes does."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    torch.distributed.init_process_group("gloo")
    by_trainer(100, 1)
    by_hand(100, 1)
    rows = [compare(agg, args) for agg in (1, 4)]
    if torch.distributed.get_rank() == 0:
        title = f"{FEATURES}-{HIDDEN}-2 MLP, batch {BATCH_SIZE}, SGD, two ranks, report every 100"
        table = Table("CPU time per batch and rank", "Trainer.fit", "by hand", "ratio", "range", title=title)
        for row in rows:
            table.add_row(*row)
        Console(width=100).print(table)
    torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=4_000, help="batches per run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs (default: %(default)s)")
    args = parser.parse_args()
    if "RANK" in os.environ:
        rank(args)
        return
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(subprocess.call([*launcher, __file__, *sys.argv[1:]]))


if __name__ == "__main__":
    main()
