"""Curves as text, SVG, HTML and PNG: what a reader sees is what was reported."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from determined.cli.plot.drawing import lay_out
from determined.cli.plot.figure import Curve, Figure
from determined.cli.plot.html import to_html
from determined.cli.plot.png import write_png
from determined.cli.plot.scale import Axis, label
from determined.cli.plot.shapes import COLOURS, Line
from determined.cli.plot.svg import to_svg
from determined.cli.plot.text import Look, draw

FALLING = Figure("validation loss", [Curve("trial 1", [0, 50, 100], [1.0, 0.5, 0.25], note="last 0.25")])
numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)


@given(low=st.floats(-1e6, 1e6), reach=st.floats(1e-6, 1e6), wanted=st.integers(2, 12))
@example(low=879609.9999999999, reach=1e-3, wanted=5)
@settings(max_examples=60, deadline=None)
def test_ticks_are_round_different_and_inside(low: float, reach: float, wanted: int) -> None:
    """Ticks lie on the axis, rise, and no two of them read the same."""
    assume(reach > abs(low) * 1e-9)  # `Axis.around` makes a flat line of less
    ticks = Axis(low, low + reach).ticks(wanted)
    values = [value for value, _ in ticks]
    slack = reach * 1e-6 + abs(low) * 1e-14  # what rounding may do to numbers of that size
    assert values == sorted(values)
    assert all(low - slack <= value <= low + reach + slack for value in values)
    if reach > abs(low) * 1e-3:  # a hair's breadth far from zero cannot be told apart in a few digits
        assert len({text for _, text in ticks}) == len(ticks)


@given(low=st.floats(1e-9, 1e9), ratio=st.floats(1.01, 1e12), wanted=st.integers(5, 8))
@example(low=0.3, ratio=3.0, wanted=6)
@example(low=0.21, ratio=2.0, wanted=6)
@example(low=0.9, ratio=100.0, wanted=6)
@settings(max_examples=200, deadline=None)
def test_a_logarithmic_axis_has_enough_ticks(low: float, ratio: float, wanted: int) -> None:
    """However short or long a logarithmic axis is, four values or more are on it, and they can be told apart."""
    axis = Axis(low, low * ratio, is_log=True)
    ticks = axis.ticks(wanted)
    values = [value for value, _ in ticks]
    assert 4 <= len(ticks) <= 2 * wanted + 2
    assert values == sorted(values)
    assert all(-0.01 <= axis.place(value) <= 1.01 for value in values)
    assert len({text for _, text in ticks}) == len(ticks)


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [
        (0, 1, "0"),
        (0.25, 0.05, "0.25"),
        (1500, 500, "1.5k"),
        (2_000_000, 1e6, "2M"),
        (3e-5, 1e-5, "3e-05"),
        (12, 2, "12"),
    ],
)
def test_labels_are_short(value: float, step: float, text: str) -> None:
    """A tick says no more digits than it needs."""
    assert label(value, step) == text


def test_a_curve_is_drawn_from_its_first_to_its_last_value() -> None:
    """In ASCII: the mark stands in the upper left and the lower right, between the axes."""
    rows = [line for line in draw(FALLING, Look(60, 10, has_unicode=False)).splitlines() if "|" in line or "+" in line]
    body = [re.split(r"[|+]", row, maxsplit=1)[1] for row in rows[:10]]
    marked = [i for i, row in enumerate(body) if "*" in row]
    assert body[marked[0]].index("*") == 0
    assert body[marked[-1]].rstrip().endswith("*")
    assert marked == list(range(marked[0], marked[-1] + 1)), "a line has no holes"


@given(
    values=st.lists(numbers, min_size=0, max_size=30),
    columns=st.integers(30, 120),
    lines=st.integers(4, 30),
    log_y=st.booleans(),
    has_unicode=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_any_values_fit_into_any_terminal(
    values: list[float], columns: int, lines: int, log_y: bool, has_unicode: bool
) -> None:
    """Whatever was reported, NaN and infinities included, the picture has its size."""
    curve = Curve(
        "trial 1", list(range(len(values))), values, odd=[i for i, v in enumerate(values) if not math.isfinite(v)]
    )
    text = draw(Figure("loss", [curve], log_y=log_y), Look(columns, lines, has_unicode))
    rows = text.splitlines()
    assert max(map(len, rows)) <= columns
    assert lines + 4 <= len(rows) <= lines + 5
    assert has_unicode or text.isascii()


def test_colours_belong_to_terminals_that_show_them() -> None:
    """Without colour there is no escape sequence, and several curves have marks of their own."""
    two = Figure("loss", [Curve("a", [0, 1], [0.0, 1.0]), Curve("b", [0, 1], [1.0, 0.0], colour=1)])
    assert "\x1b[" in draw(two, Look(has_colour=True))
    plain = draw(two, Look(has_colour=False))
    assert "\x1b[" not in plain
    assert "** a" in plain
    assert "++ b" in plain


def test_a_band_shows_between_which_values_points_lie() -> None:
    """Where a curve sums up many points, the band from their least to their greatest is shaded."""
    curve = Curve("a", [0, 1, 2], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [2.0, 2.0, 2.0])
    assert "░" in draw(Figure("loss", [curve]), Look())
    assert "fill-opacity" in to_svg(lay_out([Figure("loss", [curve])]))


def test_a_logarithm_says_what_it_cannot_show() -> None:
    """Values that are not above 0 are counted, not dropped silently."""
    figure = Figure("loss", [Curve("a", [0, 1, 2], [0.0, 1.0, 10.0])], log_y=True)
    assert "1 values are not above 0" in draw(figure, Look())


def test_svg_is_well_formed_and_names_its_curves() -> None:
    """An SVG holds the curve as a line, its legend, and its title for the mouse."""
    figure = Figure("a < b & c", [Curve('trial "1" <x>', [0, 1, 2], [3.0, 2.0, 1.0], note="last 1")])
    root = ElementTree.fromstring(to_svg(lay_out([figure])))
    space = "{http://www.w3.org/2000/svg}"
    words = [element.text for element in root.iter(f"{space}text")]
    assert "a < b & c" in words
    assert 'trial "1" <x>' in words
    [line] = [
        e
        for e in root.iter(f"{space}polyline")
        if e.get("stroke") == COLOURS[0] and e.find(f"{space}title") is not None
    ]
    assert len((line.get("points") or "").split()) == 3


def test_a_gap_stays_a_gap() -> None:
    """A NaN in the middle breaks the line in two, and is marked on the axis."""
    curve = Curve("a", [0, 1, 2, 3, 4], [1.0, 2.0, math.nan, 2.0, 1.0], odd=[2])
    shapes = lay_out([Figure("loss", [curve])]).shapes
    assert sum(isinstance(shape, Line) and bool(shape.title) for shape in shapes) == 2


def test_html_needs_nothing_else_and_knows_its_values() -> None:
    """The page loads nothing from anywhere; the values under the mouse are in it, and cannot break out of it."""
    figure = Figure("loss", [Curve("</script><b>", [0, 10], [0.5, math.inf], [0.25, 1], [1.0, 1])])
    page = to_html(lay_out([figure]))
    assert not re.search(r'(src|href)="', page)
    assert page.count("</script>") == 1
    data = re.search(r"const panels = (.*);\n", page)
    assert data is not None
    [panel] = json.loads(data.group(1))
    assert panel["curves"][0]["x"] == [0]
    assert panel["curves"][0]["y"] == [0.5]


def test_png_shows_the_curve_in_its_colour(tmp_path: Path) -> None:
    """The picture has the curve's colour in it, at twice the drawing's size."""
    from PIL import Image

    drawing = lay_out([Figure("loss", [Curve("a", [0, 1, 2], [3.0, 2.0, 1.0], is_dashed=True, colour=1)])])
    write_png(drawing, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.size == (2 * drawing.width, 2 * drawing.height)
        wanted = tuple(int(COLOURS[1][i : i + 2], 16) for i in (1, 3, 5))
        colours = image.convert("RGB").getcolors(1_000_000)
        assert colours is not None
        assert max(count for count, colour in colours if colour == wanted) > 500
