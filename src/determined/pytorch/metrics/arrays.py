"""Values as arrays: numbers of any kind as numpy, and tensors to the host with one transfer per device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from determined.core.recording.values import as_float

Array = np.ndarray[Any, Any]

_NOT_IN_NUMPY = {
    dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and str(dtype).startswith(("torch.bfloat16", "torch.float8"))
}


def numeric_array(value: Any) -> Array:
    """Copy a number, list or array into a numpy array that torch can take.

    Raises:
        TypeError: It holds something else than numbers, or rows of different length.
    """
    try:
        array = np.array(value, order="C")
    except ValueError:  # rows of different length
        array = np.array(None)
    if array.dtype.kind == "O" and all(type(number) in (int, float) for number in array.flat):
        array = np.array([as_float(number) for number in array.flat]).reshape(array.shape)  # integers beyond 64 bits
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{short(value)} is not made of numbers.")
    native = array.dtype.newbyteorder("=") if array.dtype.itemsize <= 8 else np.dtype(np.float64)
    return array.astype(native, copy=False)


def fetch(values: Sequence[Any]) -> list[Any]:
    """Return the values with tensors as numpy arrays: one transfer per device, however many there are."""
    fetched = list(values)
    devices: dict[torch.device, list[int]] = {}
    for i, value in enumerate(values):
        if isinstance(value, Tensor):
            devices.setdefault(value.device, []).append(i)
    for indices in devices.values():
        # Widest first keeps every slice of the buffer aligned.
        tensors = {i: numpy_dtype(values[i].detach()) for i in indices}
        order = sorted(tensors, key=lambda i: -tensors[i].element_size())
        buffer = torch.cat([tensors[i].contiguous().reshape(-1).view(torch.uint8) for i in order]).cpu().numpy()
        start = 0
        for i in order:
            end = start + tensors[i].numel() * tensors[i].element_size()
            dtype = torch.empty(0, dtype=tensors[i].dtype).numpy().dtype
            fetched[i] = buffer[start:end].view(dtype).reshape(tuple(tensors[i].shape))
            start = end
    return fetched


def numpy_dtype(tensor: Tensor) -> Tensor:
    """Return the tensor in a dtype that numpy has."""
    return tensor.float() if tensor.dtype in _NOT_IN_NUMPY else tensor


def to_numpy(value: Any) -> Any:
    """Return `value` with every tensor in it, also inside dicts, lists and tuples, as numpy on the host."""
    if isinstance(value, Tensor):
        return numpy_dtype(value.detach().cpu()).numpy()
    return rebuild(value, to_numpy)


def rebuild(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a dict, list or tuple with its items changed; anything else as it is."""
    if type(value) is dict:
        return {key: change(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(change(item) for item in value)
    return value


def short(value: Any) -> str:
    """Return the `repr` of a value, cut off where it would fill the screen."""
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "..."


def described(value: Any) -> str:
    """Return type and value, for an error message."""
    if value is None:
        return "None"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}, {short(value)}"
