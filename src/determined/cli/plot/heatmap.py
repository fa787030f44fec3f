"""Heat maps: every pair of hyperparameters as a panel, coloured by the best value that was found at each place."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from determined.cli.plot.scale import Axis, Categories
from determined.cli.plot.search_axes import (
    Search,
    axis_of,
    colour_bar,
    ending,
    heading,
    number_of,
    short,
)
from determined.cli.plot.shapes import (
    BEST,
    INK,
    LETTER,
    LEVELS,
    ON_RAMP,
    RAMP,
    SOFT,
    SURFACE,
    Drawing,
    Line,
    Shape,
    Words,
    box,
    clipped,
    level,
)

if TYPE_CHECKING:
    from determined.client._search.results import Hyperparameter, Result

WIDTH, LEFT, RIGHT, TOP, BOTTOM, GAP = 960, 150, 24, 96, 58, 24
BAR_WIDTH, BAR_TOP = 260, 26
MOST_WHOLE = 10  # whole numbers that get a place each
MOST_TICKS = 6
ENOUGH = 48  # trials for the finer bins
WORDS_WIDTH, WORDS_HEIGHT = 46, 20  # of a place that has room for its value


@dataclasses.dataclass(frozen=True)
class Bins:
    """The places along one hyperparameter: categories, or parts of equal length of its axis."""

    hyperparameter: Hyperparameter
    axis: Axis | Categories
    count: int
    whole: tuple[int, ...] = ()  # the numbers that are places by themselves

    @classmethod
    def of(cls, hyperparameter: Hyperparameter, results: Sequence[Result]) -> Bins:
        """Choose the places for the values of these trials."""
        axis = axis_of(hyperparameter, results, air=0.0)
        if isinstance(axis, Categories):
            return cls(hyperparameter, axis, len(axis.names))
        seen = sorted({n for n in (number_of(hyperparameter, result) for result in results) if n is not None})
        if hyperparameter.is_whole and len(seen) <= MOST_WHOLE:
            names = Categories(tuple(str(int(number)) for number in seen))
            return cls(hyperparameter, names, len(seen), tuple(int(number) for number in seen))
        return cls(hyperparameter, axis, 8 if len(results) >= ENOUGH else 5)

    def place(self, result: Result) -> int | None:
        """Return in which place a trial lies; None if it has no value."""
        number = number_of(self.hyperparameter, result)
        if number is None:
            return None
        if self.whole:
            return self.whole.index(int(number))
        return min(max(int(self.axis.place(number) * self.count), 0), self.count - 1)

    def text(self, place: int) -> str:
        """Describe a place."""
        if isinstance(self.axis, Categories):
            return f"{self.hyperparameter.name} {self.axis.names[place]}"
        low, high = self.axis.value(place / self.count), self.axis.value((place + 1) / self.count)
        return f"{self.hyperparameter.name} {short(low)} to {short(high)}"


def heatmap_drawing(search: Search) -> Drawing:
    """Draw each pair of hyperparameters, below each other and side by side, with shared axes."""
    rows = search.measured()
    bins = [Bins.of(each, [result for result, _ in rows]) for each in search.hyperparameters]
    across, down = bins[:-1], bins[1:]
    wide = (WIDTH - LEFT - RIGHT - GAP * (len(across) - 1)) / len(across)
    tall = min(max(wide * 0.62, 110), 420)
    shapes: list[Shape] = list(heading(search.title, search.note(), 24, WIDTH - 72 - BAR_WIDTH))
    shapes += colour_bar(search, WIDTH - RIGHT - BAR_WIDTH, BAR_TOP, BAR_WIDTH)
    for i, vertical in enumerate(down):
        top = TOP + i * (tall + GAP)
        shapes += _left_axis(vertical, top, tall)
        for j, horizontal in enumerate(across[: i + 1]):
            shapes += _panel(search, horizontal, vertical, LEFT + j * (wide + GAP), top, wide, tall)
    bottom = TOP + len(down) * (tall + GAP) - GAP
    for j, horizontal in enumerate(across):
        shapes += _bottom_axis(horizontal, LEFT + j * (wide + GAP), bottom, wide)
    return Drawing(search.title, WIDTH, round(bottom + BOTTOM), shapes)


def _panel(
    search: Search, across: Bins, down: Bins, left: float, top: float, wide: float, tall: float
) -> Iterator[Shape]:
    found: dict[tuple[int, int], list[tuple[Result, float]]] = {}
    for result, value in search.measured():  # the best first
        x, y = across.place(result), down.place(result)
        if x is not None and y is not None:
            found.setdefault((x, y), []).append((result, value))
    yield box(left, top, wide, tall, SURFACE)
    w, h = wide / across.count, tall / down.count
    for (x, y), trials in found.items():
        result, value = trials[0]
        shade = level(search.goodness(value))
        at_x, at_y = left + x * w, top + tall - (y + 1) * h
        count = f"{len(trials)} trial{'s' * (len(trials) > 1)}"
        title = f"{across.text(x)}, {down.text(y)}: best {short(value)} (trial {result.trial_id}) of {count}"
        yield box(at_x + 0.5, at_y + 0.5, w - 1, h - 1, RAMP[shade], title)
        if w >= WORDS_WIDTH and h >= WORDS_HEIGHT:
            colour = ON_RAMP[shade >= LEVELS // 2]
            yield Words((at_x + w / 2, at_y + h / 2 + 4), f"{value:.3g}", 11, "middle", colour)
    best = search.measured()[0][0]
    x, y = across.place(best), down.place(best)
    if x is not None and y is not None:
        at_x, at_y = left + x * w, top + tall - (y + 1) * h
        corners = [(at_x, at_y), (at_x + w, at_y), (at_x + w, at_y + h), (at_x, at_y + h), (at_x, at_y)]
        yield Line(corners, BEST, 2.5)


def _ticks(bins: Bins, wanted: float) -> list[tuple[float, str]]:
    """Return where along an axis, from 0 to 1, which words stand."""
    return [(bins.axis.place(value), text) for value, text in bins.axis.ticks(min(max(3, int(wanted)), MOST_TICKS))]


def _left_axis(bins: Bins, top: float, tall: float) -> Iterator[Shape]:
    yield Words((LEFT - 8, top - 7), ending(bins.hyperparameter.name, LEFT - 20), 12, "end", INK, is_bold=True)
    ticks = _ticks(bins, tall / 20)
    stride = max(1, math.ceil(len(ticks) * 15 / tall))
    for share, text in ticks[::stride]:
        yield Words((LEFT - 8, top + (1 - share) * tall + 4), clipped(text, LEFT - 34, 11), 11, "end", SOFT)


def _bottom_axis(bins: Bins, left: float, bottom: float, wide: float) -> Iterator[Shape]:
    ticks = _ticks(bins, wide / 25)
    longest = max((len(text) for _, text in ticks), default=1) * 11 * LETTER + 8
    # Of numbers some are left out where they do not fit; names are cut short instead.
    stride = 1 if isinstance(bins.axis, Categories) else max(1, math.ceil(len(ticks) * longest / wide))
    room = wide / max(len(ticks), 1) if isinstance(bins.axis, Categories) else longest
    for share, text in ticks[::stride]:
        x = left + share * wide
        yield Line([(x, bottom), (x, bottom + 4)], SOFT, 1)
        yield Words((x, bottom + 17), clipped(text, room - 3, 11), 11, "middle", SOFT)
    yield Words((left + wide / 2, bottom + 38), ending(bins.hyperparameter.name, wide), 12, "middle", INK, is_bold=True)
