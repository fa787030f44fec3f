"""Hyperparameters for one trial outside of a search: a value for each, out of the ranges of a config."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any


def sample_hparams(space: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
    """One value per hyperparameter: constants as they are, ranges and choices drawn with this seed.

    Args:
        space: The `hyperparameters` section of an experiment config.
        seed: The same seed draws the same values.
    """
    draw = random.Random(seed)
    return {name: _sample(value, draw) for name, value in space.items()}


def _sample(value: Any, draw: random.Random) -> Any:
    if not isinstance(value, Mapping):
        return value
    kind = value.get("type")
    if kind == "const":
        return value["val"]
    if kind == "categorical":
        return draw.choice(list(value["vals"]))
    if kind == "int":
        return draw.randint(int(value["minval"]), int(value["maxval"]))
    if kind == "double":
        return draw.uniform(float(value["minval"]), float(value["maxval"]))
    if kind == "log":
        exponent = draw.uniform(float(value["minval"]), float(value["maxval"]))
        return float(value.get("base", 10.0)) ** exponent
    return {name: _sample(inner, draw) for name, inner in value.items()}
