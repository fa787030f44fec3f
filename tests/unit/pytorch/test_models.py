"""Checkpoints know models by their plain names, whatever was put around them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from determined import errors
from determined.pytorch.checkpoint.model_state import load_model_state_dict, model_state_dict, plain_model
from tests.unit.pytorch.contexts import OneWeight


def compiled(module: nn.Module) -> Any:
    return torch.compile(module, backend="eager")


class Named(nn.Module):
    """Has a part that is really called `module`, and one that may be compiled."""

    def __init__(self, compiles: bool = False) -> None:
        super().__init__()
        self.module = OneWeight(1.0)
        part = nn.Sequential(OneWeight(2.0))
        self.part = compiled(part) if compiles else part


PLAIN = ["module.weight", "part.0.weight"]


@pytest.mark.parametrize("compiles_part", [False, True])
@pytest.mark.parametrize("compiles", [False, True])
def test_names_are_plain(compiles, compiles_part):
    """`_orig_mod.` is stripped outside and inside; a user's own `module` stays."""
    model: Any = Named(compiles_part)
    model = compiled(model) if compiles else model
    assert list(model_state_dict(model)) == PLAIN


def test_wrappers_inside_wrappers_leave_no_trace():
    """A compiled part of a compiled part: every prefix goes, and comes back on loading."""
    model = nn.Sequential(compiled(nn.Sequential(compiled(OneWeight(3.0)))))
    assert list(model.state_dict()) == ["0._orig_mod.0._orig_mod.weight"]
    assert list(model_state_dict(model)) == ["0.0.weight"]
    load_model_state_dict(model, {"0.0.weight": torch.tensor([4.0])})
    assert model_state_dict(model)["0.0.weight"].item() == 4.0


def test_differences_keep_the_users_names():
    """A prefix that is the user's own is not taken for a wrapper's when something else is wrong."""
    model = nn.ModuleDict({"module": OneWeight()})
    with pytest.raises(errors.InvalidCheckpointException, match=r"unexpected: module\.extra$"):
        load_model_state_dict(model, {"module.weight": torch.zeros(1), "module.extra": torch.zeros(1)})


def test_the_plain_model_is_the_users():
    """All wrappers are taken off, however many."""
    inner = OneWeight()
    assert plain_model(compiled(nn.parallel.DataParallel(inner))) is inner
    assert plain_model(inner) is inner


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
@pytest.mark.parametrize("into", ["plain", "compiled", "part compiled"])
def test_any_kind_loads_into_any_kind(prefix, into):
    """W33: plain, DDP and compiled states load into plain and compiled models."""
    model: Any = Named(compiles=into == "part compiled")
    model = compiled(model) if into == "compiled" else model
    state = {f"{prefix}{name}": torch.tensor([5.0]) for name in PLAIN}
    load_model_state_dict(model, state)
    assert [value.item() for value in model_state_dict(model).values()] == [5.0, 5.0]


def test_a_state_with_compiled_parts_loads():
    """A part that was compiled when it was saved need not be now."""
    model = Named()
    load_model_state_dict(model, {"module.weight": torch.zeros(1), "part._orig_mod.0.weight": torch.tensor([9.0])})
    assert model.part[0].weight.item() == 9.0


def test_all_differences_are_listed_and_nothing_is_loaded():
    """Missing, unexpected and misshapen entries are in one message, and the model is as it was."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = {name: value + 1 for name, value in before.items()}
    state["1.weight"] = torch.zeros(2, 3)
    state["2.weight"] = state.pop("0.bias")
    with pytest.raises(errors.InvalidCheckpointException) as caught:
        load_model_state_dict(model, state)
    message = str(caught.value)
    for part in ("missing: 0.bias", "unexpected: 2.weight", "1.weight: saved with shape (2, 3), here (2, 2)"):
        assert part in message
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_shared_parameters_and_buffers_survive():
    """Two names of one weight, and running statistics."""
    layer = OneWeight(3.0)
    model = nn.ModuleList([layer, layer, nn.BatchNorm1d(1)])
    state = {name: value.clone() for name, value in model_state_dict(model).items()}
    assert {"0.weight", "1.weight", "2.running_mean"} <= state.keys()
    other = OneWeight()
    fresh = nn.ModuleList([other, other, nn.BatchNorm1d(1)])
    load_model_state_dict(fresh, state)
    assert fresh[0].weight is fresh[1].weight
    assert fresh[1].weight.item() == 3.0


class Renamed(OneWeight):
    """Knows what its weight was called in an older release."""

    def __init__(self) -> None:
        super().__init__()
        self.register_load_state_dict_pre_hook(self._rename)

    @staticmethod
    def _rename(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
        state[f"{prefix}weight"] = state.pop(f"{prefix}old")


def test_a_model_that_judges_itself_is_asked():
    """A user's hook may accept older names; torch has the last word then."""
    model = Renamed()
    load_model_state_dict(model, {"module.old": torch.tensor([4.0])})
    assert model.weight.item() == 4.0


def test_lazy_models_take_the_saved_shapes():
    """Parameters without a shape yet are no difference."""
    saved = nn.LazyLinear(1)
    saved(torch.ones(1, 3))
    model = nn.LazyLinear(1)
    load_model_state_dict(model, model_state_dict(saved))
    assert model.weight.shape == (1, 3)
