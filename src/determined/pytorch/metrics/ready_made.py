"""Reducers for the common cases: a sum, a mean or a count that crosses the network as one number, not as a list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from determined.pytorch.metrics.rank_metrics import Array, fetch, numeric_array
from determined.pytorch.metrics.reducer import MetricReducer


class _Total:
    """A running sum in float64, on the device of the values. On MPS, which has none, in float32 or int64."""

    def __init__(self) -> None:
        self._sums: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}
        self._is_whole = True

    def add(self, value: Any, *, flat: bool = False, weight: float = 1) -> int:
        """Add a value element by element, or with `flat` the sum of its elements; return how many it has."""
        tensor = value.detach() if isinstance(value, torch.Tensor) else torch.from_numpy(numeric_array(value))
        if tensor.is_complex():
            raise TypeError(
                f"A complex tensor ({tensor.dtype}) cannot be added up here. Use its real part or its abs()."
            )
        is_whole = not tensor.dtype.is_floating_point and weight == int(weight)
        self._is_whole = self._is_whole and is_whole
        dtype = torch.float64
        if tensor.device.type == "mps":
            dtype = torch.int64 if is_whole else torch.float32
        wide = tensor.to(dtype) if weight == 1 else tensor.to(dtype) * weight
        total, key = wide.sum() if flat else wide, (tensor.device, dtype)
        self._sums[key] = self._sums[key] + total if key in self._sums else total.clone()
        return tensor.numel()

    def fetched(self) -> tuple[bool, list[Array]]:
        """Return whether all values were integers, and the sums on the host."""
        return self._is_whole, fetch(list(self._sums.values()))


def _joined(totals: Sequence[tuple[bool, list[Array]]]) -> Any:
    """Return the sum over ranks: int if all values were integers and float64 holds the sum exactly, else float."""
    total = np.asarray(sum((np.asarray(array, dtype=np.float64) for _, sums in totals for array in sums), start=0.0))
    if all(is_whole for is_whole, _ in totals) and (np.abs(total) < 2**53).all():
        total = total.astype(np.int64)
    return total if total.ndim else total.item()


class SumReducer(MetricReducer):
    """The sum of all values in float64, on the device until a stop; exact for integers below 2**53.

    Args:
        keep_shape: Add element by element, and report an array, instead of adding up all elements.

    Example::

        self.tokens = context.wrap_reducer(pytorch.SumReducer(), name="tokens")
        self.tokens.update(mask.sum())
    """

    def __init__(self, keep_shape: bool = False) -> None:
        self.keep_shape = keep_shape
        self.reset()

    def reset(self) -> None:
        self._total = _Total()

    def update(self, value: Any) -> None:
        """Add a number, an array or a tensor."""
        self._total.add(value, flat=not self.keep_shape)

    def per_slot_reduce(self) -> Any:
        return self._total.fetched()

    def cross_slot_reduce(self, per_slot_metrics: Sequence[Any]) -> Any:
        return _joined(per_slot_metrics)


class MeanReducer(MetricReducer):
    """The mean of all values over batches and ranks, weighted if you give weights.

    Args:
        keep_shape: Average element by element and report an array, such as a value per class; else over all elements.

    Example::

        self.loss = context.wrap_reducer(pytorch.MeanReducer(), name="loss_per_record")
        self.loss.update(loss, weight=len(labels))
    """

    def __init__(self, keep_shape: bool = False) -> None:
        self.keep_shape = keep_shape
        self.reset()

    def reset(self) -> None:
        self._total = _Total()
        self._weight: float = 0

    def update(self, value: Any, weight: float = 1) -> None:
        """Add a number, an array or a tensor that counts `weight` times."""
        elements = self._total.add(value, flat=not self.keep_shape, weight=weight)
        self._weight += weight if self.keep_shape else weight * elements

    def per_slot_reduce(self) -> Any:
        return self._total.fetched(), self._weight

    def cross_slot_reduce(self, per_slot_metrics: Sequence[Any]) -> Any:
        weight = sum(weight for _, weight in per_slot_metrics)
        total = _joined([total for total, _ in per_slot_metrics])
        return total / weight if weight else math.nan


class CountReducer(SumReducer):
    """How many there were, on all ranks together.

    Example::

        self.skipped = context.wrap_reducer(pytorch.CountReducer(), name="skipped_batches")
        self.skipped.update()
    """

    def __init__(self) -> None:
        super().__init__(keep_shape=True)

    def update(self, count: Any = 1) -> None:
        """Count one more, or `count` more."""
        super().update(count)
