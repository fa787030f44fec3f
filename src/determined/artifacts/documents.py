"""Small JSON files of a checkpoint, such as `metadata.json`: read within bounds, whoever may have written them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from determined.artifacts import tree
from determined.errors import CheckpointDamaged

LARGEST = 4 << 20
_MOST_DIGITS = 1000
_DEEPEST = 100  # what is written has 64 levels at most


def read(path: Path) -> dict[str, Any] | None:
    """Return what a JSON file holds; None if there is nothing of that name.

    Raises:
        CheckpointDamaged: It is no regular file, too large, nested too deep, no JSON, or no dict.
    """
    if not os.path.lexists(path):
        return None
    try:
        data = tree.read_plain(path, LARGEST)
    except (OSError, ValueError) as e:
        raise CheckpointDamaged(f"{e}. Use another checkpoint.") from e
    return parse(data, str(path))


def parse(data: bytes, name: str) -> dict[str, Any]:
    """The same for bytes that are here, of the file `name`."""
    if len(data) > LARGEST:
        raise CheckpointDamaged(f"{name} has {len(data)} bytes, and {LARGEST} is the limit. Use another checkpoint.")
    try:
        found = json.loads(data, parse_int=_whole)
    except RecursionError:
        raise CheckpointDamaged(f"{name} is nested more than {_DEEPEST} levels deep. Use another checkpoint.") from None
    except ValueError as broken:
        raise CheckpointDamaged(f"{name} is not JSON: {str(broken)[:300]}. Use another checkpoint.") from broken
    if not isinstance(found, dict):
        raise CheckpointDamaged(f"{name} holds a {type(found).__name__}, not a dict. Use another checkpoint.")
    _check_depth(found, name)
    return found


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"it has a number of {len(text)} digits, and {_MOST_DIGITS} is the limit")
    return int(text)


def _check_depth(value: Any, name: str) -> None:
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [
            item
            for outer in level
            for item in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return
    raise CheckpointDamaged(f"{name} is nested more than {_DEEPEST} levels deep. Use another checkpoint.")
