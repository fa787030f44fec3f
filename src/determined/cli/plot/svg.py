"""A drawing as SVG: a small file that every browser shows and every editor opens. No package is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from determined.cli.plot.drawing import Area, Drawing, Line, Point, Words

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def to_svg(drawing: Drawing, *, extra: str = "") -> str:
    """Return the whole file; `extra` is put in front of everything else that is drawn."""
    size = f'width="{drawing.width}" height="{drawing.height}" viewBox="0 0 {drawing.width} {drawing.height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family={quoteattr(FONT)}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#ffffff"/>', *_shapes(drawing), extra, "</svg>\n"])


def _shapes(drawing: Drawing) -> Iterator[str]:
    for shape in drawing.shapes:
        if isinstance(shape, Line):
            yield _line(shape)
        elif isinstance(shape, Area):
            yield f'<polygon points="{_points(shape.points)}" fill="{shape.colour}" fill-opacity="{shape.opacity:g}"/>'
        else:
            yield _words(shape)


def _line(line: Line) -> str:
    dashes = ' stroke-dasharray="7 4"' if line.is_dashed else ""
    start = (
        f'<polyline points="{_points(line.points)}" fill="none" stroke="{line.colour}" '
        f'stroke-width="{line.width:g}" stroke-linejoin="round"{dashes}'
    )
    return f"{start}><title>{escape(line.title)}</title></polyline>" if line.title else f"{start}/>"


def _words(words: Words) -> str:
    weight = ' font-weight="600"' if words.is_bold else ""
    x, y = words.at
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{words.size}" text-anchor="{words.anchor}" '
        f'fill="{words.colour}"{weight}>{escape(words.text)}</text>'
    )


def _points(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
