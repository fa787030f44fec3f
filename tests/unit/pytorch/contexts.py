"""Contexts and one-weight models for tests: every step can be worked out by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo  # sets a variable when the first optimizer steps; here no test is blamed for it
from torch import nn

from determined import core
from determined.core._context import _dummy_init
from determined.pytorch import PyTorchTrialContext


def make_context(
    *,
    agg: int = 1,
    hparams: dict[str, Any] | None = None,
    slots: int = 1,
    exp_conf: dict[str, Any] | None = None,
    managed: bool = True,
    distributed: core.DistributedContext | None = None,
    seed: int | None = 7,
    gpus: int = 0,
    tensorboard: bool = True,
) -> PyTorchTrialContext:
    """A context without `init()`."""
    services = _dummy_init(distributed=distributed)
    return PyTorchTrialContext(services, seed, hparams, slots, gpus, exp_conf, agg, 0, managed, False, tensorboard)


class OneWeight(nn.Module):
    """output = weight * input; the weight starts at 0, so the gradient of the output's sum is the input."""

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([start]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x


@dataclasses.dataclass
class Trial:
    """One weight, trained by SGD with rate 1: the weight falls by the gradient."""

    context: PyTorchTrialContext
    model: Any
    optimizer: Any

    def train(
        self,
        inputs: list[float],
        start: int = 0,
        clip: Callable[..., Any] | None = None,
        **step_options: Any,
    ) -> list[float]:
        """The weight after each batch, whose gradient is its input."""
        after = []
        for batch_idx, x in enumerate(inputs, start=start):
            self.context.position.batch_idx = batch_idx
            self.context.backward(self.model(torch.tensor([x])).sum())
            self.context.step_optimizer(self.optimizer, clip, **step_options)
            after.append(self.weight)
        return after

    @property
    def weight(self) -> float:
        return float(self.model.weight.item())


def make_trial(context: PyTorchTrialContext | None = None, average: bool | None = None, **options: Any) -> Trial:
    """A one-weight trial on this context, or on a new one with these options."""
    context = context or make_context(**options)
    model = context.wrap_model(OneWeight())
    optimizer = context.wrap_optimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), average_aggregated_gradients=average
    )
    return Trial(context, model, optimizer)
