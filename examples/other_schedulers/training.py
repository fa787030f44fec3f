"""A small network on handwritten digits, trained an epoch at a time: alone, or as one of several ranks.

`ray_tune.py`, `ray_train.py` and `train.py`, which `slurm.sh` starts, are three ways to run it.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from determined import core

try:
    from sklearn.datasets import load_digits
except ImportError:
    raise SystemExit("The digits come with scikit-learn. Type: pip install 'resolute[examples]'") from None

SEED, BATCH_SIZE = 7, 32
BATCHES_PER_EPOCH = 1437 // BATCH_SIZE


def digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The 1,797 digits that come with scikit-learn, split into training and validation."""
    pixels, labels = load_digits(return_X_y=True)
    images, targets = torch.tensor(pixels / 16.0, dtype=torch.float32), torch.tensor(labels)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED))
    train, test = order[:1437], order[1437:]
    return images[train], targets[train], images[test], targets[test]


class Training:
    """A model, its optimizer and how far it is: everything that a checkpoint holds."""

    def __init__(self, lr: float, hidden: int) -> None:
        torch.manual_seed(SEED)
        self.model = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)
        self.trained = nn.parallel.DistributedDataParallel(self.model) if dist.is_initialized() else self.model
        self.data = digits()
        self.epochs = 0

    @property
    def batches(self) -> int:
        return self.epochs * BATCHES_PER_EPOCH

    def train_epoch(self, rank: int = 0, size: int = 1) -> None:
        """Train one epoch; each rank takes its part of every batch."""
        images, targets, _, _ = self.data
        # Both depend on the epoch alone, so that one who goes on from a checkpoint draws the same.
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED + self.epochs))
        torch.manual_seed(1000 * self.epochs + rank)
        self.trained.train()
        for batch in order[: BATCHES_PER_EPOCH * BATCH_SIZE].split(BATCH_SIZE):
            mine = batch[rank::size]
            loss = nn.functional.cross_entropy(self.trained(images[mine]), targets[mine])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.epochs += 1

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        _, _, images, targets = self.data
        self.model.eval()
        scores = self.model(images)
        loss = nn.functional.cross_entropy(scores, targets).item()
        return {"loss": loss, "accuracy": (scores.argmax(1) == targets).float().mean().item()}

    def report(self, context: core.Context) -> dict[str, float]:
        """Validate, report it, and save a checkpoint; ranks other than the chief only validate."""
        metrics = self.validate()
        context.train.report_validation_metrics(self.batches, metrics)
        if context.distributed.is_chief:
            with context.checkpoint.store_path({"steps_completed": self.batches}) as (path, _):
                states = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
                torch.save({**states, "epochs": self.epochs}, path / "state.pt")
        return metrics

    def go_on(self, context: core.Context) -> None:
        """Load the newest checkpoint of this trial, if an earlier attempt has saved one."""
        newest = context.info.latest_checkpoint
        if newest is not None:
            with context.checkpoint.restore_path(newest) as path:
                state = torch.load(path / "state.pt", weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.epochs = state["epochs"]
