"""Laying out runs beside each other on a terminal so that nothing that differs is cut off.

What fits is one table. Else what long texts have in common is left out; else it is a row for each run; else some runs
at a time, with long texts over several lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from determined.cli.render import Column, Table, cell, text_width

COLUMN = 24  # wide enough for most values; longer ones go over several lines
LONGEST_WORD = 40
SHORT = 12  # texts of this length are left whole
CONTEXT = 4  # characters that stay of a long word that is cut
SEPARATORS = " /=,:"

Row = Sequence[Any]  # what it is about, and the value of each run


def tables(rows: Sequence[Row], names: Sequence[str], room: int) -> list[Table]:
    """The tables that show these rows within `room` columns of a terminal."""
    for candidate in (rows, [_shortened(row) for row in rows]):
        upright = Table([Column("Key"), *map(Column, names)], candidate)
        if upright.width() <= room:
            return [upright]
    turned = Table(
        [Column("Run"), *(Column(row[0]) for row in candidate)],
        [[name, *(row[1 + i] for row in candidate)] for i, name in enumerate(names)],
    )
    if turned.width() <= room:
        return [turned]
    return list(_blocks(candidate, names, room))


def _blocks(rows: Sequence[Row], names: Sequence[str], room: int) -> Iterator[Table]:
    """As many runs at a time as there is room for."""
    key = min(max(text_width(row[0]) for row in rows), max(COLUMN, room // 2))
    most = room - key - 5
    needed = [max([text_width(name), *(_needed(cell(row[1 + i])) for row in rows)]) for i, name in enumerate(names)]
    widths = [min(width, most) for width in needed]
    start = 0
    while start < len(names):
        end, left = start + 1, room - (key + 2) - (widths[start] + 3)
        while end < len(names) and widths[end] + 3 <= left:
            left -= widths[end] + 3
            end += 1
        columns = [Column("Key"), *map(Column, names[start:end])]
        yield Table(columns, [[row[0], *row[1 + start : 1 + end]] for row in rows], widths=[key, *widths[start:end]])
        start = end


def _needed(text: str) -> int:
    """How wide a column has to be for a text: whole if it is short, else in lines that keep words whole."""
    if text_width(text) <= COLUMN:
        return text_width(text)
    return max(COLUMN, min(LONGEST_WORD, max(map(text_width, text.split()), default=0)))


def _shortened(row: Row) -> Row:
    """The row without what its long texts begin and end with in common: `… lr=0.1 …`."""
    texts = [cell(value) if isinstance(value, (str, list, dict)) else value for value in row[1:]]
    known = [text for text in texts if isinstance(text, str) and text]
    if len(known) < 2 or len({*known}) == 1 or max(map(text_width, known)) <= SHORT:
        return row
    before = _with_its_name(known[0], _common(known))
    after = _common([text[before:][::-1] for text in known])
    return [row[0], *(_middle(text, before, after) if isinstance(text, str) and text else text for text in texts)]


def _common(texts: Sequence[str]) -> int:
    """How many characters all texts begin with, up to the end of a word if it is near."""
    least, most = min(texts), max(texts)
    shared = next((i for i, letter in enumerate(least) if letter != most[i : i + 1]), len(least))
    word = max(least.rfind(separator, 0, shared) + 1 for separator in SEPARATORS)
    return word if shared - word < COLUMN else shared - CONTEXT


def _with_its_name(text: str, place: int) -> int:
    """Where the word before this place begins, which may say what follows: `--lr 0.1`."""
    start = max(text.rfind(separator, 0, max(place - 1, 0)) + 1 for separator in SEPARATORS)
    return start if place - start < COLUMN // 2 else place


def _middle(text: str, before: int, after: int) -> str:
    middle = text[before : len(text) - after]
    return f"{'… ' if before > 2 else text[:before]}{middle}{' …' if after > 2 else text[len(text) - after :]}"
