"""PyTorchTrial: the contract between a model author and the loop, and nothing else."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

import torch

from determined import errors
from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._context import PyTorchTrialContext
from determined.pytorch.data.to_device import data_length
from determined.pytorch.metrics.reducer import Reducer

if TYPE_CHECKING:
    from determined.pytorch.data.loader import DataLoader


class LegacyTrial(abc.ABC):  # noqa: B024 - what is abstract differs from kind to kind of trial
    """The base of trials; kept for code that checks for it."""

    trial_controller_class: Any = None
    trial_context_class: Any = None


class PyTorchTrial(LegacyTrial):
    """A model, its optimizers and its data: what you write, and `Trainer.fit()` trains.

    Example::

        class MyTrial(pytorch.PyTorchTrial):
            def __init__(self, context):
                self.context = context
                self.model = context.wrap_model(torch.nn.Linear(2, 1))
                self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

            def train_batch(self, batch, epoch_idx, batch_idx):
                inputs, targets = batch
                loss = torch.nn.functional.mse_loss(self.model(inputs), targets)
                self.context.backward(loss)
                self.context.step_optimizer(self.optimizer)
                return {"loss": loss}

            def evaluate_batch(self, batch):
                inputs, targets = batch
                return {"loss": torch.nn.functional.mse_loss(self.model(inputs), targets)}

            def build_training_data_loader(self):
                return pytorch.DataLoader(dataset, batch_size=8, shuffle=True)

            def build_validation_data_loader(self):
                return pytorch.DataLoader(dataset, batch_size=8)
    """

    trial_context_class = PyTorchTrialContext

    @abc.abstractmethod
    def __init__(self, context: PyTorchTrialContext) -> None:
        """Wrap models, then optimizers, then schedulers, through the context."""

    @abc.abstractmethod
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> torch.Tensor | dict[str, Any]:
        """Train one batch, and return its metrics: a dict, or a tensor that is the loss.

        Args:
            batch: What the training loader yields, on the device.
            epoch_idx: The epoch, from 0.
            batch_idx: Batches trained before on this slot, since the beginning of the trial.
        """

    @abc.abstractmethod
    def build_training_data_loader(self) -> DataLoader[Any] | torch.utils.data.DataLoader[Any]:
        """The training data; on every rank the same, training deals it out."""

    @abc.abstractmethod
    def build_validation_data_loader(self) -> DataLoader[Any] | torch.utils.data.DataLoader[Any]:
        """The validation data."""

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        """Callbacks by the name under which their state is saved; hooks run in this order."""
        return {}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:  # noqa: ARG002 - for overrides
        """Validate one batch, and return its metrics. Override this or `evaluate_full_dataset`.

        Args:
            batch: What the validation loader yields, on the device.
            batch_idx: Position in this rank's part of this validation.
        """
        return None  # type: ignore[return-value]  # never called: the trainer insists on an override

    def evaluate_full_dataset(
        self,
        data_loader: torch.utils.data.DataLoader[Any],  # noqa: ARG002 - for overrides
    ) -> dict[str, Any]:
        """Validate on the chief alone, over all data, and return the metrics. Override this or `evaluate_batch`."""
        return None  # type: ignore[return-value]  # never called: the trainer insists on an override

    def evaluation_reducer(self) -> Reducer | dict[str, Reducer]:
        """How metrics of `evaluate_batch` become one number each."""
        return Reducer.AVG

    def get_batch_length(self, batch: Any) -> int:
        """How many records a batch holds, for throughput; override it for batches that are no arrays."""
        return data_length(batch)


def is_overridden(trial: PyTorchTrial, method: str) -> bool:
    """Whether a trial has its own version of a method."""
    found = getattr(type(trial), method, None)
    return (callable(found) and found is not getattr(PyTorchTrial, method)) or callable(vars(trial).get(method))


def evaluates_full_dataset(trial: PyTorchTrial) -> bool:
    """Return whether a trial overrides `evaluate_full_dataset` rather than `evaluate_batch`.

    Raises:
        InvalidExperimentException: Both or neither.
    """
    by_batch, in_full = is_overridden(trial, "evaluate_batch"), is_overridden(trial, "evaluate_full_dataset")
    if by_batch == in_full:
        which = (
            "both evaluate_batch() and evaluate_full_dataset()"
            if by_batch
            else "neither evaluate_batch() nor evaluate_full_dataset()"
        )
        raise errors.InvalidExperimentException(
            f"{type(trial).__name__} overrides {which}. Override exactly one of them."
        )
    return in_full
