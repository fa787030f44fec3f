"""A drawing as SVG: a small file that every browser shows and every editor opens. No package is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from determined._wording import visible
from determined.cli.plot.shapes import DARK, PAPER, Area, Dot, Drawing, Line, Point, Shape, Words

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def to_svg(drawing: Drawing, *, extra: str = "") -> str:
    """Return the whole file; `extra` is put in front of everything else that is drawn.

    Where the reader's system asks for dark pages, the file is dark: its style names what each colour becomes.
    """
    size = f'width="{drawing.width}" height="{drawing.height}" viewBox="0 0 {drawing.width} {drawing.height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family={quoteattr(FONT)}>'
    paper = f'<rect width="100%" height="100%" fill="{PAPER}"/>'
    body = [paper, *(_shape(shape) for shape in drawing.shapes)]
    return "\n".join([head, _style(body), *body, extra, "</svg>\n"])


def _style(body: Sequence[str]) -> str:
    """Return the rules for dark pages, of the colours that are used."""
    used = sorted({found for text in body for found in re.findall(r' (?:fill|stroke)="#[0-9a-f]{6}"', text)})
    return f"<style>@media (prefers-color-scheme: dark) {{ {' '.join(_rules(used))} }}</style>"


def _rules(used: Sequence[str]) -> Iterator[str]:
    for attribute in used:
        name, colour = attribute.strip().replace('"', "").split("=")
        if colour in DARK:
            yield f'[{name}="{colour}"] {{ {name}: {DARK[colour]}; }}'


def _shape(shape: Shape) -> str:
    if isinstance(shape, Line):
        return _line(shape)
    if isinstance(shape, Words):
        return _words(shape)
    if isinstance(shape, Dot):
        x, y = shape.at
        start = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{shape.radius:g}" {_fill(shape)}'
        return _titled(start, "circle", shape.title)
    return _titled(f'<polygon points="{_points(shape.points)}" {_fill(shape)}', "polygon", shape.title)


def _fill(shape: Area | Dot) -> str:
    return f'fill="{shape.colour}"' + (f' fill-opacity="{shape.opacity:g}"' if shape.opacity < 1 else "")


def _line(line: Line) -> str:
    dashes = ' stroke-dasharray="7 4"' if line.is_dashed else ""
    faint = f' stroke-opacity="{line.opacity:g}"' if line.opacity < 1 else ""
    start = (
        f'<polyline points="{_points(line.points)}" fill="none" stroke="{line.colour}" '
        f'stroke-width="{line.width:g}" stroke-linejoin="round"{dashes}{faint}'
    )
    return _titled(start, "polyline", line.title)


def _titled(start: str, name: str, title: str) -> str:
    return f"{start}><title>{escape(visible(title))}</title></{name}>" if title else f"{start}/>"


def _words(words: Words) -> str:
    weight = ' font-weight="600"' if words.is_bold else ""
    x, y = words.at
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{words.size}" text-anchor="{words.anchor}" '
        f'fill="{words.colour}"{weight}>{escape(visible(words.text))}</text>'
    )


def _points(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
