"""What to draw: curves with their names, and nothing about how. `text`, `svg`, `html` and `png` draw it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from determined._wording import visible
from determined.cli.plot.scale import AIR, Axis, Categories
from determined.cli.plot.shapes import COLOURS


@dataclasses.dataclass(frozen=True)
class Curve:
    """One line. Where it sums up many points, `y` is their mean and `low` and `high` are the band they lie in."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    odd: Sequence[float] = ()  # where a value was NaN or infinite
    note: str = ""
    colour: int = 0
    is_dashed: bool = False
    is_bundle: bool = False  # many thin lines with gaps between them, to be seen as a whole
    is_points: bool = False  # dots without a line through them
    width: float = 2.0  # of the line, or the radius of the dots
    opacity: float = 1.0
    titles: Sequence[str] = ()  # of the single dots, shown while the mouse rests on one

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", visible(self.label))
        object.__setattr__(self, "note", visible(self.note))
        object.__setattr__(self, "titles", [visible(title) for title in self.titles])

    @property
    def rgb(self) -> str:
        """Its colour, as `#rrggbb`."""
        return COLOURS[self.colour % len(COLOURS)]

    @property
    def has_band(self) -> bool:
        """Whether it says between which values its points lie."""
        return self.low is not None and self.high is not None and list(self.low) != list(self.high)

    def legend(self) -> str:
        """Return its name and its note, in one line."""
        return f"{self.label}   {self.note}" if self.note else self.label


@dataclasses.dataclass(frozen=True)
class Figure:
    """Curves over one pair of axes.

    Example::

        Figure("validation loss", [Curve("trial 1", [0, 1, 2], [3.0, 2.0, 1.5])])
    """

    title: str
    curves: Sequence[Curve]
    x_label: str = "batches"
    log_y: bool = False
    log_x: bool = False
    y_label: str = ""
    x_scale: Axis | Categories | None = None  # instead of one from the first step to the last
    y_scale: Axis | None = None  # instead of one around all values

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", visible(self.title))
        object.__setattr__(self, "y_label", visible(self.y_label))

    def x_axis(self) -> Axis | Categories:
        """Return the axis from the first step to the last."""
        if self.x_scale is not None:
            return self.x_scale
        return Axis.around((x for curve in self.curves for x in [*curve.x, *curve.odd]), is_log=self.log_x)

    def y_axis(self) -> Axis:
        """Return the axis of all values, with a small margin."""
        if self.y_scale is not None:
            return self.y_scale
        return Axis.around(self._values(), is_log=self.log_y, air=AIR)

    def _values(self) -> Iterator[float]:
        for curve in self.curves:
            yield from curve.y
            if curve.low is not None and curve.high is not None:
                yield from curve.low
                yield from curve.high

    def hidden(self) -> int:
        """Return how many values a logarithmic axis cannot show."""
        return sum(1 for curve in self.curves for y in curve.y if y <= 0) if self.log_y else 0


def pieces(curve: Curve, axis: Axis) -> Iterator[list[int]]:
    """Stretches of a curve without a gap: positions of neighbours that can be drawn."""
    piece: list[int] = []
    for i, y in enumerate(curve.y):
        if axis.holds(y) and math.isfinite(curve.x[i]):
            piece.append(i)
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece
