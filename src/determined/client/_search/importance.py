"""How much of a metric's variance each hyperparameter explains. Loads numpy, so import it where it is needed.

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
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from determined.client._search.results import SearchResults

TREES = 64
DEPTH = 5
BINS = 16  # places where a number may be split
SMALLEST_LEAF = 3
MOST_ROWS = 1000  # of one tree: more change nothing but the time it takes
FEWEST_TRIALS = 8
SURE_TRIALS, TRIALS_EACH = 32, 8  # with fewer, also per hyperparameter, chance alone may earn a tenth
MOST_PLACES = 1_000_000  # in a table of bins: with many columns or categories, fewer trees are grown at once
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
    chance = np.random.default_rng(seed)
    drawn = np.array([chance.permutation(len(values)) for _ in range(TREES)])
    middle = len(values) * 2 // 3
    forest = _Forest(columns, values)
    for rows in np.array_split(drawn, forest.parts):
        forest.grow(rows[:, :middle][:, :MOST_ROWS], rows[:, middle:][:, :MOST_ROWS])
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


Numbers = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class _Forest:
    """What trees add to the mean for trials that they were not grown on, by column.

    Trees grow together, level by level: the nodes of a level are numbered through all trees, and those that come of
    node `n` are `2 n` and `2 n + 1`.

    Attributes:
        parts: How many parts all trees have to be grown in.
    """

    def __init__(self, columns: Sequence[Column], values: Sequence[float]) -> None:
        self._values = np.array(values)
        self._bins: Indices = np.array([column.bins for column in columns]).T  # a line for each trial
        self._is_ordered = np.array([column.is_ordered for column in columns])
        self._width = max(column.count for column in columns)
        self._added = np.zeros(self._bins.shape)
        self._means = np.zeros(len(values))
        self._seen = np.zeros(len(values))  # by how many trees a trial was judged
        self.parts = min(TREES, -(-TREES * 2 ** (DEPTH - 1) * len(columns) * self._width // MOST_PLACES))

    def grow(self, grown: Indices, judged: Indices) -> None:
        """Grow trees, each on the trials of a line of `grown`, and judge those of the same line of `judged`."""
        means = self._values[grown].mean(axis=1)
        np.add.at(self._means, judged, means[:, None])
        np.add.at(self._seen, judged, 1)
        own = _Trials(grown.ravel(), np.arange(len(grown)).repeat(grown.shape[1]))
        others = _Trials(judged.ravel(), np.arange(len(judged)).repeat(judged.shape[1]))
        for _ in range(DEPTH):
            gain, column, is_left = self._best_splits(own, len(means))
            own, others = (self._split(trials, gain > 0, column, is_left) for trials in (own, others))
            before, count = means.repeat(2), 2 * len(means)
            sums = np.bincount(own.nodes, self._values[own.rows], count)
            means = (sums + HOLD * before) / (np.bincount(own.nodes, minlength=count) + HOLD)
            np.add.at(self._added, (others.rows, column[others.nodes // 2]), (means - before)[others.nodes])

    def _best_splits(self, trials: _Trials, nodes: int) -> tuple[Numbers, Indices, npt.NDArray[np.bool_]]:
        """Return for each node how much its best split takes off, by which column, and which of its bins go left."""
        columns, width = len(self._is_ordered), self._width
        lines = trials.nodes[:, None] * columns + np.arange(columns)
        places, shape = (lines * width + self._bins[trials.rows]).ravel(), (nodes, columns, width)
        counts = np.bincount(places, minlength=nodes * columns * width).reshape(shape)
        sums = np.bincount(places, self._values[trials.rows].repeat(columns), nodes * columns * width).reshape(shape)
        # Numbers in their order; categories in the order of their means: then the best two sides are neighbours.
        keys = np.where(self._is_ordered[:, None], np.arange(width), sums / np.maximum(counts, 1))
        order = np.argsort(np.where(counts > 0, keys, np.inf), axis=2, kind="stable")
        left = np.take_along_axis(counts, order, 2).cumsum(axis=2)
        left_sum = np.take_along_axis(sums, order, 2).cumsum(axis=2)
        whole, total = left[:, :, -1:], left_sum[:, :, -1:]
        gain = left_sum**2 / np.maximum(left, 1) + (total - left_sum) ** 2 / np.maximum(whole - left, 1)
        is_small = np.minimum(left, whole - left) < SMALLEST_LEAF
        gain = np.where(is_small, 0.0, gain - total**2 / np.maximum(whole, 1)).reshape(nodes, -1)
        column, place = np.divmod(gain.argmax(axis=1), width)
        order = np.take_along_axis(order, column[:, None, None], 1)[:, 0]
        rank = order.argsort(axis=1)  # where each bin is in that order
        # Of numbers, those between the bins seen here belong to a side as well.
        ends = np.take_along_axis(order, np.minimum(place[:, None] + [0, 1], width - 1), 1).sum(axis=1) // 2
        is_left = np.where(self._is_ordered[column][:, None], np.arange(width) <= ends[:, None], rank <= place[:, None])
        return gain.max(axis=1), column, is_left

    def _split(
        self, trials: _Trials, is_split: npt.NDArray[np.bool_], column: Indices, is_left: npt.NDArray[np.bool_]
    ) -> _Trials:
        """Return the trials by the nodes that they come to; those of nodes that are not split are done."""
        goes_on = is_split[trials.nodes]
        rows, nodes = trials.rows[goes_on], trials.nodes[goes_on]
        goes_left = is_left[nodes, self._bins[rows, column[nodes]]]
        return _Trials(rows, 2 * nodes + ~goes_left)

    def credit(self) -> tuple[list[float], float]:
        """Return how much squared error each column takes off, and how much there is without any."""
        seen = self._seen > 0
        off = self._values[seen] - self._means[seen] / self._seen[seen]
        added = self._added[seen] / self._seen[seen][:, None]
        # off^2 - (off - sum(added))^2, divided among what was added
        credit = added * (2 * off - added.sum(axis=1))[:, None]
        return [float(each) for each in credit.sum(axis=0)], float((off**2).sum())


@dataclasses.dataclass(frozen=True)
class _Trials:
    """Trials of a level, tree by tree, and the nodes that they have come to."""

    rows: Indices
    nodes: Indices
