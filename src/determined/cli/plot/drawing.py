"""Figures laid out on paper: below each other with legends, or side by side as small panels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from determined.cli.plot.figure import Curve, Figure, pieces
from determined.cli.plot.scale import Axis, Categories
from determined.cli.plot.shapes import ALARM, GRID, LETTER, SOFT, Area, Dot, Drawing, Line, Point, Shape, Words, clipped

WIDTH, PLOT_HEIGHT = 960, 400
LEFT, RIGHT, TOP, BOTTOM = 76, 28, 64, 46
LEGEND_LINE, LEGEND_AIR = 22, 18
SMALL_HEIGHT, SMALL_TOP, SMALL_BOTTOM, SMALL_LEFT, SMALL_RIGHT = 190, 34, 36, 64, 16
THIN = 0.9


@dataclasses.dataclass(frozen=True)
class Panel:
    """Where a figure's axes lie on the paper."""

    figure: Figure
    x_axis: Axis | Categories
    y_axis: Axis
    left: float
    top: float
    width: float
    height: float

    @classmethod
    def of(cls, figure: Figure, left: float, top: float, width: float, height: float) -> Panel:
        """Return the panel of a figure in a rectangle."""
        return cls(figure, figure.x_axis(), figure.y_axis(), left, top, width, height)

    @property
    def bottom(self) -> float:
        """The height of the horizontal axis."""
        return self.top + self.height

    def place(self, x: float, y: float) -> Point:
        """Return the place of a point on the paper."""
        return self.x(x), self.y(y)

    def x(self, x: float) -> float:
        """Return the horizontal place of a step."""
        return self.left + self.x_axis.place(x) * self.width

    def y(self, y: float) -> float:
        """Return the vertical place of a value."""
        return self.top + (1 - self.y_axis.place(y)) * self.height


def lay_out(figures: Sequence[Figure]) -> Drawing:
    """Put figures below each other, each with its legend."""
    shapes: list[Shape] = []
    panels, top = [], 0
    for figure in figures:
        panel = Panel.of(figure, LEFT, top + TOP, WIDTH - LEFT - RIGHT, PLOT_HEIGHT)
        panels.append(panel)
        shapes.append(Words((LEFT, top + 30), clipped(figure.title, WIDTH - LEFT - RIGHT, 17), 17, is_bold=True))
        if figure.y_label:
            shapes.append(Words((LEFT, top + 50), clipped(figure.y_label, WIDTH - LEFT - RIGHT, 12), 12, colour=SOFT))
        shapes += _axes(panel, 6, 8)
        shapes += _contents(panel)
        shapes += _legend(panel)
        top += TOP + PLOT_HEIGHT + BOTTOM + LEGEND_LINE * len(figure.curves) + LEGEND_AIR
    return Drawing(", ".join(figure.title for figure in figures), WIDTH, top, shapes, panels)


def small_panels(figures: Sequence[Figure], left: float, top: float, width: float) -> tuple[list[Shape], float]:
    """Put figures side by side, up to three in a row; return the shapes, and the height they take."""
    across = min(len(figures), 3)
    shapes: list[Shape] = []
    share = width / across
    tall = SMALL_TOP + SMALL_HEIGHT + SMALL_BOTTOM
    for i, figure in enumerate(figures):
        x, y = left + share * (i % across), top + tall * (i // across)
        inner = share - SMALL_LEFT - SMALL_RIGHT
        panel = Panel.of(figure, x + SMALL_LEFT, y + SMALL_TOP, inner, SMALL_HEIGHT)
        shapes.append(Words((panel.left, y + 22), clipped(figure.title[::-1], inner, 13)[::-1], 13, is_bold=True))
        shapes += _axes(panel, 6, max(3, int(inner / 50)))
        shapes += _contents(panel)
    return shapes, tall * -(-len(figures) // across)


def _contents(panel: Panel) -> Iterator[Shape]:
    for curve in panel.figure.curves:
        yield from _band(panel, curve)
    for curve in reversed(panel.figure.curves):  # the first one named lies on top
        yield from _dots(panel, curve) if curve.is_points else _line(panel, curve)


def _axes(panel: Panel, most_y: int, most_x: int) -> Iterator[Shape]:
    left, right, bottom = panel.left, panel.left + panel.width, panel.bottom
    for value, label in panel.y_axis.ticks(most_y):
        y = panel.y(value)
        yield Line([(left, y), (right, y)], GRID, 1)
        yield Words((left - 10, y + 4), label, 12, "end", SOFT)
    yield Line([(left, bottom), (right, bottom)], SOFT, 1)
    ticks = panel.x_axis.ticks(most_x)
    room = panel.width / max(len(ticks), 1) if isinstance(panel.x_axis, Categories) else panel.width
    for value, label in ticks:
        x = panel.x(value)
        yield Line([(x, bottom), (x, bottom + 5)], SOFT, 1)
        yield Words((x, bottom + 20), clipped(label, room - 4, 12), 12, "middle", SOFT)
    if panel.figure.x_label:
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
        yield Area([*upper, *lower], curve.rgb, 0.18 * curve.opacity)


def _line(panel: Panel, curve: Curve) -> Iterator[Shape]:
    for piece in pieces(curve, panel.y_axis):
        points = [panel.place(curve.x[i], curve.y[i]) for i in piece]
        if len(points) == 1:
            x, y = points[0]
            outline = [(x - 3, y), (x, y - 3), (x + 3, y), (x, y + 3)]
            yield Area(outline, curve.rgb, curve.opacity, curve.legend())
        else:
            width = THIN if curve.is_bundle else curve.width
            yield Line(points, curve.rgb, width, curve.is_dashed, curve.legend(), curve.opacity)


def _dots(panel: Panel, curve: Curve) -> Iterator[Dot]:
    for piece in pieces(curve, panel.y_axis):
        for i in piece:
            title = curve.titles[i] if curve.titles else curve.legend()
            yield Dot(panel.place(curve.x[i], curve.y[i]), curve.width, curve.rgb, curve.opacity, title)


def _legend(panel: Panel) -> Iterator[Shape]:
    """Yield a line per curve; the parts of its note, three spaces apart, stand below each other."""
    y = panel.bottom + BOTTOM + 8.0
    labels = [curve.label for curve in panel.figure.curves]
    parts = [curve.note.split("   ") if curve.note else [] for curve in panel.figure.curves]
    broad = [max(len(part[i]) for part in parts if i < len(part)) for i in range(max(map(len, parts), default=0))]
    first = LEFT + 64 + max(map(len, labels), default=0) * LETTER * 13
    for curve, own in zip(panel.figure.curves, parts, strict=True):
        yield Line([(LEFT, y - 4), (LEFT + 28, y - 4)], curve.rgb, 3, curve.is_dashed, opacity=curve.opacity)
        yield Words((LEFT + 40, y), curve.label, 13, is_bold=True)
        x = first
        for i, (text, letters) in enumerate(zip(own, broad, strict=False)):
            wide = letters * LETTER * 13
            if i == 0 or x + wide <= WIDTH - RIGHT:  # a column that does not fit is left out
                yield Words((x, y), clipped(text, WIDTH - RIGHT - x, 13), 13, colour=SOFT)
            x += wide + 18
        y += LEGEND_LINE
