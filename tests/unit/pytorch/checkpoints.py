"""What a checkpoint needs to be saved and loaded, without a loop: for tests of checkpoints."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from determined import artifacts, core
from determined.core import CheckpointContext, DistributedContext
from determined.pytorch import DataLoader, LRScheduler, PyTorchCallback, PyTorchTrialContext
from determined.pytorch._callback import Callbacks
from determined.pytorch._plan import Progress
from determined.pytorch.checkpoint.checkpointer import Checkpointer
from determined.pytorch.code.copying import CodeCopy
from determined.pytorch.data.stream import TrainingStream, training_stream


class DigitTrial:
    """Stands for a user's class; nothing of it but its name is saved."""


@dataclasses.dataclass
class Run:
    """One fit(), as far as checkpoints are concerned."""

    core: core.Context
    context: PyTorchTrialContext
    callbacks: dict[str, PyTorchCallback]
    progress: Progress
    stream: TrainingStream
    checkpointer: Checkpointer

    @property
    def model(self) -> nn.Module:
        return self.context.models[0]

    def train(self, batches: int) -> list[float]:
        """Train with dropout, so that random streams show in every loss."""
        losses = []
        for _ in range(batches):
            batch = next(self.stream)
            loss = torch.stack([model(batch).square().sum() for model in self.context.models]).sum()
            loss.backward()
            for optimizer in self.context.optimizers:
                optimizer.step()
                optimizer.zero_grad()
            for scheduler in self.context.lr_schedulers:
                scheduler.step()
            self.progress.batches_trained += 1
            self.progress.epochs_trained += self.stream.ends_epoch
            losses.append(loss.item())
        return losses

    def save(self, extra: Mapping[str, Any] | None = None) -> str:
        self.progress.last_checkpoint = self.progress.batches_trained
        return self.checkpointer.save(extra)


def make_run(
    root: Path,
    *,
    callbacks: dict[str, PyTorchCallback] | None = None,
    models: int = 1,
    width: int = 3,
    optimizers: int | None = None,
    schedulers: int = 1,
    scaler: Any = None,
    trial_id: int = 0,
    hparams: dict[str, Any] | None = None,
    exp_conf: dict[str, Any] | None = None,
    seed: int = 7,
    distributed: DistributedContext | None = None,
    scheduler: Callable[[Any], Any] = lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5),
    code: CodeCopy | None = None,
) -> Run:
    """A run whose checkpoints go to `root`; another one with the same arguments can load them."""
    distributed = distributed or DistributedContext()
    services = core.Context(CheckpointContext(distributed, artifacts.open_storage(str(root))), distributed)
    context = PyTorchTrialContext(services, seed, hparams, 1, 0, exp_conf, 1, 0, False, False)
    for _ in range(models):
        context.wrap_model(nn.Sequential(nn.Linear(4, width), nn.Dropout(0.5), nn.Linear(width, 1)))
    for i in range(models if optimizers is None else optimizers):
        optimizer = context.wrap_optimizer(torch.optim.Adam(context.models[i].parameters(), 0.1))
        if i < schedulers:
            context.wrap_lr_scheduler(scheduler(optimizer), LRScheduler.StepMode.MANUAL_STEP)
    context.scaler = scaler
    records = torch.arange(40, dtype=torch.float32).reshape(10, 4) / 40
    stream = training_stream(
        DataLoader(records, batch_size=2, shuffle=True), seed=seed, rank=distributed.rank, size=distributed.size
    )
    named = callbacks or {}
    progress = Progress(trial_id=trial_id)
    checkpointer = Checkpointer(
        services, context, DigitTrial(), Callbacks(named), progress, stream, code=code or CodeCopy(root.parent / "none")
    )
    return Run(services, context, named, progress, stream, checkpointer)


def state_of(root: Path, storage_id: str) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(root / storage_id / "state_dict.pth", weights_only=True)
    return state


def draws() -> tuple[Any, ...]:
    """The next number of every random stream."""
    return random.random(), np.random.rand(), torch.rand(1).item()


class Keeps(PyTorchCallback):
    """Has this to save, and what was loaded."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return {"kept": self.state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state = state_dict["kept"]
