"""How lists look: a table that fits the terminal, the same table in full when piped, CSV, or JSON.

det experiment list            a table; on a terminal it is cut to fit and has colours
det experiment list --csv      comma-separated, header first
det experiment list --json     two spaces, sorted keys; times are ISO 8601
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import io
import json
import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from determined._wording import visible
from determined.cli import terminal

NARROWEST, CRAMPED, READABLE = 4, 8, 14
STATE_COLOURS = {
    "COMPLETED": "32", "RUNNING": "36", "ACTIVE": "36", "STARTING": "36", "QUEUED": "36", "PAUSED": "33",
    "CANCELED": "33", "ERROR": "31", "DELETE_FAILED": "31", "DELETED": "2", "DELETING": "2",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Column:
    """One column: its title for people, its key for programs.

    Args:
        title: What stands above it.
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


class Percent(float):
    """A share from 0 to 1, shown as percent."""


class Bytes(int):
    """A size, shown in the unit that fits."""


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
    widths: Sequence[int] | None = None  # of the columns, on a terminal; longer texts go over several lines

    def show(self, form: str = "table") -> None:
        """Write it to stdout as `table`, `csv` or `json`."""
        for part in FORMS[form](self):
            terminal.write(part, colours=True)  # the table's own: those of texts are visible text by now

    def without(self, title: str) -> Table:
        """The same table without the column of this title."""
        kept = [i for i, column in enumerate(self.columns) if column.title != title]
        rows = [[row[i] for i in kept] for row in self.rows]
        return dataclasses.replace(self, columns=[self.columns[i] for i in kept], rows=rows)

    def to_csv(self) -> str:
        """The whole table as CSV."""
        return "".join(_as_csv(self))

    def width(self) -> int:
        """Columns of a terminal that it takes, if nothing is cut."""
        return _Grid(self.columns, list(self.rows)).total()

    def records(self) -> list[dict[str, Any]]:
        """The rows as JSON objects."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, map(plain, row), strict=True)) for row in self.rows]


def show_json(value: Any) -> None:
    """Write JSON the way all commands do."""
    terminal.write(to_json(value) + "\n")


def show_yaml(value: Any) -> None:
    """Write YAML, block style."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes texts in double quotes where something in them has to be escaped."""

    def quoted(dumper: Dumper, text: str) -> yaml.ScalarNode:
        style = None if visible(text, lines=True) == text else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, quoted)
    terminal.write(yaml.dump(plain(value), Dumper=Dumper, default_flow_style=False, allow_unicode=True, sort_keys=True))


def to_json(value: Any) -> str:
    """JSON text: two spaces, sorted keys, nothing that a strict reader would refuse or a terminal would obey."""
    return visible(json.dumps(plain(value), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False), lines=True)


def plain(value: Any) -> Any:
    """The value as JSON can hold it; NaN and the infinities become their names."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(inner) for inner in value)
    return str(getattr(value, "value", value))


def moment(value: datetime.datetime | None) -> str:
    """A time, in UTC to the second."""
    if value is None:
        return ""
    if value.tzinfo is not datetime.timezone.utc:
        value = value.astimezone(datetime.timezone.utc)
    return value.isoformat(" ", "seconds")[:19] + "+0000"


def size(count: int) -> str:
    """A number of bytes, for people."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def number(value: float) -> str:
    """A number with six digits that count; the full one is in CSV and JSON."""
    return f"{value:.6g}"


def cell(value: Any) -> str:
    """The value as a table shows it."""
    known = CELLS.get(type(value))
    return known(value) if known is not None else _rare_cell(value)


def _rare_cell(value: Any) -> str:
    if isinstance(value, dict) and not any(isinstance(inner, (dict, list, tuple)) for inner in value.values()):
        return ", ".join(f"{visible(key)}={cell(inner)}" for key, inner in sorted(value.items()))
    if isinstance(value, (list, tuple)) and all(isinstance(inner, str) for inner in value):
        return ", ".join(map(visible, value))
    return exact(value)


# By type, and not by a row of questions: a list may have a hundred thousand cells.
CELLS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "",
    str: lambda value: visible(" ".join(value.split()) if "\n" in value else value),
    int: str,
    float: number,
    bool: lambda value: "yes" if value else "no",
    Percent: lambda value: f"{value * 100:.1f}%",
    Bytes: size,
    datetime.datetime: moment,
}


def exact(value: Any) -> str:
    """The value as CSV holds it: nothing rounded; ends of lines stay in texts."""
    if value is None:
        return ""
    if isinstance(value, Percent):
        return f"{value * 100:.1f}%"
    if isinstance(value, datetime.datetime):
        return moment(value)
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        return visible(json.dumps(plain(value), sort_keys=True, ensure_ascii=False))
    if isinstance(value, float):
        return repr(float(value))
    return visible(str(getattr(value, "value", value)), lines=True)


def _as_csv(table: Table) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([visible(column.title) for column in table.columns])
    for count, row in enumerate(table.rows, start=1):
        writer.writerow([exact(value) for value in row])
        if count % 1000 == 0:  # a million rows never stand in memory at once
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
        if table.widths is not None:
            yield from grid.wrapped(table.widths)
            return
        if table.is_description and len(rows) == 1 and grid.total() > room:
            yield from _as_lines(grid.titles(), grid.texts[0], room)
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
        longest = [max(map(text_width, column), default=0) for column in zip(*self.texts, strict=True)] or [0] * len(
            columns
        )
        self.widths = [max(longest[i], text_width(column.title)) for i, column in enumerate(columns)]
        self.left_out: list[str] = []

    def titles(self) -> list[str]:
        return [column.title for column in self.columns]

    def total(self) -> int:
        """Columns of the terminal that a line takes."""
        return sum(self.widths) + 3 * len(self.widths) - 1

    def leave_out_empty(self) -> None:
        """Take away columns that nobody misses."""
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
        """How narrow a column may be and still say something."""
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

    def wrapped(self, widths: Sequence[int]) -> Iterator[str]:
        """The same in columns of these widths, where nothing is cut."""
        self.widths = list(widths)
        for titles in _over_lines(self.titles(), widths):
            yield terminal.paint(_line(titles, self.widths, self.is_numeric), "1") + "\n"
        yield "+".join("-" * (width + 2) for width in self.widths) + "\n"
        for text in self.texts:
            yield from (_line(part, self.widths, self.is_numeric) + "\n" for part in _over_lines(text, widths))


def _over_lines(texts: Sequence[str], widths: Sequence[int]) -> Iterator[Sequence[str]]:
    """The cells of one row as the cells of as many lines as they need."""
    import itertools
    import textwrap

    parts = [
        textwrap.wrap(text, width if text_width(text) == len(text) else max(width // 2, 1), break_on_hyphens=False)
        if text_width(text) > width
        else [text]
        for text, width in zip(texts, widths, strict=True)
    ]
    return itertools.zip_longest(*parts, fillvalue="")


def _as_lines(titles: list[str], texts: list[str], room: int) -> Iterator[str]:
    """One row that is too wide for the terminal, turned on its side."""
    import textwrap

    left = max(map(text_width, titles))
    for title, text in zip(titles, texts, strict=True):
        parts = textwrap.wrap(text, max(room - left - 4, 20)) or [""]
        yield f" {terminal.paint(title.ljust(left), '1')}  {parts[0]}\n"
        yield from (f" {'':{left}}  {part}\n" for part in parts[1:])


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
    length = text_width(text)
    if length > width:
        text, length = _cut(text, width), width
    return " " * (width - length) + text if is_right else text + " " * (width - length)


def _cut(text: str, width: int) -> str:
    mark = "…" if terminal.has_unicode() else "~"
    if text.isascii():
        return text[: width - 1] + mark
    kept, used = "", 1
    for character in text:
        used += text_width(character)
        if used > width:
            break
        kept += character
    return kept + mark + " " * (width - text_width(kept) - 1)


def text_width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _is_numeric(rows: Sequence[Sequence[Any]], i: int) -> bool:
    kinds = {type(row[i]) for row in rows} - {type(None)}
    return bool(kinds) and all(issubclass(kind, (int, float)) and kind is not bool for kind in kinds)


FORMS = {"table": _as_table, "csv": _as_csv, "json": _as_json}
