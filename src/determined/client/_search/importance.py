"""How much of a metric's variance each hyperparameter explains, without any package.

Small regression trees are grown, each on a random part of the trials. A trial's value is predicted by the trees that
have not seen it: the mean, plus what each split on its way adds, which is credited to the hyperparameter of the split.
What these predictions take off the squared error is the variance explained; it is divided among the hyperparameters by
their parts of the predictions. So the shares add up to what can be predicted at all; the rest is chance, or more than
so few trials can show. A hyperparameter that means nothing earns nothing, because splits by it do not help with trials
that were not seen. Interactions count for those that take part in them.
"""

from __future__ import annotations

import bisect
import dataclasses
import random
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from determined.client._search.results import SearchResults

TREES = 64
DEPTH = 5
BINS = 16  # places where a number may be split
SMALLEST_LEAF = 3
MOST_ROWS = 1000  # of one tree: more change nothing but the time it takes
FEWEST_TRIALS = 8
SURE_TRIALS, TRIALS_EACH = 32, 8  # with fewer, also per hyperparameter, chance alone may earn a tenth
HOLD = 1.0  # trials that a leaf's mean is held back by: a mean of three is less sure than one of thirty


@dataclasses.dataclass(frozen=True)
class Importance:
    """How much of the variance of a metric each hyperparameter explains.

    Args:
        metric: The metric, with its group: `validation.loss`.
        trials: How many trials had a value.
        shares: Name to share from 0 to 1, the greatest first. Together they are at most 1.
        is_uncertain: There are too few trials to rely on the shares.

    Example::

        for name, share in importance.shares.items():
            print(f"{name}: {share:.0%}")
    """

    metric: str
    trials: int
    shares: dict[str, float]
    is_uncertain: bool

    @property
    def unexplained(self) -> float:
        """The share that no hyperparameter explains."""
        return max(0.0, 1.0 - sum(self.shares.values()))


def importance(found: SearchResults) -> Importance:
    """Estimate the importance of the hyperparameters of a search; trials without a finite value are left out."""
    measured = found.measured
    names = [each.name for each in found.hyperparameters]
    columns = []
    for hyperparameter in found.hyperparameters:
        known = [row.hparams.get(hyperparameter.name, ...) for row in measured]
        numbers = [None if value is ... else hyperparameter.number(value) for value in known]
        columns.append(Column.of(numbers, is_ordered=not hyperparameter.categories))
    shares = estimate(columns, [found.rank(row.value) for row in measured if row.value is not None])
    ordered = dict(sorted(zip(names, shares, strict=True), key=lambda pair: -pair[1]))
    is_uncertain = len(measured) < max(SURE_TRIALS, TRIALS_EACH * len(names))
    return Importance(found.metric, len(measured), ordered, is_uncertain)


@dataclasses.dataclass(frozen=True)
class Column:
    """The values of one hyperparameter, as the number of a bin each; where there is none, that is a bin as well."""

    bins: Sequence[int]
    count: int
    is_ordered: bool

    @classmethod
    def of(cls, values: Sequence[float | None], *, is_ordered: bool) -> Column:
        """Sort numbers into bins that hold about equally many; a category is a bin."""
        seen = sorted(value for value in values if value is not None)
        if is_ordered and len(set(seen)) > BINS:
            edges = sorted({seen[len(seen) * i // BINS] for i in range(1, BINS)})
        else:
            edges = sorted(set(seen))[1:]
        bins = [0 if value is None else 1 + bisect.bisect_right(edges, value) for value in values]
        return cls(bins, len(edges) + 2, is_ordered)


def estimate(columns: Sequence[Column], target: Sequence[float], *, seed: int = 0) -> list[float]:
    """Return the share of the target's variance that each column explains, together at most 1. Pure.

    Example::

        x = [i / 50 for i in range(50)]
        estimate([Column.of(x, is_ordered=True)], [value * 2 for value in x])   # [0.98]
    """
    values = fenced(target)
    if len(values) < FEWEST_TRIALS or not columns or max(values) - min(values) <= 1e-12 * abs(max(values)):
        return [0.0] * len(columns)
    forest = _Forest(columns, values)
    chance = random.Random(seed)
    rows = list(range(len(values)))
    for _ in range(TREES):
        if len(rows) >= 3 * MOST_ROWS:  # the same as below, without shuffling what is not used
            drawn = chance.sample(rows, 2 * MOST_ROWS)
            forest.add_tree(drawn[:MOST_ROWS], drawn[MOST_ROWS:])
            continue
        chance.shuffle(rows)
        middle = len(rows) * 2 // 3
        forest.add_tree(rows[:middle][:MOST_ROWS], rows[middle:][:MOST_ROWS])
    credit, error = forest.credit()
    earned = [max(each, 0.0) for each in credit]
    explained = min(max(sum(credit), 0.0), error, sum(earned))
    return [each * explained / (sum(earned) * error) if explained else 0.0 for each in earned]


def fenced(target: Sequence[float]) -> list[float]:
    """Return the values, less being better, with those far above the others moved to where most of them end.

    One diverged trial would otherwise be all the variance there is.
    """
    deciles = statistics.quantiles(target, n=10) if len(target) >= FEWEST_TRIALS else []
    if not deciles or deciles[-1] <= deciles[0]:
        return list(target)
    edge = 2 * deciles[-1] - deciles[0]
    return [min(value, edge) for value in target]


class _Forest:
    """Trees, and what they add to the mean for trials that they were not grown on, by column."""

    def __init__(self, columns: Sequence[Column], values: Sequence[float]) -> None:
        self._columns, self._values = columns, values
        self._parts = [[0.0] * len(values) for _ in columns]
        self._means = [0.0] * len(values)
        self._seen = [0] * len(values)  # by how many trees a trial was judged

    def add_tree(self, grown: Sequence[int], judged: Sequence[int]) -> None:
        """Grow a tree on some trials, and judge others by it."""
        mean = sum(self._values[i] for i in grown) / len(grown)
        for i in judged:
            self._means[i] += mean
            self._seen[i] += 1
        self._grow(grown, judged, mean, DEPTH)

    def _grow(self, grown: Sequence[int], judged: Sequence[int], mean: float, depth: int) -> None:
        """Split the trials in two where that explains most, note what that adds for others, and go on."""
        if depth == 0 or len(grown) < 2 * SMALLEST_LEAF or not judged:
            return
        ways = (_split(number, column, self._values, grown) for number, column in enumerate(self._columns))
        best = max((way for way in ways if way is not None), key=lambda way: way.gain, default=None)
        if best is None:
            return
        bins, parts = self._columns[best.column].bins, self._parts[best.column]
        for is_left in (True, False):
            side = [i for i in grown if (bins[i] in best.left) is is_left]
            others = [i for i in judged if (bins[i] in best.left) is is_left]
            own = (sum(self._values[i] for i in side) + HOLD * mean) / (len(side) + HOLD)
            for i in others:
                parts[i] += own - mean
            self._grow(side, others, own, depth - 1)

    def credit(self) -> tuple[list[float], float]:
        """Return how much squared error each column takes off, and how much there is without any."""
        credit, error = [0.0] * len(self._columns), 0.0
        for i, seen in enumerate(self._seen):
            if seen:
                off = self._values[i] - self._means[i] / seen
                parts = [part[i] / seen for part in self._parts]
                error += off**2
                # off^2 - (off - sum(parts))^2, divided among the parts
                for column, part in enumerate(parts):
                    credit[column] += part * (2 * off - sum(parts))
        return credit, error


@dataclasses.dataclass(frozen=True)
class Split:
    """A way to part trials in two: those whose bin is in `left`, and the others."""

    gain: float
    column: int
    left: frozenset[int]


def _split(number: int, column: Column, values: Sequence[float], rows: Sequence[int]) -> Split | None:
    """Return the best way to split by one column, if there is any."""
    counts, sums = [0] * column.count, [0.0] * column.count
    for i in rows:
        counts[column.bins[i]] += 1
        sums[column.bins[i]] += values[i]
    order = [bin_ for bin_ in range(column.count) if counts[bin_]]
    if not column.is_ordered:  # categories in the order of their means: then the best two sides are neighbours
        order.sort(key=lambda bin_: sums[bin_] / counts[bin_])
    total, whole = sum(sums), len(rows)
    count, left_sum, best, place = 0, 0.0, 0.0, 0
    for i, bin_ in enumerate(order[:-1]):
        count += counts[bin_]
        left_sum += sums[bin_]
        if min(count, whole - count) < SMALLEST_LEAF:
            continue
        gain = left_sum**2 / count + (total - left_sum) ** 2 / (whole - count) - total**2 / whole
        if gain > best:
            best, place = gain, i + 1
    if not place:
        return None
    # Of numbers, those between the bins seen here belong to a side as well.
    middle = (order[place - 1] + order[place]) // 2 + 1
    return Split(best, number, frozenset(range(middle) if column.is_ordered else order[:place]))
