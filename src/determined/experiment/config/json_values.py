"""What a configuration may hold: JSON values that every database and file can keep. Copies them, or says where not."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from determined.experiment.config.problems import Problem
from determined.experiment.config.yaml_values import DEEPEST


def plain(value: Any, path: str, problems: list[Problem], depth: int = 0) -> Any:
    """A copy of `value` in plain types; what cannot be one becomes None, and a problem.

    Example::

        problems = []
        plain({"vals": (1, 2)}, "lr", problems)  # {"vals": [1, 2]}
    """
    if depth > DEEPEST:
        problems.append(Problem(path, f"is nested more than {DEEPEST} deep."))
        return None
    if isinstance(value, Mapping):
        _check_keys(value, path, problems)
        pairs = ((key, inner) for key, inner in value.items() if isinstance(key, str))
        return {key: plain(inner, child(path, key), problems, depth + 1) for key, inner in pairs}
    if isinstance(value, (list, tuple)):
        return [plain(inner, f"{path}[{i}]", problems, depth + 1) for i, inner in enumerate(value)]
    if reason := _unfit(value):
        problems.append(Problem(path, reason))
        return None
    return value


def child(path: str, key: str | int) -> str:
    """The path of what `key` holds."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def shown(value: Any) -> str:
    """`value` as a configuration would write it, for a message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:50]}..."


def _check_keys(value: Mapping[Any, Any], path: str, problems: list[Problem]) -> None:
    for key in value:
        if not isinstance(key, str):
            problems.append(Problem(path, f'has the key {shown(key)}, which is not text. Write it in quotes: "{key}".'))
        elif reason := _unfit_text(key):
            problems.append(Problem(path, f"has a key that {reason}"))


def _unfit(value: Any) -> str | None:
    """Why this cannot be kept, or None."""
    if value is None or isinstance(value, (bool, int)):
        return None
    if isinstance(value, str):
        return _unfit_text(value)
    if isinstance(value, float):
        return None if math.isfinite(value) else f'is {value}, which JSON cannot hold. Write it as text: "{value}".'
    kinds = "text, numbers, true, false, null, lists and mappings"
    return f"is {str(value)[:50]!r}, a {type(value).__name__}; a configuration holds {kinds}."


def _unfit_text(text: str) -> str | None:
    if "\0" in text:
        return "contains a NUL character, which databases do not keep."
    try:
        text.encode()
    except UnicodeEncodeError:
        return "contains half a surrogate pair, which no file can hold."
    return None
