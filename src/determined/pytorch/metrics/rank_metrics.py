"""The metrics of one rank: running sums on the device over all batches, and the last batches one by one.

Per batch a value is detached and appended to a list, nothing else; a single number on the CPU, where there is no device
to wait for, is appended as a Python number, which is cheaper still. Every `_FOLD` batches the lists are added to the
running sums, so memory does not grow with the number of batches; at a stop everything crosses to the host in one
transfer. `reduction.py` joins the ranks; docs/decisions/metric-averages.md says how exact the sums are.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from determined.core.recording.values import BatchColumns, as_float, plain

Array = np.ndarray[Any, Any]

_FOLD = 256  # batches between two additions to the running sums
_ELEMENTS = 1 << 22  # waiting and kept values stay below this many elements
_NUMBERS = {bool, int, float}
_IMMUTABLE = (bool, int, float, complex, str, bytes, type(None), np.generic)
_SCALARS = ("float64", "float32", "float16", "bfloat16", "bool", "int64", "int32", "int16", "int8", "uint8")
_NUMPY: dict[torch.dtype, Any] = {  # what a number taken from a tensor of this type is in numpy
    dtype: np.dtype("float32" if name == "bfloat16" else name)
    for name, dtype in ((name, vars(torch)[name]) for name in _SCALARS)
}
_NOT_IN_NUMPY = {
    dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and str(dtype).startswith(("torch.bfloat16", "torch.float8"))
}
Run = Tensor | Array | list[Any]  # values of consecutive batches, with one row per batch


@dataclass
class Column:
    """One metric on one rank. After `RankMetrics.finish()` it is small, on the host, and can be sent to other ranks.

    `sums` are float64, per device: the sum of all elements and, in a validation, the sum of batch means times records,
    the largest element and the negative of the smallest.
    """

    rank: int
    validation: bool
    dtype: torch.dtype | None  # of the tensors that plain numbers among the values were taken from
    is_array: bool
    is_whole: bool = True  # all values are integers
    elements: int = 0
    size: int | None = None  # elements per batch
    origin: str = ""  # the batch that had this size first
    ragged: str | None = None  # the first batch that had another size
    not_a_number: str | None = None  # the first batch with another value
    records: int | None = 0  # None after a batch whose record count is not known
    sums: dict[Any, Any] = field(default_factory=dict)
    totals: Array = field(default_factory=lambda: np.zeros(0))  # all sums together, once the column is finished
    means: Array = field(default_factory=lambda: np.zeros(0))  # of the kept batches, if there are several ranks
    known: Array = field(default_factory=lambda: np.zeros(0, dtype=bool))  # which of those are numbers

    def add(self, run: Run, batch_idx: int, records: Array | None) -> Any:
        """Add a run to the sums and return it as a float64 matrix with a row per batch, None if it has no numbers."""
        try:
            rows, is_whole = _float_rows(run)
        except TypeError:
            value = run[0]
            if self.not_a_number is None and (value is not None or self.validation):
                what = f"a tensor of {value.dtype}" if isinstance(run, Tensor) else described(value)
                self.not_a_number = f"it is {what} in batch {batch_idx} (rank {self.rank})"
            return None
        size = rows.shape[1]
        self.elements += size * len(rows)
        if self.size is None:
            self.size, self.origin = size, f"batch {batch_idx} (rank {self.rank})"
        elif size != self.size and self.ragged is None:
            self.ragged = f"{self.size} elements in {self.origin} but {size} in batch {batch_idx} (rank {self.rank})"
        if not size:
            return None
        self.is_whole = self.is_whole and is_whole
        on_host = isinstance(rows, np.ndarray)
        sums = [rows.sum()]
        if self.validation:
            self.records = None if self.records is None or records is None else self.records + int(records.sum())
            weights = np.zeros(len(rows)) if records is None else records
            weighted = rows.mean(1) * (weights if on_host else torch.from_numpy(weights).to(rows.device))
            sums += [weighted.sum(), rows.max(), -rows.min()]
        new: Any = np.stack(sums) if on_host else torch.stack(sums)
        key = None if on_host else rows.device
        self.sums[key] = join_sums(self.sums[key], new) if key in self.sums else new
        return rows


def join_sums(one: Any, other: Any) -> Any:
    """Join the sums of two parts of the data: arrays, or tensors of one device."""
    with np.errstate(invalid="ignore", over="ignore"):  # infinities of both signs add up to NaN
        if len(one) == 1:
            return one + other
        module: Any = np if isinstance(one, np.ndarray) else torch
        return module.concatenate([one[:2] + other[:2], module.maximum(one[2:], other[2:])])


class RankMetrics:
    """The results of many batches on one rank.

    Args:
        method: The user's method that returns them, for messages.
        rank: This rank, for messages.
        size: How many ranks there are. With one, a result that cannot be used raises at once; else `finish()` raises.
        kept: How many of the last batches to keep on the device; None keeps all, on the host.
        validation: Collect extremes and record-weighted sums too.
        first_batch: The index of the first batch, for messages.
    """

    def __init__(
        self, method: str, *, rank: int, size: int, kept: int | None, validation: bool = False, first_batch: int = 0
    ) -> None:
        self._method, self._rank, self._size, self._kept, self._validation = method, rank, size, kept, validation
        self.first_batch = first_batch
        self.batches = 0
        self.records = 0
        self.lengths: tuple[int, ...] = ()  # of the shortest and longest batch, in records
        self.problem: Exception | None = None
        self._waiting: dict[str, list[Any]] = {}
        self._weights: list[int | None] = []
        self._columns: dict[str, Column] = {}
        self._history: dict[
            str, list[Run]
        ] = {}  # kept batches: their values, or in training on several ranks their means
        self._folded = 0
        self._fold_at = 1
        self._limit = 0
        self._width = -1  # how many metrics there are; -1 before the first batch and after a problem
        self._appends: list[tuple[str, torch.dtype | None, Callable[[Any], None]]] = []

    def add(self, metrics: Any, records: int | None = None) -> None:
        """Take in one batch's result. This runs once per batch: all that can wait is left to `_fold()`."""
        if type(metrics) is not dict or len(metrics) != self._width:
            metrics = self._checked(metrics)
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
                elif dtype is not None:  # a tensor before: tell this from the numbers that were taken from tensors
                    append(np.float64(value) if type(value) is float else _copied(value))
                else:
                    append(value if isinstance(value, _IMMUTABLE) else _copied(value))
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
                self._fold()
            except Exception as error:  # noqa: BLE001  other ranks can be told at a stop only
                self._refuse(error)

    def _checked(self, metrics: Any) -> Mapping[str, Any] | None:
        """Return the result as a dict with the names of the others; None if it, or one before, cannot be used."""
        if self.problem is not None:
            return None
        if isinstance(metrics, Tensor) and not self._validation:
            metrics = {"loss": metrics}
        if not isinstance(metrics, Mapping):
            allowed = "a dict from name to value" if self._validation else "a tensor, or a dict from name to value"
            self._refuse(TypeError(f"{self._returned(described(metrics))}. Return {allowed}."))
            return None
        if not self.batches:
            self._begin(metrics)
        elif len(metrics) != self._width:
            self._refuse(ValueError(self._other_names(metrics)))
            return None
        return metrics

    def _begin(self, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            dtype = _scalar_dtype(value)
            is_array = isinstance(value, (Tensor, np.ndarray))
            self._columns[name] = Column(self._rank, self._validation, dtype, is_array)
            self._waiting[name], self._history[name] = [], []
            self._appends.append((name, dtype, self._waiting[name].append))
        self._width = len(metrics)
        self._plan_fold(metrics.values())

    def _plan_fold(self, row: Iterable[Any]) -> None:
        rows = max(1, _ELEMENTS // max(1, sum(map(_size, row))))  # large tensors fold sooner, and fewer are kept
        self._fold_at = self.batches + min(_FOLD, rows)
        self._limit = min(self._kept or 0, rows)

    def _fold(self) -> None:
        """Add the waiting values to the running sums and to the kept batches."""
        if self.batches == self._folded:
            return
        self._plan_fold([values[-1] for values in self._waiting.values()])
        weights = None if None in self._weights or not self._weights else np.array(self._weights, dtype=np.float64)
        first = self.first_batch + self._folded
        for name, values in self._waiting.items():
            history = self._history[name]
            with np.errstate(invalid="ignore", over="ignore"):  # infinities of both signs add up to NaN
                history += self._added(self._columns[name], values, first, weights)
            values.clear()
            spare = sum(map(len, history)) - self._limit
            while self._kept is not None and history and len(history[0]) <= spare:
                spare -= len(history.pop(0))
        if known := [weight for weight in self._weights if weight is not None]:
            self.records += sum(known)
            self.lengths = (min(*self.lengths, *known, known[0]), max(*self.lengths, *known, known[0]))
        if self._kept is None:
            self._bring_to_host()
        self._weights.clear()
        self._folded = self.batches

    def _added(self, column: Column, values: list[Any], first: int, weights: Array | None) -> Iterator[Run]:
        """Add the values to the column, and return them as they are kept."""
        at = 0
        for run in _runs(values, column.dtype):
            rows = column.add(run, first + at, None if weights is None else weights[at : at + len(run)])
            at += len(run)
            if self._size > 1 and not self._validation:
                yield [None] * len(run) if rows is None else rows.mean(1)
            else:
                yield run

    def _bring_to_host(self) -> None:
        """Replace all tensors by arrays, in one transfer."""
        runs = [run for history in self._history.values() for run in history]
        values = iter(fetch([*(s for column in self._columns.values() for s in column.sums.values()), *runs]))
        for column in self._columns.values():
            host = [next(values) for _ in column.sums]
            column.sums = {None: functools.reduce(join_sums, host)} if host else {}
        for history in self._history.values():
            history[:] = [next(values) for _ in history]

    def finish(self) -> dict[str, Column]:
        """Bring everything to the host and return the metrics by name, with the mean of each kept batch if need be."""
        self._bring_up_to_date()
        self._bring_to_host()
        nothing = np.array([0.0, 0.0, -np.inf, -np.inf] if self._validation else [0.0])
        for column in self._columns.values():
            column.totals = functools.reduce(join_sums, column.sums.values(), nothing)
        if self._size > 1 and not self._validation:
            for column, history in zip(self._columns.values(), self._history.values(), strict=True):
                means = list(itertools.chain.from_iterable(history))[-self._limit :] if self._limit else []
                column.known = np.array([mean is not None for mean in means], dtype=bool)
                column.means = np.array([0.0 if mean is None else mean for mean in means], dtype=np.float64)
        return self._columns

    def batch_metrics(self) -> Sequence[dict[str, Any]]:
        """Return the kept batches, tensors as numpy; where each metric is one number per batch, as columns."""
        self._bring_up_to_date()
        flat = {name: _flat(history) for name, history in self._history.items()}
        columns = {name: values for name, values in flat.items() if values is not None}
        count = min([self._limit, self.batches, *map(len, columns.values())])
        if count and columns and len(columns) == len(flat):
            return BatchColumns({name: column[-count:] for name, column in columns.items()}, self.outputs)
        return self.outputs()

    def outputs(self) -> list[dict[str, Any]]:
        """Return the kept batches as dicts, tensors as numpy."""
        self._bring_up_to_date()
        lengths = [sum(map(len, history)) for history in self._history.values()]
        count = min([self.batches, *lengths] if self._kept is None else [self._limit, self.batches, *lengths])
        rows: list[dict[str, Any]] = [{} for _ in range(count)]
        for (name, history), length in zip(self._history.items(), lengths, strict=True):
            values = [item for run in history for item in _items(run)]
            for row, value in zip(rows, values[length - count :], strict=True):
                row[name] = value
        return rows

    def _bring_up_to_date(self) -> None:
        if self.problem is not None:
            raise self.problem
        self._fold()

    def _refuse(self, problem: Exception) -> None:
        if self._size == 1:
            raise problem
        self._width = -1
        self.problem = problem  # the other ranks wait at the stop; finish() raises it there

    def _other_names(self, metrics: Mapping[str, Any]) -> str:
        before, now = sorted(map(str, self._waiting)), sorted(map(str, metrics))
        return f"{self._returned(now)} but {before} before. Return the same names always."

    def _returned(self, what: Any) -> str:
        return f"{self._method}() returned {what} for batch {self.first_batch + self.batches} (rank {self._rank})"


def _runs(values: list[Any], dtype: torch.dtype | None) -> Iterator[Run]:
    """Join neighbours that can be added at once; plain numbers stand for tensors of `dtype`, if there is one."""
    kinds = set(map(type, values))
    if kinds <= _NUMBERS:
        yield values.copy() if dtype is None else np.array(values, dtype=_NUMPY[dtype])
        return
    if kinds == {Tensor} and not values[0].is_meta and len({value.dtype for value in values}) == 1:
        try:
            yield _stacked(values)
        except RuntimeError:  # of different shapes or devices, most likely
            pass
        else:
            return
    for kind, group in itertools.groupby(values, key=_kind):
        run = list(group)
        if kind is None:
            yield from ([value] for value in run)
        elif kind is _NUMBERS:
            yield run if dtype is None else np.array(run, dtype=_NUMPY[dtype])
        else:
            yield _stacked(run) if isinstance(run[0], Tensor) else run


def _kind(value: Any) -> Any:
    """Return what neighbours must have in common to be joined; None if the value stays alone."""
    if isinstance(value, Tensor):
        return None if value.is_nested or value.is_meta else (value.dtype, value.shape, value.device, value.layout)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype, value.shape
    return _NUMBERS if type(value) in _NUMBERS else None


def _stacked(tensors: list[Tensor]) -> Run:
    stacked = torch.stack(tensors)
    stacked = stacked if stacked.layout is torch.strided else stacked.to_dense()
    return numpy_dtype(stacked).numpy() if stacked.is_cpu else stacked


def _float_rows(run: Run) -> tuple[Any, bool]:
    """Return a float64 matrix with a row per batch, and whether its numbers were integers; TypeError for no numbers."""
    if isinstance(run, Tensor):
        if run.is_complex():
            raise TypeError
        host = run.cpu() if run.device.type == "mps" else run  # which has no float64
        return host.to(torch.float64).reshape(len(run), run[0].numel()), not run.dtype.is_floating_point
    if isinstance(run[0], Tensor):  # one without data
        raise TypeError
    array = run if isinstance(run, np.ndarray) and run.dtype.kind != "c" else numeric_array(run)
    return array.astype(np.float64).reshape(len(run), array[0].size), array.dtype.kind != "f"


def _scalar_dtype(value: Any) -> torch.dtype | None:
    """Return the type of a tensor whose number can be taken at once: a single one, on the CPU, that numpy can hold."""
    if type(value) is Tensor and value.is_cpu and value.ndim == 0 and value.layout is torch.strided:
        return value.dtype if value.dtype in _NUMPY else None
    return None


def _flat(history: list[Run]) -> Array | None:
    """Return the values of a metric that is one number per batch; None for any other."""
    arrays = [run for run in history if isinstance(run, np.ndarray) and run.ndim == 1 and run.dtype.kind in "fiu"]
    if not arrays or len(arrays) != len(history):
        return None
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _items(run: Any) -> list[Any]:
    if isinstance(run, np.ndarray) and run.dtype.kind != "c":
        return [run[i, ...] for i in range(len(run))]  # an array even where the value had no dimension
    return [value if type(value) in _NUMBERS else _reportable(value) for value in run]


def _reportable(value: Any) -> Any:
    """Return the value with tensors as numpy; None for what no report can hold: its average is None too."""
    if isinstance(value, Tensor):  # still one here, so it has no data, or none that numpy could have
        return None
    value = to_numpy(value)
    try:
        plain(value, "")
    except (TypeError, ValueError):
        return None
    return value


def _size(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel()
    if isinstance(value, (list, tuple)):
        return sum(map(_size, value))
    return value.size if isinstance(value, np.ndarray) else 1


def _copied(value: Any) -> Any:
    """Return a copy that later changes by the user do not reach."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else rebuild(value, _copied)


# Values as arrays.


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
