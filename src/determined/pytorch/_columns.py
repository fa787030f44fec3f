"""One rank's side of metrics: what batches returned, by metric, as running sums on the device and a bounded history.

Per batch a value is detached and appended to a list, nothing else; a single number that lies on the CPU, where nobody
waits for a device, is appended as the number it is, which is cheaper still. Every `_FOLD` batches the lists become
running sums, still on the device, so memory does not grow with the number of batches; at a stop everything crosses to
the host in one transfer. How ranks come together is in `_metrics`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from determined.core._values import BatchColumns
from determined.pytorch._sums import Array, Partial, Total, fetch, fsum, numeric_array, rebuild, short, to_numpy, wide

_FOLD = 256  # batches between two foldings into the running sums
_ELEMENTS = 1 << 22  # waiting and kept values stay below this many elements: large tensors fold and fade sooner
_FROZEN = (bool, int, float, complex, str, bytes, type(None), np.generic)
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
class _Chunk:
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


class Rows:
    """The results of many batches.

    Args:
        method: Who returned them, for messages.
        rank: This rank, for messages.
        raises: Raise at once for a result that cannot be used; else remember it in `problem`.
        kept: How many of the last batches to keep on the device; None keeps all, on the host.
        validation: Keep extremes and record-weighted sums too.
    """

    def __init__(self, method: str, *, rank: int, raises: bool, kept: int | None, validation: bool = False) -> None:
        self._method, self._rank, self._raises, self._kept, self._validation = method, rank, raises, kept, validation
        self.batches = 0
        self.records = 0
        self.lengths: tuple[int, ...] = ()  # of the shortest and longest batch, in records
        self.problem: Exception | None = None
        self._waiting: dict[str, list[Any]] = {}
        self._weights: list[int | None] = []
        self._columns: dict[str, _Running] = {}
        self._folded = 0
        self._fold_at = 1
        self._limit = 0
        self._width = -1  # how many metrics there are; known with the first batch, and of no use after a problem
        self._appends: list[tuple[str, torch.dtype | None, Callable[[Any], None]]] = []

    def fresh(self) -> Rows:
        """An empty one like this."""
        return Rows(self._method, rank=self._rank, raises=self._raises, kept=self._kept, validation=self._validation)

    def add(self, metrics: Any, records: int | None = None) -> None:
        """Take in one batch's result. This runs once per batch: all that can wait is left to `fold()`."""
        if type(metrics) is not dict or len(metrics) != self._width:
            metrics = self._admit(metrics)
            if metrics is None:
                return
        try:
            for name, dtype, append in self._appends:
                value = metrics[name]
                if type(value) is Tensor and value.dtype is dtype and value.ndim == 0:  # on the CPU, like the first
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
        self.batches += 1
        if self.batches == self._fold_at:
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
            self._columns[name].fold(values, self._folded, weights)
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
            column.history = deque(map(_Chunk, chunks))
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
        dtypes = {name: _scalar_dtype(value) for name, value in metrics.items()}
        self._columns = {
            name: _Running(self._rank, self._kept != 0, self._validation, dtype) for name, dtype in dtypes.items()
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
        return f"batch {self.batches} (rank {self._rank})"


class _Running:
    """One metric on one rank while batches come in."""

    def __init__(self, rank: int, keeps: bool, validation: bool, dtype: torch.dtype | None) -> None:
        self._rank, self._keeps, self._validation = rank, keeps, validation
        self._dtype = dtype  # of the tensors that plain numbers among the values were
        self._column = Column()
        self._total = Total()
        self._weighted = Total()
        self._extremes: dict[tuple[torch.device, bool], tuple[torch.Tensor, torch.Tensor]] = {}
        self.history: deque[_Chunk] = deque()

    def fold(self, values: list[Any], first: int, weights: Array | None) -> None:
        """Take in the values of consecutive batches, of which the first has this position."""
        if first == 0:
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
                self.history.append(_Chunk(run))
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


def _scalar_dtype(value: Any) -> torch.dtype | None:
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


def _flat(history: Iterable[_Chunk]) -> Array | None:
    """The values of a metric that is one number per batch; None for any other."""
    chunks = [chunk.values for chunk in history]
    if not chunks or any(not isinstance(c, np.ndarray) or c.ndim != 1 or c.dtype.kind not in "fiu" for c in chunks):
        return None
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def _items(values: Any) -> list[Any]:
    if isinstance(values, np.ndarray):
        return [values[i, ...] for i in range(len(values))]  # an array even where the value had no dimension
    # What is still a tensor here has no data, or none that numpy could have.
    return [None if isinstance(value, torch.Tensor) else to_numpy(value) for value in values]


def _size(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel()
    if isinstance(value, (list, tuple)):
        return sum(_size(item) for item in value)
    return value.size if isinstance(value, np.ndarray) else 1


def _mean(value: Any) -> float | None:
    try:
        array = numeric_array(value)
    except TypeError:
        return None
    return float(array.mean()) if array.size else None


def _frozen(value: Any) -> Any:
    """A copy that later changes by the user do not reach."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else rebuild(value, _frozen)


def described(value: Any) -> str:
    """What a value is, in a message."""
    if value is None:
        return "None"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}, {short(value)}"
