"""`--config key=value`: what is typed on a command line becomes the strongest layer of a configuration."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from determined.errors import ConfigError
from determined.experiment.config.experiment_file import load


def layer(settings: Sequence[str], below: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The layer that `settings` make, later ones winning.

    Args:
        settings: Each `key=value`. Keys have dots; a value is YAML; a comma makes a list.
        below: The configuration they change. A key that leads into a declared hyperparameter, such as
            `hyperparameters.lr.minval`, changes that one key and keeps the rest of the declaration.

    Raises:
        ConfigError: A setting has no `=`, an empty key, or a value that is not YAML.

    Example::

        layer(["resources.slots_per_trial=2", "labels=a,b"])
        # {"resources": {"slots_per_trial": 2}, "labels": ["a", "b"]}
    """
    found: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        keys = key.strip().split(".")
        if not equals or not all(keys):
            raise ConfigError(
                f"--config {setting!r} is not of the form key=value, such as resources.slots_per_trial=2."
            )
        _put(found, keys, value(text, setting), below or {})
    return found


def value(text: str, setting: str = "") -> Any:
    """What the text after `=` stands for.

    Example::

        value("1e-3,yes")  # [0.001, "yes"]
    """
    text = text.strip()
    is_whole = text[:1] in ("[", "{", '"', "'") or "," not in text
    parts = [text] if is_whole else text.removesuffix(",").split(",")
    try:
        values = [load(part.strip()).values for part in parts]
    except ConfigError as e:
        raise ConfigError(f"--config {setting or text!r} is not YAML: {e}") from None
    return values[0] if is_whole else values


def _put(found: dict[str, Any], keys: Sequence[str], new: Any, below: Any) -> None:
    place, path = found, list(keys)
    in_space = path[0] == "hyperparameters"
    while len(path) > 1:
        key = path.pop(0)
        below = below.get(key) if isinstance(below, Mapping) else None
        if not isinstance(place.get(key), dict):
            is_declared = in_space and isinstance(below, Mapping) and "type" in below
            place[key] = copy.deepcopy(dict(below)) if is_declared and isinstance(below, Mapping) else {}
        place = place[key]
    place[path[0]] = new
