"""Converts metric values to plain JSON values, or raises, in the caller's thread."""

from __future__ import annotations

import array
import datetime
import enum
import functools
import json
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, overload

from determined._types import Json
from determined.store.messages import Batches
from determined.store.values import as_float as as_float

_DEEPEST = 64
_PLAIN = {bool, int, float, str}
_CODES = {"f2": "f", "f4": "f", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q"}


def plain(value: Any, name: str, _depth: int = 0) -> Json:
    """Return `value` as numbers, text, lists and dicts. NaN and the infinities stay numbers.

    Args:
        value: What a user reported: plain values, numpy, tensors, dates, enums, or objects with `__json__()`.
        name: How the user called it, for the error.

    Raises:
        TypeError: It cannot be written down, and the message says which metric and which type.
    """
    if value is None or type(value) in _PLAIN:
        known: Json = value
        return known
    if _depth > _DEEPEST:
        raise ValueError(
            f"{name} is nested more than {_DEEPEST} levels deep, or contains itself. Report flatter values."
        )
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Mapping):
        return {
            key if type(key) is str else _key(key, name): item
            if type(item) in _PLAIN
            else plain(item, f"{name}.{key}", _depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            item if type(item) in _PLAIN else plain(item, f"{name}[{i}]", _depth + 1) for i, item in enumerate(value)
        ]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8")
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if callable(encode := getattr(value, "__json__", None)):
        return plain(encode(), name, _depth + 1)
    if (numbers := _numbers(value)) is not None:
        return plain(numbers, name, _depth + 1)
    for kind in (bool, int, float, str):  # subclasses, such as numpy.float64
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(
        f"{name} is a {type(value).__module__}.{type(value).__qualname__}, which cannot be reported. "
        "Report numbers, text, lists, dicts, numpy values or tensors."
    )


def _numbers(value: Any) -> Any:
    """Return the Python numbers in a tensor or numpy value; None if it is neither. Imports nothing."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.is_complex():
            return None
        return value.detach().cpu().tolist()
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray)):
        if value.dtype.kind == "f" and value.dtype.itemsize > 8:  # a longdouble stays one in tolist()
            value = value.astype(float)
        return None if value.dtype.kind in "cV" else value.tolist()
    return None


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()
"""What `differences()` shows for a name that one side does not have."""


def differences(mine: Mapping[str, Any], theirs: Mapping[str, Any], within: str = "") -> dict[str, tuple[Any, Any]]:
    """Return what differs between two sets of plain values, by dotted name: (mine, theirs), or `ABSENT` if missing.

    Numbers are compared by value, so 1 and 1.0 are equal, and so are two NaNs.
    """
    found: dict[str, tuple[Any, Any]] = {}
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        one, other = mine.get(name, ABSENT), theirs.get(name, ABSENT)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            found |= differences(one, other, f"{within}{name}.")
        elif not _is_same(one, other):
            found[f"{within}{name}"] = (one, other)
    return found


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return not differences(one, other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    return bool(one == other) or (one != one and other != other)


def _key(key: Any, name: str) -> str:
    if isinstance(key, str):
        return str(key)
    if key is None or isinstance(key, (bool, int, float)):
        return json.dumps(key)
    raise TypeError(f"{name} has the key {key!r}, a {type(key).__name__}. Use text as keys.")


class BatchColumns(Sequence[dict[str, Any]]):
    """Metrics of many batches, kept as one array of numbers per name; dicts are made on first use.

    A window of a hundred batches with ten metrics is a thousand values: as columns they are written in a few calls.

    Args:
        columns: Name -> numbers, one per batch: one-dimensional numpy arrays of equal length.
        make_rows: Makes the batches' dicts.
    """

    def __init__(self, columns: Mapping[str, Any], make_rows: Callable[[], list[dict[str, Any]]]) -> None:
        self.columns = columns
        self._make_rows = make_rows

    @functools.cached_property
    def _rows(self) -> list[dict[str, Any]]:
        return self._make_rows()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self._rows[index]

    def __eq__(self, other: object) -> bool:
        return self._rows == (list(other) if isinstance(other, BatchColumns) else other)

    __hash__ = None  # type: ignore[assignment]  # like a list

    def __repr__(self) -> str:
        return repr(self._rows)


def plain_batches(batches: Iterable[Any]) -> Batches:
    """Return the metrics of each batch as plain values: a dict per batch or, from columns, an array per name."""
    if isinstance(batches, BatchColumns):
        found: dict[str, Any] = {}
        for name, column in batches.columns.items():
            code = _CODES.get(column.dtype.kind + str(column.dtype.itemsize), "d")
            found[name] = array.array(code, column.astype(code, copy=False).tobytes())
        return found
    return [plain_metrics(batch) for batch in batches]


def plain_metrics(metrics: Any) -> dict[str, Json]:
    """Return the metrics of one report as plain values, each checked under its own name."""
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics must be a dict of names and values, not {type(metrics).__name__}: {metrics!r}.")
    found: dict[str, Json] = {}
    for key, value in metrics.items():
        # What the batches of a long window are made of, thousands of times: plain numbers and arrays of one number.
        if type(value).__name__ == "ndarray" and value.ndim == 0:
            value = value.item()
        if type(key) is str and type(value) in _PLAIN:
            found[key] = value
        else:
            found[_key(key, "metrics")] = plain(value, f"metric {key!r}")
    return found
