"""Small trials for tests of training: one weight, whose every step can be worked out by hand, and who saw what when.

run = train(max_length=Batch(6), validation_period=Batch(2))
assert run.at("validation") == [2, 4, 6]
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # sets a variable when the first optimizer steps; here no test is blamed for it
from torch import nn

from determined import _info, pytorch
from determined.pytorch import Batch, DataLoader, LRScheduler, PyTorchCallback, PyTorchTrial, PyTorchTrialContext

Log = list[tuple[Any, ...]]
HOOKS = [
    "on_trial_startup",
    "on_checkpoint_load_start",
    "load_state_dict",
    "on_training_start",
    "on_training_epoch_start",
    "on_training_epoch_end",
    "on_training_workload_end",
    "on_validation_start",
    "on_validation_epoch_start",
    "on_validation_epoch_end",
    "on_validation_end",
    "state_dict",
    "on_checkpoint_save_start",
    "on_checkpoint_write_end",
    "on_checkpoint_upload_end",
    "on_trial_shutdown",
]


class OneWeight(nn.Module):
    """output = weight * input; the gradient of the mean output is the mean input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x


class Recorder(PyTorchCallback):
    """Writes down every hook; raises in those, or calls in those, that it is told to."""

    def __init__(self, log: Log, name: str = "hook", does: dict[str, Any] | None = None) -> None:
        self.log, self.name, self.does = log, name, does or {}
        self.seen = 0
        for hook in HOOKS:
            setattr(self, hook, self._recorded(hook, getattr(super(), hook)))

    def _recorded(self, hook: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            simple = [v for v in (*args, *kwargs.values()) if v is None or isinstance(v, (int, str))]
            self.log.append((self.name, hook, *simple))
            self.seen += 1
            action = self.does.get(hook)
            if isinstance(action, BaseException):
                raise action
            if action is not None:
                action(*args, **kwargs)
            if hook == "state_dict":
                return {"seen": self.seen}
            if hook == "load_state_dict":
                self.seen = args[0]["seen"]
            return own(*args, **kwargs)

        return call


class OneWeightTrial(PyTorchTrial):
    """Records 1 to 8 in batches of two, rate 1: the weight falls by 1.5, 3.5, 5.5 and 7.5 in each epoch.

    Args:
        context: From `init()`.
        log: Where batches are written down, with the records that they held.
        does: Called with the index of a batch before it is trained; may raise.
        returns: What `train_batch` returns for a batch index, instead of the loss.
        evaluates: What `evaluate_batch` returns for the records of a batch, instead of their loss.
        callbacks: For `build_callbacks`.
        records: How many there are.
        loader: More for the training `DataLoader`.
        reducer: For `evaluation_reducer`.
    """

    def __init__(
        self,
        context: PyTorchTrialContext,
        log: Log | None = None,
        *,
        does: Callable[[int], None] | None = None,
        returns: Callable[[int], Any] | None = None,
        evaluates: Callable[[torch.Tensor], Any] | None = None,
        callbacks: dict[str, PyTorchCallback] | None = None,
        records: int = 8,
        loader: dict[str, Any] | None = None,
        validation_loader: Callable[[], Any] | None = None,
        training_loader: Callable[[], Any] | None = None,
        reducer: Any = pytorch.Reducer.AVG,
        decays: bool = False,
        model: nn.Module | None = None,
    ) -> None:
        self.context, self.log = context, [] if log is None else log
        self.does, self.returns, self.evaluates = does, returns, evaluates
        self.callbacks, self.reducer = callbacks or {}, reducer
        self.data = torch.arange(1, records + 1, dtype=torch.float32).reshape(-1, 1)
        self.loader = loader or {}
        self.training_loader, self.validation_loader = training_loader, validation_loader
        self.model: Any = context.wrap_model(model or OneWeight())
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=1.0))
        if decays:
            context.wrap_lr_scheduler(
                torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5), LRScheduler.StepMode.STEP_EVERY_EPOCH
            )

    @property
    def weight(self) -> float:
        return float(self.model.weight.item())

    def build_training_data_loader(self) -> Any:
        if self.training_loader is not None:
            return self.training_loader()
        return DataLoader(self.data, **{"batch_size": 2, **self.loader})

    def build_validation_data_loader(self) -> Any:
        if self.validation_loader is not None:
            return self.validation_loader()
        return DataLoader(self.data, batch_size=4)

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return self.callbacks

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.log.append(("batch", batch_idx, epoch_idx, tuple(batch.flatten().tolist())))
        if self.does is not None:
            self.does(batch_idx)
        loss = self.model(batch).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss} if self.returns is None else self.returns(batch_idx)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
        self.log.append(("evaluated", batch_idx))
        return {"loss": self.model(batch).mean()} if self.evaluates is None else self.evaluates(batch)

    def evaluation_reducer(self) -> Any:
        return self.reducer


@dataclasses.dataclass
class Run:
    """What one `fit()` did, in order."""

    log: Log
    trial: Any = None
    context: Any = None

    def of(self, what: str) -> list[tuple[Any, ...]]:
        """What was written down under one name, without the name."""
        return [entry[1:] for entry in self.log if entry[0] == what]

    def at(self, what: str) -> list[Any]:
        """When it happened: the first value of each entry."""
        return [entry[0] for entry in self.of(what)]

    @property
    def batches(self) -> list[int]:
        return self.at("batch")

    @property
    def data(self) -> list[Any]:
        """The records of each batch."""
        return [entry[2] for entry in self.of("batch")]

    def hooks(self, name: str = "hook") -> list[str]:
        return self.at(name)

    @property
    def checkpoint(self) -> str:
        """The id of the newest checkpoint."""
        return str(self.of("checkpoint")[-1][1])


def watch(context: PyTorchTrialContext, log: Log) -> None:
    """Write down what a trial reports and stores, as it happens; all of it still happens."""
    services = context.core_context
    report_training = services.train.report_training_metrics
    report_validation = services.train.report_validation_metrics
    report_progress, report_early_exit = services.train.report_progress, services.train.report_early_exit
    store_path, store_shards = services.checkpoint._store_path, services.checkpoint._store_path_shards

    def training(steps_completed: int, metrics: dict[str, Any], batch_metrics: Any = None, **more: Any) -> None:
        log.append(("training", steps_completed, metrics, batch_metrics))
        report_training(steps_completed, metrics, batch_metrics, **more)

    def validation(steps_completed: int, metrics: dict[str, Any]) -> None:
        log.append(("validation", steps_completed, metrics))
        report_validation(steps_completed, metrics)

    def progress(fraction: float) -> None:
        log.append(("progress", fraction))
        report_progress(fraction)

    def early_exit(reason: Any) -> None:
        log.append(("early exit", reason))
        report_early_exit(reason)

    def noting(store: Any) -> Any:
        @contextlib.contextmanager
        def noted(metadata: Any = None, *args: Any, **options: Any) -> Iterator[tuple[Path, str]]:
            with store(metadata, *args, **options) as (path, storage_id):
                yield path, storage_id
            if metadata is not None:  # of shards, the chief has them
                log.append(("checkpoint", metadata["steps_completed"], storage_id))

        return noted

    services.train.report_training_metrics = training  # type: ignore[method-assign]
    services.train.report_validation_metrics = validation  # type: ignore[method-assign]
    services.train.report_progress = progress  # type: ignore[method-assign]
    services.train.report_early_exit = early_exit  # type: ignore[method-assign]
    services.checkpoint._store_path = noting(store_path)  # type: ignore[method-assign]
    services.checkpoint._store_path_shards = noting(store_shards)  # type: ignore[method-assign]


def train(
    make: Callable[..., PyTorchTrial] = OneWeightTrial,
    trial: dict[str, Any] | None = None,
    init: dict[str, Any] | None = None,
    run: Run | None = None,
    hooks: dict[str, Any] | None = None,
    **fit: Any,
) -> Run:
    """Train a trial in an `init()` of its own; policy "none" unless told. What it did is in `run` even if it raises.

    Args:
        make: The trial's class.
        trial: More arguments for it.
        init: Arguments of `init()`; the seed is 7 unless told.
        run: Where to write down what happens.
        hooks: What a `Recorder` callback does in which hook; {} for one that only watches.
        fit: Arguments of `fit()`.
    """
    run = run or Run([])
    options = dict(trial or {})
    if hooks is not None:
        options["callbacks"] = {"hook": Recorder(run.log, does=hooks)}
    with pytorch.init(**{"seed": 7, **(init or {})}) as context:
        watch(context, run.log)
        run.context, run.trial = context, make(context, run.log, **options)
        pytorch.Trainer(run.trial, context).fit(
            **{"checkpoint_policy": "none", "max_length": Batch(6), "reporting_period": Batch(100), **fit}
        )
    return run


@contextlib.contextmanager
def managed(
    *,
    latest_checkpoint: str | None = None,
    steps_completed: int = 0,
    trial_id: int = 1,
    seed: int = 3,
    hparams: dict[str, Any] | None = None,
    slots: int = 1,
    **config: Any,
) -> Iterator[None]:
    """Inside, this process was started as a trial of an experiment with this config."""
    told = _info.TrialInfo(trial_id, 5, seed, hparams or {}, _config=config, _steps_completed=steps_completed)
    info = _info.ClusterInfo(_latest_checkpoint=latest_checkpoint, _trial_info=told, slot_ids=list(range(slots)))
    _info.set_cluster_info(info)
    try:
        yield
    finally:
        _info.reset_cluster_info()


def stored_file(home: Path, storage_id: str, name: str) -> Path:
    """A file of a checkpoint in the data directory's storage."""
    return home / "checkpoints" / storage_id / name


def stored_state(home: Path, storage_id: str) -> dict[str, Any]:
    """What a checkpoint's `state_dict.pth` holds."""
    state: dict[str, Any] = torch.load(stored_file(home, storage_id, "state_dict.pth"), weights_only=True)
    return state
