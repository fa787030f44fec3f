"""Reducers for the common cases: a sum, a mean or a count that crosses the network as one number, not as a list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from determined.pytorch.metrics.reducer import MetricReducer
from determined.pytorch.metrics.sums import Total, combine, divide, fetch, wide


class SumReducer(MetricReducer):
    """The sum of all values: exact for integers, compensated float64 for floats, on the device until a stop.

    Args:
        keep_shape: Add element by element, and report an array, instead of adding up all elements.

    Example::

        self.tokens = context.wrap_reducer(pytorch.SumReducer(), name="tokens")
        self.tokens.update(mask.sum())
    """

    def __init__(self, keep_shape: bool = False) -> None:
        self.keep_shape = keep_shape
        self._total = Total()

    def reset(self) -> None:
        self._total = Total()

    def update(self, value: Any) -> None:
        """Add a number, an array or a tensor."""
        self._total.add(value, flat=not self.keep_shape)

    def per_slot_reduce(self) -> Any:
        return self._total.partial(fetch(self._total.tensors()))

    def cross_slot_reduce(self, per_slot_metrics: Sequence[Any]) -> Any:
        return combine(per_slot_metrics)


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
        self._total = Total()
        self._weight: float = 0

    def update(self, value: Any, weight: float = 1) -> None:
        """Add a number, an array or a tensor that counts `weight` times."""
        if weight != 1:
            if isinstance(value, torch.Tensor):
                value = value.detach().to(wide(value.device))
            elif not isinstance(value, (int, float)):
                value = np.asarray(value)
            value = value * weight
        self._total.add(value, flat=not self.keep_shape)
        elements = value.numel() if isinstance(value, torch.Tensor) else np.size(value)
        self._weight += weight if self.keep_shape else weight * elements

    def per_slot_reduce(self) -> Any:
        return self._total.partial(fetch(self._total.tensors())), self._weight

    def cross_slot_reduce(self, per_slot_metrics: Sequence[Any]) -> Any:
        weight = sum(weight for _, weight in per_slot_metrics)
        return divide(combine([partial for partial, _ in per_slot_metrics]), weight) if weight else math.nan


class CountReducer(MetricReducer):
    """How many there were, on all ranks together.

    Example::

        self.skipped = context.wrap_reducer(pytorch.CountReducer(), name="skipped_batches")
        self.skipped.update()
    """

    def __init__(self) -> None:
        self._total = Total()

    def reset(self) -> None:
        self._total = Total()

    def update(self, count: Any = 1) -> None:
        """Count one more, or `count` more."""
        self._total.add(count)

    def per_slot_reduce(self) -> Any:
        return self._total.partial(fetch(self._total.tensors()))

    def cross_slot_reduce(self, per_slot_metrics: Sequence[Any]) -> Any:
        return combine(per_slot_metrics)
