"""Values as text: what a table, CSV, JSON or YAML shows of a number, a text, a time or a mapping."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable
from typing import Any

from determined._wording import visible
from determined.cli.output import terminal


class Percent(float):
    """A share from 0 to 1, shown as percent."""


class Bytes(int):
    """A size, shown in the unit that fits."""


class Duration(float):
    """Seconds, shown as a clock would."""


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
    """Return JSON text: two spaces, sorted keys, strict, with control characters escaped."""
    return visible(json.dumps(plain(value), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False), lines=True)


def plain(value: Any) -> Any:
    """Convert a value to what JSON can hold; NaN and the infinities become their names."""
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
    """Format a time, in UTC to the second."""
    if value is None:
        return ""
    if value.tzinfo is not datetime.timezone.utc:
        value = value.astimezone(datetime.timezone.utc)
    return value.isoformat(" ", "seconds")[:19] + "+0000"


def size(count: int) -> str:
    """Format a number of bytes in the unit that fits."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def clock(seconds: float) -> str:
    """Format a length of time: `0:07`, `1:02:03`, `2d 03:04`."""
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24}d {hours % 24:02d}:{minutes:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def number(value: float) -> str:
    """Format a number with six significant digits; CSV and JSON have all digits."""
    return f"{value:.6g}"


def cell(value: Any) -> str:
    """Format a value for a table."""
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
    Duration: clock,
    datetime.datetime: moment,
}


def exact(value: Any) -> str:
    """Format a value for CSV: nothing rounded; ends of lines stay in texts."""
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
