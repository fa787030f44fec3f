"""A drawing as PNG, through Pillow: shapes are painted large and made smaller, so that lines are smooth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from determined._wording import visible
from determined.cli.plot.shapes import PAPER, Area, Dot, Drawing, Line, Point, Words, mixed, rgb
from determined.errors import MissingPackage

SHARPNESS = 2  # pixels of the file per unit of the drawing
OVERSAMPLED = 2  # ... and per pixel while painting
DASH, GAP = 7.0, 4.0


def write_png(drawing: Drawing, path: Path) -> None:
    """Paint the drawing into a file."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise MissingPackage(
            f"{path} would need Pillow: pip install 'resolute[plot]'. Or name a file that ends in .svg or .html."
        ) from None
    zoom = SHARPNESS * OVERSAMPLED
    size = (drawing.width * zoom, drawing.height * zoom)
    image = Image.new("RGB", size, PAPER)
    brush = ImageDraw.Draw(image, "RGBA")
    for shape in drawing.shapes:
        if isinstance(shape, Line):
            _paint_line(brush, shape, zoom)
        elif isinstance(shape, Area):
            brush.polygon([(x * zoom, y * zoom) for x, y in shape.points], fill=_fill(shape))
        elif isinstance(shape, Dot):
            (x, y), r = shape.at, shape.radius
            brush.ellipse([(x - r) * zoom, (y - r) * zoom, (x + r) * zoom, (y + r) * zoom], fill=_fill(shape))
    image = image.reduce(OVERSAMPLED)
    brush = ImageDraw.Draw(image)
    for shape in drawing.shapes:
        if isinstance(shape, Words):
            _paint_words(brush, shape)
    image.save(path, "PNG", dpi=(72 * SHARPNESS, 72 * SHARPNESS))


def _fill(shape: Area | Dot) -> tuple[int, ...]:
    return (*rgb(shape.colour), round(255 * shape.opacity))


def _paint_line(brush: Any, line: Line, zoom: int) -> None:
    # Mixed with the paper: parts of a line that is really transparent would show where they overlap.
    colour = mixed(PAPER, line.colour, line.opacity)
    for part in _dashes(line.points) if line.is_dashed else [line.points]:
        points = [(x * zoom, y * zoom) for x, y in part]
        brush.line(points, fill=colour, width=round(line.width * zoom), joint="curve")


def _paint_words(brush: Any, words: Words) -> None:
    from PIL import ImageFont

    font = ImageFont.load_default(words.size * SHARPNESS)
    anchor = {"start": "ls", "middle": "ms", "end": "rs"}[words.anchor]
    x, y = round(words.at[0] * SHARPNESS), words.at[1] * SHARPNESS
    for shift in (0, 1) if words.is_bold else (0,):  # the one font that comes with Pillow has no bold
        brush.text((x + shift, y), visible(words.text), fill=words.colour, font=font, anchor=anchor)


def _dashes(points: Sequence[Point]) -> Iterator[list[Point]]:
    """Return the drawn parts of a dashed line."""
    left, drawn, part = DASH, True, [points[0]]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        length, done = math.hypot(x1 - x0, y1 - y0), 0.0
        while length - done > left:
            done += left
            spot = (x0 + (x1 - x0) * done / length, y0 + (y1 - y0) * done / length)
            if drawn:
                yield [*part, spot]
            drawn, left, part = not drawn, GAP if drawn else DASH, [spot]
        left -= length - done
        if drawn:
            part.append((x1, y1))
    if drawn and len(part) > 1:
        yield part
