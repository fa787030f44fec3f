"""The arithmetic of gradients of several ranks, worked out by hand. Processes, because DDP wants a process group."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from determined import core, errors
from determined.pytorch.parallel.gradients import DistributedModel
from determined.pytorch.parallel.process_group import process_group
from tests.forks import Nursery
from tests.unit.pytorch.contexts import OneWeight, Trial, make_context, make_trial


def _train_on_ranks(distributed: core.DistributedContext) -> dict[str, Any]:
    with process_group(distributed):
        return _with_process_group(distributed)


def _with_process_group(distributed: core.DistributedContext) -> dict[str, Any]:
    inputs = [[1.0, 3.0], [2.0, 4.0]][distributed.rank]
    found: dict[str, Any] = {}
    for average in (True, False):
        context = make_context(agg=2, distributed=distributed, slots=2)
        model = context.wrap_model(OneWeight(start=float(distributed.rank)), bucket_cap_mb=1)
        optimizer = context.wrap_optimizer(
            torch.optim.SGD(model.parameters(), lr=1.0), average_aggregated_gradients=average
        )
        exchanges = []
        model.register_comm_hook(None, lambda _, bucket, seen=exchanges: _exchange(bucket, seen))
        moved = []
        for batch_idx, x in enumerate(inputs):
            context.position.batch_idx = batch_idx
            assert context.gradients.spares_communication
            if context.gradients.is_update(batch_idx):
                context.backward(model(torch.tensor([x])).sum())
            else:
                with context.gradients.accumulating():
                    context.backward(model(torch.tensor([x])).sum())
            context.step_optimizer(optimizer)
            moved.append(model.module.weight.item())
        found[str(average)] = moved
        found[f"exchanges {average}"] = len(exchanges)
    found["answers"] = [type(model) is DistributedModel, isinstance(model.weight, nn.Parameter), model.training]
    try:
        model.nowhere  # noqa: B018
    except AttributeError as error:
        found["missing"] = str(error)

    context = make_context(distributed=distributed, slots=2)
    frozen = OneWeight(start=float(distributed.rank + 5))
    frozen.weight.requires_grad_(False)
    found["frozen"] = [type(context.wrap_model(frozen)).__name__, frozen.weight.item()]

    model = context.wrap_model(OneWeight())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    context.wrap_optimizer(optimizer, fp16_compression=distributed.size > 1)
    context.position.batch_idx = 0
    context.backward(model(torch.tensor([1 + 2**-12])).sum())  # float16 has 10 bits
    context.step_optimizer(optimizer)
    found["fp16"] = model.module.weight.item()
    found["past"] = _past_the_model(make_trial(distributed=distributed, slots=2), inputs[0], distributed.size)
    found["twice"] = _backward_twice(make_trial(distributed=distributed, slots=2), inputs)
    found["closure"] = _with_closure(make_context(distributed=distributed, slots=2), inputs[0])
    return found


def _past_the_model(trial: Trial, x: float, size: int) -> list[Any]:
    """A loss that the wrapped model was not called for: as it is, and with its gradient exchanged by the trial."""
    trial.context.position.batch_idx = 0
    trial.context.backward(trial.model.module(torch.tensor([x])).sum())
    with pytest.raises(errors.InvalidExperimentException) as refused:
        trial.context.step_optimizer(trial.optimizer)
    own = make_trial(trial.context)
    own.context.backward(own.model.module(torch.tensor([x])).sum())
    torch.distributed.all_reduce(own.model.weight.grad)
    own.context.step_optimizer(own.optimizer)
    return [str(refused.value), own.weight]


def _backward_twice(trial: Trial, inputs: list[float]) -> list[float]:
    """Two losses of the same outputs, one after the other, in two batches; the weight after each."""
    after = []
    for batch_idx, x in enumerate(inputs):
        trial.context.position.batch_idx = batch_idx
        output = trial.model(torch.tensor([x]))
        trial.context.backward(output.sum(), retain_graph=True)
        trial.context.backward(10 * output.sum())
        trial.context.step_optimizer(trial.optimizer)
        after.append(trial.weight)
    return after


class Asking(torch.optim.SGD):
    """Remembers the loss that it was told, which is what an optimizer decides by."""

    def step(self, closure: Any = None) -> Any:
        self.told = float(closure())


def _with_closure(context: Any, x: float) -> list[float]:
    """LBFGS asks for the loss as often as it sees fit; how far it went, and what loss an optimizer is told there."""
    model = context.wrap_model(OneWeight())
    optimizer = context.wrap_optimizer(torch.optim.LBFGS(model.parameters()))

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = (model(torch.tensor([x])) - 2.0).square().sum()
        context.backward(value)
        return value

    context.position.batch_idx = 0
    context.step_optimizer(optimizer, closure=loss)
    asking = context.wrap_optimizer(Asking(model.parameters(), lr=0.0))
    context.step_optimizer(asking, closure=loss)
    return [model.module.weight.item(), asking.told]


def _exchange(bucket: Any, seen: list[int]) -> Any:
    seen.append(1)
    tensor = bucket.buffer() / 2
    return torch.distributed.all_reduce(tensor, async_op=True).get_future().then(lambda future: future.value()[0])


def test_ranks_train_one_model(nursery: Nursery) -> None:
    """T51, W13, W16: averaged over ranks and batches the weight moves by -2.5, summed over batches by -5.

    Gradients travel once per group; a model without anything to train is made equal; float16 on the way is rounded.
    A loss past the model, whose gradients would stay on their rank, is refused; LBFGS takes the same steps everywhere.
    3.4: several backward passes over one forward pass add up, and are averaged over ranks like one.
    """
    for found in nursery.run(2, _train_on_ranks, joined=True):
        assert found["True"] == [0.0, -2.5]
        assert found["False"] == [0.0, -5.0]
        assert (found["exchanges True"], found["exchanges False"]) == (1, 1)
        assert found["answers"] == [True, True, True]
        assert "nowhere" in found["missing"]
        assert found["frozen"] == ["OneWeight", 5.0]
        assert found["fp16"] == -1.0
        assert "gradients of OneWeight differ between ranks" in found["past"][0]
        assert found["past"][1] == -3.0
        assert found["twice"] == [-11 * 1.5, -11 * 1.5 - 11 * 3.5]
        assert found["closure"] == pytest.approx([1.2, 0.4])  # the least of ((w - 2)^2 + (2w - 2)^2) / 2, and its value
