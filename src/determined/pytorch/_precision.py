"""Mixed precision: the autocast around a model's forward pass, and the scaler that keeps small gradients alive."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

logger = logging.getLogger("determined.pytorch")

Module = TypeVar("Module", bound=nn.Module)

_HALF = (torch.float16, torch.bfloat16)
_FIELD = "_determined_forward"


def autocast_dtype(device: torch.device, dtype: torch.dtype | None) -> torch.dtype | None:
    """What to compute in: the wish, else float16 on a GPU, else None: on a CPU full precision is faster."""
    if dtype is not None:
        if dtype not in (*_HALF, torch.float32):
            raise ValueError(f"dtype={dtype} is not for mixed precision. Use torch.bfloat16 or torch.float16.")
        return None if dtype is torch.float32 else dtype
    return None if device.type == "cpu" else torch.float16


def new_scaler(device: torch.device, dtype: torch.dtype | None, **options: Any) -> torch.amp.GradScaler:
    """A scaler for gradients of this type: only float16 needs one, for others it is disabled and does nothing."""
    return torch.amp.GradScaler(device.type, enabled=dtype is torch.float16, **options)


def autocast_forward(model: Module, device: torch.device, dtype: torch.dtype | None) -> Module:
    """The same model, whose forward pass now runs in `dtype` and returns float32. None computes as before.

    It stays the object that it was: its class, attributes, parameters, hooks and state are untouched, so it can be
    wrapped, compiled, copied and saved like any other.
    """
    model.forward = _AutocastForward(model.forward, device.type, dtype)
    return model


class _AutocastForward:
    """A class and not a closure, so that a deep copy of the model calls the copy's forward pass."""

    def __init__(self, forward: Callable[..., Any], device_type: str, dtype: torch.dtype | None) -> None:
        functools.update_wrapper(self, forward)  # what looks at the signature of forward() finds the user's
        self.forward = forward
        self.device_type = device_type
        self.dtype = dtype
        self.warned_types: set[type] = set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.dtype is None:
            return self._to_float32(self.forward(*args, **kwargs))
        with torch.autocast(self.device_type, dtype=self.dtype):
            output = self.forward(*args, **kwargs)
        return self._to_float32(output)

    def _to_float32(self, output: Any) -> Any:
        if isinstance(output, torch.Tensor):
            return output.float() if output.dtype in _HALF else output
        kind = type(output)
        if isinstance(output, tuple) and hasattr(output, "_make"):
            return output._make(map(self._to_float32, output))
        if kind in (list, tuple):
            return kind(map(self._to_float32, output))
        if isinstance(output, Mapping):
            return self._mapping(output)
        if output is not None and not isinstance(output, (bool, int, float, str)) and kind not in self.warned_types:
            self.warned_types.add(kind)
            logger.warning(
                "The model returned a %s, whose tensors may be of half precision: only those in tensors, dicts, lists "
                "and tuples become float32.",
                kind.__name__,
            )
        return output

    def _mapping(self, output: Mapping[Any, Any]) -> Any:
        values = {key: self._to_float32(value) for key, value in output.items()}
        if type(output) is dict:
            return values
        if all(values[key] is output[key] for key in values):
            return output
        try:
            return type(output)(**values) if hasattr(output, "__dataclass_fields__") else type(output)(values)  # type: ignore[call-arg]  # like dict(...)
        except TypeError:
            return values
