"""In an experiment file null is absent, and keys that start with `x-` are its writer's own; not in free-form parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from determined.experiment.config.searcher import Custom

FREE = {"data", "hyperparameters", "sampler_args", "args"}  # whose inner nulls are values
OWN = "x-"
OF_CUSTOM = {field.alias or name for name, field in Custom.model_fields.items()}


def without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are given.

    Example::

        without_nulls({"name": None, "data": {"path": None}, "x-note": "mine"})  # {"data": {"path": None}}
    """
    found = {}
    for key, value in values.items():
        if value is not None and not key.startswith(OWN):
            is_custom = key == "searcher" and isinstance(value, dict) and value.get("name") == "custom"
            found[key] = _custom(value) if is_custom else _given(key, value)
    return found


def _given(key: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_given("", inner) for inner in value]
    return without_nulls(value) if isinstance(value, dict) and key not in FREE else value


def _custom(section: Mapping[str, Any]) -> dict[str, Any]:
    """A custom searcher's own keys may be null, and begin with anything."""
    return {key: value for key, value in section.items() if value is not None or key not in OF_CUSTOM}
