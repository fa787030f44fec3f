"""Where a picture goes: into the terminal as text, or into a file of the kind that its name ends in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from determined.cli.output import terminal

if TYPE_CHECKING:
    from determined.cli.plot.figure import Figure
    from determined.cli.plot.shapes import Drawing
    from determined.cli.plot.text import Look

PIPED_COLUMNS, PIPED_LINES, MOST_LINES = 80, 18, 24
KINDS = (".svg", ".html", ".png")


def _checked(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:  # noqa: ARG001 - click's
    path = None if value is None else Path(value)
    if path is not None and path.suffix not in KINDS:
        raise click.UsageError(f"{value} should end in {', '.join(KINDS[:-1])} or {KINDS[-1]}.", ctx)
    return path


option = click.option(
    "-o", "--output", "file", metavar="FILE", callback=_checked, help="Draw into FILE: .svg, .html or .png."
)


def look(lines_beside: int, most: int | None = None) -> Look:
    """Return what the terminal can show, with so many lines around the picture; plain ASCII where there is none."""
    from determined.cli.plot.text import Look

    if not terminal.is_terminal():
        return Look(PIPED_COLUMNS, min(PIPED_LINES, most or PIPED_LINES), has_unicode=False)
    lines = min(MOST_LINES, most or MOST_LINES, max(terminal.height() - 6 - lines_beside, 6))
    return Look(terminal.width(), lines, terminal.has_unicode(), terminal.has_colour())


def show(figures: Sequence[Figure]) -> None:
    """Draw into the terminal."""
    from determined.cli.plot.text import draw

    seen = look(max(len(figure.curves) for figure in figures))
    terminal.write("\n".join(draw(figure, seen) for figure in figures), colours=True)


def write_figures(figures: Sequence[Figure], path: Path) -> None:
    """Draw figures below each other into a file."""
    from determined.cli.plot.drawing import lay_out

    write(lay_out(figures), path)


def write(drawing: Drawing, path: Path) -> None:
    """Draw into a file, in the form its name asks for."""
    if path.suffix == ".png":
        from determined.cli.plot.png import write_png

        write_png(drawing, path)
    elif path.suffix == ".html":
        from determined.cli.plot.html import to_html

        path.write_text(to_html(drawing), encoding="utf-8")
    else:
        from determined.cli.plot.svg import to_svg

        path.write_text(to_svg(drawing), encoding="utf-8")
