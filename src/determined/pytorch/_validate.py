"""One validation: batches in, reduced metrics out. Nothing here changes the state of training."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from determined.pytorch import _rng
from determined.pytorch._callback import Callbacks
from determined.pytorch._trial import PyTorchTrial, evaluates_full_dataset, is_overridden
from determined.pytorch.data.loader import DataLoader
from determined.pytorch.data.stream import validation_loader
from determined.pytorch.data.to_device import data_length
from determined.pytorch.metrics.reduction import NO_BATCH, Reduced, ValidationPass, reduce_full_dataset
from determined.pytorch.parallel.gradients import DistributedModel

if TYPE_CHECKING:
    from determined.pytorch._context import PyTorchTrialContext


class Validation:
    """Validates one trial, in `test_mode` with one batch. How its methods are called is found out once."""

    def __init__(
        self, trial: PyTorchTrial, context: PyTorchTrialContext, callbacks: Callbacks, loader: Any, test_mode: bool
    ) -> None:
        self._trial = trial
        self._context = context
        self._callbacks = callbacks
        self._test_mode = test_mode
        self._is_full = evaluates_full_dataset(trial)
        distributed = context.distributed
        rank, size = (0, 1) if self._is_full else (distributed.rank, distributed.size)
        self._loader = validation_loader(
            loader, seed=context.get_trial_seed(), rank=rank, size=size, is_checked=context.checks_datasets
        )
        if not self._is_full and _is_empty(loader, distributed.size):
            raise RuntimeError(NO_BATCH)  # now, rather than hours later, at the last validation
        self._pass = ValidationPass(distributed, keep_outputs=bool(callbacks.on_validation_epoch_end))
        self._evaluate = None if self._is_full else evaluator(trial)

    @property
    def batches(self) -> int:
        """How many batches this rank has evaluated in the current validation."""
        return self._pass.batches

    def run(self) -> Reduced:
        """Validate once. Collective."""
        with self.evaluating():
            self._context.reset_reducers()
            for model in self._context.models:
                if isinstance(model, DistributedModel):
                    model.share_buffers()  # the chief's, which are those that a checkpoint holds
            self._callbacks.on_validation_start()
            result = self._evaluate_on_chief() if self._is_full else self._evaluate_on_all()
            self._callbacks.on_validation_end(result.metrics)
            return result

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put models into eval mode without gradients; restore train mode and random streams afterwards."""
        with _rng.preserved(), torch.no_grad():
            try:
                self._set_mode(False)
                yield
            finally:
                self._set_mode(True)

    def _evaluate_on_all(self) -> Reduced:
        self._callbacks.on_validation_epoch_start()
        context, evaluate, add = self._context, self._evaluate, self._pass.add
        length = self._trial.get_batch_length if is_overridden(self._trial, "get_batch_length") else data_length
        assert evaluate is not None
        to_device = context.to_device if context.auto_to_device else None
        for batch_idx, batch in enumerate(self._loader):
            if to_device is not None:
                batch = to_device(batch)
            metrics = evaluate(batch, batch_idx)
            try:
                records = length(batch)
            except (TypeError, ValueError):
                records = None  # a type that is not known here; only throughput needs the number
            add(metrics, records)
            if self._test_mode:
                break
        if self._callbacks.on_validation_epoch_end:
            self._callbacks.on_validation_epoch_end(self._pass.outputs())
        return self._pass.reduce(self._trial.evaluation_reducer(), context.reducers)

    def _evaluate_on_chief(self) -> Reduced:
        """Evaluate on the chief, while the other ranks wait for its result."""
        metrics: Any = None
        if self._context.distributed.rank == 0:
            try:
                metrics = self._trial.evaluate_full_dataset(data_loader=self._loader)
            except Exception as failed:  # noqa: BLE001 - raised again once the others know
                metrics = failed
        self._context.distributed.wait_for_chief("evaluate_full_dataset")
        return reduce_full_dataset(metrics, self._context.distributed, self._context.reducers)

    def _set_mode(self, is_training: bool) -> None:
        for model in self._context.models:
            model.train(is_training)


def _is_empty(loader: Any, size: int) -> bool:
    """Return whether no rank will have a batch. Of a foreign loader, other ranks' may hold some that this one lacks."""
    if size > 1 and not isinstance(loader, DataLoader):
        return False
    try:
        return len(loader) == 0
    except (TypeError, NotImplementedError):
        return False


def evaluator(trial: PyTorchTrial) -> Callable[[Any, int], Any]:
    """Return a function of (batch, batch_idx) that calls `evaluate_batch`, with the index if it takes one."""
    method: Callable[..., Any] = trial.evaluate_batch
    parameters = inspect.signature(method).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if [p.name for p in positional[:2]] == ["batch", "batch_idx"]:
        return method
    if takes_any or "batch_idx" in named:
        if positional and "batch" not in named:  # the batch has another name
            return lambda batch, batch_idx: method(batch, batch_idx=batch_idx)
        return lambda batch, batch_idx: method(batch=batch, batch_idx=batch_idx)
    if len(positional) > 1:
        return lambda batch, batch_idx: method(batch, batch_idx)
    return lambda batch, _: method(batch)
