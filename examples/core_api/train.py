"""A raw PyTorch loop on handwritten digits that reports, saves, stops when asked, and resumes exactly where it was.

python examples/core_api/train.py                     # train
python examples/core_api/train.py --resume latest     # go on from the newest checkpoint
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import nn

from determined import core

try:
    from sklearn.datasets import load_digits
except ImportError:
    raise SystemExit("The digits come with scikit-learn. Type: pip install 'resolute[examples]'") from None

SEED = 7


def digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The 1,797 digits that come with scikit-learn, split into training and validation."""
    pixels, labels = load_digits(return_X_y=True)
    images, targets = torch.tensor(pixels / 16.0, dtype=torch.float32), torch.tensor(labels)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED))
    train, test = order[:1437], order[1437:]
    return images[train], targets[train], images[test], targets[test]


def batches(records: int, batch_size: int, start: int) -> Iterator[torch.Tensor]:
    """Indices of endless batches from batch `start` on. The order depends on the epoch alone: nothing is replayed."""
    per_epoch = records // batch_size
    while True:
        epoch, position = divmod(start, per_epoch)
        order = torch.randperm(records, generator=torch.Generator().manual_seed(SEED + epoch))
        yield order[position * batch_size : (position + 1) * batch_size]
        start += 1


class Training:
    """Everything that a checkpoint holds."""

    def __init__(self) -> None:
        torch.manual_seed(SEED)
        self.model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.batches_trained = 0

    def step(self, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.model(images), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.batches_trained += 1
        return loss.detach()

    @torch.no_grad()
    def accuracy(self, images: torch.Tensor, targets: torch.Tensor) -> float:
        self.model.eval()
        right = (self.model(images).argmax(1) == targets).float().mean().item()
        self.model.train()
        return right

    def save(self, context: core.Context) -> str:
        with context.checkpoint.store_path({"steps_completed": self.batches_trained}) as (path, storage_id):
            state = {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "batches_trained": self.batches_trained,
                "rng": torch.get_rng_state(),  # dropout goes on with the same numbers
            }
            torch.save(state, path / "state.pt")
        return storage_id

    def load(self, context: core.Context, storage_id: str) -> None:
        with context.checkpoint.restore_path(storage_id) as path:
            state = torch.load(path / "state.pt", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.batches_trained = state["batches_trained"]
        torch.set_rng_state(state["rng"])


def train(context: core.Context, training: Training, args: argparse.Namespace, progress: Progress) -> tuple[float, str]:
    """Train until the end or until asked to stop; the accuracy and the newest checkpoint."""
    images, targets, test_images, test_targets = digits()
    per_epoch = len(images) // args.batch_size
    total = args.epochs * per_epoch
    bar = progress.add_task("training", total=total, completed=training.batches_trained, accuracy="")
    accuracy = training.accuracy(test_images, test_targets)
    losses: list[torch.Tensor] = []
    for chosen in batches(len(images), args.batch_size, training.batches_trained):
        if training.batches_trained >= total or context.preempt.should_preempt():
            break
        losses.append(training.step(images[chosen], targets[chosen]))
        progress.advance(bar)
        if training.batches_trained % per_epoch == 0:
            steps = training.batches_trained
            context.train.report_training_metrics(steps, {"loss": torch.stack(losses).mean()}, window=len(losses))
            losses.clear()
            accuracy = training.accuracy(test_images, test_targets)
            context.train.report_validation_metrics(steps, {"accuracy": accuracy})
            context.train.report_progress(min(1.0, steps / total))
            progress.update(bar, accuracy=f"{accuracy:.1%}")
            if progress.disable and steps % (5 * per_epoch) == 0:  # no terminal, so no bar
                progress.console.print(f"epoch {steps // per_epoch:3}   validation accuracy {accuracy:.1%}")
            if steps % (5 * per_epoch) == 0 and steps < total:
                training.save(context)
    return accuracy, training.save(context)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20, help="how long to train in all (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="records per batch (default: %(default)s)")
    parser.add_argument("--resume", metavar="ID", help="go on from this checkpoint; 'latest' is the newest one")
    parser.add_argument("--storage", help="where checkpoints go (default: the data directory)")
    args = parser.parse_args()

    console = Console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[accuracy]}"),
    )
    training = Training()
    with core.init(
        checkpoint_storage=args.storage,
        hparams={"batch_size": args.batch_size},
        metric="accuracy",
        smaller_is_better=False,
    ) as context:
        if args.resume:
            storage_id = context.checkpoint.latest() if args.resume == "latest" else args.resume
            if storage_id is None:
                parser.error(
                    f"there is no checkpoint yet in {context.checkpoint.location}; train without --resume first"
                )
            training.load(context, storage_id)
            console.print(f"Resumed after batch {training.batches_trained}.")
        with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as progress:
            accuracy, storage_id = train(context, training, args, progress)
        location = context.checkpoint.location

    table = Table(title="Handwritten digits", show_header=False)
    table.add_row("batches trained", f"{training.batches_trained:,}")
    table.add_row("validation accuracy", f"{accuracy:.2%}")
    table.add_row("checkpoint", storage_id)
    table.add_row("lies in", location)
    console.print(table)
    home = f"DET_HOME={os.environ['DET_HOME']} " if "DET_HOME" in os.environ else ""
    storage = f" --storage {args.storage}" if args.storage else ""
    console.print("Train longer from here:", style="bold")
    python = os.path.relpath(sys.executable) if Path(sys.executable).is_relative_to(Path.cwd()) else sys.executable
    command = f"  {home}{python} {sys.argv[0]}{storage} --resume {storage_id} --epochs {args.epochs * 2}"
    console.print(command, soft_wrap=True, highlight=False)


if __name__ == "__main__":
    main()
