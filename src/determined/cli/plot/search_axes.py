"""What the pictures of a search share: axes of hyperparameters and of the metric, colours of values, headings."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from determined._wording import instead, visible
from determined.cli.plot.scale import AIR, Axis, Categories
from determined.cli.plot.shapes import LEVELS, RAMP, SOFT, Shape, Words, box, clipped, level

if TYPE_CHECKING:
    from determined import client
    from determined.client._search.results import Hyperparameter, Result, SearchResults

LONGEST_NAME = 46  # letters of an experiment's name, so that its id fits beside it
FENCED_FROM = 8  # trials: with fewer, none is far from the others


@dataclasses.dataclass(frozen=True)
class Search:
    """A search as it is drawn: what it found, the hyperparameters that are looked at, and the scale of the metric."""

    experiment_id: int
    name: str
    found: SearchResults
    hyperparameters: Sequence[Hyperparameter]
    metric_axis: Axis
    is_log: bool

    @property
    def metric(self) -> str:
        """The metric in words: `validation loss`."""
        return visible(self.found.metric.replace(".", " ", 1))

    @property
    def title(self) -> str:
        """What a picture of it is called."""
        name = visible(self.name)
        short_name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
        return f"{short_name} (experiment {self.experiment_id})"

    def measured(self) -> list[tuple[Result, float]]:
        """Return the trials that have a value, the best first, and their values."""
        rows = [(result, result.value) for result in self.found.results if result.value is not None]
        return [(result, value) for result, value in rows if self.metric_axis.holds(value)]

    @functools.cached_property
    def _ranks(self) -> list[float]:
        return sorted(self.found.rank(value) for _, value in self.measured())

    def goodness(self, value: float) -> float:
        """Return how good a value is among the others: 1 is the best, 0.5 better than half of them, 0 the worst.

        Colours follow it: where most values are close to each other and a few far away, they still tell them apart.
        """
        rank = self.found.rank(value)
        better, others = bisect.bisect_left(self._ranks, rank), len(self._ranks) - 1
        return 1 - min(better / others, 1.0) if others else 1.0

    def height(self, value: float) -> float:
        """Return the value, or the end of the axis that it lies beyond."""
        return min(max(value, self.metric_axis.low), self.metric_axis.high)

    def note(self) -> str:
        """Say of how many trials the picture is, and what is not as it seems."""
        rows = self.measured()
        missing = len(self.found.results) - len(rows)
        beyond = sum(not self.metric_axis.low <= value <= self.metric_axis.high for _, value in rows)
        said = [f"{self.metric} of {len(rows):,} trial{'s' * (len(rows) != 1)}, the best of each"]
        said += [f"{missing} without a value"] if missing else []
        said += [f"{beyond} far worse, drawn at the edge"] if beyond else []
        return "; ".join(said)

    def describe(self, result: Result) -> str:
        """Return a trial in one line, for the mouse."""
        state = ", stopped early" if result.is_stopped else "" if result.state == "COMPLETED" else f", {result.state}"
        words = [
            f"{h.name} {text_of(result.hparams[h.name])}" for h in self.hyperparameters if h.name in result.hparams
        ]
        value = "" if result.value is None else short(result.value)
        return visible(f"trial {result.trial_id}: {value}{state}\n".replace("\n", "   ") + ", ".join(words))


def search_of(
    experiment: client.Experiment, found: SearchResults, picked: Sequence[str], *, most: int, log: bool
) -> Search:
    """Choose hyperparameters and the axis of the metric; refuse what cannot be drawn, in a sentence."""
    values = [result.value for result in found.results if result.value is not None]
    if not values:
        raise click.ClickException(
            f"No trial of experiment {experiment.id} has a finite value of {found.metric}, so there is nothing to draw."
        )
    known = {hyperparameter.name: hyperparameter for hyperparameter in found.hyperparameters}
    for name in picked:
        if name not in known:
            constant = any(name in result.hparams for result in found.results)
            why = "is the same in all trials" if constant else "is no hyperparameter"
            raise click.ClickException(f"{name!r} {why} of experiment {experiment.id}.{instead(name, known)}")
    chosen = [known[name] for name in dict.fromkeys(picked)] if picked else _chosen(found, most)
    shown = [value for value in values if not log or value > 0]
    if not shown:
        raise click.ClickException(f"No value of {found.metric} is above 0, so --log cannot show it. Leave --log out.")
    return Search(experiment.id, experiment.name, found, chosen, _metric_axis(found, shown, log=log), log)


def _chosen(found: SearchResults, most: int) -> list[Hyperparameter]:
    """Return the hyperparameters to draw, by name; if they are too many, those that matter most."""
    from determined.client._search.importance import importance

    if len(found.hyperparameters) <= most:
        return found.hyperparameters
    matter = list(importance(found).shares)[:most]
    return [each for each in found.hyperparameters if each.name in matter]


def _metric_axis(found: SearchResults, values: Sequence[float], *, log: bool) -> Axis:
    """Return an axis around the values; a few that are far worse than all others do not stretch it."""
    ranks = sorted(map(found.rank, values))
    if len(ranks) >= FENCED_FROM and not log:
        deciles = statistics.quantiles(ranks, n=10)
        edge = 2 * deciles[-1] - deciles[0]
        usual = [rank for rank in ranks if rank <= edge]
        ranks = usual if edge > deciles[0] and ranks[-1] > edge + (edge - deciles[0]) else ranks
    return Axis.around(map(found.rank, ranks), is_log=log, air=AIR)


def axis_of(hyperparameter: Hyperparameter, results: Sequence[Result], *, air: float = AIR) -> Axis | Categories:
    """Return the axis of a hyperparameter over the values it has in these trials."""
    if hyperparameter.categories:
        return Categories(tuple(visible(name) for name in hyperparameter.categories))
    values = [number_of(hyperparameter, result) for result in results]
    axis = Axis.around([v for v in values if v is not None], is_log=hyperparameter.is_log, air=air)
    return dataclasses.replace(axis, is_whole=hyperparameter.is_whole)


def number_of(hyperparameter: Hyperparameter, result: Result) -> float | None:
    """Return where a trial lies on the axis of a hyperparameter; None if it has none."""
    if hyperparameter.name not in result.hparams:
        return None
    return hyperparameter.number(result.hparams[hyperparameter.name])


def short(value: float) -> str:
    """Format a number with four significant digits."""
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def text_of(value: Any) -> str:
    """Format the value of a hyperparameter."""
    from determined.client._search.results import as_text

    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return short(value) if is_number else visible(as_text(value))


def ending(name: str, room: float, size: float = 12) -> str:
    """Return as much of a dotted name as fits; of a long one its end, which says most."""
    return clipped(visible(name)[::-1], room, size)[::-1]


def heading(title: str, note: str, left: float, width: float) -> Iterator[Shape]:
    """Yield the title of a picture, and a line that says what it is of."""
    yield Words((left, 30), clipped(title, width, 17), 17, is_bold=True)
    yield Words((left, 52), clipped(note, width, 12), 12, colour=SOFT)


def colour_bar(search: Search, left: float, top: float, width: float) -> Iterator[Shape]:
    """Yield the colours from the worst value to the best, with the values at the ends and in the middle."""
    part = width / LEVELS
    for i, colour in enumerate(RAMP):
        yield box(left + i * part, top, part + 0.3, 10, colour)
    values = [value for _, value in search.measured()]
    yield Words((left, top + 24), short(values[-1]), 12, colour=SOFT)
    yield Words((left + width / 2, top + 24), short(values[len(values) // 2]), 12, "middle", SOFT)
    yield Words((left + width, top + 24), f"best {short(values[0])}", 12, "end", SOFT)


def colour_of(search: Search, value: float) -> str:
    """Return the colour of a value."""
    return RAMP[level(search.goodness(value))]
