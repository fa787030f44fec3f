"""The order of an epoch: the record, or the user's own batch, at each position of any epoch.

Positions count *units*: records where we make the batches, whole batches where the user's batch sampler does.
`deal` divides positions among ranks.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from determined.pytorch import _rng, samplers
from determined.pytorch._rng import OwnStreams

logger = logging.getLogger("determined.pytorch")

WHOLE_LIMIT = 1 << 18
"""Up to this many records an order is drawn whole: 10 MB, 10 milliseconds, and exactly uniform."""

# Odd constants of the 64-bit finaliser known as splitmix64.
_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_1 = np.uint64(30)
_SHIFT_2 = np.uint64(27)
_HALF = np.uint64(32)

_Words = npt.NDArray[np.uint64]
Span = tuple[int, int]
EpochWalker = Callable[[int, int, int], Iterator[Any]]


class Order:
    """The unit at each position of each epoch. This base class has records in the dataset's own order."""

    unit = "records"
    """ "records" or "batches"."""
    is_steady = True
    """Every epoch has `expected_length()` units, so that epochs can be counted without reading them."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def expected_length(self) -> int:
        """Return the units of an epoch by the sampler's own `len()`; `TypeError` if it has none."""
        return len(self._sampler)

    def length(self, epoch: int) -> int:  # noqa: ARG002 - for those that differ
        """Return the units of this epoch."""
        return len(self._sampler)

    def read(self, epoch: int, spans: list[Span]) -> list[Any]:  # noqa: ARG002
        """Return the batch of indices of each span of positions."""
        return [list(range(*span)) for span in spans]


class Shuffled(Order):
    """Records in an order of their own for each epoch, a pure function of (seed, epoch)."""

    def __init__(self, sampler: EpochShuffle, seed: int) -> None:
        super().__init__(sampler)
        self._seed = seed
        self._epoch = -1

    def read(self, epoch: int, spans: list[Span]) -> list[Any]:
        if epoch != self._epoch:
            self._permutation = Permutation(len(self._sampler), self._seed, epoch)
            self._epoch = epoch
        return self._permutation.spans(spans)


class Sampled(Order):
    """What a user's own sampler (of records or of batches) yields; a pass is read whole at the start of its epoch.

    Passes run on random streams that are a function of (seed, epoch), so a sampler that draws from `random`, `numpy` or
    `torch` gives the same epoch whenever it is asked, and nothing is drawn from the streams of training.
    """

    def __init__(self, sampler: Any, seed: int, unit: str) -> None:
        super().__init__(sampler)
        self.unit = unit
        self._seed = seed
        self._epoch = -1
        self._items: list[Any] = []
        self._passes_read = 0
        self._generators = [
            (generator, generator.initial_seed())
            for part in _parts(sampler)
            if isinstance(generator := getattr(part, "generator", None), torch.Generator)
        ]
        self.is_steady = all(type(part) in _STEADY for part in _parts(sampler))
        self._remembers = not self.is_steady and not any(hasattr(part, "set_epoch") for part in _parts(sampler))

    def length(self, epoch: int) -> int:
        return len(self._sampler) if self.is_steady else len(self._pass(epoch))

    def read(self, epoch: int, spans: list[Span]) -> list[Any]:
        items = self._pass(epoch)
        if self.unit == "batches":
            return [items[start] for start, _ in spans]
        return [items[start:stop] for start, stop in spans]

    def _pass(self, epoch: int) -> list[Any]:
        if epoch != self._epoch:
            if self._remembers and self._passes_read < epoch:
                # It may have a random state of its own, which is right for this epoch only after the earlier passes.
                logger.info(
                    "%s has no set_epoch(), so its passes before epoch %d are read again.",
                    type(self._sampler).__name__,
                    epoch,
                )
                for earlier in range(self._passes_read, epoch):
                    self._read_pass(earlier)
            self._items = self._read_pass(epoch)
            self._epoch = epoch
        return self._items

    def _read_pass(self, epoch: int) -> list[Any]:
        states = [generator.get_state() for generator, _ in self._generators]
        try:
            for generator, seed in self._generators:
                generator.manual_seed(_rng.derive_seed("sampler", seed, epoch))
            with OwnStreams("sampler", self._seed, epoch):
                set_epoch(self._sampler, epoch)
                # Up to its length: a sampler that repeats without end has one, too.
                items = islice(self._sampler, len(self._sampler))
                # A sampler may reuse one list, since torch reads a batch before the next is made.
                return [item.copy() if type(item) is list else item for item in items]
        finally:
            for (generator, _), state in zip(self._generators, states, strict=True):
                generator.set_state(state)
            self._passes_read = max(self._passes_read, epoch + 1)


class Batching(NamedTuple):
    """An order, and how it is divided into batches."""

    order: Order
    batch_size: int
    drop_last: bool

    def count(self, length: int) -> int:
        """Return the number of batches in `length` units."""
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)


def batching(batch_sampler: Any, seed: int) -> Batching | None:
    """Return the order and batches of its epochs; None if it has no length, and can only be read forward."""
    try:
        len(batch_sampler)
    except TypeError:
        return None
    if type(batch_sampler) in (BatchSampler, EpochBatches):
        order = _records(batch_sampler.sampler, seed)
        return Batching(order, batch_sampler.batch_size, batch_sampler.drop_last)
    return Batching(Sampled(batch_sampler, seed, "batches"), 1, False)


def _records(sampler: Any, seed: int) -> Order:
    if type(sampler) is EpochShuffle:
        return Shuffled(sampler, seed)
    if type(sampler) is SequentialSampler:
        return Order(sampler)
    return Sampled(sampler, seed, "records")


class EpochShuffle(RandomSampler):
    """The sampler of `shuffle=True`: each pass is a new order, a pure function of (seed, number of the pass).

    Args:
        data_source: A dataset with a length, not empty.
        seed: Decides all passes.
        generator: Kept as an attribute only; nothing is drawn from it.
    """

    def __init__(self, data_source: Any, seed: int, generator: torch.Generator | None = None) -> None:
        super().__init__(data_source, generator=generator)
        self.seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass that of `epoch`."""
        self._epoch = epoch

    def next_epoch(self) -> int:
        """Return the number of the pass that begins now."""
        self._epoch += 1
        return self._epoch - 1

    def __iter__(self) -> Iterator[int]:
        return self.walk_epoch(self.next_epoch(), 0, 1)

    def _epoch_walker(self) -> EpochWalker:
        return self.walk_epoch

    def walk_epoch(self, epoch: int, start: int, stride: int) -> Iterator[int]:
        order = Permutation(len(self), self.seed, epoch)
        for block in range(start, len(self), BLOCK * stride):
            yield from order[block : block + BLOCK * stride : stride]


class EpochBatches(BatchSampler):
    """The batch sampler of `batch_size=`: torch's, able to start at any batch of any epoch."""

    def __iter__(self) -> Iterator[list[int]]:
        return self._walk(0, 1)

    def _walk(self, start: int, stride: int) -> Iterator[list[int]]:
        if (walk_epoch := self._epoch_walker()) is None:
            return islice(super().__iter__(), start, None, stride)
        return walk_epoch(self.sampler.next_epoch() if isinstance(self.sampler, EpochShuffle) else 0, start, stride)

    def _epoch_walker(self) -> EpochWalker | None:
        return self.walk_epoch if type(self.sampler) in (EpochShuffle, SequentialSampler) else None

    def walk_epoch(self, epoch: int, start: int, stride: int) -> Iterator[list[int]]:
        seed = self.sampler.seed if isinstance(self.sampler, EpochShuffle) else 0
        cut = Batching(_records(self.sampler, seed), self.batch_size, self.drop_last)
        for _, indices in read_batches(cut, epoch, start, stride):
            yield indices


BLOCK = 8192
"""Records whose order is computed at a time: enough for numpy to be fast, few enough to start at once."""


def read_batches(cut: Batching, epoch: int, start: int, stride: int) -> Iterator[tuple[int, Any]]:
    """Yield batches start, start + stride, ... of one epoch, each with its position."""
    length = cut.order.length(epoch)
    size = cut.batch_size
    numbers = range(start, cut.count(length), stride)
    per_block = max(1, BLOCK // size)
    for first in range(0, len(numbers), per_block):
        spans = [(number * size, min((number + 1) * size, length)) for number in numbers[first : first + per_block]]
        yield from zip((span[0] for span in spans), cut.order.read(epoch, spans), strict=True)


_STEADY = {
    range,
    list,
    tuple,
    SequentialSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    BatchSampler,
    DistributedSampler,
    EpochShuffle,
    EpochBatches,
    samplers.RepeatSampler,
    samplers.RepeatBatchSampler,
    samplers.DistributedSampler,
    samplers.DistributedBatchSampler,
    samplers.ReproducibleShuffleSampler,
    samplers.ReproducibleShuffleBatchSampler,
}
"""Samplers whose passes are as long as their `len()` and depend on nothing but the epoch."""


def _parts(sampler: Any) -> Iterator[Any]:
    seen: set[int] = set()
    waiting = [sampler]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        for name in ("batch_sampler", "_batch_sampler", "sampler", "_sampler"):
            if (wrapped := getattr(part, name, None)) is not None:
                waiting.append(wrapped)


def set_epoch(sampler: Any, epoch: int) -> None:
    """Call `set_epoch` of a sampler and of those it wraps, where they have one."""
    for part in _parts(sampler):
        if callable(setter := getattr(part, "set_epoch", None)):
            setter(epoch)


def is_sharded(sampler: Any) -> bool:
    """Return whether this sampler, or one it wraps, already divides its items among several ranks."""
    return any(
        (isinstance(part, DistributedSampler) and part.num_replicas > 1)
        or (isinstance(part, samplers.DistributedSampler) and part._num_workers > 1)
        or (isinstance(part, samplers.DistributedBatchSampler) and part.num_workers > 1)
        for part in _parts(sampler)
    )


# The shuffled order of an epoch, computed rather than stored. docs/decisions/shuffle-permutation.md explains why there
# are two algorithms. Checkpoints rely on these numbers: changing them reshuffles the epochs of unfinished runs.


class Permutation:
    """A permutation of `range(length)` that is a pure function of (length, seed, epoch).

    Example::

        order = Permutation(100_000_000, seed=1, epoch=0)
        order[50_000_000:50_000_032]   # 32 record indices, at once
    """

    def __init__(self, length: int, seed: int, epoch: int) -> None:
        self._length = length
        self._whole: list[int] | None = None
        words = _rng.digest("shuffle", seed, epoch, size=64)
        if length <= WHOLE_LIMIT:
            # RandomState, because numpy promises never to change what it draws.
            self._whole = np.random.RandomState(np.frombuffer(words, "<u4")).permutation(length).tolist()
        else:
            self._network = _Feistel(length, np.frombuffer(words, "<u8").astype(np.uint64))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, positions: slice) -> list[int]:
        """Return the records at a slice of positions."""
        if self._whole is not None:
            return self._whole[positions]
        return self._walk(np.arange(*positions.indices(self._length), dtype=np.uint64))

    def spans(self, spans: list[tuple[int, int]]) -> list[list[int]]:
        """Return the records of many spans (start, stop) of positions; cheaper than one by one."""
        if self._whole is not None:
            return [self._whole[start:stop] for start, stop in spans]
        starts, stops = np.array(spans, dtype=np.uint64).reshape(-1, 2).T
        ends = np.cumsum(stops - starts)
        shifts = np.repeat(stops - ends, (stops - starts).astype(np.int64))
        flat = self._walk(np.arange(len(shifts), dtype=np.uint64) + shifts)
        return [flat[end + start - stop : end] for end, (start, stop) in zip(ends.tolist(), spans, strict=True)]

    def _walk(self, positions: _Words) -> list[int]:
        """Permute each number until it is below the length: the network permutes a few more numbers than there are."""
        found = self._network(positions)
        while (outside := np.flatnonzero(found >= self._length)).size:
            found[outside] = self._network(found[outside])
        records: list[int] = found.tolist()
        return records


class _Feistel:
    """A keyed permutation of `range(rows * columns)`: adds a hash of the row to the column, then the reverse.

    Rows and columns are about equal, and their product exceeds `length` by less than a column, so that nearly every
    position gives a record at once. (Halves of a binary number would give none almost every second time.)
    """

    def __init__(self, length: int, keys: _Words) -> None:
        columns = math.isqrt(length - 1) + 1
        self._columns = np.uint64(columns)
        self._rows = np.uint64(-(-length // columns))
        self._keys = keys

    def __call__(self, numbers: _Words) -> _Words:
        row: _Words = numbers // self._columns
        column: _Words = numbers % self._columns
        for turn, key in enumerate(self._keys):
            if turn % 2:
                _move(row, _hash(column, key), self._rows)
            else:
                _move(column, _hash(row, key), self._columns)
        row *= self._columns
        row += column
        return row


def _move(place: _Words, by: _Words, size: np.uint64) -> None:
    """Add to each place, modulo `size`, the fraction of `size` that the high 32 bits of `by` are."""
    by >>= _HALF
    by *= size
    by >>= _HALF
    place += by
    place -= size * (place >= size)


def _hash(half: _Words, key: np.uint64) -> _Words:
    mixed: _Words = half + key  # overflow of arrays is silent, as intended
    mixed ^= mixed >> _SHIFT_1
    mixed *= _MULTIPLY_1
    mixed ^= mixed >> _SHIFT_2
    mixed *= _MULTIPLY_2
    return mixed  # the caller uses the high half, which is mixed best
