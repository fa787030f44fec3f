"""Sums that do not drift, on the device until asked for, and the one transfer that brings them to the host.

Whole numbers are added as two halves of 32 bits, which cannot overflow in 2**31 additions. Fractions are added in
float64 with the rounding error carried along (Knuth's TwoSum), since a window may have millions of batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch

Array = np.ndarray[Any, Any]
Number = TypeVar("Number", float, torch.Tensor)

_LOW_BITS = 0xFFFFFFFF


@dataclass(frozen=True)
class Partial:
    """A sum that can be pickled: `whole` exactly, plus all `fractions`. Numbers, or arrays of one shape."""

    whole: Any = 0
    fractions: list[Any] = field(default_factory=list)


class Total:
    """A running sum of numbers, arrays and tensors. Tensors are added where they are, and fetched by the caller."""

    def __init__(self) -> None:
        self._whole = 0
        self._fraction: tuple[float, float] | None = None
        self._on_device: dict[tuple[torch.device, bool], tuple[torch.Tensor, torch.Tensor]] = {}

    def add(self, value: Any, *, flat: bool = False) -> None:
        """Add a value element by element, or with `flat` the sum of its elements."""
        if isinstance(value, int):
            self._whole += int(value)
        elif isinstance(value, float):
            self._fraction = _two_sum(*(self._fraction or (0.0, 0.0)), float(value))
        elif isinstance(value, torch.Tensor):
            self._add_tensor(value.detach(), flat)
        else:
            self._add_tensor(torch.from_numpy(numeric_array(value)), flat)

    def tensors(self) -> list[torch.Tensor]:
        """What `partial()` needs to have fetched."""
        return [half for pair in self._on_device.values() for half in pair]

    def partial(self, fetched: Sequence[Array]) -> Partial:
        """The sum so far, given the fetched `tensors()`."""
        whole: Any = self._whole
        fractions: list[Any] = [] if self._fraction is None else [_finish(*self._fraction)]
        pairs = zip(fetched[::2], fetched[1::2], strict=True)
        for (_, is_whole), (high, low) in zip(self._on_device, pairs, strict=True):
            if is_whole:
                whole = whole + (high.astype(object) * (_LOW_BITS + 1) + low.astype(object))
            else:
                sums = np.where(np.isfinite(low), high.astype(np.float64) + low, high)
                fractions.append(sums if sums.ndim else sums.item())
        return Partial(whole, fractions)

    def _add_tensor(self, value: torch.Tensor, flat: bool) -> None:
        if value.is_complex():
            raise TypeError(
                f"A complex tensor ({value.dtype}) cannot be added up here. Use its real part or its abs()."
            )
        key = (value.device, not value.dtype.is_floating_point)
        known = self._on_device.get(key)
        if value.dtype.is_floating_point:
            value = value.to(wide(value.device))
            value = value.sum() if flat else value
            zero = torch.zeros_like(value)
            self._on_device[key] = _two_sum(*(known or (zero, zero)), value)
        else:
            high, low = (half.sum() if flat else half for half in _halves(value))
            self._on_device[key] = (high, low) if known is None else (known[0] + high, known[1] + low)


def _two_sum(high: Number, low: Number, value: Number) -> tuple[Number, Number]:
    total = high + value
    back = total - high
    return total, low + ((high - (total - back)) + (value - back))


def _halves(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if value.dtype is torch.uint64:
        value = value.view(torch.int64)
        return (value >> 32) & _LOW_BITS, value & _LOW_BITS
    value = value.to(torch.int64)
    return value >> 32, value & _LOW_BITS


def _finish(high: float, low: float) -> float:
    return high + low if math.isfinite(low) else high  # an infinity has no rounding error


def wide(device: torch.device) -> torch.dtype:
    """The widest float of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def numeric_array(value: Any) -> Array:
    """A number, list or array as a numpy array of its own that torch can take.

    Raises:
        TypeError: It holds something else than numbers, or rows of different length.
    """
    try:
        array = np.array(value, order="C")
    except ValueError:  # rows of different length
        array = np.array(None)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{short(value)} is not made of numbers.")
    native = array.dtype.newbyteorder("=") if array.dtype.itemsize <= 8 else np.dtype(np.float64)
    return array.astype(native, copy=False)


def short(value: Any) -> str:
    """How a value looks, cut off where it would fill the screen."""
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "..."


def combine(partials: Iterable[Partial]) -> Any:
    """The sum of partial sums: a Python int if all were whole, else a float; or an array."""
    parts = list(partials)
    whole = sum((part.whole for part in parts), start=0)
    fractions = [fraction for part in parts for fraction in part.fractions]
    if np.ndim(whole) or any(np.ndim(fraction) for fraction in fractions):
        if fractions:
            return np.asarray(whole + sum(fractions), dtype=np.float64)
        return whole.astype(np.int64) if all(-(2**63) <= number < 2**63 for number in whole.flat) else whole
    return fsum([*fractions, _float(whole)]) if fractions else int(whole)


def divide(total: Any, count: float) -> Any:
    """`total / count`; whole numbers are divided exactly, then rounded once."""
    if isinstance(total, np.ndarray):
        return np.asarray(total / count, dtype=np.float64)
    try:
        return total / count
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _float(whole: int) -> float:
    try:
        return float(whole)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


def fsum(values: list[float]) -> float:
    """The sum of floats, rounded once."""
    try:
        return math.fsum(values)
    except (ValueError, OverflowError):  # infinities of both signs, or a sum beyond the largest float
        return sum(values)


def fetch(tensors: Sequence[torch.Tensor]) -> list[Array]:
    """The tensors as numpy arrays, with one transfer per device, however many there are."""
    answers: list[Any] = [None] * len(tensors)
    devices: dict[torch.device, list[int]] = {}
    for i, tensor in enumerate(tensors):
        devices.setdefault(tensor.device, []).append(i)
    for indices in devices.values():
        # Widest first keeps every slice of the buffer aligned.
        plain = {i: _known_to_numpy(tensors[i].detach()) for i in indices}
        order = sorted(plain, key=lambda i: -plain[i].element_size())
        buffer = torch.cat([plain[i].contiguous().reshape(-1).view(torch.uint8) for i in order]).cpu().numpy()
        start = 0
        for i in order:
            end = start + plain[i].numel() * plain[i].element_size()
            dtype = torch.empty(0, dtype=plain[i].dtype).numpy().dtype
            answers[i] = buffer[start:end].view(dtype).reshape(tuple(plain[i].shape))
            start = end
    return answers


def _known_to_numpy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in _NOT_IN_NUMPY else tensor


_NOT_IN_NUMPY = {
    dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and str(dtype).startswith(("torch.bfloat16", "torch.float8"))
}


def to_numpy(value: Any) -> Any:
    """`value` with every tensor in it, also inside dicts, lists and tuples, as numpy on the host."""
    if isinstance(value, torch.Tensor):
        return _known_to_numpy(value.detach().cpu()).numpy()
    return rebuild(value, to_numpy)


def rebuild(value: Any, change: Callable[[Any], Any]) -> Any:
    """A dict, list or tuple with its items changed; anything else as it is."""
    if type(value) is dict:
        return {key: change(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(change(item) for item in value)
    return value
