"""Chooses the device of a process, counts the records of a batch, and moves batches to the device."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

logger = logging.getLogger("determined.pytorch")


def choose_device(num_gpus: int, size: int, local_rank: int) -> torch.device:
    """Return the device of this process: the CPU, or one of the accelerators, each for one process of a machine."""
    accelerator = torch.accelerator.current_accelerator(check_available=True) if num_gpus else None
    if accelerator is None:
        return torch.device("cpu")
    # A launcher may show each process its own device only.
    index = local_rank % torch.accelerator.device_count() if size > 1 else 0
    if size > 1:
        torch.accelerator.set_device_index(index)
    return torch.device(accelerator.type, index)


def data_length(data: Any) -> int:
    """Return the number of records in a batch: the length of the first tensor or array in it, however deep.

    Args:
        data: A tensor, an array, or dictionaries, lists, tuples and dataclasses of those.

    Raises:
        ValueError: The batch is an empty container.
        TypeError: There is no tensor or array in it; override `get_batch_length()`.

    Example::

        data_length({"image": torch.zeros(32, 3, 8, 8), "label": torch.zeros(32)})   # 32
    """
    kind = type(data)
    first = data[0] if (kind is list or kind is tuple) and data else data
    if type(first) is torch.Tensor and first.ndim:
        return first.shape[0]  # nearly every batch; len() of a tensor takes longer than these lines
    leaf = next(_arrays(data), None)
    if leaf is not None:
        return len(leaf)
    children = _children(data)
    if children is not None and next(iter(children), None) is None:
        raise ValueError(f"The batch is an empty {type(data).__name__}, so it has no number of records.")
    raise TypeError(
        f"The batch is a {type(data).__name__} without a tensor or array that has a length, so its number of records "
        f"is unknown. Override get_batch_length() in the trial."
    )


def _arrays(data: Any) -> Iterator[Any]:
    """Yield the tensors and arrays that have a length, in order."""
    if isinstance(data, (torch.Tensor, np.ndarray)):
        if data.ndim:
            yield data
        return
    for _, child in _children(data) or ():
        yield from _arrays(child)


def _children(data: Any) -> Iterable[tuple[str, Any]] | None:
    """Return the items of a container, each with its subscript or attribute as text; None if it is no container."""
    if isinstance(data, Mapping):
        return ((f"[{key!r}]", value) for key, value in data.items())
    if isinstance(data, (list, tuple)):
        return ((f"[{number}]", value) for number, value in enumerate(data))
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return ((f".{field.name}", getattr(data, field.name)) for field in dataclasses.fields(data))
    return None


def to_device(data: Any, device: Any, warned_types: set[type] | None = None) -> Any:
    """Return the batch with its tensors on `device`, in containers of the same types.

    Numeric arrays become tensors; on the CPU they share memory. Objects with a method `to` are asked to move
    themselves. Pinned tensors move in the background. All else, such as strings and numbers, stays as it is, with one
    warning per type.

    Args:
        data: Tensors, arrays, objects with `.to()`, in any nesting of mappings, lists, tuples and dataclasses.
        device: Where to.
        warned_types: Types that were warned about; those of this call are added. None warns anew in each call.

    Example::

        to_device({"image": np.zeros((32, 8)), "name": ["a"] * 32}, "cuda:0")
    """
    return mover(device, warned_types)(data)


def mover(device: Any, warned_types: set[type] | None = None) -> Callable[[Any], Any]:
    """Return `to_device` for many batches; the device is examined once."""
    move = _Move(device, set() if warned_types is None else warned_types)

    def place(data: Any) -> Any:
        if not move.is_cpu:
            return move(data, "")
        # The usual batch of a CPU run has nothing to move: a tensor, or a plain container of tensors.
        kind = type(data)
        if kind is list or kind is tuple:
            tensors = data
        elif kind is dict:
            tensors = data.values()
        else:
            tensors = (data,)
        for tensor in tensors:  # all() takes twice as long, and this runs with every batch
            if type(tensor) is not torch.Tensor or not tensor.is_cpu:
                return move(data, "")
        return data.copy() if kind is list or kind is dict else data  # a trial may pop from its batch

    return place


class _Move:
    def __init__(self, device: Any, warned_types: set[type]) -> None:
        self._device = device
        self.is_cpu = torch.device(device).type == "cpu" if isinstance(device, (str, torch.device)) else False
        self._warned_types = warned_types

    def __call__(self, data: Any, path: str) -> Any:
        kind = type(data)
        if isinstance(data, torch.Tensor):
            if self.is_cpu or not data.is_pinned():
                return data.to(self._device)
            return data.to(self._device, non_blocking=True)
        if kind is dict:
            return {key: self(value, f"{path}[{key!r}]") for key, value in data.items()}
        if kind is list or kind is tuple:
            return kind([self(item, f"{path}[{number}]") for number, item in enumerate(data)])
        if callable(move := getattr(data, "to", None)) and not isinstance(data, type):
            return move(self._device)
        if isinstance(data, np.ndarray):
            return self._array(data, path)
        if (children := _children(data)) is not None:
            moved = [self(child, path + step) for step, child in children]
            return _rebuild(data, moved)
        return self._leave(data, path)

    def _array(self, data: np.ndarray[Any, Any], path: str) -> Any:
        if data.dtype.kind not in "fciub":
            return self._leave(data, path)
        if not data.dtype.isnative:
            data = data.astype(data.dtype.newbyteorder("="))
        if not data.flags.writeable or any(stride < 0 for stride in data.strides):
            data = data.copy()  # torch cannot share such memory
        try:
            tensor = torch.from_numpy(data)
        except TypeError:  # longdouble and its like
            return self._leave(data, path)
        return tensor.to(self._device)

    def _leave(self, data: Any, path: str) -> Any:
        if type(data) not in self._warned_types:
            self._warned_types.add(type(data))
            what = f"an array of {data.dtype}" if isinstance(data, np.ndarray) else f"a {type(data).__name__}"
            logger.warning(
                "batch%s is %s, which has no place on a device: it is passed on as it is, as are others of its type.",
                path,
                what,
            )
        return data


def _rebuild(data: Any, moved: list[Any]) -> Any:
    """Return a container of the type of `data` that holds `moved`; a plain one if its constructor fails."""
    try:
        if isinstance(data, (dict, UserDict)):
            mapping = copy.copy(data)  # keeps what else it has, such as a default
            for key, value in zip(data, moved, strict=True):
                mapping[key] = value  # update() of a Counter would add
            return mapping
        if isinstance(data, Mapping):
            return type(data)(dict(zip(data, moved, strict=True)))  # type: ignore[call-arg]  # most take a mapping
        if hasattr(data, "_fields"):  # a named tuple
            return type(data)(*moved)
        if isinstance(data, (list, tuple)):
            return type(data)(moved)
        fresh = copy.copy(data)
        for field, value in zip(dataclasses.fields(data), moved, strict=True):
            object.__setattr__(fresh, field.name, value)  # it may be frozen
        return fresh
    except Exception:  # noqa: BLE001  # a constructor may refuse in any way
        if isinstance(data, Mapping):
            return dict(zip(data, moved, strict=True))
        return tuple(moved) if isinstance(data, tuple) else moved
