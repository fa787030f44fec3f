"""Read an experiment file: its text, byte for byte, and the plain values in it. `experiment_config` checks them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from determined.errors import ConfigError
from determined.experiment.config import yaml_values

LARGEST_FILE = 1 << 20  # bytes; a hundred times the longest that people write by hand


@dataclass(frozen=True)
class ConfigFile:
    """An experiment file as it was submitted.

    Attributes:
        name: What messages call it.
        text: All of it, comments and line ends included.
        values: The mapping it holds.
        notes: What its writer may have meant otherwise, one sentence each.
    """

    name: str
    text: str
    values: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def read(path: str | Path) -> ConfigFile:
    """Read an experiment file, YAML or JSON.

    Raises:
        ConfigError: It is not there, too large, not text, not YAML, or not a mapping.

    Example::

        read("experiment.yaml").values["searcher"]
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as e:
        raise ConfigError(f"{path} cannot be read: {e.strerror}.") from e
    if len(content) > LARGEST_FILE:
        raise ConfigError(f"{path} is larger than {LARGEST_FILE >> 10} KiB, which no experiment file has to be.")
    try:
        text = content.decode()
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path} is not UTF-8 text (byte {e.start}). Save it as UTF-8.") from None
    return parse(text, str(path))


def parse(text: str, name: str = "the experiment file") -> ConfigFile:
    """Parse the text of an experiment file.

    Example::

        parse("name: mnist").values  # {"name": "mnist"}
    """
    if len(text) > LARGEST_FILE:
        raise ConfigError(f"{name} is larger than {LARGEST_FILE >> 10} KiB, which no experiment file has to be.")
    try:
        loaded = load(text)
    except ConfigError as e:
        raise ConfigError(f"{name}, {e}" if str(e).startswith("line ") else f"{name}: {e}") from None
    if not isinstance(loaded.values, dict):
        found = "empty" if loaded.values is None else f"a {type(loaded.values).__name__}"
        raise ConfigError(f"{name} is {found}, and has to be a mapping, such as 'name: my-experiment'.")
    return ConfigFile(name, text, loaded.values, loaded.notes)


def load(text: str) -> yaml_values.Loaded:
    """Return the plain values of YAML or JSON text, whatever they are."""
    text = text.removeprefix("\ufeff")
    if text.lstrip()[:1] in ("{", "["):  # JSON may hold tabs and surrogate escapes, which YAML does not take
        try:
            return yaml_values.Loaded(_bounded(json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)))
        except (ValueError, RecursionError):
            pass  # the YAML reader says where, if it is no flow-style YAML either
    return yaml_values.load(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _bounded(values: Any) -> Any:
    """Return `values`, if they are no deeper than YAML may be."""
    level = [values]
    for _ in range(yaml_values.DEEPEST + 1):
        level = [
            inner
            for value in level
            if isinstance(value, (dict, list))
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return values
    raise ValueError("nested too deeply")
