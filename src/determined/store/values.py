"""JSON values as text that every database holds: NaN and the infinities included, and back again exactly."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_ODD = re.compile(r"~*(?:NaN|-?Infinity)")
_SPELLED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def as_float(number: Any) -> float:
    """Return a number as a float; infinite if it is an integer that no float can hold."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def dump(value: Any) -> str:
    """Return the JSON text of a value. NaN and infinities become strings; strings that look so get a `~` in front.

    Example::

        assert dump({"loss": math.nan, "note": "NaN"}) == '{"loss": "NaN", "note": "~NaN"}'
    """
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_spell(value), allow_nan=False)
    return json.dumps(_spell(value), allow_nan=False) if _may_be_odd(text) else text


def load(text: str | bytes) -> Any:
    """Return what `dump` was given. (Tuples come back as lists, and keys as strings, as JSON has it.)

    Example::

        assert load(dump([1, math.inf, "~NaN"])) == [1, math.inf, "~NaN"]
    """
    if isinstance(text, bytes):
        text = text.decode()
    value = json.loads(text)
    return _unspell(value) if _may_be_odd(text) else value


def clean(text: str) -> str:
    """Return the text with what no database holds (NUL, halves of characters) replaced by U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else _HALF_CHARACTER.sub("\ufffd", text)


def _may_be_odd(text: str) -> bool:
    return 'NaN"' in text or 'Infinity"' in text


def _spell(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str) and _ODD.fullmatch(value):
        return f"~{value}"
    if isinstance(value, dict):
        return {key: _spell(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_spell(inner) for inner in value]
    return value


def _unspell(value: Any) -> Any:
    if isinstance(value, str) and _ODD.fullmatch(value):
        return value[1:] if value[0] == "~" else _SPELLED[value]
    if isinstance(value, dict):
        return {key: _unspell(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_unspell(inner) for inner in value]
    return value
