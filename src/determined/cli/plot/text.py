"""Curves as characters: braille dots and shades where they arrive, plain ASCII where not."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from determined.cli.plot.figure import Curve, Figure, pieces
from determined.cli.plot.scale import Axis, Categories

# Terminal colours that are near those of the files.
ANSI = ("38;5;39", "38;5;208", "38;5;36", "38;5;175", "38;5;220", "38;5;117", "38;5;98", "38;5;246")
MARKS = "*+ox#@%&"
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # a braille cell: four rows of two


@dataclasses.dataclass(frozen=True)
class Look:
    """What the place that shows the text can show."""

    columns: int = 80
    lines: int = 20
    has_unicode: bool = True
    has_colour: bool = False


class Canvas:
    """A grid of characters that lines of dots are drawn on; the last line drawn owns a cell."""

    def __init__(self, columns: int, lines: int, *, fine: bool) -> None:
        self.columns, self.lines = columns, lines
        self.across, self.down = (2, 4) if fine else (1, 1)  # dots per cell
        self._bits: dict[tuple[int, int], int] = {}
        self._owner: dict[tuple[int, int], int] = {}
        self._shade: dict[tuple[int, int], int] = {}

    def dot(self, x: int, y: int, owner: int) -> None:
        """Set one dot, counted from the lower left."""
        if not (0 <= x < self.columns * self.across and 0 <= y < self.lines * self.down):
            return
        row = self.lines * self.down - 1 - y
        cell = (row // self.down, x // self.across)
        bit = DOTS[row % 4][x % 2] if self.across == 2 else 1
        self._bits[cell] = (self._bits.get(cell, 0) if self._owner.get(cell) == owner else 0) | bit
        self._owner[cell] = owner

    def line(self, x0: int, y0: int, x1: int, y1: int, owner: int) -> None:
        """Draw dots from one place to another."""
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(steps + 1):
            self.dot(x0 + round((x1 - x0) * i / steps), y0 + round((y1 - y0) * i / steps), owner)

    def shade(self, x: int, low: int, high: int, owner: int) -> None:
        """Mark the cells from one height to another as lying in a band."""
        for y in range(low - low % self.down, high + 1, self.down):
            row = self.lines - 1 - y // self.down
            if 0 <= row < self.lines and 0 <= x // self.across < self.columns:
                self._shade[row, x // self.across] = owner

    def rows(self, look: Look) -> Iterator[str]:
        """Yield the picture, line by line."""
        for row in range(self.lines):
            cells = [self._cell(row, column, look) for column in range(self.columns)]
            runs = itertools.groupby(cells, key=lambda cell: cell[1])
            yield "".join(paint("".join(c for c, _ in run), code, look) for code, run in runs).rstrip(" ")

    def _cell(self, row: int, column: int, look: Look) -> tuple[str, str]:
        """Return a character, and its colour."""
        if (bits := self._bits.get((row, column))) is not None:
            owner = self._owner[row, column]
            return chr(0x2800 + bits) if self.across == 2 else MARKS[owner % len(MARKS)], ANSI[owner % len(ANSI)]
        if (owner_of_shade := self._shade.get((row, column))) is not None:
            return "░" if look.has_unicode else ".", f"2;{ANSI[owner_of_shade % len(ANSI)]}"
        return " ", ""


def draw(figure: Figure, look: Look) -> str:
    """Return the figure as lines of text that fit into `look.columns`."""
    x_axis, y_axis = figure.x_axis(), figure.y_axis()
    labels = y_axis.ticks(max(2, look.lines // 3))
    margin = max((len(text) for _, text in labels), default=1) + 2
    columns = max(look.columns - margin - 2, 10)
    canvas = Canvas(columns, look.lines, fine=_is_fine(figure, look))
    for curve in figure.curves:
        _shade_band(canvas, curve, x_axis, y_axis)
    for curve in reversed(figure.curves):  # the first one named lies on top
        _draw_line(canvas, curve, x_axis, y_axis)
    lines = [paint(_fit(f" {figure.title}", look.columns, look), "1", look)]
    lines += [_fit(f" {figure.y_label}", look.columns, look)] if figure.y_label else []
    lines += _with_y_axis(list(canvas.rows(look)), y_axis, labels, margin, look)
    lines += _x_axis(figure, x_axis, columns, margin, look)
    lines += [_legend(curve, look, is_fine=_is_fine(figure, look)) for curve in figure.curves]
    if hidden := figure.hidden():
        lines.append(
            _fit(f" {hidden} values are not above 0, and a logarithmic axis cannot show them.", look.columns, look)
        )
    return "\n".join(lines) + "\n"


def _is_fine(figure: Figure, look: Look) -> bool:
    """Braille cannot tell curves apart without colours; marks can."""
    return look.has_unicode and (look.has_colour or len(figure.curves) == 1)


def _spot(canvas: Canvas, x: float, y: float) -> tuple[int, int]:
    return round(x * (canvas.columns * canvas.across - 1)), round(y * (canvas.lines * canvas.down - 1))


def _draw_line(canvas: Canvas, curve: Curve, x_axis: Axis | Categories, y_axis: Axis) -> None:
    for piece in pieces(curve, y_axis):
        spots = [_spot(canvas, x_axis.place(curve.x[i]), y_axis.place(curve.y[i])) for i in piece]
        for a, b in zip(spots, spots if curve.is_points else spots[1:] or spots, strict=False):
            canvas.line(*a, *b, curve.colour)


def _shade_band(canvas: Canvas, curve: Curve, x_axis: Axis | Categories, y_axis: Axis) -> None:
    if not curve.has_band or curve.low is None or curve.high is None:
        return
    for i, x in enumerate(curve.x):
        if y_axis.holds(curve.low[i]) and y_axis.holds(curve.high[i]):
            column, low = _spot(canvas, x_axis.place(x), y_axis.place(curve.low[i]))
            canvas.shade(column, low, _spot(canvas, 0, y_axis.place(curve.high[i]))[1], curve.colour)


def _with_y_axis(
    rows: list[str], axis: Axis, labels: list[tuple[float, str]], margin: int, look: Look
) -> Iterator[str]:
    at = {len(rows) - 1 - round(axis.place(value) * (len(rows) - 1)): text for value, text in labels}
    tick, bar = ("┤", "│") if look.has_unicode else ("+", "|")
    for i, row in enumerate(rows):
        yield f"{at.get(i, ''):>{margin - 1}} {tick if i in at else bar}{row}"


def _x_axis(figure: Figure, axis: Axis | Categories, columns: int, margin: int, look: Look) -> Iterator[str]:
    line, tick, corner = ("─", "┬", "└") if look.has_unicode else ("-", "+", "+")
    marks, texts = [line] * columns, [" "] * (columns + margin + 1)
    free = 0
    room = columns - len(figure.x_label) - 2
    for value, text in axis.ticks(max(2, columns // 12)):
        column = round(axis.place(value) * (columns - 1))
        start = max(margin + 1 + column - len(text) // 2, 0)
        marks[column] = tick
        if start > free and column + len(text) // 2 < room:
            texts[start : start + len(text)] = text
            free = start + len(text) + 1
    for curve in figure.curves:
        for x in curve.odd:
            marks[round(axis.place(x) * (columns - 1))] = "✗" if look.has_unicode else "!"
    texts[len(texts) - len(figure.x_label) :] = figure.x_label
    yield " " * margin + corner + "".join(marks)
    yield "".join(texts).rstrip()


def _legend(curve: Curve, look: Look, *, is_fine: bool) -> str:
    sample = "━━" if is_fine else MARKS[curve.colour % len(MARKS)] * 2
    text = _fit(curve.legend(), look.columns - 4, look)
    return f" {paint(sample, ANSI[curve.colour % len(ANSI)], look)} {text}"


def _fit(text: str, columns: int, look: Look) -> str:
    mark = "…" if look.has_unicode else "..."
    return text if len(text) <= columns else text[: columns - len(mark)] + mark


def paint(text: str, code: str, look: Look) -> str:
    """Return the text in a colour, where colours are shown."""
    return f"\x1b[{code}m{text}\x1b[0m" if code and look.has_colour else text
