"""The shuffled order of one epoch, computed rather than stored: the record at any position.

docs/decisions/shuffle-permutation.md explains why there are two algorithms. Checkpoints rely on the numbers that this
file yields: changing them reshuffles the epochs of unfinished runs.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from determined.pytorch import _rng

WHOLE_LIMIT = 1 << 18
"""Up to this many records an order is drawn whole: 10 MB, 10 milliseconds, and exactly uniform."""

# Odd constants of the 64-bit finaliser known as splitmix64.
_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_1 = np.uint64(30)
_SHIFT_2 = np.uint64(27)
_HALF = np.uint64(32)

_Words = npt.NDArray[np.uint64]


class Permutation:
    """A permutation of `range(length)` that is a pure function of (length, seed, epoch).

    Args:
        length: How many records an epoch has.
        seed: The trial's seed.
        epoch: The epoch; each has its own order.

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
