"""Synthetic learning curves over any search space, for trying a search without training anything.

They are smooth, have one best point hidden in the space, and cross: what starts fast does not always end well.
All of it follows from two seeds, so that a comparison made today can be made again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from determined.experiment.generator import Generator
from determined.experiment.hparams import Categorical, Const, Double, Int, Log, Parameter, Space


@dataclass(frozen=True)
class Curve:
    """A loss that falls from `start` towards `floor`; `rate` says how fast, `noise` how much it wobbles.

    Example::

        Curve(floor=0.2, start=1.0, rate=3.0).at(1.0)  # after all of the training: 0.2398...
    """

    floor: float
    start: float
    rate: float
    noise: float = 0.0
    seed: int = 0

    def at(self, share: float) -> float:
        """The loss after this share of the training (0 none, 1 all). The same share always gives the same loss."""
        loss = self.floor + (self.start - self.floor) * math.exp(-self.rate * share)
        return loss + self.noise * _wobble(self.seed, share)


class Landscape:
    """Which curve each point of a space has.

    Args:
        space: The hyperparameters.
        seed: Chooses where the best point lies, and how much each hyperparameter matters.

    Example::

        landscape = Landscape(space, seed=7)
        landscape.curve(create.hparams, create.seed).at(0.5)
    """

    def __init__(self, space: Space, seed: int = 0) -> None:
        # Stirred: a search that happens to have the same seed would otherwise draw near the best point at once.
        generator = Generator((seed * 2654435761 + 97) % 2**32)
        self._axes: list[tuple[tuple[str, ...], Parameter, float, float]] = []
        for path, parameter in space.parameters():
            if not isinstance(parameter, Const):
                best, weight = 0.15 + 0.7 * generator.uniform(), 0.5 + generator.uniform()
                self._axes.append((path, parameter, best, weight))

    def curve(self, hparams: Mapping[str, Any], seed: int = 0) -> Curve:
        """Return the learning curve of a trial with these hyperparameters and this trial seed."""
        total = sum(weight for *_, weight in self._axes) or 1.0
        distance = haste = 0.0
        for path, parameter, best, weight in self._axes:
            position = _position(parameter, _at(hparams, path))
            distance += weight / total * (position - best) ** 2
            haste += weight / total * position
        # Haste is not merit: points on one side of the space learn faster, wherever the best one lies.
        return Curve(floor=0.05 + 1.5 * distance, start=1.0, rate=2.0 + 8.0 * haste, noise=0.01, seed=seed)


def _at(hparams: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = hparams
    for name in path:
        value = value[name]
    return value


def _position(parameter: Parameter, value: Any) -> float:
    """Return where a value lies in its range, 0 to 1."""
    if isinstance(parameter, Categorical):
        return parameter.vals.index(value) / max(len(parameter.vals) - 1, 1)
    if isinstance(parameter, Log):
        exponent = math.log(value) / math.log(parameter.base) if parameter.base != 1 else parameter.minval
        return (exponent - parameter.minval) / (parameter.maxval - parameter.minval)
    assert isinstance(parameter, Int | Double)
    return float((value - parameter.minval) / (parameter.maxval - parameter.minval))


def _wobble(seed: int, share: float) -> float:
    """A smooth number in -1..1 that depends on the trial and the moment, and on nothing else."""
    phase = seed % 6283 / 1000
    return (math.sin(17 * share + phase) + math.sin(41 * share + 2 * phase)) / 2
