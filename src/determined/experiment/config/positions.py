"""Where in a file the problems of its configuration are: line and column behind each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from determined.errors import ConfigError
from determined.experiment.config.problems import Problem, child, listed
from determined.experiment.config.yaml_values import LOADER

SETTINGS = "in --config"


def located(error: ConfigError, text: str, name: str, settings: Mapping[str, Any] | None = None) -> ConfigError:
    """Return the error with the file's name, and with line and column of each problem that the file shows.

    Args:
        error: What checking the configuration raised.
        text: The file.
        name: What messages call it.
        settings: The layer of `--config`, which is above the file.

    Example::

        located(error, "searchr: 1", "e.yaml")  # ... <config>.searchr: is not a key ... (line 1, column 1)
    """
    if not error.problems:
        return ConfigError(str(error) if str(error).startswith(name) else f"{name}: {error}")
    known = positions(text)
    typed = set(_paths(settings or {}, ""))
    places = [_place(path, known, typed) for path, _ in error.problems]
    shown = [Problem(path, reason + _said(place)) for (path, reason), place in zip(error.problems, places, strict=True)]
    found = ConfigError(f"{name}: {listed(shown)}")
    found.problems = error.problems
    found.lines = tuple(place[0] if isinstance(place, tuple) else None for place in places)
    return found


def positions(text: str) -> dict[str, tuple[int, int]]:
    """Return line and column, from 1, of every key and list entry of a YAML text; nothing if it is none.

    Example::

        positions("a: 1\\nb: [2]")["b[0]"]  # (2, 5)
    """
    try:
        root = yaml.compose(text.removeprefix("\ufeff"), Loader=LOADER)
    except (yaml.YAMLError, RecursionError):  # JSON with tabs, say
        return {}
    return {path: (mark.line + 1, mark.column + 1) for path, mark in _marks(root, "")} if root is not None else {}


def _marks(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, yaml.MappingNode):
        # What `<<` brings comes first, so that keys written out replace it.
        for key, value in sorted(node.value, key=lambda pair: bool(pair[0].value != "<<")):
            if key.value == "<<":
                for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    yield from _marks(merged, path)
            else:
                inner = child(path, str(key.value))
                yield inner, key.start_mark
                yield from _marks(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            yield child(path, i), value.start_mark
            yield from _marks(value, child(path, i))


def _paths(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of everything that settings say."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield child(path, key)
            yield from _paths(inner, child(path, key))
    elif isinstance(value, list):
        yield from (child(path, i) for i in range(len(value)))


def _place(path: str, places: Mapping[str, tuple[int, int]], typed: set[str]) -> tuple[int, int] | str:
    """Return line and column of a path, or of the section around it if it is not in the file itself.

    What settings say is `SETTINGS`, and what is nowhere an empty text.
    """
    while path:
        if path in typed:
            return SETTINGS
        if path in places:
            return places[path]
        cut = max(path.rfind("."), path.rfind("["))
        path = path[:cut] if cut > 0 else ""
    return ""


def _said(place: tuple[int, int] | str) -> str:
    if isinstance(place, tuple):
        return f" (line {place[0]}, column {place[1]})"
    return f" ({place})" if place else ""
