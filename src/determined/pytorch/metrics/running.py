"""One metric over many batches: running sums that stay on the device, extremes, and the batches that are kept.

How the results of a batch are taken apart, and when they come here, is in `_columns`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from determined.pytorch.metrics.sums import Array, Partial, Total, fsum, numeric_array, short, wide

_NUMBERS = {bool, int, float}
_NUMPY: dict[torch.dtype, Any] = {  # what a number of this type is on the host
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.float16: np.float16,
    torch.bfloat16: np.float32,
    torch.bool: np.bool_,
    torch.int64: np.int64,
    torch.int32: np.int32,
    torch.int16: np.int16,
    torch.int8: np.int8,
    torch.uint8: np.uint8,
}


@dataclass
class Column:
    """One metric on one rank: plain numbers, fit for the journey to other ranks."""

    elements: int = 0  # numbers seen, over all batches
    size: int | None = None  # numbers per batch
    origin: str = ""  # the batch that said so
    is_array: bool = False
    odd: str | None = None  # where the first value was that is no number
    ragged: str | None = None  # where the first value was that differs in size
    partial: Partial = field(default_factory=Partial)
    weighted: Partial = field(default_factory=Partial)  # batch means times records
    weight: int | None = 0  # records; None once a batch came without a count
    most: Any = None
    least: Any = None
    means: Array = field(default_factory=lambda: np.zeros(0))  # of the kept batches
    known: Array = field(default_factory=lambda: np.zeros(0, dtype=bool))  # which of those were numbers


@dataclass
class Chunk:
    """Values of consecutive batches: a tensor or array with one row each, or a list."""

    values: Any

    def means(self) -> Any:
        """The mean of each value: a tensor where it was one, else a list with None for what is no number."""
        values = self.values
        if isinstance(values, np.ndarray):
            return values.astype(np.float64).tolist()
        if not isinstance(values, torch.Tensor):
            return [_mean(value) for value in values]
        if values.numel() == 0 or values.is_complex():
            return [None] * len(values)
        return values.to(wide(values.device)).reshape(len(values), -1).mean(1)


class Running:
    """One metric on one rank while batches come in."""

    def __init__(self, rank: int, keeps: bool, validation: bool, dtype: torch.dtype | None) -> None:
        self._rank, self._keeps, self._validation = rank, keeps, validation
        self._dtype = dtype  # of the tensors that plain numbers among the values were
        self._column = Column()
        self._is_begun = False
        self._total = Total()
        self._weighted = Total()
        self._extremes: dict[tuple[torch.device, bool], tuple[torch.Tensor, torch.Tensor]] = {}
        self.history: deque[Chunk] = deque()

    def fold(self, values: list[Any], first: int, weights: Array | None) -> None:
        """Take in the values of consecutive batches, of which the first has this index."""
        if not self._is_begun:
            self._is_begun = True
            self._column.is_array = self._dtype is not None or isinstance(values[0], (torch.Tensor, np.ndarray))
        at = first
        for run in _runs(values) if self._dtype is None else _runs_with_numbers(values, self._dtype):
            some = None if weights is None else weights[at - first : at - first + len(run)]
            if isinstance(run, Tensor):
                self._fold_tensor(run, at, some)
            elif isinstance(run, np.ndarray):
                self._fold_numbers(run, at, some)
            else:
                self._fold_list(run, at, some)
            if self._keeps:
                self.history.append(Chunk(run))
            at += len(run)

    def forget(self, limit: int) -> None:
        """Let go of batches that are further back than `limit`."""
        kept = sum(len(chunk.values) for chunk in self.history)
        while kept - len(self.history[0].values) >= limit:
            kept -= len(self.history.popleft().values)

    def tensors(self) -> list[torch.Tensor]:
        """What has to be fetched for `plain()`."""
        extremes = [extreme for pair in self._extremes.values() for extreme in pair]
        return [*self._total.tensors(), *self._weighted.tensors(), *extremes]

    def plain(self, fetched: list[Array]) -> Column:
        """The numbers, given the fetched `tensors()`."""
        rest = iter(fetched)
        column = self._column
        column.partial = self._total.partial([next(rest) for _ in self._total.tensors()])
        column.weighted = self._weighted.partial([next(rest) for _ in self._weighted.tensors()])
        for _ in self._extremes:
            self._stretch(next(rest).item(), next(rest).item())
        return column

    def _fold_tensor(self, run: Tensor, at: int, weights: Array | None) -> None:
        if run.is_complex():
            self._is_odd(at, f"a tensor of {run.dtype}")
            return
        size = run[0].numel()
        self._sized(size, at, len(run))
        self._total.add(run, flat=True)
        if not self._validation or not size:
            return
        whole = not run.dtype.is_floating_point
        flat = run.to(torch.int64 if whole else wide(run.device)).reshape(len(run), size)
        if run.dtype is torch.uint64:  # larger than any type that can be compared on the device
            self._stretch(max(run.reshape(-1).tolist()), min(run.reshape(-1).tolist()))
        else:
            most, least = flat.amax(), flat.amin()
            if known := self._extremes.get((run.device, whole)):
                most, least = torch.maximum(known[0], most), torch.minimum(known[1], least)
            self._extremes[run.device, whole] = (most, least)
        if self._weigh(weights):
            means = flat.to(wide(run.device)).mean(1)
            self._weighted.add(means * torch.from_numpy(weights).to(means), flat=True)

    def _fold_numbers(self, run: Array, at: int, weights: Array | None) -> None:
        self._sized(1, at, len(run))
        if run.dtype.kind == "f":
            run = run.astype(np.float64)
            with np.errstate(invalid="ignore", over="ignore"):  # infinities of both signs
                self._total.add(float(run.sum()))
        else:
            self._total.add(sum(run.tolist()))
        if not self._validation:
            return
        self._stretch(_plain(run.max()), _plain(run.min()))  # NaN if there is one
        if self._weigh(weights):
            with np.errstate(invalid="ignore", over="ignore"):
                self._weighted.add(float((run * weights).sum()))

    def _fold_list(self, run: list[Any], at: int, weights: Array | None) -> None:
        kinds = set(map(type, run))
        if kinds == {float} or kinds <= {int, bool}:
            self._sized(1, at, len(run))
            self._total.add(fsum(run) if kinds == {float} else sum(run))
            if self._validation:
                array = np.array(run)
                self._stretch(_plain(array.max()), _plain(array.min()))
                if self._weigh(weights):
                    self._weighted.add(fsum([n * w for n, w in zip(run, weights.tolist(), strict=True)]))
            return
        for i, value in enumerate(run):
            self._fold_value(value, at + i, None if weights is None else weights[i : i + 1])

    def _fold_value(self, value: Any, at: int, weights: Array | None) -> None:
        if value is None and not self._validation:
            return
        if type(value) in (float, int, bool):
            self._fold_list([value], at, weights)
            return
        try:
            array = numeric_array(None if isinstance(value, torch.Tensor) else value)  # a tensor here has no numbers
        except TypeError:
            self._is_odd(at, described(value))
            return
        self._fold_tensor(torch.from_numpy(array)[None], at, weights)

    def _sized(self, size: int, at: int, count: int) -> None:
        column = self._column
        column.elements += size * count
        if column.size is None:
            column.size, column.origin = size, f"batch {at} (rank {self._rank})"
        elif size != column.size and column.ragged is None:
            column.ragged = f"{column.size} elements in {column.origin} but {size} in batch {at} (rank {self._rank})"

    def _weigh(self, weights: Array | None) -> TypeGuard[Array]:
        if self._column.weight is None or weights is None:
            self._column.weight = None
            return False
        self._column.weight += int(weights.sum())
        return True

    def _is_odd(self, at: int, what: str) -> None:
        if self._column.odd is None:
            self._column.odd = f"it is {what} in batch {at} (rank {self._rank})"

    def _stretch(self, most: Any, least: Any) -> None:
        column = self._column
        column.most = most if column.most is None else max(column.most, most, key=_nan_first)
        column.least = least if column.least is None else min(column.least, least, key=_nan_last)


def _nan_first(number: Any) -> tuple[bool, Any]:
    return (number != number, number)


def _nan_last(number: Any) -> tuple[bool, Any]:
    return (number == number, number)


def _runs(values: list[Any]) -> Iterator[torch.Tensor | list[Any]]:
    """Neighbours that can be treated as one: tensors of one kind stacked, and everything else as a list."""
    tensors = set(map(type, values)) == {torch.Tensor} and not values[0].is_meta
    if tensors and len({value.dtype for value in values}) == 1:
        try:
            yield _dense(torch.stack(values))
        except RuntimeError:  # of different shapes or devices, most likely
            pass
        else:
            return
    for kind, group in itertools.groupby(values, key=_tensor_kind):
        run = list(group)
        yield run if kind is None else _dense(torch.stack(run))


def _runs_with_numbers(values: list[Any], dtype: torch.dtype) -> Iterator[torch.Tensor | list[Any] | Array]:
    """The same, for values among which plain numbers stand for tensors of this type: neighbours become an array."""
    kind = _NUMPY[dtype]
    if set(map(type, values)) <= _NUMBERS:
        yield np.array(values, dtype=kind)
        return
    for is_number, group in itertools.groupby(values, key=lambda value: type(value) in _NUMBERS):
        run = list(group)
        yield from [np.array(run, dtype=kind)] if is_number else _runs(run)


def scalar_dtype(value: Any) -> torch.dtype | None:
    """The type of a tensor whose number can be taken at once: a single one, on the CPU, that numpy can hold."""
    if type(value) is torch.Tensor and value.is_cpu and value.ndim == 0 and value.layout is torch.strided:
        return value.dtype if value.dtype in _NUMPY else None
    return None


def _plain(number: Any) -> Any:
    return number.item() if isinstance(number, np.generic) else number


def _tensor_kind(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.is_nested or value.is_meta:
        return None
    return value.dtype, value.shape, value.device, value.layout


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _mean(value: Any) -> float | None:
    try:
        array = numeric_array(value)
    except TypeError:
        return None
    return float(array.mean()) if array.size else None


def described(value: Any) -> str:
    """What a value is, in a message."""
    if value is None:
        return "None"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}, {short(value)}"
