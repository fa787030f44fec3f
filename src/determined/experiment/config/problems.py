"""Problems of an experiment configuration: one per line, each with its path."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from determined.errors import ConfigError


class Problem(NamedTuple):
    """One mistake: where it is (`searcher.max_trials`, `labels[2]`), and what to do about it."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{config_path(self.path)}: {self.reason}"


def config_path(path: str) -> str:
    """Return a path as messages show it: `<config>.searcher.max_trials`."""
    return f"<config>{'' if not path or path.startswith('[') else '.'}{path}"


def listed(problems: Iterable[Problem]) -> str:
    """Return all problems as text, under one heading."""
    return "\n".join(["invalid experiment configuration", *(str(problem) for problem in problems)])


def refusal(problems: Iterable[Problem]) -> ConfigError:
    """Return the error that lists all problems."""
    found = tuple(problems)
    error = ConfigError(listed(found))
    error.problems = found
    return error


def child(path: str, key: str | int) -> str:
    """Return the path of the value under `key`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def shown(value: Any) -> str:
    """Return `value` as a configuration would write it, shortened for a message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:50]}..."
