"""A figure laid out on paper: lines, bands and words with their places, for the writers of files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from determined.cli.plot.figure import Curve, Figure, pieces
from determined.cli.plot.scale import Axis

WIDTH, PLOT_HEIGHT = 960, 400
LEFT, RIGHT, TOP, BOTTOM = 76, 28, 52, 46
LEGEND_LINE, LEGEND_AIR = 22, 18
LETTER = 7.5  # about how wide one is, in the legend
INK, SOFT, GRID, ALARM = "#1f2937", "#6b7280", "#e5e7eb", "#b91c1c"

Point = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Line:
    """A line through points."""

    points: Sequence[Point]
    colour: str
    width: float = 2.0
    is_dashed: bool = False
    title: str = ""  # shown while the mouse rests on it


@dataclasses.dataclass(frozen=True)
class Area:
    """A filled outline."""

    points: Sequence[Point]
    colour: str
    opacity: float = 1.0


@dataclasses.dataclass(frozen=True)
class Words:
    """A line of text; `anchor` says which end of it the place is: start, middle or end."""

    at: Point
    text: str
    size: int = 13
    anchor: str = "start"
    colour: str = INK
    is_bold: bool = False


@dataclasses.dataclass(frozen=True)
class Panel:
    """Where a figure's axes lie on the paper, for finding what is under the mouse."""

    figure: Figure
    x_axis: Axis
    y_axis: Axis
    top: float

    def place(self, x: float, y: float) -> Point:
        """Return the place of a point on the paper."""
        return self.x(x), self.top + TOP + (1 - self.y_axis.place(y)) * PLOT_HEIGHT

    def x(self, x: float) -> float:
        """Return the horizontal place of a step."""
        return LEFT + self.x_axis.place(x) * (WIDTH - LEFT - RIGHT)


@dataclasses.dataclass(frozen=True)
class Drawing:
    """What a file shows, from back to front."""

    width: int
    height: int
    shapes: Sequence[Line | Area | Words]
    panels: Sequence[Panel]


def lay_out(figures: Sequence[Figure]) -> Drawing:
    """Put figures below each other."""
    shapes: list[Line | Area | Words] = []
    panels, top = [], 0
    for figure in figures:
        panel = Panel(figure, figure.x_axis(), figure.y_axis(), top)
        panels.append(panel)
        shapes += _figure(panel)
        top += TOP + PLOT_HEIGHT + BOTTOM + LEGEND_LINE * len(figure.curves) + LEGEND_AIR
    return Drawing(WIDTH, top, shapes, panels)


def _figure(panel: Panel) -> Iterator[Line | Area | Words]:
    yield Words((LEFT, panel.top + 30), panel.figure.title, 17, is_bold=True)
    yield from _axes(panel)
    for curve in panel.figure.curves:
        yield from _band(panel, curve)
    for curve in reversed(panel.figure.curves):  # the first one named lies on top
        yield from _line(panel, curve)
    yield from _legend(panel)


def _axes(panel: Panel) -> Iterator[Line | Area | Words]:
    left, right = LEFT, WIDTH - RIGHT
    bottom = panel.top + TOP + PLOT_HEIGHT
    for value, label in panel.y_axis.ticks(6):
        y = panel.place(panel.x_axis.low, value)[1]
        yield Line([(left, y), (right, y)], GRID, 1)
        yield Words((left - 10, y + 4), label, 12, "end", SOFT)
    for value, label in panel.x_axis.ticks(8):
        x = panel.x(value)
        yield Line([(x, bottom), (x, bottom + 5)], SOFT, 1)
        yield Words((x, bottom + 20), label, 12, "middle", SOFT)
    yield Line([(left, bottom), (right, bottom)], SOFT, 1)
    yield Words((right, bottom + 38), panel.figure.x_label, 12, "end", SOFT)
    for curve in panel.figure.curves:
        for step in curve.odd:
            x = panel.x(step)
            yield Area([(x - 5, bottom), (x + 5, bottom), (x, bottom - 9)], ALARM)


def _band(panel: Panel, curve: Curve) -> Iterator[Area]:
    if not curve.has_band or curve.low is None or curve.high is None:
        return
    holds = panel.y_axis.holds
    drawable = [i for i in range(len(curve.x)) if holds(curve.low[i]) and holds(curve.high[i])]
    upper = [panel.place(curve.x[i], curve.high[i]) for i in drawable]
    lower = [panel.place(curve.x[i], curve.low[i]) for i in reversed(drawable)]
    if drawable:
        yield Area([*upper, *lower], curve.rgb, 0.18)


def _line(panel: Panel, curve: Curve) -> Iterator[Line | Area]:
    for piece in pieces(curve, panel.y_axis):
        points = [panel.place(curve.x[i], curve.y[i]) for i in piece]
        if len(points) == 1:
            x, y = points[0]
            yield Area([(x - 3, y), (x, y - 3), (x + 3, y), (x, y + 3)], curve.rgb)
        else:
            width = 0.9 if curve.is_bundle else 2.0
            yield Line(points, curve.rgb, width, curve.is_dashed, curve.legend())


def _legend(panel: Panel) -> Iterator[Line | Words]:
    y = panel.top + TOP + PLOT_HEIGHT + BOTTOM + 8.0
    longest = max((len(curve.label) for curve in panel.figure.curves), default=0)
    notes = LEFT + 64 + longest * LETTER
    for curve in panel.figure.curves:
        yield Line([(LEFT, y - 4), (LEFT + 28, y - 4)], curve.rgb, 3, curve.is_dashed)
        yield Words((LEFT + 40, y), curve.label, 13, is_bold=True)
        yield Words((notes, y), curve.note, 13, colour=SOFT)
        y += LEGEND_LINE
