"""One rank's side of metrics: what batches returned, by metric, as running sums on the device and a bounded history.

Per batch a value is detached and appended to a list, nothing else; a single number that lies on the CPU, where nobody
waits for a device, is appended as the number it is, which is cheaper still. Every `_FOLD` batches the lists become
running sums, still on the device, so memory does not grow with the number of batches; at a stop everything crosses to
the host in one transfer. How ranks come together is in `_metrics`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from determined.core.recording.values import BatchColumns, plain
from determined.pytorch.metrics.running import Chunk, Column, Running, described, scalar_dtype
from determined.pytorch.metrics.sums import Array, fetch, rebuild, to_numpy

_FOLD = 256  # batches between two foldings into the running sums
_ELEMENTS = 1 << 22  # waiting and kept values stay below this many elements: large tensors fold and fade sooner
_NUMBERS = {bool, int, float}
_FROZEN = (bool, int, float, complex, str, bytes, type(None), np.generic)


class Rows:
    """The results of many batches.

    Args:
        method: Who returned them, for messages.
        rank: This rank, for messages.
        raises: Raise at once for a result that cannot be used; else remember it in `problem`.
        kept: How many of the last batches to keep on the device; None keeps all, on the host.
        validation: Keep extremes and record-weighted sums too.
        first_batch: The index of the first of them, for messages.
    """

    def __init__(
        self,
        method: str,
        *,
        rank: int,
        raises: bool,
        kept: int | None,
        validation: bool = False,
        first_batch: int = 0,
    ) -> None:
        self._first_batch = first_batch
        self._method, self._rank, self._raises, self._kept, self._validation = method, rank, raises, kept, validation
        self.batches = 0
        self.records = 0
        self.lengths: tuple[int, ...] = ()  # of the shortest and longest batch, in records
        self.problem: Exception | None = None
        self._waiting: dict[str, list[Any]] = {}
        self._weights: list[int | None] = []
        self._columns: dict[str, Running] = {}
        self._folded = 0
        self._fold_at = 1
        self._limit = 0
        self._width = -1  # how many metrics there are; known with the first batch, and of no use after a problem
        self._appends: list[tuple[str, torch.dtype | None, Callable[[Any], None]]] = []

    def fresh(self) -> Rows:
        """An empty one like this: for the next batches of training, or for another validation."""
        return Rows(
            self._method,
            rank=self._rank,
            raises=self._raises,
            kept=self._kept,
            validation=self._validation,
            first_batch=0 if self._validation else self._first_batch + self.batches,
        )

    def add(self, metrics: Any, records: int | None = None) -> None:
        """Take in one batch's result. This runs once per batch: all that can wait is left to `fold()`."""
        if type(metrics) is not dict or len(metrics) != self._width:
            metrics = self._admit(metrics)
            if metrics is None:
                return
        try:
            for name, dtype, append in self._appends:
                value = metrics[name]
                if type(value) is Tensor and value.dtype is dtype and not value.ndim:  # on the CPU, like the first
                    append(value.item())
                elif isinstance(value, Tensor):
                    # A fresh result of this batch can be kept as it is. A view would keep its base alive, what needs
                    # no gradient may be a buffer that the next batch writes into, and so is what a CUDA graph returns.
                    fresh = value.requires_grad and value.is_cpu and value._base is None
                    append(value.detach() if fresh else value.detach().clone())
                elif dtype is not None:  # a tensor before: tell this from the numbers that tensors became
                    append(np.float64(value) if type(value) is float else _frozen(value))
                else:
                    append(value if isinstance(value, _FROZEN) else _frozen(value))
        except KeyError:
            self._refuse(ValueError(self._other_names(metrics)))
            return
        if self._validation:
            self._weights.append(records)
        elif records:
            self.records += records
        batches = self.batches = self.batches + 1
        if batches == self._fold_at:
            try:
                self.fold()
            except Exception as error:  # noqa: BLE001  a stop is where ranks can hear of it
                self._refuse(error)

    def _admit(self, metrics: Any) -> Mapping[str, Any] | None:
        """The result as a dict that fits the others; None if it cannot be used, or no other can any more."""
        if self.problem is not None:
            return None
        if isinstance(metrics, torch.Tensor) and not self._validation:
            metrics = {"loss": metrics}
        if not isinstance(metrics, Mapping):
            self._refuse(TypeError(self._wrong_type(metrics)))
            return None
        if not self.batches:
            self._begin(metrics)
        elif len(metrics) != self._width:
            self._refuse(ValueError(self._other_names(metrics)))
            return None
        return metrics

    def fold(self) -> None:
        """Turn waiting values into running sums."""
        if self.batches == self._folded:
            return
        if self._waiting:
            self._plan([values[-1] for values in self._waiting.values()])
        weights = None if None in self._weights else np.array(self._weights, dtype=np.float64)
        for name, values in self._waiting.items():
            self._columns[name].fold(values, self._first_batch + self._folded, weights)
            if self._kept:
                self._columns[name].forget(self._limit)
            values.clear()
        if known := [weight for weight in self._weights if weight is not None]:
            self.records += sum(known)
            self.lengths = (min(*self.lengths, *known, known[0]), max(*self.lengths, *known, known[0]))
        if self._kept is None:
            self._bring_to_host()
        self._weights.clear()
        self._folded = self.batches

    def columns(self) -> dict[str, Column]:
        """All metrics as plain numbers, with the mean of each kept batch, after one transfer."""
        self._check()
        means = [[chunk.means() for chunk in column.history] for column in self._columns.values()]
        plain, fetched = self._finish(means)
        for column, chunks in zip(plain.values(), fetched, strict=True):
            kept = list(itertools.chain.from_iterable(chunks))[-self._limit :]
            column.known = np.array([mean is not None for mean in kept], dtype=bool)
            column.means = np.array([0.0 if mean is None else mean for mean in kept], dtype=np.float64)
        return plain

    def columns_and_rows(self) -> tuple[dict[str, Column], Sequence[dict[str, Any]]]:
        """All metrics as plain numbers, and the kept batches with tensors as numpy, after one transfer."""
        self._check()
        running = list(self._columns.values())
        plain, fetched = self._finish([[chunk.values for chunk in column.history] for column in running])
        for column, chunks in zip(running, fetched, strict=True):
            column.history = deque(map(Chunk, chunks))
        flat = {name: _flat(column.history) for name, column in self._columns.items()}
        known = {name: values for name, values in flat.items() if values is not None}
        if flat and len(known) == len(flat) and len({len(values) for values in known.values()}) == 1:
            count = min(self._limit, self.batches, *map(len, known.values()))
            if count:
                return plain, BatchColumns({name: v[len(v) - count :] for name, v in known.items()}, self._rows)
        return plain, self._rows()

    def outputs(self) -> list[dict[str, Any]]:
        """Every batch with tensors as numpy; needs `kept=None`."""
        self._check()
        return self._rows()

    def _rows(self) -> list[dict[str, Any]]:
        lengths = [sum(len(chunk.values) for chunk in column.history) for column in self._columns.values()]
        count = min([self.batches, *lengths] if self._kept is None else [self._limit, self.batches, *lengths])
        rows: list[dict[str, Any]] = [{} for _ in range(count)]
        for (name, column), length in zip(self._columns.items(), lengths, strict=True):
            values = [item for chunk in column.history for item in _items(chunk.values)]
            for row, value in zip(rows, values[length - count :], strict=True):
                row[name] = value
        return rows

    def _check(self) -> None:
        if self.problem is not None:
            raise self.problem
        self.fold()

    def _finish(self, chunks: list[list[Any]]) -> tuple[dict[str, Column], list[list[Any]]]:
        """The columns as plain numbers, and their chunks with tensors as arrays: everything in one transfer."""
        own = {name: column.tensors() for name, column in self._columns.items()}
        flat = [tensor for tensors in own.values() for tensor in tensors]
        flat += [chunk for kept in chunks for chunk in kept if isinstance(chunk, torch.Tensor)]
        arrays = iter(fetch(flat))
        plain = {name: self._columns[name].plain([next(arrays) for _ in tensors]) for name, tensors in own.items()}
        return plain, [[next(arrays) if isinstance(c, torch.Tensor) else c for c in kept] for kept in chunks]

    def _begin(self, metrics: Mapping[str, Any]) -> None:
        dtypes = {name: scalar_dtype(value) for name, value in metrics.items()}
        self._columns = {
            name: Running(self._rank, self._kept != 0, self._validation, dtype) for name, dtype in dtypes.items()
        }
        self._waiting = {name: [] for name in metrics}
        self._appends = [(name, dtypes[name], values.append) for name, values in self._waiting.items()]
        self._width = len(metrics)
        self._plan(metrics.values())

    def _plan(self, row: Any) -> None:
        rows = max(1, _ELEMENTS // max(1, sum(_size(value) for value in row)))
        self._fold_at = self.batches + min(_FOLD, rows)
        self._limit = min(self._kept or 0, rows)

    def _bring_to_host(self) -> None:
        chunks = [c for column in self._columns.values() for c in column.history if isinstance(c.values, torch.Tensor)]
        for chunk, array in zip(chunks, fetch([chunk.values for chunk in chunks]), strict=True):
            chunk.values = array

    def _refuse(self, problem: Exception) -> None:
        if self._raises:
            raise problem
        self._width = -1
        self.problem = problem  # the other ranks wait at the stop; they hear of it there

    def _wrong_type(self, metrics: Any) -> str:
        allowed = "a dict from name to value" if self._validation else "a tensor, or a dict from name to value"
        return f"{self._method}() returned {described(metrics)} for {self._where()}. Return {allowed}."

    def _other_names(self, metrics: Mapping[str, Any]) -> str:
        before, now = sorted(map(str, self._waiting)), sorted(map(str, metrics))
        return f"{self._method}() returned {now} for {self._where()} but {before} before. Return the same names always."

    def _where(self) -> str:
        return f"batch {self._first_batch + self.batches} (rank {self._rank})"


def _flat(history: Iterable[Chunk]) -> Array | None:
    """The values of a metric that is one number per batch; None for any other."""
    chunks = [chunk.values for chunk in history]
    if not chunks or any(not isinstance(c, np.ndarray) or c.ndim != 1 or c.dtype.kind not in "fiu" for c in chunks):
        return None
    values: Array = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
    return values


def _items(values: Any) -> list[Any]:
    if isinstance(values, np.ndarray) and values.dtype.kind != "c":
        return [values[i, ...] for i in range(len(values))]  # an array even where the value had no dimension
    return [value if type(value) in _NUMBERS else _reportable(value) for value in values]


def _reportable(value: Any) -> Any:
    """The value with tensors as numpy; None for what no report can hold: its average is None too."""
    if isinstance(value, torch.Tensor):  # still one here, so it has no data, or none that numpy could have
        return None
    value = to_numpy(value)
    try:
        plain(value, "")
    except (TypeError, ValueError):
        return None
    return value


def _size(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel()
    if isinstance(value, (list, tuple)):
        return sum(_size(item) for item in value)
    return value.size if isinstance(value, np.ndarray) else 1


def _frozen(value: Any) -> Any:
    """A copy that later changes by the user do not reach."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else rebuild(value, _frozen)
