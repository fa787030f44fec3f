"""Laying out runs beside each other on a terminal so that nothing that differs is cut off.

What fits is one table. Else what long texts have in common is left out; else it is a row for each run; else some runs
at a time, with long texts over several lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from determined.cli.output.table import Column, Table, text_width
from determined.cli.output.values import cell

COLUMN = 24  # wide enough for most values; longer ones go over several lines
SHORT = 12  # texts of this length are left whole
CONTEXT = 4  # characters that stay of a long word that is cut
SEPARATORS = " /=,:"

Row = Sequence[Any]  # what it is about, and the value of each run


def tables(rows: Sequence[Row], names: Sequence[str], room: int) -> list[Table]:
    """Return the tables that show these rows within `room` columns of a terminal."""
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
    """Make tables of as many runs at a time as there is room for."""
    key = min(max(text_width(row[0]) for row in rows), room // 2)
    widest = max(text_width(text) for text in [*names, *(cell(value) for row in rows for value in row[1:])])
    count = max(1, (room - key - 2) // (min(widest, COLUMN) + 3))
    for start in range(0, len(names), count):
        columns = [Column("Key"), *map(Column, names[start : start + count])]
        yield Table(columns, [[row[0], *row[1 + start : 1 + start + count]] for row in rows], wraps=True)


def _shortened(row: Row) -> Row:
    """Leave out what the long texts of a row begin and end with in common: `… lr=0.1 …`."""
    texts = [cell(value) if isinstance(value, (str, list, dict)) else value for value in row[1:]]
    known = [text for text in texts if isinstance(text, str) and text]
    if len(known) < 2 or len({*known}) == 1 or max(map(text_width, known)) <= SHORT:
        return row
    before = _with_its_name(known[0], _common(known))
    after = _common([text[before:][::-1] for text in known])
    return [row[0], *(_middle(text, before, after) if isinstance(text, str) and text else text for text in texts)]


def _common(texts: Sequence[str]) -> int:
    """Return how many characters all texts begin with, up to the end of a word if it is near."""
    least, most = min(texts), max(texts)
    shared = next((i for i, letter in enumerate(least) if letter != most[i : i + 1]), len(least))
    word = max(least.rfind(separator, 0, shared) + 1 for separator in SEPARATORS)
    return word if shared - word < COLUMN else shared - CONTEXT


def _with_its_name(text: str, place: int) -> int:
    """Return where the word before this place begins, which may name what follows: `--lr 0.1`."""
    start = max(text.rfind(separator, 0, max(place - 1, 0)) + 1 for separator in SEPARATORS)
    return start if place - start < COLUMN // 2 else place


def _middle(text: str, before: int, after: int) -> str:
    middle = text[before : len(text) - after]
    return f"{'… ' if before > 2 else text[:before]}{middle}{' …' if after > 2 else text[len(text) - after :]}"
