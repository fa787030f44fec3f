"""What the values of one metric amount to: its type, and the entry that stands for it in a trial's summary. No SQL."""

from __future__ import annotations

import re
from typing import Any

from determined._types import Json
from determined.store.messages import SUMMARY_KEYS
from determined.store.metrics.cells import Cell

MIXED = "mixed"
"""Values of more than one type were seen; a summary says `string` for it."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")


def key(group: str) -> str:
    """Return where a group stands in a summary.

    Example::

        assert (key("training"), key("validation"), key("inference")) == (
            "avg_metrics", "validation_metrics", "inference")
    """
    return SUMMARY_KEYS.get(group, group)


def type_of(value: Json) -> str:
    """Return the type of a value, in a summary's words.

    Example::

        assert [type_of(v) for v in (1, "a", True, None, [], {}, "2025-01-31")] == [
            "number", "string", "boolean", "null", "array", "object", "date"]
    """
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "date" if value[:1].isdigit() and _DATE.fullmatch(value) else "string"
    if value is None:
        return "null"
    return "object" if isinstance(value, dict) else "array"


def common_type(one: str | None, other: str) -> str:
    """Return the type of values of both types; None is the type of no values."""
    return other if one in (None, other) else MIXED


def entry(type_name: str, last: Json, total: Cell | None) -> dict[str, Any]:
    """Return one metric in a summary. Count, min, max, sum and mean are of the finite numbers.

    The mean weighs each by the batches that it is an average of, where that was said.

    Example::

        assert entry("number", 2, Cell.of([(1, 1.0, 1), (2, 3.0, 1), (3, 2.0, 1)])) == {
            "count": 3, "min": 1.0, "max": 3.0, "sum": 6.0, "mean": 2.0, "last": 2, "type": "number"}
    """
    if type_name != "number" or total is None:
        return {"last": last, "type": "string" if type_name == MIXED else type_name}
    return {
        "count": total.count,
        "min": total.min,
        "max": total.max,
        "sum": total.sum,
        "mean": total.mean,
        "last": last,
        "type": type_name,
    }
