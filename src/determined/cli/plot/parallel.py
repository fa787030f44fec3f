"""Parallel coordinates: an axis per hyperparameter and one of the metric, and a line per trial through its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from determined.cli.plot.scale import Axis, Categories
from determined.cli.plot.search_axes import (
    Search,
    axis_of,
    colour_of,
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
    PAPER,
    RAMP,
    SOFT,
    Area,
    Dot,
    Drawing,
    Line,
    Point,
    Shape,
    Words,
    box,
    clipped,
    level,
)

LEFT, RIGHT, TOP, HEIGHT, BOTTOM = 76, 96, 108, 380, 44
SPACING = 128  # between axes
NARROWEST = 960
MOST_LINES, MANY = 1000, 200
STRIP = 8  # how wide the colours beside the axis of the metric are


def parallel_drawing(search: Search) -> Drawing:
    """Draw a search as parallel coordinates."""
    rows = search.measured()
    results = [result for result, _ in rows]
    names = [*(each.name for each in search.hyperparameters), search.metric]
    axes: list[Axis | Categories] = [*(axis_of(each, results) for each in search.hyperparameters), search.metric_axis]
    width = max(NARROWEST, LEFT + RIGHT + SPACING * (len(axes) - 1))
    gap = (width - LEFT - RIGHT) / max(len(axes) - 1, 1)
    places = [LEFT + gap * i for i in range(len(axes))]
    note = search.note()
    if len(rows) > MOST_LINES:
        note += f"; the best {MOST_LINES:,} are drawn"
    shapes: list[Shape] = list(heading(search.title, note, 24, width - 48))
    shapes += [Line([(x, TOP), (x, TOP + HEIGHT)], SOFT, 1) for x in places]
    for i, (result, value) in reversed(list(enumerate(rows[:MOST_LINES]))):  # the best lie on top
        values = [number_of(each, result) for each in search.hyperparameters]
        points = [
            None if v is None else (x, _y(axis, v)) for x, axis, v in zip(places[:-1], axes, values, strict=False)
        ]
        points.append((places[-1], _y(search.metric_axis, search.height(value))))
        thin = 1.3 if len(rows) <= MANY else 0.8
        look = (BEST, 3.0, 1.0) if i == 0 else (colour_of(search, value), thin, 0.5 + 0.4 * search.goodness(value))
        shapes += _trial(points, look, search.describe(result))
    shapes += _strip(search, places[-1])
    for i, (name, axis, x) in enumerate(zip(names, axes, places, strict=True)):
        is_metric = i == len(axes) - 1
        shapes += _axis(axis, x, gap, is_metric=is_metric)
        kind = "log" if isinstance(axis, Axis) and axis.is_log else ""
        anchor = "start" if i == 0 else "end" if is_metric else "middle"
        at = 24.0 if i == 0 else x + RIGHT - 24 if is_metric else x
        room = gap * 0.95 if anchor == "middle" else gap * 0.5 + RIGHT - 24
        shapes.append(Words((at, TOP - 24), ending(name, room), 12, anchor, INK, is_bold=True))
        shapes += [Words((at, TOP - 10), kind, 11, anchor, SOFT)] if kind else []
    best, value = rows[0]
    words = f"best: trial {best.trial_id}, {search.metric} {short(value)}"
    shapes.append(Line([(24, TOP + HEIGHT + 28), (52, TOP + HEIGHT + 28)], BEST, 3))
    shapes.append(Words((60, TOP + HEIGHT + 32), clipped(words, width - 90, 12), 12, colour=SOFT))
    return Drawing(search.title, round(width), TOP + HEIGHT + BOTTOM, shapes)


def _y(axis: Axis | Categories, value: float) -> float:
    return TOP + (1 - axis.place(value)) * HEIGHT


def _trial(points: Sequence[Point | None], look: tuple[str, float, float], title: str) -> Iterator[Line | Dot]:
    """Yield the line of a trial, with a gap where it lacks a hyperparameter."""
    piece: list[Point] = []
    for point in [*points, None]:
        if point is not None:
            piece.append(point)
            continue
        if len(piece) > 1:
            yield Line(piece, look[0], look[1], title=title, opacity=look[2])
        elif piece:
            yield Dot(piece[0], 2.5, look[0], look[2], title)
        piece = []


def _axis(axis: Axis | Categories, x: float, gap: float, *, is_metric: bool) -> Iterator[Shape]:
    room = gap * 0.7
    for value, text in axis.ticks(6):
        y, shown = _y(axis, value), clipped(text, room, 11)
        if not TOP - 1 <= y <= TOP + HEIGHT + 1:
            continue
        if is_metric:
            yield Words((x + STRIP + 12, y + 4), shown, 11, "start", SOFT)
            continue
        wide = len(shown) * 11 * LETTER + 6
        ground = box(x - 7 - wide + 3, y - 8, wide, 16, PAPER)  # lines of trials would cross the words
        yield Area(ground.points, PAPER, 0.8)
        yield Line([(x - 4, y), (x, y)], SOFT, 1)
        yield Words((x - 7, y + 4), shown, 11, "end", INK)


def _strip(search: Search, x: float) -> Iterator[Shape]:
    """Yield the colours along the axis of the metric."""
    axis = search.metric_axis
    parts = 4 * LEVELS
    for i in range(parts):
        y = TOP + HEIGHT * (1 - (i + 1) / parts)
        colour = RAMP[level(search.goodness(axis.value((i + 0.5) / parts)))]
        yield box(x + 3, y, STRIP, HEIGHT / parts + 0.3, colour)
