"""What a checkpoint costs the training thread, and what a long run costs in memory.

    python bench/checkpoint.py            # about three minutes; needs about 4 GB of memory and 2 GB of disk
    python bench/checkpoint.py --only save

- one save, of a small state and of 600 MB, against `torch.save` of the same state and `fsync`, in turns;
- an epoch of a small CNN that validates and saves, against the same by hand, in turns;
- the stall of `fit(checkpoint_async=True)` per checkpoint of 600 MB, against copying that state once in memory;
- the peak memory after 200,000 batches, against that after 20,000;
- the time to the first batch when resuming at batch 50,000, against a fresh start.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

HOME = os.environ.setdefault("DET_HOME", tempfile.mkdtemp(prefix="determined-bench-"))
os.environ.setdefault("DET_PROGRESS", "off")

from determined import pytorch
from determined.pytorch.checkpoint import checkpointer

MEGABYTES = 600


class Sized(pytorch.PyTorchTrial):
    """A trial with a state of a chosen size, and steps that cost nothing."""

    def __init__(self, context: pytorch.PyTorchTrialContext, megabytes: float) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Linear(1024, max(1, int(megabytes * 256)), bias=False))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.0))
        self.pauses: list[float] = []
        self.last = time.perf_counter()
        context.experimental.disable_dataset_reproducibility_checks()

    def build_training_data_loader(self) -> Any:
        return [torch.zeros(1)] * 100

    def build_validation_data_loader(self) -> Any:
        return [torch.zeros(1)]

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.pauses.append(time.perf_counter() - self.last)
        time.sleep(0.25)  # the background writer gets its turn, as beside a busy accelerator
        self.last = time.perf_counter()
        return {"loss": 0.0}

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        return {"loss": 0.0}


class Cnn(Sized):
    """A small convolutional network, as in a first example."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(make_cnn())
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))

    def build_training_data_loader(self) -> Any:
        return pytorch.DataLoader(IMAGES, batch_size=32, shuffle=True)

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(IMAGES, batch_size=32)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        return {"loss": nn.functional.cross_entropy(self.model(batch[0]), batch[1])}


IMAGES = torch.utils.data.TensorDataset(torch.randn(1280, 1, 8, 8), torch.zeros(1280, dtype=torch.long))


def make_cnn() -> nn.Module:
    first, second = nn.Conv2d(1, 16, 3), nn.Conv2d(16, 16, 3)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))


def save_by_hand(state: Any) -> None:
    path = Path(HOME, "by-hand.pt")
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def save(trial_class: Callable[[Any], Any], rounds: int) -> tuple[float, float]:
    """Seconds that one save takes, and seconds to save the same state by hand, in turns."""
    ours, by_hand = [], []
    real = checkpointer.Checkpointer.save

    def both(self: Any, *args: Any) -> str:
        seconds, storage_id = timed(lambda: real(self, *args))
        ours.append(seconds)
        state = torch.load(Path(HOME, "checkpoints", storage_id, "state_dict.pth"), weights_only=True)
        by_hand.append(timed(lambda: save_by_hand(state))[0])
        self._core.checkpoint.delete(storage_id)
        return str(storage_id)

    checkpointer.Checkpointer.save = both  # type: ignore[method-assign]
    try:
        with pytorch.init(seed=0) as context:
            pytorch.Trainer(trial_class(context), context).fit(
                max_length=pytorch.Batch(rounds), checkpoint_period=pytorch.Batch(1), checkpoint_policy="none"
            )
    finally:
        checkpointer.Checkpointer.save = real  # type: ignore[method-assign]
    return statistics.median(ours[1:]), statistics.median(by_hand[1:])


def epoch_by_hand(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for images, labels in torch.utils.data.DataLoader(IMAGES, batch_size=32, shuffle=True):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        model.eval()
        for images, labels in torch.utils.data.DataLoader(IMAGES, batch_size=32):
            nn.functional.cross_entropy(model(images), labels)
        model.train()
    save_by_hand({"model": model.state_dict(), "optimizer": optimizer.state_dict()})


def epoch(rounds: int) -> tuple[float, float]:
    """Seconds of an epoch with validation and checkpoint, and the same by hand: in turns, between two epochs."""
    ours, by_hand = [], []
    model = make_cnn()
    optimizer = torch.optim.Adam(model.parameters())

    class Turns(pytorch.PyTorchCallback):
        started = 0.0

        def on_training_epoch_start(self, epoch_idx: int) -> None:
            if epoch_idx:
                ours.append(time.perf_counter() - self.started)
                by_hand.append(timed(lambda: epoch_by_hand(model, optimizer))[0])
            self.started = time.perf_counter()

    class InTurns(Cnn):
        def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
            return {"turns": Turns()}

    with pytorch.init(seed=0) as context:
        pytorch.Trainer(InTurns(context), context).fit(
            max_length=pytorch.Epoch(rounds),
            checkpoint_period=pytorch.Epoch(1),
            validation_period=pytorch.Epoch(1),
            checkpoint_policy="none",
        )
    return statistics.median(ours[1:]), statistics.median(by_hand[1:])


def stall(rounds: int) -> tuple[float, float]:
    """Seconds that training stands still per checkpoint in the background, and seconds to copy that state."""
    period = 80  # 20 seconds: longer than writing takes, so that no checkpoint waits for the one before
    with pytorch.init(seed=0) as context:
        trial = Sized(context, MEGABYTES)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(period * rounds + 1),
            checkpoint_period=pytorch.Batch(period),
            checkpoint_policy="none",
            checkpoint_async=True,
        )
        weight = trial.model.weight.detach()
        target = torch.empty_like(weight).copy_(weight)
        copies = []
        for _ in range(5):
            started = time.perf_counter()
            target.copy_(weight)
            copies.append(time.perf_counter() - started)
    pauses = [pause for i, pause in enumerate(trial.pauses) if i and i % period == 0]
    return statistics.median(pauses[1:] or pauses), statistics.median(copies)


def child(batches: int, resume: str) -> None:
    """Train a small model; print the peak memory in MB, and the seconds from the process's start to its first batch."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    first: list[float] = []

    class Small(Sized):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            if not first:
                first.append(time.time())
            return {"loss": torch.zeros(())}

    with pytorch.init(seed=0) as context:
        trainer = pytorch.Trainer(Small(context, 0.01), context)
        trainer.fit(
            max_length=pytorch.Batch(batches), checkpoint_policy="none", latest_checkpoint="latest" if resume else None
        )
    # getrusage() would tell the peak of the process that started this one, if that was larger.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(int(peak.split()[1]) / 1024, first[0] - psutil.Process().create_time())


def run_child(batches: int, resume: str = "") -> tuple[float, float]:
    command = [sys.executable, __file__, "--child", str(batches), *(["--resume"] if resume else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    memory, seconds = map(float, done.stdout.split())
    return memory, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="checkpoints in the background (default: %(default)s)")
    parser.add_argument("--only", choices=["save"], help="leave out the rest")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, "latest" if args.resume else "")
        return
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    table = Table("what", "ours", "against", "ratio or difference")
    for what, (ours, by_hand) in {
        "one save of a small state": save(Cnn, 60),
        "an epoch that validates and saves": epoch(30),
        f"one save of {MEGABYTES} MB": save(lambda context: Sized(context, MEGABYTES), 6),
    }.items():
        table.add_row(what, f"{ours * 1e3:.1f} ms", f"by hand {by_hand * 1e3:.1f} ms", f"{ours / by_hand:.2f}x")
    if args.only == "save":
        Console(width=110).print(table)
        return
    paused, copied = stall(args.rounds)
    table.add_row(
        f"stall per {MEGABYTES} MB checkpoint", f"{paused:.3f} s", f"one copy {copied:.3f} s", f"{paused / copied:.2f}x"
    )
    shutil.rmtree(f"{HOME}/checkpoints", ignore_errors=True)
    short, long = run_child(20_000)[0], run_child(200_000)[0]
    table.add_row(
        "peak memory, 200,000 batches", f"{long:.1f} MB", f"20,000: {short:.1f} MB", f"{long - short:+.1f} MB"
    )
    fresh = statistics.median(run_child(1)[1] for _ in range(3))
    shutil.rmtree(f"{HOME}/checkpoints", ignore_errors=True)
    run_child(50_000)
    resumed = statistics.median(run_child(50_001 + i, "latest")[1] for i in range(3))
    table.add_row(
        "first batch after resume at 50,000",
        f"{resumed:.2f} s",
        f"fresh {fresh:.2f} s",
        f"{resumed / fresh:.2f}x",
    )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
