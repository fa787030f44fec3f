"""What the training loop costs: the same arithmetic by hand and in a PyTorchTrial, in one run, on one thread.

    python bench/loop.py            # about a minute

A ratio of 1.00 means: as fast as the hand-written loop. CPU time of the whole process is compared, so work that is
moved to a background thread counts too. Runs alternate, and the best of each side
is compared, since other work on the machine only ever adds; the range is that of the pairs.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import logging
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

os.environ.setdefault("DET_HOME", tempfile.mkdtemp(prefix="determined-bench-"))
os.environ.setdefault("DET_PROGRESS", "off")

from determined import pytorch

RECORDS, FEATURES, BATCH_SIZE = 4096, 32, 8


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 2))


def make_batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Data that lies in memory as batches, so that loading costs neither side anything."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(RECORDS, FEATURES, generator=generator)
    targets = torch.randint(0, 2, (RECORDS,), generator=generator)
    return list(zip(features.split(BATCH_SIZE), targets.split(BATCH_SIZE), strict=True))


BATCHES = make_batches()


def by_hand(batches: int, metrics: int) -> None:
    """The loop that a careful person writes: no item() per batch, a report every 100 batches."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sums: dict[str, Any] = {}
    done = 0
    while done < batches:
        for features, targets in BATCHES:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(features), targets)
            loss.backward()
            optimizer.step()
            detached = loss.detach()
            for name in ["loss", *(f"m{i}" for i in range(metrics - 1))]:
                sums[name] = sums[name] + detached if name in sums else detached.clone()
            done += 1
            if done % 100 == 0:
                _ = {name: (total / 100).item() for name, total in sums.items()}
                sums = {}
            if done >= batches:
                break


def validate_by_hand(batches: int) -> None:
    """Three metrics of every batch, averaged at the end."""
    model = make_model().eval()
    sums: list[torch.Tensor] | None = None
    with torch.no_grad():
        for features, targets in itertools.islice(itertools.cycle(BATCHES), batches):
            outputs = model(features)
            loss = nn.functional.cross_entropy(outputs, targets)
            accuracy = (outputs.argmax(1) == targets).float().mean()
            found = [loss, accuracy, 1 - accuracy]
            sums = found if sums is None else [total + value for total, value in zip(sums, found, strict=True)]
    _ = [(total / batches).item() for total in sums or []]


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, metrics: int, validation_batches: int = 1) -> None:
        self.context = context
        self.model = context.wrap_model(make_model())
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))
        self.validation_batches = validation_batches
        self.names = [f"m{i}" for i in range(metrics - 1)]
        context.experimental.disable_dataset_reproducibility_checks()  # the data is a list of ready batches

    def build_training_data_loader(self) -> Any:
        return BATCHES

    def build_validation_data_loader(self) -> Any:
        return list(itertools.islice(itertools.cycle(BATCHES), self.validation_batches))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        features, targets = batch
        loss = nn.functional.cross_entropy(self.model(features), targets)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss, **dict.fromkeys(self.names, loss)} if self.names else {"loss": loss}

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        features, targets = batch
        outputs = self.model(features)
        accuracy = (outputs.argmax(1) == targets).float().mean()
        loss = nn.functional.cross_entropy(outputs, targets)
        return {"loss": loss, "accuracy": accuracy, "error": 1 - accuracy}


def validate_by_trainer(batches: int) -> None:
    with pytorch.init(seed=0) as context:
        trainer = pytorch.Trainer(Trial(context, 1, batches), context)
        trainer.fit(max_length=pytorch.Batch(1), checkpoint_policy="none")


def by_trainer(batches: int, metrics: int) -> None:
    with pytorch.init(seed=0) as context:
        pytorch.Trainer(Trial(context, metrics), context).fit(
            max_length=pytorch.Batch(batches), checkpoint_policy="none", reporting_period=pytorch.Batch(100)
        )


def cpu_seconds(work: Callable[[], None]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def compare(
    name: str, ours: Callable[[int], None], theirs: Callable[[int], None], args: argparse.Namespace
) -> list[str]:
    """A row: CPU time per batch of both, without what starting and ending costs, and their ratio."""
    ratios, per_batch = [], []
    for _ in range(args.rounds):
        pair = []
        for side in (ours, theirs):
            short = cpu_seconds(lambda side=side: side(args.batches // 10))
            long = cpu_seconds(lambda side=side: side(args.batches))
            pair.append((long - short) / (args.batches * 0.9) * 1e6)
        ratios.append(pair[0] / pair[1])
        per_batch.append(pair)
    mine, hand = (min(p[i] for p in per_batch) for i in (0, 1))
    return [
        name,
        f"{mine:.1f} µs",
        f"{hand:.1f} µs",
        f"{mine / hand:.2f}x",
        f"{min(ratios):.2f}-{max(ratios):.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=20_000, help="batches per run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs (default: %(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    by_trainer(100, 1)
    by_hand(100, 1)
    table = Table(
        "per batch", "Trainer.fit", "by hand", "ratio", "range", title="32-32-2 MLP, batch 8, SGD, report every 100"
    )
    for metrics in (1, 10):
        ours, hand = functools.partial(by_trainer, metrics=metrics), functools.partial(by_hand, metrics=metrics)
        table.add_row(*compare(f"training, {metrics} metric(s)", ours, hand, args))
    table.add_row(*compare("validation, 3 metrics", validate_by_trainer, validate_by_hand, args))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
