"""Trials and jobs for tests of several processes. A job is a function that each rank runs; it returns plain values.

The regression has a bias, dropout and batch norm if asked for, so that every way in which ranks could drift shows.
`fail_at(rank, step, where)` breaks a run in one place, always the same.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from determined import pytorch
from determined.pytorch import Batch, DataLoader, PyTorchCallback, PyTorchTrial, PyTorchTrialContext

RECORDS, FEATURES = 24, 3


def features(records: int = RECORDS) -> torch.Tensor:
    return torch.randn(records, FEATURES, generator=torch.Generator().manual_seed(5))


class Numbered(torch.utils.data.Dataset[tuple[int, torch.Tensor]]):
    """Records that know their number."""

    def __init__(self, records: int = RECORDS) -> None:
        self.data = features(records)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        return index, self.data[index]


@dataclasses.dataclass(frozen=True)
class Failure:
    """What `fail_at` asks for."""

    rank: int
    step: int
    where: str
    how: str = "raise"

    def __call__(self, where: str, step: int, rank: int) -> None:
        if (where, step, rank) != (self.where, self.step, self.rank):
            return
        if self.how == "exit":
            os._exit(3)
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        if self.how == "sleep":
            time.sleep(600)
        raise ArithmeticError(f"told to fail on rank {rank} at batch {step} {where}")


def fail_at(rank: int, step: int, where: str, how: str = "raise") -> Failure:
    """Fail on this rank at this batch: where = "before forward", "in the exchange", "in validation", "in save" or "in a
    callback"; how = "raise", "exit", "kill", "stop" (until SIGCONT) or "sleep".
    """
    return Failure(rank, step, where, how)


def nothing(where: str, step: int, rank: int) -> None:
    """The failure of a run that has none."""


class Regression(PyTorchTrial):
    """Fits 0.5 * sum of the features, in batches of `global_batch_size` hparam, or of 4 per rank.

    Args:
        context: From `init()`.
        fails: Asked everywhere something may go wrong.
        dropout: Add a layer that draws random numbers.
        norm: Add a layer with buffers.
        shuffle: Shuffle the training data.
        workers: Of the training loader.
        rate: Learning rate.
        records: How many there are.
        stops_at: Ask for a stop at this batch, on `stops_on` only.
        on_batch: Called with each batch index after it was trained.
        wrap: Options of `wrap_model`.
    """

    def __init__(
        self,
        context: PyTorchTrialContext,
        *,
        fails: Callable[[str, int, int], None] = nothing,
        dropout: bool = False,
        norm: bool = False,
        shuffle: bool = False,
        workers: int = 0,
        rate: float = 0.05,
        records: int = RECORDS,
        validation_records: int = 9,
        batch_size: int = 4,
        on_batch: Callable[[int], None] | None = None,
        wrap: dict[str, Any] | None = None,
        callbacks: dict[str, PyTorchCallback] | None = None,
    ) -> None:
        self.context, self.fails, self.on_batch = context, fails, on_batch
        self.records, self.validation_records, self.batch_size = records, validation_records, batch_size
        self.shuffle, self.workers = shuffle, workers
        torch.manual_seed(3)  # a resume on another number of ranks begins with the same weights
        layers: list[nn.Module] = [nn.Linear(FEATURES, 4)]
        if norm:
            layers.append(nn.BatchNorm1d(4))
        if dropout:
            layers.append(nn.Dropout(0.5))
        model = nn.Sequential(*layers, nn.Tanh(), nn.Linear(4, 1))
        torch.manual_seed(100 + context.distributed.rank)  # ranks drop different units
        self.model = context.wrap_model(model, **(wrap or {}))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9))
        self.seen: list[list[int]] = []
        self.callbacks = {"faults": FaultyCallback(self), **(callbacks or {})}
        self.validated: list[dict[str, float]] = []
        if fails is not nothing:
            next(self.model.parameters()).register_hook(self._in_the_exchange)

    def _in_the_exchange(self, _: torch.Tensor) -> None:
        self.fails("in the exchange", self.step, self.rank)

    @property
    def rank(self) -> int:
        return self.context.distributed.rank

    @property
    def step(self) -> int:
        return self.context.current_train_batch()

    def build_training_data_loader(self) -> Any:
        return DataLoader(
            Numbered(self.records), batch_size=self.batch_size, shuffle=self.shuffle, num_workers=self.workers
        )

    def build_validation_data_loader(self) -> Any:
        return DataLoader(Numbered(self.validation_records), batch_size=2)

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return self.callbacks

    def loss(self, batch: Any) -> torch.Tensor:
        _, inputs = batch
        return nn.functional.mse_loss(self.model(inputs).squeeze(1), inputs.sum(1) / 2)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.fails("before forward", batch_idx, self.rank)
        loss = self.loss(batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        self.seen.append(batch[0].tolist())
        if self.on_batch is not None:
            self.on_batch(batch_idx)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        if batch_idx == 0:
            self.fails("in validation", self.step, self.rank)
        return {"loss": self.loss(batch)}


class FaultyCallback(PyTorchCallback):
    """Fails where the trial is told to."""

    def __init__(self, trial: Regression) -> None:
        self.trial = trial

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: Any) -> None:
        self.trial.fails("in a callback", self.trial.step, self.trial.rank)

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        self.trial.fails("in save", self.trial.step, self.trial.rank)

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.trial.validated.append({name: float(value) for name, value in metrics.items()})


def digest(trial: Any) -> str:
    """All parameters and buffers of the trial's model, in one word."""
    tensors = trial.model.state_dict().values()
    return hashlib.sha256(b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)).hexdigest()


def values(trial: Any) -> list[float]:
    """The parameters, one after the other."""
    return torch.cat([parameter.detach().flatten() for parameter in trial.model.parameters()]).tolist()


def regress(*, seed: int = 7, agg: int = 1, trial: dict[str, Any] | None = None, **fit: Any) -> dict[str, Any]:
    """Train, in an `init()` of its own, and tell how it went."""
    with pytorch.init(seed=seed, aggregation_frequency=agg) as context:
        made = Regression(context, **(trial or {}))
        pytorch.Trainer(made, context).fit(
            **{"checkpoint_policy": "none", "max_length": Batch(6), "reporting_period": Batch(100), **fit}
        )
        return {
            "rank": context.distributed.rank,
            "size": context.distributed.size,
            "digest": digest(made),
            "values": values(made),
            "seen": made.seen,
            "validated": made.validated,
        }


def elsewhere() -> None:
    """Go to an empty directory: checkpoints copy the code of the current one."""
    place = Path(os.environ["DET_HOME"]) / "work"
    place.mkdir(parents=True, exist_ok=True)
    os.chdir(place)


def result_of(work: Callable[[], Any]) -> Any:
    """What it returns, or the name and text of what it raises."""
    try:
        return work()
    except Exception as error:
        return [type(error).__name__, str(error)]
