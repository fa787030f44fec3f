"""The arithmetic of gradients, worked out by hand on one weight."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from determined import core, errors
from determined.pytorch.parallel.gradients import DistributedModel, average_waiting
from determined.pytorch.parallel.process_group import process_group
from tests.ranks import run_processes
from tests.unit.pytorch.contexts import OneWeight, Trial, make_context, make_trial


class Seen:
    """A `clip_grads` that writes down the gradients it sees."""

    def __init__(self) -> None:
        self.gradients: list[float] = []
        self.types: set[type] = set()

    def __call__(self, parameters: Any) -> None:
        self.types.add(type(parameters))
        self.gradients += [float(p.grad) for p in parameters]


def test_every_batch_steps_without_aggregation():
    """T48: clip_grads sees lists with 3, 7, 11, and gradients are cleared after each step."""
    trial, seen = make_trial(), Seen()
    for batch_idx, x in enumerate([3.0, 7.0, 11.0]):
        trial.train([x], start=batch_idx, clip=seen)
        assert trial.model.weight.grad is None
    assert seen.gradients == [3.0, 7.0, 11.0]
    assert seen.types == {list}
    assert trial.weight == -21.0


def test_aggregation_averages_a_group():
    """T49: with agg 2 clip sees 5 once, at batch 1, and batch 2 leaves its gradient unapplied."""
    trial, seen = make_trial(agg=2), Seen()
    assert trial.train([3.0, 7.0, 11.0], clip=seen) == [0.0, -5.0, -5.0]
    assert seen.gradients == [5.0]
    assert float(trial.model.weight.grad) == 11.0


def test_aggregation_can_sum():
    """T50: with averaging off clip sees 10."""
    trial, seen = make_trial(agg=2, average=False), Seen()
    trial.train([3.0, 7.0], clip=seen)
    assert seen.gradients == [10.0]


def test_the_context_has_defaults_for_older_configs():
    """Averaging is the context's default unless wrap_optimizer says otherwise."""
    context = make_context(agg=2)
    context.default_average_aggregated_gradients = False
    assert make_trial(context).train([3.0, 7.0]) == [0.0, -10.0]


def test_several_backward_passes_add_up():
    """Losses of one batch add up, and are not divided by their number."""
    trial = make_trial()
    trial.context.position.batch_idx = 0
    for x in (1.0, 2.0):
        trial.context.backward(trial.model(torch.tensor([x])).sum())
    trial.context.step_optimizer(trial.optimizer)
    assert trial.weight == -3.0


@pytest.mark.filterwarnings("ignore:Using backward")
def test_backward_takes_torchs_arguments():
    """gradient weighs the outputs; create_graph keeps the graph for a second derivative."""
    trial = make_trial()
    trial.context.backward(trial.model(torch.tensor([1.0, 2.0])), gradient=torch.tensor([10.0, 100.0]))
    assert float(trial.model.weight.grad) == 210.0
    trial.model.weight.grad = None
    with torch.no_grad():
        trial.model.weight.fill_(2.0)
    cube = (trial.model.weight**3).sum()
    trial.context.backward(cube, create_graph=True)
    first = trial.model.weight.grad
    assert first.item() == 12.0
    (second,) = torch.autograd.grad(first.sum(), trial.model.weight)
    assert second.item() == 12.0
    assert torch.autograd.grad(cube, trial.model.weight)[0].item() == 12.0
    trial.model.weight.grad = None  # it refers to itself through its graph
    loss = trial.model(torch.tensor([1.0])).sum()
    trial.context.backward(loss, retain_graph=True)
    trial.context.backward(loss)
    assert float(trial.model.weight.grad) == 2.0


def test_aggregation_needs_cleared_gradients():
    """T52: agg 2 with auto_zero_grads=False is refused."""
    trial = make_trial(agg=2)
    with pytest.raises(errors.InvalidExperimentException, match="aggregation_frequency=2"):
        trial.train([1.0], auto_zero_grads=False)


def test_gradients_can_be_kept():
    """T53: auto_zero_grads=False leaves them after the step."""
    trial = make_trial()
    assert trial.train([3.0], auto_zero_grads=False) == [-3.0]
    assert float(trial.model.weight.grad) == 3.0


def test_stepping_before_training_is_refused():
    """T54: step_optimizer before the first batch is an InternalException; a context that only loads just steps."""
    trial = make_trial()
    with pytest.raises(errors.InternalException, match="step_optimizer"):
        trial.context.step_optimizer(trial.optimizer)
    loading = make_trial(managed=False, agg=4)
    loading.context.backward(loading.model(torch.tensor([4.0])).sum())
    loading.context.step_optimizer(loading.optimizer)
    assert loading.weight == -1.0


def test_an_unwrapped_optimizer_is_refused():
    """W14: stepping an unwrapped optimizer is an error that says to wrap it."""
    trial = make_trial()
    with pytest.raises(errors.InvalidExperimentException, match="wrap_optimizer"):
        trial.context.step_optimizer(torch.optim.SGD(trial.model.parameters(), lr=1.0))


class Zeroing(torch.optim.SGD):
    """An optimizer with a zero_grad of its own."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none=False)


def test_an_optimizers_own_zero_grad_is_used():
    """Whoever overrides zero_grad, in the class or on the object, has it called."""
    context = make_context()
    model = context.wrap_model(OneWeight())
    trial = Trial(context, model, context.wrap_optimizer(Zeroing(model.parameters(), lr=1.0)))
    trial.train([3.0])
    assert float(model.weight.grad) == 0.0

    calls = []
    patched = torch.optim.SGD(model.parameters(), lr=1.0)
    patched.zero_grad = lambda: calls.append("zero")  # type: ignore[method-assign]
    trial = Trial(context, model, context.wrap_optimizer(patched))
    trial.train([3.0])
    assert calls == ["zero"]


def test_parameters_added_later_are_cleared_too():
    """add_param_group after wrapping: the new group steps and is cleared."""
    trial = make_trial()
    late = nn.Parameter(torch.zeros(1))
    trial.optimizer.add_param_group({"params": [late]})
    trial.context.position.batch_idx = 0
    trial.context.backward((trial.model.weight + 2 * late).sum())
    trial.context.step_optimizer(trial.optimizer)
    assert (trial.weight, late.item()) == (-1.0, -2.0)
    assert (trial.model.weight.grad, late.grad) == (None, None)


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}, {"foreach": False}])
def test_torchs_variants_all_work(options):
    """fused, foreach and plain optimizers take the same steps."""
    context = make_context(agg=2)
    model = context.wrap_model(OneWeight())
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0, **options))
    assert Trial(context, model, optimizer).train([3.0, 7.0]) == [0.0, -5.0]


def test_sparse_gradients_are_averaged():
    """An embedding's sparse gradients are divided like others."""
    context = make_context(agg=2)
    model = context.wrap_model(nn.Embedding(3, 1, sparse=True))
    with torch.no_grad():
        model.weight.zero_()
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    for batch_idx in range(2):
        context.position.batch_idx = batch_idx
        context.backward(model(torch.tensor([1])).sum())
        context.step_optimizer(optimizer)
    assert model.weight.flatten().tolist() == [0.0, -1.0, 0.0]


def test_shared_parameters_count_once():
    """One weight under two names gets both gradients and one step."""
    context = make_context()
    layer = OneWeight()
    both = context.wrap_model(nn.Sequential(layer, nn.Identity(), layer))
    with torch.no_grad():
        layer.weight.fill_(1.0)
    optimizer = context.wrap_optimizer(torch.optim.SGD(both.parameters(), lr=1.0))
    context.position.batch_idx = 0
    context.backward(both(torch.tensor([3.0])).sum())  # w * w * 3 has the derivative 6 at 1
    context.step_optimizer(optimizer)
    assert layer.weight.item() == -5.0


def test_a_closure_is_evaluated_by_the_optimizer():
    """LBFGS computes the loss as often as it likes; the minimum of (w - 3)^2 is found, clipping sees each gradient."""
    context = make_context()
    model = context.wrap_model(OneWeight())
    optimizer = context.wrap_optimizer(torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=20))
    evaluations: list[float] = []
    seen = Seen()

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = ((model(torch.ones(1)) - 3) ** 2).sum()
        context.backward(loss)
        evaluations.append(loss.item())
        return loss

    context.position.batch_idx = 0
    context.step_optimizer(optimizer, seen, closure=closure)
    assert abs(model.weight.item() - 3.0) < 1e-3
    assert len(evaluations) == len(seen.gradients) > 1
    assert model.weight.grad is None


def test_a_closure_does_not_aggregate():
    """Gradients of earlier batches have no place in a closure."""
    trial = make_trial(agg=2)
    with pytest.raises(errors.InvalidExperimentException, match="closure"):
        trial.train([1.0], closure=lambda: None)


# Gradients that wait are state.


def test_a_resume_inside_a_group_goes_on_with_its_gradients():
    """W15: stop after batch 0 of a group of 3, resume, and the update is that of the whole group."""
    whole = make_trial(agg=3)
    whole.train([3.0, 7.0, 11.0])

    before = make_trial(agg=3)
    before.train([3.0])
    state = before.context.gradients.state_dict()
    assert [[g.tolist() for g in optimizer] for optimizer in state["optimizers"]] == [[[3.0]]]
    after = make_trial(agg=3)
    after.context.gradients.load_state_dict(state)
    after.train([7.0, 11.0], start=1)
    assert after.weight == whole.weight == -7.0
    assert before.model.weight.grad.tolist() == [3.0]  # the copy that went on is its own


def test_nothing_waits_between_groups():
    """At the border of a group there is nothing to save, and loading that clears what is there."""
    trial = make_trial(agg=2)
    trial.train([3.0, 7.0])
    assert trial.context.gradients.state_dict() == {}
    trial.train([5.0], start=2)
    trial.context.gradients.load_state_dict({})
    assert trial.model.weight.grad is None


def test_waiting_gradients_of_another_trial_are_refused():
    """Other numbers or shapes of parameters are named before anything is loaded."""
    trial = make_trial(agg=2)
    trial.train([3.0])
    with pytest.raises(errors.InvalidCheckpointException, match=r"\[2\].*\[1\]"):
        trial.context.gradients.load_state_dict({"optimizers": [[None, None]]})
    with pytest.raises(errors.InvalidCheckpointException, match=r"saved \(2,\), here \(1,\)"):
        trial.context.gradients.load_state_dict({"optimizers": [[torch.zeros(2)]]})
    assert trial.model.weight.grad.tolist() == [3.0]


def test_ranks_share_waiting_gradients_when_their_number_changes():
    """The mean over the old ranks counts the same in the group's sum; a rank without gradients counts as zeros."""
    states = [{"optimizers": [[torch.tensor([2.0]), None]]}, {"optimizers": [[torch.tensor([4.0]), None]]}]
    merged = average_waiting(states)
    assert merged["optimizers"][0][0].tolist() == [3.0]
    assert merged["optimizers"][0][1] is None
    assert average_waiting([*states, {}, {}])["optimizers"][0][0].tolist() == [1.5]
    assert average_waiting([{}, {}]) == {}


# Several ranks. Processes, because DDP wants a process group.


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


def test_ranks_train_one_model():
    """T51, W13, W16: averaged over ranks and batches the weight moves by -2.5, summed over batches by -5.

    Gradients travel once per group; a model without anything to train is made equal; float16 on the way is rounded.
    A loss past the model, whose gradients would stay on their rank, is refused; LBFGS takes the same steps everywhere.
    3.4: several backward passes over one forward pass add up, and are averaged over ranks like one.
    """
    for found in run_processes(2, _train_on_ranks):
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


def test_ranks_without_a_process_group_are_refused():
    """Two ranks never train two separate models by accident."""
    context = make_context()
    context.distributed.size = 2
    with pytest.raises(errors.InvalidExperimentException, match="2 ranks but no torch process group"):
        context.wrap_model(OneWeight())
