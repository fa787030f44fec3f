"""Tables: fitted to a terminal, the same in full when piped, CSV, or JSON.

det experiment list            a table; on a terminal it is cut to fit and has colours
det experiment list --csv      comma-separated, header first
det experiment list --json     two spaces, sorted keys; times are ISO 8601

Long lists are laid out here, because `rich.table` takes 30 s for 10,000 rows. It wraps the few rows that must
not be cut.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from determined._wording import visible
from determined.cli.output import terminal
from determined.cli.output.values import cell, exact, plain, to_json

NARROWEST, CRAMPED, READABLE = 4, 8, 14
STATE_COLOURS = {
    "COMPLETED": "32", "RUNNING": "36", "ACTIVE": "36", "STARTING": "36", "QUEUED": "36", "PAUSED": "33",
    "CANCELED": "33", "ERROR": "31", "DELETE_FAILED": "31", "DELETED": "2", "DELETING": "2",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Column:
    """One column: its title for people, its key for programs.

    Args:
        title: Its header.
        key: Its name in JSON, if not the title in small letters.
        rank: Above 0: a terminal that is too narrow does without it, the highest rank first. It is left out of a
            terminal's table too when no row has anything in it.
        is_whole: Never cut, as long as there is another way.
    """

    title: str
    key: str = ""
    rank: int = 0
    is_whole: bool = False

    @property
    def name(self) -> str:
        """The key in JSON: `# of Batches` is `of_batches` unless another was given."""
        return self.key or "_".join("".join(c if c.isalnum() else " " for c in self.title.lower()).split())


@dataclasses.dataclass
class Table:
    """Columns and rows of plain values: numbers, texts, times, dicts, lists, None.

    Example::

        Table([Column("ID"), Column("Name")], [(1, "digits")]).show("csv")
    """

    columns: Sequence[Column]
    rows: Iterable[Sequence[Any]]
    title: str = ""
    is_description: bool = False  # one row that is too wide for a terminal is turned on its side
    wraps: bool = False  # on a terminal, texts that are too long go over several lines, and nothing is cut

    def show(self, form: str = "table") -> None:
        """Write it to stdout as `table`, `csv` or `json`."""
        for part in FORMS[form](self):
            terminal.write(part, colours=True)  # the table's own: those of texts are visible text by now

    def without(self, title: str) -> Table:
        """Return the same table without the column of this title."""
        kept = [i for i, column in enumerate(self.columns) if column.title != title]
        rows = [[row[i] for i in kept] for row in self.rows]
        return dataclasses.replace(self, columns=[self.columns[i] for i in kept], rows=rows)

    def to_csv(self) -> str:
        """Return the whole table as CSV."""
        return "".join(_as_csv(self))

    def width(self) -> int:
        """Return how many columns of a terminal it takes, if nothing is cut."""
        return _Grid(self.columns, list(self.rows)).total()

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as JSON objects."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, map(plain, row), strict=True)) for row in self.rows]


def _as_csv(table: Table) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([visible(column.title) for column in table.columns])
    for count, row in enumerate(table.rows, start=1):
        writer.writerow([exact(value) for value in row])
        if count % 1000 == 0:  # so that a million rows are never in memory at once
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def _as_json(table: Table) -> Iterator[str]:
    yield to_json(table.records()) + "\n"


def _as_table(table: Table) -> Iterator[str]:
    rows = list(table.rows)
    grid = _Grid(table.columns, rows)
    if table.title:
        yield terminal.paint(visible(table.title), "1") + "\n"
    if terminal.is_terminal():
        room = terminal.width()
        grid.leave_out_empty()
        if table.wraps:
            yield from _wrapped(grid.texts, room, titles=grid.titles(), is_right=grid.is_numeric)
            return
        if table.is_description and len(rows) == 1 and grid.total() > room:
            pairs = zip(grid.titles(), grid.texts[0], strict=True)
            yield from _wrapped([[terminal.paint(title, "1"), text] for title, text in pairs], room)
            return
        grid.fit(room)
    else:  # each header has two columns of air, as people's scripts know it
        grid.widths = [max(width, len(title) + 2) for width, title in zip(grid.widths, grid.titles(), strict=True)]
    yield from grid.lines()
    if grid.left_out:
        yield terminal.paint(f"Too narrow for: {', '.join(grid.left_out)}. See all with --csv or --json.", "2") + "\n"


class _Grid:
    """The cells of a table as texts, and how wide each column is."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> None:
        self.columns = [dataclasses.replace(column, title=visible(column.title)) for column in columns]
        self.texts = [[cell(value) for value in row] for row in rows]
        self.is_numeric = [_is_numeric(rows, i) for i in range(len(columns))]
        self.is_time = [any(type(row[i]) is datetime.datetime for row in rows) for i in range(len(columns))]
        cells = zip(*(self.titles(), *self.texts), strict=True)
        self.widths = [max(map(text_width, column)) for column in cells]
        self.left_out: list[str] = []

    def titles(self) -> list[str]:
        return [column.title for column in self.columns]

    def total(self) -> int:
        """Return how many columns of the terminal a line takes."""
        return sum(self.widths) + 3 * len(self.widths) - 1

    def leave_out_empty(self) -> None:
        """Remove optional columns that are empty."""
        for i in reversed(range(len(self.columns))):
            if self.columns[i].rank and not any(text[i] for text in self.texts):
                self._remove(i)

    def fit(self, room: int) -> None:
        """Make lines no longer than `room`: shorter times, fewer columns, then cut texts."""
        if self.total() > room:
            self._shorten(self.is_time, len("2026-01-31 12:00"))
        if self.total() > room:  # ids may be typed in part, so a part is enough
            self._shorten(["UUID" in column.title for column in self.columns], len("5367b67d"))
        while self._least() > room and any(column.rank for column in self.columns):
            i = max(range(len(self.columns)), key=lambda i: (self.columns[i].rank, i))
            self.left_out.append(self.columns[i].title)
            self._remove(i)
        least = [self._minimum(i) for i in range(len(self.widths))]
        cramped = [w if c.is_whole else min(w, CRAMPED) for c, w in zip(self.columns, self.widths, strict=True)]
        self.widths = _fit(self.widths, (least, cramped), room - 3 * len(self.widths) + 1)

    def _least(self) -> int:
        return sum(self._minimum(i) for i in range(len(self.widths))) + 3 * len(self.widths) - 1

    def _minimum(self, i: int) -> int:
        """Return how narrow a column may become and still be readable."""
        column = self.columns[i]
        is_exact = self.is_numeric[i] or self.is_time[i] or column.is_whole or column.title in ("State", "UUID")
        return self.widths[i] if is_exact else min(self.widths[i], READABLE)

    def _shorten(self, which: Sequence[bool], length: int) -> None:
        for i in (i for i, is_meant in enumerate(which) if is_meant):
            for text in self.texts:
                text[i] = text[i][:length]
            self.widths[i] = max([text_width(self.columns[i].title), *(len(text[i]) for text in self.texts)])

    def _remove(self, i: int) -> None:
        parts: list[list[Any]] = [self.columns, self.is_numeric, self.is_time, self.widths, *self.texts]
        for part in parts:
            del part[i]

    def lines(self) -> Iterator[str]:
        """Header, rule, and rows."""
        yield terminal.paint(_line(self.titles(), self.widths, self.is_numeric), "1") + "\n"
        yield "+".join("-" * (width + 2) for width in self.widths) + "\n"
        states = [i for i, title in enumerate(self.titles()) if title == "State"] if terminal.has_colour() else []
        # Nearly all lines are plain: one format for them is quicker than padding each cell.
        places = zip(self.widths, self.is_numeric, strict=True)
        plainly = " " + " | ".join(f"{{:{'>' if right else '<'}{width}}}" for width, right in places)
        longest = sum(self.widths) + 3 * len(self.widths) - 2
        for text in self.texts:
            line = plainly.format(*text)
            if len(line) > longest or not line.isascii():
                line = _line(text, self.widths, self.is_numeric)
            for i in states:
                line = line.replace(f" {text[i]} ", f" {terminal.paint(text[i], STATE_COLOURS.get(text[i], '0'))} ", 1)
            yield line.rstrip() + "\n"


def _wrapped(
    texts: Sequence[Sequence[str]], room: int, titles: Sequence[str] = (), is_right: Sequence[bool] = ()
) -> Iterator[str]:
    """Lay out rows within `room` columns; texts that are too long go over several lines."""
    from rich.box import Box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    box = Box("    \n  | \n -+-\n  | \n    \n    \n  | \n    \n") if titles else None
    wrapping = RichTable(box=box, show_edge=False, show_header=bool(titles), header_style="bold")
    for title, right in zip(titles, is_right, strict=True):
        wrapping.add_column(Text(title), justify="right" if right else "left", overflow="fold")
    for _ in [] if titles else texts[0]:
        wrapping.add_column(overflow="fold")
    for row in texts:
        wrapping.add_row(*map(Text.from_ansi, row))
    colours = terminal.has_colour()
    buffer = io.StringIO()
    Console(file=buffer, width=room, force_terminal=colours, no_color=not colours).print(wrapping)
    yield from (line.rstrip() + "\n" for line in buffer.getvalue().splitlines())


def _fit(widths: list[int], floors: Sequence[list[int]], room: int) -> list[int]:
    """Take from the widest columns first, down to each of the floors in turn, until all fit."""
    fitted = list(widths)
    for floor in (*floors, [NARROWEST] * len(widths)):
        while sum(fitted) > room:
            shrinkable = [i for i in range(len(fitted)) if fitted[i] > floor[i]]
            if not shrinkable:
                break
            fitted[max(shrinkable, key=lambda i: (fitted[i], -i))] -= 1
    return fitted


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = [_pad(text, width, is_right) for text, width, is_right in zip(texts, widths, right, strict=True)]
    return (" " + " | ".join(cells)).rstrip()


def _pad(text: str, width: int, is_right: bool) -> str:
    if text_width(text) > width:
        from rich.cells import set_cell_size

        text = set_cell_size(text, width - 1) + ("…" if terminal.has_unicode() else "~")
    space = " " * (width - text_width(text))
    return space + text if is_right else text + space


def text_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _is_numeric(rows: Sequence[Sequence[Any]], i: int) -> bool:
    kinds = {type(row[i]) for row in rows} - {type(None)}
    return bool(kinds) and all(issubclass(kind, (int, float)) and kind is not bool for kind in kinds)


FORMS = {"table": _as_table, "csv": _as_csv, "json": _as_json}
