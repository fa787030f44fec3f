"""The arithmetic of gradients, worked out by hand on one weight."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from determined import errors
from determined.pytorch.parallel.gradients import average_waiting
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


def test_ranks_without_a_process_group_are_refused():
    """Two ranks never train two separate models by accident."""
    context = make_context()
    context.distributed.size = 2
    with pytest.raises(errors.InvalidExperimentException, match="2 ranks but no torch process group"):
        context.wrap_model(OneWeight())
