"""Callbacks for the common cases: stop when a metric no longer improves, report learning rates and gradient norms."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import torch

from determined.pytorch._callback import PyTorchCallback, ShouldExit

if TYPE_CHECKING:
    from determined.pytorch._context import PyTorchTrialContext

logger = logging.getLogger("determined.pytorch")


class Monitor(PyTorchCallback):
    """A callback that the trainer gives the trial's context before training."""

    context: PyTorchTrialContext


class EarlyStopping(Monitor):
    """Ends training, with a checkpoint, once a validation metric has not improved for `patience` validations in a row.

    All ranks stop together, by the chief's value. The best value and the validations without a better one are part of
    each checkpoint, so a resumed run stops where an uninterrupted one would; one that has stopped trains no more.

    Args:
        metric: The name of a validation metric.
        patience: How many validations in a row may pass without a better value.
        min_delta: By how much a value has to be better to count.
        mode: "min" if smaller is better, "max" if larger is.

    Raises:
        ValueError: An argument is out of range, or a validation has no such metric.

    Example::

        class MyTrial(pytorch.PyTorchTrial):
            def build_callbacks(self):
                return {"early_stopping": pytorch.EarlyStopping("loss", patience=3)}
    """

    def __init__(self, metric: str, patience: int = 3, min_delta: float = 0.0, mode: str = "min") -> None:
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise ValueError(f"EarlyStopping(patience={patience!r}): expected a whole number, 1 or more.")
        if not min_delta >= 0:
            raise ValueError(f"EarlyStopping(min_delta={min_delta!r}): expected a number, 0 or more.")
        if mode not in ("min", "max"):
            raise ValueError(f'EarlyStopping(mode={mode!r}): expected "min" or "max".')
        self.metric, self.patience, self.min_delta, self.mode = metric, patience, min_delta, mode
        self.best: float | None = None
        self.without_better = 0

    def on_training_start(self) -> None:
        if self.without_better >= self.patience:
            raise ShouldExit(skip_exit_checkpoint=True)

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        value = self.context.distributed.run_on_chief(lambda: self._value(metrics))
        if self._is_better(value):
            self.best, self.without_better = value, 0
            return
        self.without_better += 1
        if self.without_better >= self.patience:
            if self.context.distributed.rank == 0:
                logger.info(
                    "%r was not better than %s in %d validations, so training stops.",
                    self.metric, self.best, self.without_better,
                )  # fmt: skip
            self.context.set_stop_requested(True)

    def _value(self, metrics: dict[str, Any]) -> float:
        if self.metric not in metrics:
            raise ValueError(
                f"EarlyStopping({self.metric!r}): the validation has no such metric; it has {sorted(metrics)}. Name "
                "one of these."
            )
        return float(metrics[self.metric])

    def _is_better(self, value: float) -> bool:
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        gain = self.best - value if self.mode == "min" else value - self.best
        return gain > self.min_delta

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "without_better": self.without_better}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.without_better = state_dict["best"], state_dict["without_better"]


class LRMonitor(Monitor):
    """Reports the learning rates at the end of every window of training, as metrics of the group "learning_rate".

    The metric is `lr`, or with several optimizers or parameter groups `lr_0_1` for the second group of the first one.

    Example::

        class MyTrial(pytorch.PyTorchTrial):
            def build_callbacks(self):
                return {"lr": pytorch.LRMonitor()}
    """

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:  # noqa: ARG002 - the hook's
        rates = {
            f"lr_{i}_{j}": float(group["lr"])
            for i, optimizer in enumerate(self.context.optimizers)
            for j, group in enumerate(optimizer.param_groups)
        }
        if len(rates) == 1:
            rates = {"lr": rates.popitem()[1]}
        self.context.core_context.train.report_metrics("learning_rate", avg_metrics["batches"], rates)


class GradientNorm(Monitor):
    """Reports the norm of gradients over every window of training, as metrics of the group "gradients".

    Measured at each step of an optimizer, over all its parameters, as the optimizer gets them: averaged over ranks,
    unscaled and clipped. The metrics are `norm` and `norm_max`, the mean and the largest of the window; with several
    optimizers `norm_0`, `norm_0_max` and so on. Nothing is read from the device before a window ends.

    Example::

        class MyTrial(pytorch.PyTorchTrial):
            def build_callbacks(self):
                return {"gradients": pytorch.GradientNorm()}
    """

    def __init__(self) -> None:
        self._norms: dict[int, tuple[torch.Tensor, torch.Tensor, int]] = {}  # by optimizer: sum, largest, steps
        self._hooks: list[Any] = []

    def on_training_start(self) -> None:
        for index, optimizer in enumerate(self.context.optimizers):
            self._hooks.append(optimizer.register_step_pre_hook(lambda opt, *_, index=index: self._measure(index, opt)))

    @torch.no_grad()
    def _measure(self, index: int, optimizer: Any) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not gradients:
            return
        norm = torch.nn.utils.get_total_norm(gradients)
        total, largest, steps = self._norms.get(index, (torch.zeros_like(norm), norm, 0))
        self._norms[index] = total + norm, torch.maximum(largest, norm), steps + 1

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:  # noqa: ARG002 - the hook's
        norms, self._norms = self._norms, {}
        several = len(self.context.optimizers) > 1
        metrics: dict[str, float] = {}
        for index, (total, largest, steps) in sorted(norms.items()):
            name = f"norm_{index}" if several else "norm"
            metrics |= {name: float(total) / steps, f"{name}_max": float(largest)}
        if metrics:
            self.context.core_context.train.report_metrics("gradients", avg_metrics["batches"], metrics)

    def on_trial_shutdown(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()
