"""What pictures consist of: lines, areas, dots and words with their places on paper, and the colours they may have.

Colours are those of a light page. `DARK` says what each becomes on a dark one, for writers that can show both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from determined.cli.plot.drawing import Panel

PAPER, SURFACE, INK, SOFT, GRID, ALARM = "#ffffff", "#f1f3f6", "#14181f", "#5f6b7a", "#e3e6eb", "#c4302b"
# Okabe and Ito's colours, which people with any kind of colour vision can tell apart, the pale ones last.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6fdf", "#7a7a7a")
BEST = COLOURS[1]
LETTER = 0.56  # of the size of a text: about how wide a letter is
LEVELS = 16  # steps from the worst to the best colour
# ColorBrewer's YlGnBu with a stronger pale end: one direction from light to dark, whatever colours an eye can see.
_ANCHORS = ("#d3e6a6", "#b0dcae", "#7fcdbb", "#41b6c4", "#1d91c0", "#225ea8", "#253494", "#14205f")

Point = tuple[float, float]


def rgb(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue of `#rrggbb`, each up to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def mixed(one: str, other: str, share: float) -> str:
    """Return the colour that lies `share` of the way from one to the other.

    Example::

        assert mixed("#000000", "#ffffff", 0.5) == "#808080"
    """
    pairs = zip(rgb(one), rgb(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _between(anchors: Sequence[str], share: float) -> str:
    spot = share * (len(anchors) - 1)
    left = min(int(spot), len(anchors) - 2)
    return mixed(anchors[left], anchors[left + 1], spot - left)


RAMP = tuple(_between(_ANCHORS, i / (LEVELS - 1)) for i in range(LEVELS))
"""Colours from the worst value to the best; the best stands out most from the paper."""
ON_RAMP = ("#14181e", "#fefefe")  # words on the pale and on the dark half of it

_DARK_RAMP = [mixed(colour, "#ffffff", 0.25 * (1 - i / LEVELS)) for i, colour in enumerate(reversed(RAMP))]
DARK = {
    PAPER: "#0e1116",
    SURFACE: "#1b212a",
    INK: "#e7ebf0",
    SOFT: "#98a4b3",
    GRID: "#2a313c",
    ALARM: "#f0716b",
    **{colour: mixed(colour, "#ffffff", 0.15) for colour in COLOURS},
    **dict(zip(RAMP, _DARK_RAMP, strict=True)),
    **dict(zip(ON_RAMP, reversed(ON_RAMP), strict=True)),
}


def level(share: float) -> int:
    """Return which step of the ramp a share means: 0 is the worst value, 1 the best."""
    return min(max(round(share * (LEVELS - 1)), 0), LEVELS - 1)


def clipped(text: str, room: float, size: float = 12) -> str:
    """Return as much of a text as fits into so much room, with a mark where something is left out."""
    most = max(int(room / (size * LETTER)), 1)
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclasses.dataclass(frozen=True)
class Line:
    """A line through points."""

    points: Sequence[Point]
    colour: str
    width: float = 2.0
    is_dashed: bool = False
    title: str = ""  # shown while the mouse rests on it
    opacity: float = 1.0


@dataclasses.dataclass(frozen=True)
class Area:
    """A filled outline."""

    points: Sequence[Point]
    colour: str
    opacity: float = 1.0
    title: str = ""


@dataclasses.dataclass(frozen=True)
class Dot:
    """A filled circle."""

    at: Point
    radius: float
    colour: str
    opacity: float = 1.0
    title: str = ""


@dataclasses.dataclass(frozen=True)
class Words:
    """A line of text; `anchor` says which end of it the place is: start, middle or end."""

    at: Point
    text: str
    size: int = 13
    anchor: str = "start"
    colour: str = INK
    is_bold: bool = False


Shape = Line | Area | Dot | Words


def box(left: float, top: float, width: float, height: float, colour: str, title: str = "") -> Area:
    """Return a filled rectangle."""
    right, bottom = left + width, top + height
    return Area([(left, top), (right, top), (right, bottom), (left, bottom)], colour, title=title)


@dataclasses.dataclass(frozen=True)
class Drawing:
    """What a file shows, from back to front. `panels` are where curves lie, for finding what is under the mouse."""

    title: str
    width: int
    height: int
    shapes: Sequence[Shape]
    panels: Sequence[Panel] = ()
