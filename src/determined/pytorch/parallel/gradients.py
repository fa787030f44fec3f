"""Gradients: backward passes, accumulation over batches, exchange over ranks, clipping and optimizer steps."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from determined import errors
from determined.pytorch._facts import Position
from determined.pytorch.parallel import ddp
from determined.pytorch.parallel.ddp import DistributedModel as DistributedModel

logger = logging.getLogger("determined.pytorch")

Clip = Callable[[Any], Any]
Closure = Callable[[], Any]


@dataclasses.dataclass
class _Registered:
    optimizer: Any
    averages: bool
    compression: torch.dtype | None
    clears_plainly: bool  # its zero_grad() is torch's, so gradients can be dropped without calling it
    has_stepped: bool = False


class Gradients:
    """The gradients of one trial: aggregated over `aggregation_frequency` batches, then handed to the optimizers.

    Args:
        position: Where training is.
        aggregation_frequency: Batches per update; groups are aligned to the first batch of the trial.
        always_updates: Every step is an update, as in a context that was made to load a checkpoint.
    """

    def __init__(self, position: Position, aggregation_frequency: int = 1, *, always_updates: bool = False) -> None:
        self.aggregation_frequency = aggregation_frequency
        self.scaler: torch.amp.GradScaler | None = None
        self.scaler_has_stepped = False
        self._position = position
        self._always_updates = always_updates
        self._last_backward: int | None = None  # in which batch
        self._has_gradients = False  # at the first step of any optimizer
        self._registered: dict[int, _Registered] = {}
        self._distributed: list[DistributedDataParallel] = []
        self._sparing: list[DistributedDataParallel] = []  # those that can keep gradients to themselves

    def add_model(self, model: nn.Module) -> None:
        """Register a model that may exchange gradients."""
        if isinstance(model, DistributedDataParallel):
            self._distributed.append(model)
            if not getattr(model, "static_graph", False):
                self._sparing.append(model)
            elif self.aggregation_frequency > 1:
                logger.warning(
                    "wrap_model(static_graph=True) with aggregation_frequency=%d: torch wants to see a whole exchange "
                    "first, so ranks exchange gradients in every batch. Leave static_graph out to do it once a group.",
                    self.aggregation_frequency,
                )
            for entry in self._registered.values():
                self._compress(entry)

    def add_optimizer(self, optimizer: Any, averages: bool, compression: torch.dtype | None = None) -> None:
        """Register an optimizer, which divides by the aggregation frequency if it `averages`, rather than sum."""
        clears_plainly = isinstance(optimizer, Optimizer) and (
            type(optimizer).zero_grad is Optimizer.zero_grad and "zero_grad" not in vars(optimizer)
        )
        self._registered[id(optimizer)] = entry = _Registered(optimizer, averages, compression, clears_plainly)
        self._compress(entry)

    def is_update(self, batch_idx: int) -> bool:
        """Whether optimizers step on this batch."""
        return (batch_idx + 1) % self.aggregation_frequency == 0

    @property
    def spares_communication(self) -> bool:
        """Whether `accumulating()` makes a difference: there are several ranks and batches per update."""
        return self.aggregation_frequency > 1 and bool(self._sparing)

    def accumulating(self) -> _Accumulating:
        """Return a context without exchange of gradients, for forward and backward: DDP decides in the forward pass."""
        return _Accumulating(self._sparing)

    def backward(
        self, loss: torch.Tensor, gradient: torch.Tensor | None, retain_graph: bool, create_graph: bool
    ) -> None:
        """Add the gradients of this loss."""
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        if self._distributed:
            if self._last_backward == self._position.batch_idx:  # the batch has had one already
                for model in self._distributed:
                    ddp.expect_gradients(model, loss)
            self._last_backward = self._position.batch_idx
        loss.backward(gradient, retain_graph or create_graph, create_graph)  # type: ignore[no-untyped-call]

    def step(
        self,
        optimizer: Any,
        clip_grads: Clip | None = None,
        auto_zero_grads: bool = True,
        scaler: Any = None,
        closure: Closure | None = None,
    ) -> None:
        """Update the parameters and drop their gradients, if this batch ends its group."""
        entry = self._registered.get(id(optimizer))
        if entry is None:
            raise errors.InvalidExperimentException(
                f"step_optimizer() got a {type(optimizer).__name__} that was not wrapped, so it would be missing from "
                "checkpoints. Pass it through context.wrap_optimizer() in __init__."
            )
        if self._position.batch_idx is None and not self._always_updates:
            self._position.current("step_optimizer()")  # raises
        if scaler is None:
            scaler = self.scaler
        if self.aggregation_frequency > 1 or scaler is not None or closure is not None or clip_grads is not None:
            if not self._prepare(entry, clip_grads, auto_zero_grads, scaler, closure):
                return
        else:
            if not entry.has_stepped:
                self._check_first(entry)
            optimizer.step()
        if auto_zero_grads:
            if entry.clears_plainly:
                for group in optimizer.param_groups:
                    for parameter in group["params"]:
                        parameter.grad = None
            else:
                optimizer.zero_grad()

    def _prepare(
        self, entry: _Registered, clip_grads: Clip | None, auto_zero_grads: bool, scaler: Any, closure: Closure | None
    ) -> bool:
        """Average, unscale, clip and step; False if this batch does not end its group."""
        optimizer, group_size = entry.optimizer, self.aggregation_frequency
        if group_size > 1:
            if not auto_zero_grads:
                raise errors.InvalidExperimentException(
                    f"step_optimizer(auto_zero_grads=False) with aggregation_frequency={group_size}: gradients must be "
                    "cleared after each group, or they would count twice. Leave auto_zero_grads out."
                )
            if closure is not None:
                raise errors.InvalidExperimentException(
                    f"step_optimizer(closure=...) with aggregation_frequency={group_size}: a closure computes its own "
                    "gradients, so those of earlier batches have no place. Use aggregation_frequency=1."
                )
            if not self._always_updates and not self.is_update(self._position.current("step_optimizer()")):
                return False
        if not entry.has_stepped:
            self._check_first(entry, closure)
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if entry.averages and group_size > 1:
            _divide([parameter.grad for parameter in parameters if parameter.grad is not None], group_size)
        if closure is not None:
            shared = ddp.mean_over_ranks if self._distributed else None
            _step_with_closure(optimizer, closure, clip_grads, parameters, scaler, shared)
            return True
        if clip_grads is not None:
            if self.scaler is not None:
                scaler.unscale_(optimizer)
            clip_grads(parameters)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            self.scaler_has_stepped = True
        return True

    def _check_first(self, entry: _Registered, closure: Closure | None = None) -> None:
        """Before its first step, check that an optimizer has gradients of models that exchange them. Collective."""
        entry.has_stepped = True
        parameters = [parameter for group in entry.optimizer.param_groups for parameter in group["params"]]
        self._has_gradients |= closure is not None or any(parameter.grad is not None for parameter in parameters)
        for model in self._distributed:
            ddp.check_called(model, parameters)

    def missing_calls(self) -> list[str]:
        """Return the calls without which no weight has changed, empty if some optimizer has stepped with gradients."""
        if not any(entry.has_stepped for entry in self._registered.values()):
            return ["context.backward(loss)", "context.step_optimizer(optimizer)"]
        return [] if self._has_gradients else ["context.backward(loss)"]

    def update_scaler(self) -> None:
        """Update the context's own scaler, if it has stepped in this batch."""
        if self.scaler is not None and self.scaler_has_stepped:
            self.scaler_has_stepped = False
            self.scaler.update()

    # Gradients that wait for the rest of their group are state of this rank.

    def state_dict(self) -> dict[str, Any]:
        """Return gradients that wait for an update, by optimizer and parameter, on this rank; empty without any."""
        waiting = [[parameter.grad for parameter in parameters] for parameters in self._parameters()]
        if all(gradient is None for gradients in waiting for gradient in gradients):
            return {}
        return {
            "optimizers": [
                [None if gradient is None else gradient.detach() for gradient in gradients] for gradients in waiting
            ]
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue with these waiting gradients, and no others."""
        saved: list[list[torch.Tensor | None]] | None = state_dict.get("optimizers")
        parameters = self._parameters()
        if saved is None:
            saved = [[None] * len(mine) for mine in parameters]
        _check_fit(saved, parameters)
        for mine, gradients in zip(parameters, saved, strict=True):
            for parameter, gradient in zip(mine, gradients, strict=True):
                parameter.grad = None if gradient is None else gradient.to(parameter.device, copy=True)

    def _parameters(self) -> list[list[torch.Tensor]]:
        return [
            [parameter for group in entry.optimizer.param_groups for parameter in group["params"]]
            for entry in self._registered.values()
        ]

    def check_exchanged(self) -> None:
        """Raise if gradients of the last batch did not reach every rank. Collective."""
        for model in self._distributed:
            if isinstance(model, DistributedModel):
                model.check_exchanged()

    def _compress(self, entry: _Registered) -> None:
        """Compress the exchange of every model that this optimizer trains a part of, if it asks for that."""
        if entry.compression is None:
            return
        trained = {id(parameter) for group in entry.optimizer.param_groups for parameter in group["params"]}
        for model in self._distributed:
            if any(id(parameter) in trained for parameter in model.parameters()):
                ddp.compress(model, entry.compression)


class _Accumulating:
    """`no_sync()` of several models. It can be entered many times, so that a batch costs two flags."""

    def __init__(self, models: Sequence[DistributedDataParallel]) -> None:
        self._models = models

    def __enter__(self) -> None:
        for model in self._models:
            model.require_backward_grad_sync = False

    def __exit__(self, *_: object) -> None:
        for model in self._models:
            model.require_backward_grad_sync = True


def average_waiting(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean of all ranks' waiting gradients, with which each rank of another number of ranks continues."""
    filled = [state["optimizers"] for state in states if state]
    if not filled:
        return {}

    def mean(gradients: tuple[torch.Tensor | None, ...]) -> torch.Tensor | None:
        present = [gradient for gradient in gradients if gradient is not None]
        return sum(present[1:], present[0]) / len(states) if present else None

    return {
        "optimizers": [
            [mean(gradients) for gradients in zip(*ranks, strict=True)] for ranks in zip(*filled, strict=True)
        ]
    }


@torch.no_grad()
def _divide(gradients: list[torch.Tensor], number: int) -> None:
    dense = [gradient for gradient in gradients if gradient.layout is torch.strided]
    if dense:
        torch._foreach_div_(dense, number)
    if len(dense) < len(gradients):
        for gradient in gradients:
            if gradient.layout is not torch.strided:
                gradient.div_(number)


def _step_with_closure(
    optimizer: Any,
    closure: Closure,
    clip_grads: Clip | None,
    parameters: list[torch.Tensor],
    scaler: Any,
    shared: Callable[[Any], Any] | None,
) -> None:
    if scaler is not None and scaler.is_enabled():
        raise errors.InvalidExperimentException(
            "step_optimizer() got a closure and a gradient scaler, and torch's scaler takes no closure. "
            "Use bfloat16, which needs no scaler, or an optimizer without a closure."
        )

    def clipped() -> Any:
        loss = closure()
        if clip_grads is not None:
            clip_grads(parameters)
        return loss if shared is None else shared(loss)

    optimizer.step(clipped)


def _check_fit(saved: Sequence[Sequence[torch.Tensor | None]], parameters: list[list[torch.Tensor]]) -> None:
    if [len(gradients) for gradients in saved] != [len(mine) for mine in parameters]:
        raise errors.InvalidCheckpointException(
            f"The checkpoint holds waiting gradients of {[len(gradients) for gradients in saved]} parameters by "
            f"optimizer, this trial's have {[len(mine) for mine in parameters]}. Wrap the same optimizers in the same "
            "order, or omit latest_checkpoint."
        )
    wrong = [
        f"optimizer {number}, parameter {place}: saved {tuple(gradient.shape)}, here {tuple(parameter.shape)}"
        for number, (gradients, mine) in enumerate(zip(saved, parameters, strict=True))
        for place, (gradient, parameter) in enumerate(zip(gradients, mine, strict=True))
        if gradient is not None and gradient.shape != parameter.shape
    ]
    if wrong:
        raise errors.InvalidCheckpointException("Waiting gradients have other shapes: " + "; ".join(wrong))
