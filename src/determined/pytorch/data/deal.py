"""Divides the positions of an epoch among ranks, step by step. Pure arithmetic: no data, no state.

Batches go to the ranks in turn, until they run out in the middle of a round. In that last round every rank must still
train, or the others would wait for it, and no batch of the next epoch may be used, or epochs and passes over the data
would drift apart:

- Batches that we make of records become smaller, evenly, so that each rank has one; if they would be less than half
  as large as asked for, the last two rounds share their records.
- Batches that must stay whole (a user's own, or `drop_last`), and rounds with fewer records than ranks, are given to
  several ranks: a rank without a batch of its own trains on another rank's batch of the same step (a stand-in). The
  average gradient is then one of real batches only, and no batch is used in two steps.

Each rule depends only on how much of the epoch is left. So a run can resume at any position, with any number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from determined.pytorch.data.order import BLOCK, Span

Step = tuple[int, int, int, bool, bool, bool]
"""A batch of one rank: epoch, position before and after it on all ranks, starts epoch, ends epoch, is a stand-in."""


class Part(NamedTuple):
    """What one rank trains on in one step: positions relative to the start of the step."""

    start: int
    stop: int
    is_stand_in: bool
    """This rank has no batch of its own, and sees the batch of another rank."""


class Deal(NamedTuple):
    """The rules for one loader and one number of ranks.

    Args:
        batch: Units in one batch of one rank.
        ranks: How many ranks share an epoch.
        drop_last: Incomplete batches are left out.
        may_cut: A batch may be cut smaller; records may, a user's own batches may not.
    """

    batch: int
    ranks: int
    drop_last: bool = False
    may_cut: bool = True

    def usable(self, left: int) -> int:
        """Return how many of `left` units will be trained on."""
        return left - left % self.batch if self.drop_last else left

    def steps(self, left: int) -> int:
        """Return how many steps `left` units make."""
        return -(-self.usable(left) // (self.batch * self.ranks))

    def taken(self, left: int) -> int:
        """Return how many units the next step takes, over all ranks."""
        usable, full = self.usable(left), self.batch * self.ranks
        if usable <= full:
            return usable
        tail = usable - full
        if self._cuts() and self._is_ragged(tail) and 2 * tail < full and usable // 2 >= self.ranks:
            # What is left must be ragged too, so that it is divided evenly without knowing of this step.
            return usable - min(usable // 2, self.batch * (self.ranks - 1))
        return full

    def taken_by(self, steps: int, left: int) -> int:
        """Return how many units the next `steps` steps take, at the same cost for any number of steps."""
        full = self.batch * self.ranks
        even = min(steps, max(self.steps(left) - 2, 0))  # only the last two steps may be uneven
        taken = even * full
        for _ in range(steps - even):
            taken += self.taken(left - taken)
        return taken

    def part(self, rank: int, left: int) -> Part:
        """Return what `rank` trains on in the next step."""
        taken = self.taken(left)
        is_last = taken == self.usable(left)
        if self._cuts() and (self._is_ragged(taken) if is_last else taken < self.batch * self.ranks):
            parts = min(self.ranks, taken)
            number = rank % parts
            size, larger = divmod(taken, parts)
            start = number * size + min(number, larger)
            return Part(start, start + size + (number < larger), rank >= parts)
        parts = min(self.ranks, -(-taken // self.batch))
        start = rank % parts * self.batch
        return Part(start, min(start + self.batch, taken), rank >= parts)

    def blocks(self, rank: int, epoch: int, position: int, length: int) -> Iterator[tuple[list[Span], list[Step]]]:
        """Yield the rest of an epoch for one rank, many steps at a time, because work per step is work per batch."""
        full, first = self.batch * self.ranks, rank * self.batch
        even = max(self.steps(length - position) - 2, 0)  # only the last two rounds may be uneven
        rounds = range(position, position + even * full, full)
        per_block = max(1, BLOCK // self.batch)
        for begin in range(0, even, per_block):
            block = rounds[begin : begin + per_block]
            yield (
                [(start + first, start + first + self.batch) for start in block],
                [(epoch, start, start + full, start == 0, False, False) for start in block],
            )
        position += even * full
        while self.usable(length - position) > 0:
            part = self.part(rank, length - position)
            after = position + self.taken(length - position)
            is_last = self.usable(length - after) == 0
            yield (
                [(position + part.start, position + part.stop)],
                [(epoch, position, after, position == 0, is_last, part.is_stand_in)],
            )
            position = after

    def _cuts(self) -> bool:
        return self.may_cut and not self.drop_last

    def _is_ragged(self, units: int) -> bool:
        """Return whether there are fewer batches than ranks."""
        return 0 < -(-units // self.batch) < self.ranks
