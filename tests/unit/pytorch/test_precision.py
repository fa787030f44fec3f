"""Mixed precision: who scales, who unscales, who updates, and what the model returns."""

from __future__ import annotations

import copy
import logging
import pickle
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from determined import errors
from determined.pytorch import PyTorchTrialContext
from tests.unit.pytorch.contexts import OneWeight, Trial, make_context, make_trial


class Pair(NamedTuple):
    left: Any
    right: Any


class Returns(nn.Module):
    """Returns what it was built with, whatever goes in."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    def forward(self) -> Any:
        return self.output


def amp_context(dtype: torch.dtype | None = None, **options: Any) -> PyTorchTrialContext:
    context = make_context(**options)
    context.experimental.use_amp(dtype)
    return context


def trained(context: PyTorchTrialContext, batches: int = 5) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = context.wrap_model(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    finish = context.finish_batch()
    for batch_idx in range(batches):
        context.position.batch_idx = batch_idx
        context.backward(model(torch.full((2, 4), float(batch_idx))).square().mean())
        context.step_optimizer(optimizer, lambda parameters: nn.utils.clip_grad_norm_(parameters, 1.0))
        if finish is not None:
            finish(batch_idx)
    return [parameter.detach() for parameter in model.parameters()]


def test_on_a_cpu_it_is_full_precision():
    """T58: use_amp on a CPU trains to the very bits of full precision, and its scaler is disabled."""
    context = amp_context()
    assert not context.scaler.is_enabled()
    assert all(map(torch.equal, trained(context), trained(make_context())))


def test_bfloat16_works_on_a_cpu():
    """W49: the type can be chosen; bfloat16 needs no scaler, and computes something else than full precision."""
    context = amp_context(torch.bfloat16)
    assert not context.scaler.is_enabled()
    inner = nn.Linear(3, 3)
    inside: list[torch.dtype] = []
    inner.register_forward_hook(lambda _module, _args, output: inside.append(output.dtype))
    output = context.wrap_model(nn.Sequential(inner))(torch.ones(1, 3))
    assert (inside, output.dtype) == ([torch.bfloat16], torch.float32)
    half, full = trained(amp_context(torch.bfloat16)), trained(make_context())
    assert not all(map(torch.equal, half, full))
    assert all(torch.allclose(a, b, atol=0.05) for a, b in zip(half, full, strict=True))


def test_a_type_that_is_not_for_this_is_refused():
    """float64 is no mixed precision; float32 is full precision."""
    with pytest.raises(ValueError, match="float64"):
        make_context().experimental.use_amp(torch.float64)
    assert all(map(torch.equal, trained(amp_context(torch.float32)), trained(make_context())))


def test_outputs_come_back_as_float32():
    """T58: half precision inside dict, list and tuple becomes float32; other types pass, with one warning each."""
    half, integers = torch.ones(1, dtype=torch.bfloat16), torch.ones(1, dtype=torch.int64)
    context = amp_context()
    output = context.wrap_model(Returns({"a": [half, (half.half(), integers)], "b": Pair(half, None), "c": "text"}))()
    assert output["a"][0].dtype is torch.float32
    assert [t.dtype for t in output["a"][1]] == [torch.float32, torch.int64]
    assert (type(output["b"]), output["b"].left.dtype, output["b"].right) == (Pair, torch.float32, None)
    assert output["c"] == "text"


def test_outputs_of_other_types_pass_with_one_warning(caplog):
    """T58, 3.3: a set cannot be converted; it is said once per type."""
    model = amp_context().wrap_model(Returns({1}))
    with caplog.at_level(logging.WARNING, "determined.pytorch"):
        assert model() == {1}
        model()
    assert [record.message.split(",")[0] for record in caplog.records] == ["The model returned a set"]


def test_the_model_stays_the_object_it_was():
    """W49: same object, class, attributes and state; copies and pickles run their own weights."""
    context = amp_context(torch.bfloat16)
    given = OneWeight(2.0)
    model = context.wrap_model(given)
    assert model is given
    assert list(model.state_dict()) == ["weight"]
    twin = copy.deepcopy(model)
    again = pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        twin.weight.fill_(5.0)
        again.weight.fill_(7.0)
    one = torch.ones(1)
    assert [m(one).item() for m in (model, twin, again)] == [2.0, 5.0, 7.0]


@pytest.mark.parametrize("when", ["before", "after"])
def test_compiled_models_are_cast_too(when):
    """A model compiled before or after it is wrapped computes in bfloat16, and returns float32."""
    context = amp_context(torch.bfloat16)
    model: Any = OneWeight(1.0)
    if when == "before":
        model = context.wrap_model(torch.compile(model, backend="eager"))
    else:
        model = torch.compile(context.wrap_model(model), backend="eager")
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    trial = Trial(context, model, optimizer)
    assert trial.train([3.0, 7.0]) == [-2.0, -9.0]


def test_float16_is_scaled_unscaled_and_updated():
    """3.5: backward scales, clipping sees unscaled gradients, the loop updates once per update batch."""
    context = amp_context(torch.float16, agg=2)
    assert context.scaler.is_enabled()
    trial = make_trial(context)
    finish = context.finish_batch()
    seen: list[float] = []
    scales = []
    for batch_idx, x in enumerate([3.0, 7.0]):
        context.position.batch_idx = batch_idx
        context.backward(trial.model(torch.tensor([x])).sum())
        assert trial.model.weight.grad.item() == 65536 * (3.0 if batch_idx == 0 else 10.0)
        context.step_optimizer(trial.optimizer, lambda parameters: seen.append(parameters[0].grad.item()))
        finish(batch_idx)
        scales.append(context.scaler.state_dict()["_growth_tracker"])
    assert seen == [5.0]
    assert trial.weight == -5.0
    assert scales == [0, 1]


def test_an_overflow_is_skipped_and_the_scale_halved():
    """The scaler does its work: an infinite gradient moves nothing."""
    context = amp_context(torch.float16)
    trial = make_trial(context)
    finish = context.finish_batch()
    trial.train([float("inf")])
    finish(0)
    assert (trial.weight, context.scaler.get_scale()) == (0.0, 32768.0)
    trial.train([3.0], start=1)
    finish(1)
    assert trial.weight == -3.0


def test_a_batch_without_a_step_does_not_update():
    """A trial may leave out an optimizer on some batches; the scaler then has nothing to learn, and does not fail."""
    context = amp_context(torch.float16)
    trial = make_trial(context)
    finish = context.finish_batch()
    context.position.batch_idx = 0
    context.backward(trial.model(torch.tensor([3.0])).sum())
    finish(0)
    assert context.scaler.state_dict()["_growth_tracker"] == 0


def test_a_scaler_of_ones_own_is_used_when_it_is_passed():
    """3.5, manual: the user scales, unscales and updates; without scaler= the optimizer steps directly."""
    context = make_context()
    scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=4.0))
    assert context.scaler is scaler
    trial = make_trial(context)
    assert context.finish_batch() is None
    context.position.batch_idx = 0
    seen: list[float] = []
    context.backward(scaler.scale(trial.model(torch.tensor([3.0])).sum()))
    context.step_optimizer(trial.optimizer, lambda ps: seen.append(ps[0].grad.item()), scaler=scaler)
    scaler.update()
    assert (trial.weight, seen) == (-3.0, [12.0])
    context.backward(scaler.scale(trial.model(torch.tensor([3.0])).sum()))
    context.step_optimizer(trial.optimizer)
    assert trial.weight == -15.0


def test_there_is_one_scaler_and_it_comes_first():
    """T57: after a model, twice, or together with use_amp: refused."""

    def off() -> torch.amp.GradScaler:
        return torch.amp.GradScaler("cpu", enabled=False)

    late = make_context()
    late.wrap_model(OneWeight())
    for call in (lambda: late.wrap_scaler(off()), late.experimental.use_amp):
        with pytest.raises(errors.InvalidExperimentException, match="before"):
            call()
    twice = make_context()
    twice.wrap_scaler(off())
    for call in (lambda: twice.wrap_scaler(off()), twice.experimental.use_amp):
        with pytest.raises(errors.InvalidExperimentException, match="already"):
            call()
    both = amp_context()
    for call in (lambda: both.wrap_scaler(off()), both.experimental.use_amp):
        with pytest.raises(errors.InvalidExperimentException, match="already"):
            call()


def test_a_closure_and_a_scaler_do_not_go_together():
    """torch's scaler takes no closure: it is said, with what to do."""
    trial = make_trial(amp_context(torch.float16))
    with pytest.raises(errors.InvalidExperimentException, match="bfloat16"):
        trial.train([1.0], closure=lambda: None)


# configure_apex_amp, on torch.amp.


def test_disabled_apex_returns_its_input():
    """T59: enabled=False, or a context that only loads, changes nothing."""
    context = make_context()
    models, optimizers = [OneWeight()], [object()]
    assert context.configure_apex_amp(models, optimizers, enabled=False) == (models, optimizers)
    assert context.configure_apex_amp(models, optimizers, enabled=False)[0] is models
    loading = make_context(managed=False)
    assert loading.configure_apex_amp(models, optimizers)[0] is models


def test_apex_works_without_apex():
    """W17: the call of older trials casts the wrapped models, keeps its input's shape, and warns of its age."""
    context = make_context()
    trial = make_trial(context)
    with pytest.warns(FutureWarning, match="use_amp"):
        model, optimizers = context.configure_apex_amp(
            trial.model, [trial.optimizer], cast_model_type=torch.float16, loss_scale=8
        )
    assert model is trial.model
    assert optimizers == [trial.optimizer]
    assert context.scaler.get_scale() == 8.0
    finish = context.finish_batch()
    context.position.batch_idx = 0
    context.backward(model(torch.tensor([1.0])).sum())
    context.backward(model(torch.tensor([2.0])).sum())  # the original failed here
    context.step_optimizer(trial.optimizer)
    finish(0)
    assert trial.weight == -3.0


def test_apex_has_an_order():
    """3.5: no enabled scaler before it, no second call, no wrapping after it."""
    scaled = make_context()
    scaled.wrap_scaler(torch.amp.GradScaler("cpu"))
    with pytest.raises(errors.InvalidExperimentException, match="scaler"):
        scaled.configure_apex_amp([], [])
    context = make_context()
    with pytest.warns(FutureWarning):
        context.configure_apex_amp([], [], opt_level="O0")
    assert context.scaler is None
    with pytest.warns(FutureWarning), pytest.raises(errors.InvalidExperimentException, match="twice"):
        context.configure_apex_amp([], [])
    for call in (
        lambda: context.wrap_model(OneWeight()),
        lambda: context.wrap_optimizer(object()),
        lambda: context.wrap_scaler(object()),
    ):
        with pytest.raises(errors.InvalidExperimentException, match="configure_apex_amp"):
            call()


def test_a_model_can_be_cast_by_hand():
    """autocast_forward_pass returns the model, whose outputs are float32 from now on."""
    model = Returns(torch.ones(1, dtype=torch.float16))
    context = make_context()
    assert context.autocast_forward_pass(model) is model
    assert model().dtype is torch.float32
