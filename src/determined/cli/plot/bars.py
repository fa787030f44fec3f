"""Bars of how much each hyperparameter matters: into a file, or as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from determined._wording import visible
from determined.cli.plot.search_axes import ending, heading
from determined.cli.plot.shapes import COLOURS, GRID, INK, LETTER, SOFT, Drawing, Line, Shape, Words, box
from determined.cli.plot.text import ANSI, paint

if TYPE_CHECKING:
    from determined.cli.plot.text import Look
    from determined.client._search.importance import Importance

WIDTH, TOP, ROW, THICK, RIGHT, WIDEST_NAME = 760, 76, 32, 18, 76, 240
REST = "not explained"


def note_of(importance: Importance) -> str:
    """Say what the shares are shares of."""
    metric = visible(importance.metric.replace(".", " ", 1))
    return f"share of the variance of {metric} that each explains, {importance.trials:,} trials"


def warning_of(importance: Importance) -> str:
    """Say why the shares cannot be relied on; empty if they can."""
    count = f"{importance.trials} trials for {len(importance.shares)} hyperparameters"
    return f"Uncertain: {count} are few." if importance.is_uncertain else ""


def bars_drawing(importance: Importance, title: str) -> Drawing:
    """Draw the shares, the greatest first, and what is left."""
    names = [*importance.shares, REST]
    left = 24 + min(max(len(name) for name in names) * 13 * LETTER, WIDEST_NAME) + 14
    wide = WIDTH - left - RIGHT
    longest = max(*importance.shares.values(), importance.unexplained)
    shapes: list[Shape] = list(heading(visible(title), note_of(importance), 24, WIDTH - 48))
    bottom = TOP + ROW * len(names)
    shapes.append(Line([(left, TOP - 4), (left, bottom - ROW + THICK + 4)], GRID, 1))
    for i, (name, share) in enumerate([*importance.shares.items(), (REST, importance.unexplained)]):
        top, is_rest = TOP + i * ROW, i == len(importance.shares)
        length = wide * share / longest
        colour = GRID if is_rest else COLOURS[0]
        shapes.append(box(left, top, max(length, 0.5), THICK, colour, f"{visible(name)}: {share:.2%}"))
        words = ending(name, WIDEST_NAME, 13)
        shapes.append(Words((left - 10, top + 14), words, 13, "end", SOFT if is_rest else INK))
        shapes.append(Words((left + length + 8, top + 14), percent(share), 13, colour=SOFT if is_rest else INK))
    if warning := warning_of(importance):
        shapes.append(Words((24, bottom + 10), warning, 12, colour=SOFT))
        bottom += 22
    return Drawing(visible(title), WIDTH, bottom + 14, shapes)


def bars_text(importance: Importance, title: str, look: Look) -> str:
    """Return the shares as bars of characters that fit into `look.columns`."""
    names = [*(visible(name) for name in importance.shares), REST]
    broad = min(max(map(len, names)), look.columns // 3)
    wide = max(look.columns - broad - 10, 4)
    longest = max(*importance.shares.values(), importance.unexplained)
    full, light = ("█", "░") if look.has_unicode else ("#", ".")
    lines = [paint(f" {visible(title)}"[: look.columns], "1", look), f" {note_of(importance)}"[: look.columns]]
    for i, (name, share) in enumerate(zip(names, [*importance.shares.values(), importance.unexplained], strict=True)):
        is_rest = i == len(importance.shares)
        bar = (light if is_rest else full) * round(wide * share / longest)
        shown = name if len(name) <= broad else name[-broad:]
        lines.append(f" {shown:>{broad}} {percent(share):>5} {paint(bar, '' if is_rest else ANSI[0], look)}")
    if warning := warning_of(importance):
        lines.append(f" {warning}"[: look.columns])
    return "\n".join(lines) + "\n"


def percent(share: float) -> str:
    """Format a share."""
    return f"{share * 100:.0f} %" if share >= 0.01 or share == 0 else "<1 %"
