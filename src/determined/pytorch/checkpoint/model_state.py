"""Models without their wrappers: what DDP and torch.compile put around a module never shows in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from determined import errors

# Which attribute holds the wrapped module. Found by the class that torch itself names, so a user's own `module` stays.
_INNER = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}
_PREFIXES = ("module.", "_orig_mod.")


class ModelMismatch(errors.InvalidCheckpointException, RuntimeError):
    """The saved model and this one differ in names or shapes; nothing was loaded."""


def plain_model(model: nn.Module) -> nn.Module:
    """Return the user's own module, without wrappers."""
    while (inner := _inner_name(model)) is not None:
        model = getattr(model, inner)
    return model


def model_state_dict(model: nn.Module) -> dict[str, Any]:
    """Return the model's state under the names it has without wrappers of DDP or torch.compile."""
    return {name: value for name, (_, value) in _own_state(plain_model(model)).items()}


def load_model_state_dict(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Load a state saved from a plain, DDP or compiled model into this one, which may be any of these too.

    Raises:
        ModelMismatch: Names or shapes differ. All differences are listed, and the model is as it was.
    """
    plain = plain_model(model)
    if found := differences(plain, state):
        raise ModelMismatch(
            f"The saved state does not fit this {type(plain).__name__}, so nothing was loaded:\n  " + "\n  ".join(found)
        )
    own = _own_state(plain)
    saved = _match(state, own)
    plain.load_state_dict({own[name][0] if name in own else name: value for name, value in saved.items()})


def differences(model: nn.Module, state: Mapping[str, Any]) -> list[str]:
    """Return the reasons why a saved state cannot be loaded into this model; none if its own code judges that."""
    plain = plain_model(model)
    if _judges_itself(plain):
        return []
    own = _own_state(plain)
    saved, found = _match(state, own), []
    if missing := [name for name in own if name not in saved]:
        found.append(f"missing: {', '.join(missing)}")
    if unexpected := [name for name in saved if name not in own]:
        found.append(f"unexpected: {', '.join(unexpected)}")
    for name, value in saved.items():
        mine: Any = own[name][1] if name in own else None
        if _has_shape(value) and _has_shape(mine) and value.shape != mine.shape:
            found.append(f"{name}: saved with shape {tuple(value.shape)}, here {tuple(mine.shape)}")
    return found


def _own_state(plain: nn.Module) -> dict[str, tuple[str, Any]]:
    """Return names and values of the module's state, by the names without wrappers inside of it."""
    layers = list(_layers(plain))
    return {_plain_name(name, layers): (name, value) for name, value in plain.state_dict().items()}


def _inner_name(module: nn.Module) -> str | None:
    for cls in type(module).__mro__:
        if cls.__name__ in _INNER and cls.__module__.startswith("torch."):
            return _INNER[cls.__name__]
    return None


def _layers(model: nn.Module) -> Iterator[str]:
    """Yield the prefixes that wrappers inside the model add, for example `encoder._orig_mod.`"""
    for name, module in model.named_modules(remove_duplicate=False):
        if (inner := _inner_name(module)) is not None:
            yield f"{name}.{inner}." if name else f"{inner}."


def _plain_name(name: str, layers: list[str]) -> str:
    # Inner wrappers first: an outer prefix keeps its place while they are taken out.
    for layer in reversed(layers):
        if name.startswith(layer):
            around, _, _ = layer[:-1].rpartition(".")
            name = f"{around}.{name[len(layer) :]}" if around else name[len(layer) :]
    return name


def _match(state: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the saved state under this model's plain names, without prefixes that wrappers had added."""
    named = {str(name): value for name, value in state.items()}
    if named.keys() == own.keys():
        return named
    while named and not own.keys() & named.keys():
        prefix = next((prefix for prefix in _PREFIXES if all(name.startswith(prefix) for name in named)), None)
        if prefix is None:
            break
        named = {name.removeprefix(prefix): value for name, value in named.items()}
    if named.keys() - own.keys():
        # Parts of the saved model were wrapped. Names that exist here as they are stay.
        found = {name: name if name in own else _without_wrappers(name, own) for name in named}
        if len(set(found.values())) == len(found):
            named = {found[name]: value for name, value in named.items()}
    return named


def _without_wrappers(name: str, own: Mapping[str, Any]) -> str:
    plain = ".".join(part for part in name.split(".") if part not in ("module", "_orig_mod"))
    return plain if plain in own else name


def _has_shape(value: Any) -> bool:
    """Parameters of lazy modules have none yet: they take the saved one."""
    return isinstance(value, torch.Tensor) and not torch.nn.parameter.is_lazy(value)


def _judges_itself(model: nn.Module) -> bool:
    """Return whether the user's own code decides what may be loaded: older names, extra entries."""
    return type(model).load_state_dict is not nn.Module.load_state_dict or any(
        module._load_state_dict_pre_hooks or module._load_state_dict_post_hooks for module in model.modules()
    )
