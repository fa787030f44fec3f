"""Mixed precision: the autocast around a model's forward pass, and the gradient scaler."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from determined import errors
from determined.pytorch.checkpoint.model_state import plain_model
from determined.pytorch.parallel.gradients import Gradients

logger = logging.getLogger("determined.pytorch")

Module = TypeVar("Module", bound=nn.Module)

_HALF = (torch.float16, torch.bfloat16)


class Precision:
    """The autocast type of one trial, and its gradient scaler: its own, or of `use_amp()` or `configure_apex_amp()`.

    Args:
        gradients: Gets a scaler that it has to use.
    """

    def __init__(self, gradients: Gradients) -> None:
        self.scaler: Any = None
        self.is_automatic = False  # every model that is wrapped from now on computes in `_dtype`
        self._is_apex = False
        self._dtype: torch.dtype | None = None
        self._gradients = gradients

    def keep_scaler(self, scaler: Any, is_late: bool) -> None:
        """Save and restore this scaler; `is_late` if a model was wrapped before."""
        if self._is_apex:
            raise errors.InvalidExperimentException(
                "wrap_scaler() and configure_apex_amp() are two ways to the same end. Use one of them."
            )
        if self.scaler is not None:
            raise errors.InvalidExperimentException(
                "There is a gradient scaler already, from wrap_scaler() or experimental.use_amp(). Call one, once."
            )
        if is_late:
            raise errors.InvalidExperimentException(
                "A gradient scaler comes before the models: call wrap_scaler() or experimental.use_amp() before the "
                "first wrap_model()."
            )
        self.scaler = scaler

    def use_amp(self, device: torch.device, dtype: torch.dtype | None, is_late: bool) -> None:
        """See `context.experimental.use_amp()`."""
        chosen = autocast_dtype(device, dtype)
        self.keep_scaler(new_scaler(device, chosen), is_late)
        self._dtype = chosen
        self.is_automatic = True
        self._scale()

    def use_apex(
        self,
        device: torch.device,
        models: Iterable[Any],
        opt_level: str | None,
        dtype: torch.dtype | None,
        first_scale: float | None,
    ) -> None:
        """See `context.configure_apex_amp()`, whose caller is warned."""
        if self.scaler is not None and self.scaler.is_enabled():
            raise errors.InvalidExperimentException(
                "configure_apex_amp() with a gradient scaler: they are two ways to the same end. Use one of them."
            )
        warnings.warn(
            "configure_apex_amp() is an older name: call context.experimental.use_amp() before wrap_model().",
            FutureWarning,
            stacklevel=3,
        )
        if self._is_apex:
            raise errors.InvalidExperimentException(
                "configure_apex_amp() was called twice. Call it once, with all models and all optimizers."
            )
        self._is_apex = True
        if opt_level == "O0":
            return
        self._dtype = autocast_dtype(device, dtype)
        for model in models:
            self.autocast(plain_model(model), device)
        options = {} if first_scale is None else {"init_scale": first_scale}
        self.scaler = new_scaler(device, self._dtype, **options)
        self._scale()

    def check_before_apex(self, call: str) -> None:
        """Raise for a call that has to come before `configure_apex_amp()`."""
        if self._is_apex:
            raise errors.InvalidExperimentException(
                f"{call}() comes before configure_apex_amp(), which has to see all models and optimizers."
            )

    def autocast(self, model: Module, device: torch.device) -> Module:
        """Make the model's forward pass run in this trial's autocast type, and return it."""
        chosen = self._dtype if self.is_automatic or self._is_apex else autocast_dtype(device, None)
        # It stays the same object, with its class, hooks and state, so it can be wrapped, compiled, copied and saved.
        model.forward = _AutocastForward(model.forward, device.type, chosen)
        return model

    def _scale(self) -> None:
        # A disabled scaler changes nothing, and asking it would cost something on every batch.
        self._gradients.scaler = self.scaler if self.scaler.is_enabled() else None


def autocast_dtype(device: torch.device, dtype: torch.dtype | None) -> torch.dtype | None:
    """Return `dtype` if given, else float16 on a GPU, else None: on a CPU full precision is faster."""
    if dtype is not None:
        if dtype not in (*_HALF, torch.float32):
            raise ValueError(f"dtype={dtype} is not for mixed precision. Use torch.bfloat16 or torch.float16.")
        return None if dtype is torch.float32 else dtype
    return None if device.type == "cpu" else torch.float16


def new_scaler(device: torch.device, dtype: torch.dtype | None, **options: Any) -> torch.amp.GradScaler:
    """Return a scaler, which is disabled for other types than float16, as only that needs one."""
    return torch.amp.GradScaler(device.type, enabled=dtype is torch.float16, **options)


class _AutocastForward:
    """Runs a forward pass in `dtype` (None: as it is) and returns float32.

    A class and not a closure, so that a deep copy of the model calls the copy's forward pass.
    """

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
