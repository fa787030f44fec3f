"""Samplers that repeat, shard, skip or shuffle another sampler. Each works alone, with a plain torch loader too.

Combine them in one order: shuffle records, repeat (training only), shard, batch, skip (training only). Shuffling after
repeating never ends, and skipping before repeating skips in every epoch.

A skip or a shard of a source that can jump (a sequence of records or batches, and these samplers around one) is
computed; any other source is read and discarded up to the position. Skipping and repeating do not change `len()`: it
remains the length of an epoch, which progress is measured in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from torch.utils.data import BatchSampler, Sampler, SequentialSampler

T = TypeVar("T")

__all__ = [
    "RepeatSampler",
    "RepeatBatchSampler",
    "DistributedSampler",
    "DistributedBatchSampler",
    "SkipSampler",
    "SkipBatchSampler",
    "ReproducibleShuffleSampler",
    "ReproducibleShuffleBatchSampler",
]


def walk(source: Any, start: int, stride: int) -> Iterator[Any]:
    """Yield items start, start + stride, ... of one pass over `source`, without reading those between if it can jump.

    A sampler that can jump has `_walk(start, stride)`; one whose passes are numbered also has `_epoch_walker()`, which
    returns a function of (epoch, start, stride), or None if it turns out that they are not.
    """
    if callable(own := getattr(source, "_walk", None)):
        items: Iterator[Any] = own(start, stride)
        return items
    if jumping := _jumping(source):
        return jumping[1](0, start, stride)
    return islice(iter(source), start, None, stride)


def _jumping(source: Any) -> tuple[int, Callable[[int, int, int], Iterator[Any]]] | None:
    """Return the length of a pass and a function that walks one, if `source` can jump. A subclass may do anything."""
    if callable(find := getattr(source, "_epoch_walker", None)) and (walk_epoch := find()):
        return len(source), walk_epoch
    if type(source) in (range, list, tuple):
        return len(source), lambda _, start, stride: iter(source[start::stride])
    if type(source) is SequentialSampler:
        records = range(len(source))
        return len(records), lambda _, start, stride: iter(records[start::stride])
    if type(source) is BatchSampler and type(source.sampler) in (range, SequentialSampler):
        inner: Any = source.sampler
        records, size = range(len(inner)), source.batch_size
        return len(source), lambda _, start, stride: (
            list(records[position * size : (position + 1) * size]) for position in range(start, len(source), stride)
        )
    return None


def _repeat(source: Any, start: int, stride: int) -> Iterator[Any]:
    """Yield items start, start + stride, ... of pass after pass over `source`."""
    if (jumping := _jumping(source)) is None:
        yield from islice(_passes(source), start, None, stride)
        return
    length, walk_epoch = jumping
    if not length:
        raise _nothing_to_repeat(source)
    while True:
        epoch, offset = divmod(start, length)
        yield from walk_epoch(epoch, offset, stride)
        start += -(-(length - offset) // stride) * stride  # the first item that lies in a later pass


def _passes(source: Iterable[T]) -> Iterator[T]:
    while True:
        empty = True
        for item in source:
            empty = False
            yield item
        if empty:
            raise _nothing_to_repeat(source)


def _nothing_to_repeat(source: Any) -> ValueError:
    return ValueError(
        f"{type(source).__name__} yields nothing, so repeating it would never yield anything. Is the dataset empty?"
    )


def _check_rank(num_workers: int, rank: int) -> None:
    if num_workers < 1:
        raise ValueError(f"num_workers={num_workers}, but a stream is shared among at least 1 worker.")
    if not 0 <= rank < num_workers:
        raise ValueError(f"rank={rank} is not one of the {num_workers} ranks 0 to {num_workers - 1}.")


def _share(length: int, num_workers: int, rank: int) -> int:
    return length // num_workers + (1 if length % num_workers > rank else 0)


class RepeatSampler(Sampler[Any]):
    """Yields the passes of `sampler` one after another, for ever.

    Args:
        sampler: Read anew for each pass, so a random sampler reshuffles.

    Example::

        list(itertools.islice(RepeatSampler(range(3)), 7))   # [0, 1, 2, 0, 1, 2, 0]
    """

    def __init__(self, sampler: Any) -> None:
        super().__init__()
        self._sampler = sampler

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        return self._walk(0, 1)

    def _walk(self, start: int, stride: int) -> Iterator[Any]:
        return _repeat(self._sampler, start, stride)


class RepeatBatchSampler(BatchSampler):
    """Yields the passes of `batch_sampler` one after another, for ever.

    Args:
        batch_sampler: Read anew for each pass.
    """

    def __init__(self, batch_sampler: Any) -> None:
        _copy_attributes(self, batch_sampler)
        self.batch_sampler = batch_sampler

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        return self._walk(0, 1)

    def _walk(self, start: int, stride: int) -> Iterator[Any]:
        return _repeat(self.batch_sampler, start, stride)


class DistributedSampler(Sampler[Any]):
    """Yields every `num_workers`-th record of `sampler`, starting with number `rank`.

    Args:
        sampler: The whole stream; it must be the same on every rank.
        num_workers: How many processes share it.
        rank: Which of them this is.

    Example::

        list(DistributedSampler(range(19), num_workers=4, rank=3))   # [3, 7, 11, 15]
    """

    def __init__(self, sampler: Any, num_workers: int, rank: int) -> None:
        _check_rank(num_workers, rank)
        super().__init__()
        self._sampler = sampler
        self._num_workers = num_workers
        self._rank = rank

    def __len__(self) -> int:
        return _share(len(self._sampler), self._num_workers, self._rank)

    def __iter__(self) -> Iterator[Any]:
        return self._walk(0, 1)

    def _walk(self, start: int, stride: int) -> Iterator[Any]:
        return walk(self._sampler, self._rank + start * self._num_workers, stride * self._num_workers)


class DistributedBatchSampler(BatchSampler):
    """Yields every `num_workers`-th batch of `batch_sampler`, starting with number `rank`.

    The batch size of the wrapped sampler is therefore the batch size of one rank.

    Args:
        batch_sampler: The whole stream; it must be the same on every rank.
        num_workers: How many processes share it.
        rank: Which of them this is.
    """

    def __init__(self, batch_sampler: Any, num_workers: int, rank: int) -> None:
        _check_rank(num_workers, rank)
        _copy_attributes(self, batch_sampler)
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.rank = rank

    def __len__(self) -> int:
        return _share(len(self.batch_sampler), self.num_workers, self.rank)

    def __iter__(self) -> Iterator[Any]:
        return self._walk(0, 1)

    def _walk(self, start: int, stride: int) -> Iterator[Any]:
        return walk(self.batch_sampler, self.rank + start * self.num_workers, stride * self.num_workers)


class SkipSampler(Sampler[Any]):
    """Drops the first `skip` records of every pass.

    Args:
        sampler: The stream. Repeat it first, or every epoch will be cut short.
        skip: How many to drop; a negative number drops none. `len()` does not change.
    """

    def __init__(self, sampler: Any, skip: int) -> None:
        super().__init__()
        self._sampler = sampler
        self._skip = skip

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        return self._walk(0, 1)

    def _walk(self, start: int, stride: int) -> Iterator[Any]:
        return walk(self._sampler, max(self._skip, 0) + start, stride)


class SkipBatchSampler(BatchSampler):
    """Drops the first `skip` batches of every pass; what resuming needs, as progress is counted in batches.

    Args:
        batch_sampler: The stream, which must have a length. Repeat it first, or every epoch will be cut short.
        skip: How many to drop; a negative number drops none. `len()` does not change.

    Example::

        SkipBatchSampler(RepeatBatchSampler(batches), skip=2)   # of 4: b2 b3 b0 b1 b2 b3 b0 ...
    """

    def __init__(self, batch_sampler: Any, skip: int) -> None:
        _copy_attributes(self, batch_sampler)
        self.batch_sampler = batch_sampler
        self.skip = skip
        self.length = len(batch_sampler)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return self._walk(0, 1)

    def _walk(self, start: int, stride: int) -> Iterator[Any]:
        return walk(self.batch_sampler, max(self.skip, 0) + start, stride)


class _Shuffle:
    """The passes of one seed: one after another, or, after `set_epoch`, each a function of (seed, epoch)."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._series = np.random.RandomState(seed)
        self._epoch: int | None = None

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __call__(self, items: list[Any]) -> list[Any]:
        series = self._series
        if self._epoch is not None:  # the first pass is the same either way
            series = np.random.RandomState([self._seed, self._epoch] if self._epoch else self._seed)
        series.shuffle(items)
        return items


class ReproducibleShuffleSampler(Sampler[Any]):
    """Shuffles the records of `sampler`, each pass differently, the whole series fixed by `seed`.

    Every `iter()` moves the series on, also one by a progress bar. Where passes have numbers, call `set_epoch`, as the
    trainer does: pass n is then always the same one.

    Args:
        sampler: Finite; it is read into a list at the start of a pass.
        seed: Equal on every rank.

    Example::

        list(ReproducibleShuffleSampler(range(5), seed=777))   # [0, 4, 1, 2, 3]
    """

    def __init__(self, sampler: Any, seed: int) -> None:
        super().__init__()
        self._sampler = sampler
        self._shuffle = _Shuffle(seed)

    def set_epoch(self, epoch: int) -> None:
        """Make the next passes those of `epoch`, from 0, whatever was read before."""
        self._shuffle.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._shuffle(list(self._sampler)))


class ReproducibleShuffleBatchSampler(BatchSampler):
    """Shuffles the order of whole batches; their contents stay. `ReproducibleShuffleSampler` mixes better.

    Args:
        batch_sampler: Finite; it is read into a list at the start of a pass.
        seed: Equal on every rank.
    """

    def __init__(self, batch_sampler: Any, seed: int) -> None:
        _copy_attributes(self, batch_sampler)
        self._batch_sampler = batch_sampler
        self._shuffle = _Shuffle(seed)

    def set_epoch(self, epoch: int) -> None:
        """Make the next passes those of `epoch`, from 0, whatever was read before."""
        self._shuffle.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._shuffle(list(self._batch_sampler)))


def _copy_attributes(wrapper: BatchSampler, wrapped: Any) -> None:
    """Copy the attributes of the wrapped sampler. `BatchSampler.__init__` would need a record sampler."""
    Sampler.__init__(wrapper)
    for name in ("sampler", "batch_size", "drop_last"):
        if hasattr(wrapped, name):
            setattr(wrapper, name, getattr(wrapped, name))
