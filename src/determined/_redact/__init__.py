"""Redact secrets: passwords, tokens and keys, known by the name beside them or by their shape.

Training works with the real values; whatever is recorded, saved, logged or shown has passed through here. What
counts as a secret, and what does not, is in docs/decisions/secrets.md. `DET_REDACT` adds to it: names, separated by
commas, with `*` for any letters, and patterns between slashes for text anywhere: `"pin, *_salt, /CORP-[0-9]+/"`.

Patterns are text here and compiled on first use, so that importing this costs nothing.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from determined._redact.names import KEEPS_NUMBERS, Added, Hides, added, hidden_by, is_secret, words
from determined._redact.text import (
    MASK,
    KeyBlocks,
    LogFilter,
    by_shape,
    redacted_arguments,
    redacted_leaf,
    redacted_text,
)

__all__ = [
    "MASK",
    "KeyBlocks",
    "LogFilter",
    "by_shape",
    "hidden_in",
    "is_secret",
    "redacted",
    "redacted_arguments",
    "redacted_text",
]

ROOMS = ("artifacts", "client", "core", "experiment", "pytorch", "store", "tensorboard")

T = TypeVar("T")
_NUMBERS = (float, int, bool)
_SPACES = ("const", "int", "double", "log", "categorical")  # a hyperparameter's space says so in its "type"


def redacted(value: T, name: str = "") -> T:
    """Return the value as it may be written down: the same structure, with `********` for secrets. Idempotent.

    Numbers and booleans stay, whatever they are called, except below `secrets` and under names that `DET_REDACT` adds.

    Args:
        value: Plain values, dicts and lists. Other objects stay, unless their name says that they are a secret.
        name: What it is called.

    Example::

        redacted({"lr": 0.1, "db": {"password": "hunter2"}})  # {"lr": 0.1, "db": {"password": "********"}}
    """
    found: T = _Walk(added()).value(value, name)
    return found


def hidden_in(value: Any, name: str = "") -> list[str]:
    """Return the dotted names of what was redacted in a value."""
    if isinstance(value, Mapping):
        inner = [hidden_in(item, f"{name}.{key}" if name else str(key)) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        inner = [hidden_in(item, f"{name}[{i}]") for i, item in enumerate(value)]
    else:
        return [name] if isinstance(value, str) and MASK in value else []
    return [found for part in inner for found in part]


class _Walk:
    """Goes through a structure.

    Args:
        added: What `DET_REDACT` adds; its names hide all that is below them.
    """

    def __init__(self, added: Added) -> None:
        self._added = added

    def value(self, value: Any, name: str, parent: str = "", above: Hides = Hides.NOTHING) -> Any:
        if value is None or (self._added.names is None and above in KEEPS_NUMBERS and type(value) in _NUMBERS):
            return value  # metrics, thousands of them
        hides = _hides(name, parent, above, self._added)
        if isinstance(value, Mapping):
            return self._dict(value, name, Hides.NOTHING if hides is Hides.IF_TELLING else hides)
        if isinstance(value, (list, tuple)):
            if hides is Hides.NOTHING and _is_command(value):
                found = redacted_arguments(value)
            else:
                found = [self.value(item, name, parent, hides) for item in value]
            return found if isinstance(value, list) else tuple(found)
        if isinstance(value, (set, frozenset)):
            return type(value)(self.value(item, name, parent, hides) for item in value)
        return redacted_leaf(value, name, hides)

    def _dict(self, value: Mapping[Any, Any], name: str, hides: Hides) -> dict[Any, Any]:
        is_space = hides is Hides.TEXT and value.get("type") in _SPACES
        found: dict[Any, Any] = {}
        for key, item in value.items():
            shown = _key(key, self._added) if isinstance(key, str) else key
            while shown in found:  # two keys that differ in their secrets only
                shown = f"{shown}+"
            found[shown] = item if is_space and key == "type" else self.value(item, str(key), name, hides)
        return found


@functools.lru_cache(maxsize=4096)
def _hides(name: str, parent: str, above: Hides, added: Added) -> Hides:
    """Return what is hidden under this name, below that one."""
    if above in (Hides.VARIABLES, Hides.ALL):
        return above
    if name == "secrets" or (added.names is not None and added.names.search(words(name))):
        return Hides.ALL
    if name == "environment_variables":
        return Hides.VARIABLES
    return above if above is Hides.TEXT else hidden_by(name, parent)


@functools.lru_cache(maxsize=4096)
def _key(key: str, added: Added) -> str:  # noqa: ARG001 - another DET_REDACT is another answer
    return by_shape(key)


def _is_command(value: Sequence[Any]) -> bool:
    return all(isinstance(item, str) for item in value) and any(item.startswith("-") for item in value)


for _room in ROOMS:  # a filter of a logger sees its own lines only, not those of the loggers below it
    logging.getLogger(f"determined.{_room}").addFilter(LogFilter())
