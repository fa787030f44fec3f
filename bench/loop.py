"""What the training loop costs: the same arithmetic by hand and in a PyTorchTrial, in turns, on one thread.

    python bench/loop.py            # about two minutes

Data lies ready in batches, or, where a row says so, comes out of a `TensorDataset`: by hand through torch's
`DataLoader`, in the trial through ours.

A ratio of 1.00 means: as fast as the hand-written loop. Both sides take turns of 100 batches within one process, so
that whatever else the machine does meets both alike, and the median turn of each side is compared. CPU time is
counted, and what our background threads use (measured over the whole run) is added to our side.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.utils.data import Dataset, TensorDataset, random_split
from turns import Turns

os.environ.setdefault("DET_HOME", tempfile.mkdtemp(prefix="determined-bench-"))
os.environ.setdefault("DET_PROGRESS", "off")

from determined import pytorch

RECORDS, FEATURES, BATCH_SIZE, TURN = 4096, 32, 8, 100


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 2))


def make_cnn() -> nn.Module:
    """The model of examples/digits."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.25), nn.Linear(32 * 2 * 2, 10)),
    )


def make_dataset(records: int, shape: tuple[int, ...], classes: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(records, *shape, generator=generator)
    return TensorDataset(features, torch.randint(0, classes, (records,), generator=generator))


@dataclass
class Task:
    """A model and its data: ready batches, which cost neither side anything, or a dataset that both read."""

    make_model: Callable[[], nn.Module]
    ready: list[Any] | None = None
    dataset: Dataset[Any] | None = None
    batch_size: int = BATCH_SIZE

    def by_hand(self, shuffle: bool) -> Iterable[Any]:
        return self.ready or torch.utils.data.DataLoader(self.dataset, self.batch_size, shuffle)  # type: ignore[arg-type]

    def in_trial(self, shuffle: bool) -> Any:
        return self.ready or pytorch.DataLoader(self.dataset, self.batch_size, shuffle)


MLP_DATA = make_dataset(RECORDS, (FEATURES,), 2)
BATCHES = list(zip(*(tensor.split(BATCH_SIZE) for tensor in MLP_DATA.tensors), strict=True))
READY = Task(make_model, BATCHES)
TINY = Task(make_model, dataset=MLP_DATA)
DIGITS = Task(make_cnn, dataset=random_split(make_dataset(1797, (1, 8, 8), 10), [1437, 360])[0], batch_size=32)


def train_by_hand(task: Task, metrics: int) -> Iterator[None]:
    """The loop that a careful person writes: no item() per batch, a report every 100 batches, when it yields."""
    model = task.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = task.by_hand(shuffle=True)
    sums: dict[str, Any] = {}
    done = 0
    names = ["loss", *(f"m{i}" for i in range(metrics - 1))]
    while True:
        for features, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(features), targets)
            loss.backward()
            optimizer.step()
            detached = loss.detach()
            for name in names:
                sums[name] = sums[name] + detached if name in sums else detached.clone()
            done += 1
            if done % TURN == 0:
                _ = {name: (total / TURN).item() for name, total in sums.items()}
                sums = {}
                yield


def validate_by_hand(task: Task, batches: int) -> Iterator[None]:
    """Three metrics of every batch, averaged at the end; yields every 100 batches. Its turns are under no_grad."""
    model = task.make_model().eval()
    data = task.by_hand(shuffle=False)
    while True:
        sums: list[torch.Tensor] | None = None
        for index, (features, targets) in enumerate(data):
            outputs = model(features)
            loss = nn.functional.cross_entropy(outputs, targets)
            accuracy = (outputs.argmax(1) == targets).float().mean()
            found = [loss, accuracy, 1 - accuracy]
            sums = found if sums is None else [total + value for total, value in zip(sums, found, strict=True)]
            if index == batches - 1:
                _ = [(total / batches).item() for total in sums]
            if (index + 1) % TURN == 0:
                yield


class WholeValidations(pytorch.PyTorchCallback):
    """What begins and ends a validation counts; the training between two of them does not."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def on_validation_start(self) -> None:
        self.turns.since = time.thread_time_ns()

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.turns.pause()


class Trial(pytorch.PyTorchTrial):
    def __init__(
        self,
        context: pytorch.PyTorchTrialContext,
        task: Task,
        turns: Turns,
        metrics: int = 1,
        validated: Task | None = None,
    ) -> None:
        self.context = context
        self.task = task
        self.turns = turns
        self.model = context.wrap_model(task.make_model())
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))
        self.validated = validated
        self.names = [f"m{i}" for i in range(metrics - 1)]
        context.experimental.disable_dataset_reproducibility_checks()  # the data is a list of ready batches

    def build_training_data_loader(self) -> Any:
        return self.task.in_trial(shuffle=True)

    def build_validation_data_loader(self) -> Any:
        return (self.validated or self.task).in_trial(shuffle=False)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {"turns": WholeValidations(self.turns)} if self.validated else {}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx % TURN == 0 and self.validated is None:
            self.turns.switch()
        features, targets = batch
        loss = nn.functional.cross_entropy(self.model(features), targets)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss, **dict.fromkeys(self.names, loss)} if self.names else {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        if batch_idx % TURN == 0 and self.validated is not None:
            self.turns.switch()
        features, targets = batch
        outputs = self.model(features)
        accuracy = (outputs.argmax(1) == targets).float().mean()
        loss = nn.functional.cross_entropy(outputs, targets)
        return {"loss": loss, "accuracy": accuracy, "error": 1 - accuracy}


def train(name: str, task: Task, batches: int, metrics: int = 1) -> list[str]:
    """A row of the table: training."""
    turns = Turns(train_by_hand(task, metrics))
    with pytorch.init(seed=0) as context:
        pytorch.Trainer(Trial(context, task, turns, metrics), context).fit(
            max_length=pytorch.Batch(batches), checkpoint_policy="none", reporting_period=pytorch.Batch(TURN)
        )
    return row(name, turns)


def validate(name: str, task: Task, batches: int, rounds: int) -> list[str]:
    """A row of the table: whole validations, one after each batch."""
    turns = Turns(validate_by_hand(task, batches))
    with pytorch.init(seed=0) as context:
        pytorch.Trainer(Trial(context, READY, turns, validated=task), context).fit(
            max_length=pytorch.Batch(rounds), checkpoint_policy="none", validation_period=pytorch.Batch(1)
        )
    count = batches // TURN
    turns.mine = [sum(turns.mine[i : i + count + 1]) / count for i in range(0, len(turns.mine), count + 1)]
    turns.theirs = [sum(turns.theirs[i : i + count]) / count for i in range(0, len(turns.theirs), count)]
    return row(name, turns)


def row(name: str, turns: Turns) -> list[str]:
    """CPU time per batch of both, and their ratio."""
    mine, theirs = (median / TURN for median in turns.medians())
    behind = turns.behind() / TURN
    mine += behind
    return [name, f"{mine / 1e3:.1f} µs", f"{behind / 1e3:.1f} µs", f"{theirs / 1e3:.1f} µs", f"{mine / theirs:.2f}x"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=40_000, help="training batches per row (default: %(default)s)")
    parser.add_argument("--validations", type=int, default=40, help="validations of 2,000 (default: %(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    table = Table(
        "per batch", "Trainer.fit", "of it in the background", "by hand", "ratio",
        title="32-32-2 MLP, batch 8 (digits: CNN, batch 32), SGD, report every 100",
    )  # fmt: skip
    table.add_row(*train("training, 1 metric", READY, args.batches))
    table.add_row(*train("training, 10 metrics", READY, args.batches, metrics=10))
    table.add_row(*train("training from a DataLoader", TINY, args.batches))
    table.add_row(*train("digits from a DataLoader", DIGITS, args.batches // 4))
    validated = [BATCHES[index % len(BATCHES)] for index in range(2000)]
    table.add_row(*validate("validation, 3 metrics", Task(make_model, validated), 2000, args.validations))
    validated_data = Task(make_model, dataset=make_dataset(2000 * BATCH_SIZE, (FEATURES,), 2))
    table.add_row(*validate("validation from a DataLoader", validated_data, 2000, args.validations))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
