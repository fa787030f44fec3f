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
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from determined.cli import terminal

NARROWEST = 6
STATE_COLOURS = {
    "COMPLETED": "32", "RUNNING": "36", "ACTIVE": "36", "STARTING": "36", "QUEUED": "36", "PAUSED": "33",
    "CANCELED": "33", "ERROR": "31", "DELETE_FAILED": "31", "DELETED": "2", "DELETING": "2",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Column:
    """One column: its title for people, its key for programs."""

    title: str
    key: str = ""

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

    def show(self, form: str = "table") -> None:
        """Write it to stdout as `table`, `csv` or `json`."""
        for part in FORMS[form](self):
            terminal.write(part)

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

    terminal.write(yaml.safe_dump(plain(value), default_flow_style=False, allow_unicode=True, sort_keys=True))


def to_json(value: Any) -> str:
    """JSON text: two spaces, sorted keys, nothing that a strict reader would refuse."""
    return json.dumps(plain(value), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)


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
    return value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S+0000") if value else ""


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
    if value is None:
        return ""
    if isinstance(value, str):
        return " ".join(value.split()) if "\n" in value else value
    if isinstance(value, Percent):
        return f"{value * 100:.1f}%"
    if isinstance(value, Bytes):
        return size(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    return exact(value)


def exact(value: Any) -> str:
    """The value as CSV holds it: nothing rounded."""
    if value is None:
        return ""
    if isinstance(value, Percent):
        return f"{value * 100:.1f}%"
    if isinstance(value, datetime.datetime):
        return moment(value)
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        return json.dumps(plain(value), sort_keys=True, ensure_ascii=False)
    if isinstance(value, float):
        return repr(float(value))
    return str(getattr(value, "value", value))


def _as_csv(table: Table) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([column.title for column in table.columns])
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
    titles = [column.title for column in table.columns]
    right = [_is_numeric(rows, i) for i in range(len(titles))]
    texts = [[cell(value) for value in row] for row in rows]
    seen = terminal.is_terminal()
    room = terminal.width() if seen else 0
    longest = [max((_length(row[i]) for row in texts), default=0) for i in range(len(titles))]
    # Piped tables give each header two columns of air, as people's scripts know them; a terminal has none to give.
    widths = [max(longest[i], _length(title) + (0 if seen else 2)) for i, title in enumerate(titles)]
    if table.title:
        yield terminal.paint(table.title, "1") + "\n"
    if room and sum(widths) + 3 * len(widths) - 1 > room:
        if len(texts) == 1:
            yield from _as_lines(titles, texts[0], room)
            return
        widths = _fit(widths, room - 3 * len(widths) + 1)
    yield terminal.paint(_line(titles, widths, right), "1") + "\n"
    yield "+".join("-" * (width + 2) for width in widths) + "\n"
    states = [i for i, column in enumerate(table.columns) if column.title == "State"] if terminal.has_colour() else []
    for row in texts:
        line = _line(row, widths, right)
        for i in states:
            line = line.replace(f" {row[i]} ", f" {terminal.paint(row[i], STATE_COLOURS.get(row[i], '0'))} ", 1)
        yield line + "\n"


def _as_lines(titles: list[str], texts: list[str], room: int) -> Iterator[str]:
    """One row that is too wide for the terminal, turned on its side."""
    import textwrap

    left = max(map(_length, titles))
    for title, text in zip(titles, texts, strict=True):
        parts = textwrap.wrap(text, max(room - left - 4, 20)) or [""]
        yield f" {terminal.paint(title.ljust(left), '1')}  {parts[0]}\n"
        yield from (f" {'':{left}}  {part}\n" for part in parts[1:])


def _fit(widths: list[int], room: int) -> list[int]:
    """Take columns away from the widest ones until all fit."""
    fitted = list(widths)
    while sum(fitted) > room:
        i = max(range(len(fitted)), key=lambda i: (fitted[i], -i))
        if fitted[i] <= NARROWEST:
            break
        others = [width for k, width in enumerate(fitted) if k != i]
        second = max([width for width in others if width < fitted[i]], default=NARROWEST)
        fitted[i] = max(fitted[i] - (sum(fitted) - room), min(second, fitted[i] - 1), NARROWEST)
    return fitted


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = [_pad(text, width, is_right) for text, width, is_right in zip(texts, widths, right, strict=True)]
    return (" " + " | ".join(cells)).rstrip() if not right[-1] else " " + " | ".join(cells)


def _pad(text: str, width: int, is_right: bool) -> str:
    length = _length(text)
    if length > width:
        text, length = _cut(text, width), width
    return " " * (width - length) + text if is_right else text + " " * (width - length)


def _cut(text: str, width: int) -> str:
    mark = "…" if terminal.has_unicode() else "~"
    if text.isascii():
        return text[: width - 1] + mark
    kept, used = "", 1
    for character in text:
        used += _length(character)
        if used > width:
            break
        kept += character
    return kept + mark + " " * (width - _length(kept) - 1)


def _length(text: str) -> int:
    """Columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _is_numeric(rows: Sequence[Sequence[Any]], i: int) -> bool:
    kinds = {type(row[i]) for row in rows} - {type(None)}
    return bool(kinds) and all(issubclass(kind, (int, float)) and kind is not bool for kind in kinds)


FORMS = {"table": _as_table, "csv": _as_csv, "json": _as_json}
