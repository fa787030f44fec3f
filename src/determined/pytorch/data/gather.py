"""Reads whole batches of a `TensorDataset`, or of nested `Subset`s of one, with one copy per tensor.

The batch is what torch's default collation makes of the single records. Where value, type, layout or error
message might differ, the result is None, and the records are read one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset, default_collate, get_worker_info
from torch.utils.data._utils import collate as torch_collate

_WHOLE = {int, np.int64}  # other indices, such as True, select differently


class Gather:
    """Reads batches of a dataset in its current state.

    Args:
        collate: The function that makes a batch of records.

    Example::

        gather = Gather(default_collate)
        gather(TensorDataset(features, labels), [3, 1])   # [features[[3, 1]], labels[[3, 1]]]
        gather(MyDataset(), [3, 1])                       # None
    """

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self._collate = collate
        self._can: bool | None = None  # known from the first batch on, in the process that reads it
        self._known: Any = None
        self._are_plain = False

    def __call__(self, dataset: Any, indices: Any) -> list[Tensor] | None:
        """Return the batch of these records; None if they have to be read one by one, which may raise."""
        if self._can is None:
            self._can = _stacks_tensors(self._collate)
        if not self._can or type(indices) is not list:
            return None
        subsets = []
        while type(dataset) is Subset:
            subsets.append(dataset.indices)
            dataset = dataset.dataset
        if type(dataset) is not TensorDataset and not _reads_like_one(dataset):
            return None
        tensors = dataset.tensors
        if tensors is not self._known or type(tensors) is not tuple:
            self._known, self._are_plain = tensors, all(map(_is_plain, tensors))
        if not self._are_plain:
            return None
        try:
            return _gathered(tensors, subsets, indices)
        except Exception:  # noqa: BLE001 - such as an index out of range: reading one by one gives its error
            return None


def _gathered(tensors: tuple[Tensor, ...], subsets: list[Any], indices: list[Any]) -> list[Tensor] | None:
    for numbers in subsets:
        if not set(map(type, indices)) <= _WHOLE:
            return None
        indices = _picked(numbers, indices)
    if not indices or not set(map(type, indices)) <= _WHOLE:
        return None
    index = torch.from_numpy(np.array(indices, dtype=np.int64))
    for tensor in tensors:
        if tensor.requires_grad:  # it may change while training
            return None
    if get_worker_info() is not None:
        return [_to_shared_memory(tensor, index) for tensor in tensors]
    return [tensor.index_select(0, index) for tensor in tensors]


def _picked(numbers: Any, indices: list[Any]) -> list[Any]:
    """Return `numbers[index]` for each index; nothing if `numbers` is of an unusual kind."""
    if type(numbers) is list or type(numbers) is range:
        return [numbers[index] for index in indices]
    if type(numbers) is Tensor and numbers.dtype is torch.int64:
        numbers = numbers.numpy()
    if type(numbers) is np.ndarray and numbers.dtype == np.int64 and numbers.ndim == 1:
        picked: list[Any] = [int(numbers[index]) for index in indices]
        return picked
    return []


def _stacks_tensors(collate: Callable[[list[Any]], Any]) -> bool:
    """Return whether tuples of tensors are collated by stacking: by `default_collate`, unless the user extended it."""
    ways = dict(torch_collate.default_collate_fn_map)
    if collate is not default_collate or ways.pop(Tensor, None) is not torch_collate.collate_tensor_fn:
        return False
    return not any(issubclass(kind, types) for types in ways for kind in (tuple, Tensor))


def _reads_like_one(dataset: Any) -> bool:
    """Return whether this is a subclass of `TensorDataset` that reads records in the same way."""
    kind = type(dataset)
    is_one = issubclass(kind, TensorDataset) and kind.__getitem__ is TensorDataset.__getitem__
    return is_one and not hasattr(kind, "tensors") and not hasattr(dataset, "__getitems__")


def _is_plain(tensor: Any) -> bool:
    """Return whether stacking its rows gives what `index_select` gives."""
    return (
        type(tensor) is Tensor
        and tensor.layout is torch.strided
        and tensor.is_cpu
        and not (tensor.is_nested or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and tensor.numel() > 0
        and (tensor.ndim <= 3 or tensor.is_contiguous())  # else a stack may keep the memory format of its records
    )


def _to_shared_memory(tensor: Tensor, index: Tensor) -> Tensor:
    """Gather into shared memory, where torch's collation in a worker writes too."""
    numel = len(index) * (tensor.numel() // len(tensor))
    shared: Any = tensor._typed_storage()  # type: ignore[no-untyped-call]  # it has no annotations
    out = tensor.new(shared._new_shared(numel, device=tensor.device)).resize_(len(index), *tensor.shape[1:])
    return torch.index_select(tensor, 0, index, out=out)
