"""A complete trial as a user would write it with types. Nothing runs here: `mypy --strict` has to have no complaint."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from determined import core, errors, pytorch
from determined.pytorch import Batch, Epoch, LRScheduler, Reducer

Pair = tuple[torch.Tensor, torch.Tensor]


class Records(torch.utils.data.Dataset[Pair]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Pair:
        return torch.full((2,), float(index)), torch.tensor([float(index)])


class Patience(pytorch.PyTorchCallback):
    """Stops when the loss has not fallen."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.best = float("inf")

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        print(first_batch_idx, checkpoint_uuid)

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        print(epoch_idx)

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        print(avg_metrics, len(batch_metrics))

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.context.set_stop_requested(metrics["loss"] > self.best)
        self.best = min(self.best, metrics["loss"])

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["extra"] = 1

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best = state_dict["best"]


class Count(pytorch.MetricReducer):
    def __init__(self) -> None:
        self.count = 0

    def reset(self) -> None:
        self.count = 0

    def update(self, count: int) -> None:
        self.count += count

    def per_slot_reduce(self) -> int:
        return self.count

    def cross_slot_reduce(self, per_slot_metrics: Any) -> int:
        return sum(per_slot_metrics)


class TypedTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, width: int = 4) -> None:
        self.context = context
        self.model: nn.Module = context.wrap_model(nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 1)))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=context.get_hparam("lr")))
        self.scheduler = context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.StepLR(self.optimizer, 10), step_mode=LRScheduler.StepMode.STEP_EVERY_EPOCH
        )
        self.count = context.wrap_reducer(Count(), name="count", for_training=False)

    def build_training_data_loader(self) -> pytorch.DataLoader[Pair]:
        return pytorch.DataLoader(Records(), batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader[Pair]:
        return pytorch.DataLoader(Records(), batch_size=self.context.get_per_slot_batch_size())

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {"patience": Patience(self.context)}

    def train_batch(self, batch: Pair, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        if bool(loss.isnan()):
            raise pytorch.ShouldExit(skip_exit_checkpoint=True)
        self.context.backward(loss)
        self.context.step_optimizer(
            self.optimizer, clip_grads=lambda parameters: nn.utils.clip_grad_norm_(parameters, 1.0)
        )
        return {"loss": loss}

    def evaluate_batch(self, batch: Pair, batch_idx: int) -> dict[str, Any]:
        inputs, targets = batch
        return {"loss": nn.functional.mse_loss(self.model(inputs), targets)}

    def evaluation_reducer(self) -> Reducer | dict[str, Reducer]:
        return {"loss": Reducer.AVG}


class Shortest(pytorch.PyTorchTrial):
    """Only what must be there, with the other loader, the other result and the other evaluation."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.model = context.wrap_model(nn.Linear(2, 1))

    def build_training_data_loader(self) -> torch.utils.data.DataLoader[Pair]:
        return torch.utils.data.DataLoader(Records())

    def build_validation_data_loader(self) -> torch.utils.data.DataLoader[Pair]:
        return torch.utils.data.DataLoader(Records())

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = self.model(batch).mean()
        return loss

    def evaluate_full_dataset(self, data_loader: torch.utils.data.DataLoader[Any]) -> dict[str, Any]:
        return {"batches": len(data_loader)}


def main() -> None:
    with pytorch.init(
        hparams={"lr": 0.1, "global_batch_size": 4}, exp_conf={"searcher": {"metric": "loss"}}, seed=1
    ) as context:
        trial = TypedTrial(context, width=8)
        trainer = pytorch.Trainer(trial, context)
        trainer.configure_profiler(sync_timings=True, enabled=False, begin_on_batch=0, end_after_batch=5)
        try:
            trainer.fit(
                max_length=Epoch(3),
                checkpoint_period=Batch([5, 10]),
                validation_period=Epoch(1),
                checkpoint_policy="best",
                latest_checkpoint="latest",
                checkpoint_async=True,
            )
        except errors.InvalidCheckpointException:
            print(context.distributed.rank, core.PreemptMode.WorkersAskChief)


def load(path: str) -> nn.Module:
    trial = pytorch.load_trial_from_checkpoint_path(path, trial_class=TypedTrial, trial_kwargs={"width": 8})
    assert isinstance(trial, TypedTrial)
    return trial.model
