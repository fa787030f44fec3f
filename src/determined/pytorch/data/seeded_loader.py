"""A torch loader that draws nothing from the process's random streams, seeds those of its workers per batch, and names
the record that failed. The caller decides which batches it reads.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate, get_worker_info
from torch.utils.data._utils import collate as torch_collate

from determined.pytorch import _rng

Place = tuple[int, int, Any]
"""One batch to read: its epoch and position, which decide its random streams, and the indices in it."""

Passes = Callable[[int], Iterator[Place]]
"""The batches of pass number n."""

OPTIONS = (
    "dataset", "num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
    "prefetch_factor", "persistent_workers",
)  # fmt: skip
"""Arguments of torch's loader that are also its attributes."""

_WHOLE = {int, np.int64}  # other indices, such as True, select differently


class SeededLoader(torch.utils.data.DataLoader[Any]):
    """What `DataLoader.get_data_loader` returns: a torch loader that shows the user's dataset, sampler and functions.

    Args:
        passes: The batches to read. The first `iter()` is pass 0, the next pass 1, and so on.
        seed: Random streams in workers are a function of (purpose, seed, epoch, position).
        purpose: Keeps the random streams of training and validation apart.
        options: Arguments for torch's loader, `dataset` and `batch_sampler` among them.
        numbered: Whether passes count up. Otherwise every pass is pass 0, and all are the same.
        seeds_here: Whether batches that are read in this process have random streams of their own too; the caller then
            restores those of the process.
    """

    def __init__(
        self,
        passes: Passes,
        *,
        seed: int,
        purpose: str,
        options: dict[str, Any],
        numbered: bool = True,
        seeds_here: bool = False,
    ) -> None:
        super().__init__(**options)
        self._passes = passes
        self._seed = seed
        self._purpose = purpose
        self._options = options
        self._numbered = numbered
        self.passes_begun = 0
        self.seeds_here = seeds_here
        self._index = _PassIndex(passes)
        self._reading: torch.utils.data.DataLoader[Any] | None = None

    def __iter__(self) -> Any:
        self._index.number = self.passes_begun if self._numbered else 0
        self.passes_begun += 1
        if not self.num_workers and not self.pin_memory and self.generator is None:
            # torch would only add a profiler's mark, which costs as much as gathering a small batch.
            return map(self._reader().read, self._index)
        # Keep the loader if its workers are persistent.
        if self._reading is None or not self.persistent_workers:
            self._reading = self._make()
        return iter(self._reading)

    def close(self) -> None:
        """Release persistent workers."""
        self._reading = None

    def _make(self) -> torch.utils.data.DataLoader[Any]:
        generator = self.generator
        if generator is None:  # else torch draws the seeds of workers from the global stream
            generator = torch.Generator()
            generator.manual_seed(_rng.derive_seed("workers", self._purpose, self._seed, self._index.number))
        options = {
            **self._options,
            "dataset": self._reader(),
            "batch_sampler": self._index,
            "collate_fn": _as_is,
            "worker_init_fn": functools.partial(_start_worker, self.worker_init_fn),
            "generator": generator,
        }
        return torch.utils.data.DataLoader(**options)

    def _reader(self) -> _BatchReader:
        return _BatchReader(self.dataset, self.collate_fn, self._purpose, self._seed, self.seeds_here)


class _PassIndex:
    """Given to torch as its batch sampler."""

    def __init__(self, passes: Passes) -> None:
        self._passes = passes
        self.number = 0

    def __iter__(self) -> Iterator[Place]:
        return self._passes(self.number)


def _start_worker(worker_init_fn: Callable[[int], None] | None, worker_id: int) -> None:
    """Run first in a worker: show the user's dataset in `get_worker_info()` and call their `worker_init_fn`."""
    info = get_worker_info()
    assert info is not None, "runs in a worker"
    reader: Any = info.dataset
    reader.seeds_streams = True
    object.__setattr__(info, "dataset", reader.dataset)  # it refuses ordinary assignment
    if worker_init_fn is not None:
        worker_init_fn(worker_id)


class _BatchReader(Dataset[Any]):
    """Makes a batch of a `Place`: in a worker, or if `seeds_streams`, on random streams of the batch's own."""

    def __init__(
        self, dataset: Any, collate: Callable[[list[Any]], Any], purpose: str, seed: int, seeds_streams: bool
    ) -> None:
        self.dataset = dataset
        self.seeds_streams = seeds_streams
        self._reads_batches = bool(getattr(dataset, "__getitems__", None))
        self._gather = Gather(collate)
        self._collate = collate
        self._purpose = purpose
        self._seed = seed

    def read(self, place: Place) -> Any:
        """Make a batch in this process; with torch's mark if a profiler is on."""
        if not torch._C._autograd._profiler_enabled():
            return self.__getitems__(place)
        with torch.profiler.record_function("enumerate(DataLoader)#SeededLoader.__next__"):
            return self.__getitems__(place)

    def __getitems__(self, place: Place) -> Any:  # torch passes the whole batch here
        epoch, position, indices = place
        if self.seeds_streams:
            _rng.seed_streams("batch", self._purpose, self._seed, epoch, position)
        dataset = self.dataset
        if (batch := self._gather(dataset, indices)) is not None:
            return batch
        remaining: Iterator[Any] | None = None  # records not read yet
        try:
            if self._reads_batches:
                records = dataset.__getitems__(indices)
            else:
                remaining = iter(indices)
                records = [dataset[index] for index in remaining]
                remaining = None
            return self._collate(records)
        except StopIteration as error:  # torch would take it for the end of the epoch
            raise RuntimeError(f"StopIteration came out of {self._culprit(place, remaining)}.") from error
        except Exception as error:
            _add_note(error, f"This came out of {self._culprit(place, remaining)}.")
            raise

    def _culprit(self, place: Place, remaining: Iterator[Any] | None) -> str:
        """Return which record failed or, if that is unknown, which batch."""
        epoch, position, indices = place
        name, records = type(self.dataset).__name__, repr(indices)
        if len(records) > 200:
            records = records[:200] + " ..."
        batch = f"the batch of records {records} of {name} (epoch {epoch}, position {position})"
        if remaining is None:
            return batch
        number = len(indices) - operator.length_hint(remaining, len(indices)) - 1
        if not 0 <= number < len(indices):
            return batch
        try:
            size = f", whose length is {len(self.dataset)}"
        except TypeError:
            size = ""
        return f"{name}[{indices[number]!r}]{size}, in {batch}"


def _as_is(batch: Any) -> Any:
    return batch


def _add_note(error: Exception, note: str) -> None:
    """Add a note without changing the error's type, which the user's code may rely on."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif error.args and isinstance(error.args[0], str):  # Python 3.10 has no notes
        error.args = (f"{error.args[0]}\n{note}", *error.args[1:])


class Gather:
    """Reads whole batches of a `TensorDataset`, or of nested `Subset`s of one, with one copy per tensor.

    The batch is what torch's default collation makes of the single records. Where value, type, layout or error
    message might differ, the result is None, and the records are read one by one.

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
