"""The search space: how hyperparameters are declared, drawn and laid out as a grid. search/ decides which are tried."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from determined._types import Json
from determined.experiment.config.problems import Problem
from determined.experiment.generator import Generator


@dataclass(frozen=True)
class Const:
    """One value, any JSON value; drawing it consumes no randomness."""

    val: Json

    def draw(self, generator: Generator) -> Json:  # noqa: ARG002 - all kinds are drawn alike
        return copy.deepcopy(self.val)

    def points(self) -> int:
        return 1

    def point(self, index: int) -> Json:  # noqa: ARG002
        return copy.deepcopy(self.val)


@dataclass(frozen=True)
class Int:
    """A whole number, both bounds included."""

    minval: int
    maxval: int
    count: int | None = None

    def draw(self, generator: Generator) -> int:
        return self.minval + generator.integer(self.maxval - self.minval)

    def points(self) -> int:
        return min(_count_of(self), self.maxval - self.minval + 1)

    def point(self, index: int) -> int:
        steps = self.points() - 1
        if steps == 0:
            return _rounded(self.minval + self.maxval, 2)
        return _rounded(self.minval * steps + index * (self.maxval - self.minval), steps)


@dataclass(frozen=True)
class Double:
    """A number from an interval."""

    minval: float
    maxval: float
    count: int | None = None

    def draw(self, generator: Generator) -> float:
        return self.minval + (self.maxval - self.minval) * generator.uniform()

    def points(self) -> int:
        return _count_of(self)

    def point(self, index: int) -> float:
        return _spaced(self.minval, self.maxval, _count_of(self), index)


@dataclass(frozen=True)
class Log:
    """A power of `base`; the bounds are exponents, and exponents are uniform."""

    base: float
    minval: float
    maxval: float
    count: int | None = None

    def power(self, exponent: float) -> float:
        return math.pow(self.base, exponent)

    def draw(self, generator: Generator) -> float:
        return self.power(self.minval + (self.maxval - self.minval) * generator.uniform())

    def points(self) -> int:
        return _count_of(self)

    def point(self, index: int) -> float:
        return self.power(_spaced(self.minval, self.maxval, _count_of(self), index))


@dataclass(frozen=True)
class Categorical:
    """One of several values, any JSON values."""

    vals: list[Json]

    def draw(self, generator: Generator) -> Json:
        return self.point(generator.integer(len(self.vals) - 1))

    def points(self) -> int:
        return len(self.vals)

    def point(self, index: int) -> Json:
        return copy.deepcopy(self.vals[index])


Parameter = Const | Int | Double | Log | Categorical
Tree = dict[str, "Parameter | Tree"]
"""Hyperparameters by name, sorted at every level; a group of them is a tree again."""


class Space:
    """Everything a search may choose from.

    Example::

        space, problems = parse({"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}, "layers": 3})
        assert not problems
        space.sample(Generator(0))  # {"layers": 3, "lr": 0.004...}
    """

    def __init__(self, tree: Tree | None = None) -> None:
        self._tree: Tree = tree or {}

    def effective(self) -> dict[str, Json]:
        """Return the declarations in full: implicit constants become `{type: const, val: X}`."""
        return _declared(self._tree)

    def sample(self, generator: Generator) -> dict[str, Json]:
        """Values for one trial, drawn in sorted order of names at every level."""
        return _sampled(self._tree, generator)

    def grid(self) -> Grid:
        """Return all combinations, computed when asked for. Every int, double and log must have a count."""
        return Grid(self)

    def parameters(self) -> Iterator[tuple[tuple[str, ...], Parameter]]:
        """Each hyperparameter with its path, `("optimizer", "lr")`, in the order they are drawn."""
        return _walk(self._tree, ())

    def is_constant(self) -> bool:
        """Return whether there is nothing to choose."""
        return all(isinstance(parameter, Const) for _, parameter in self.parameters())

    def shaped(self, values: Mapping[tuple[str, ...], Json]) -> dict[str, Json]:
        """Return one value per path, nested as declared; constants need not be given."""
        return _shaped(self._tree, (), values)


class Grid(Sequence[dict[str, Json]]):
    """The cartesian product of all axes, the last one varying fastest; `grid[i]` costs the same for any i."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._axes = list(space.parameters())
        self.size = math.prod(parameter.points() for _, parameter in self._axes)
        """How many points there are; `len()` is the same, up to what `len()` can say."""

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> dict[str, Json]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Json]]: ...

    def __getitem__(self, index: int | slice) -> dict[str, Json] | list[dict[str, Json]]:
        if isinstance(index, slice):
            return [self[i] for i in range(self.size)[index]]
        if not -self.size <= index < self.size:
            raise IndexError(f"The grid has {self.size} points; there is no number {index}.")
        rest = index % self.size
        values: dict[tuple[str, ...], Json] = {}
        for path, parameter in reversed(self._axes):
            rest, position = divmod(rest, parameter.points())
            values[path] = parameter.point(position)
        return self._space.shaped(values)


def parse(value: Any, path: str = "hyperparameters", *, needs_count: bool = False) -> tuple[Space, list[Problem]]:
    """Read declarations, and find every mistake in them.

    Args:
        value: The `hyperparameters` section, of JSON values (`layers.plain`); None is an empty one.
        path: Where it stands in the file, for the problems.
        needs_count: Grid search: every int, double and log has to say `count`.

    Returns:
        The space, without the declarations that have problems; and the problems.

    Example::

        space, problems = parse({"layers": {"type": "int", "minval": 3, "maxval": 3}})
        str(problems[0])  # '<config>.hyperparameters.layers: minval is 3 and maxval is 3; ...'
    """
    problems: list[Problem] = []
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        return Space(), [Problem(path, f"is {_shown(value)}; expected a mapping from name to value.")]
    return Space(_group(value, path, needs_count, problems)), problems


KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "const": (("val",), ()),
    "int": (("minval", "maxval"), ("count",)),
    "double": (("minval", "maxval"), ("count",)),
    "log": (("base", "minval", "maxval"), ("count",)),
    "categorical": (("vals",), ()),
}
"""What each type must say, and may say."""


def _group(value: Mapping[str, Any], path: str, needs_count: bool, problems: list[Problem]) -> Tree:
    tree: Tree = {}
    for name in sorted(value):
        here = f"{path}.{name}"
        child = value[name]
        if isinstance(child, Mapping) and "type" not in child:
            tree[name] = _group(child, here, needs_count, problems)
            continue
        found = len(problems)
        parameter = _parameter(child, here, problems)
        if parameter is not None and len(problems) == found:
            tree[name] = parameter
            if needs_count and isinstance(parameter, Int | Double | Log) and parameter.count is None:
                kind = {Int: "an int", Double: "a double", Log: "a log"}[type(parameter)]
                reason = f'is {kind}, and grid search needs to know how many points to try. Add for example "count: 5".'
                problems.append(Problem(here, reason))
    return tree


def _parameter(value: Any, path: str, problems: list[Problem]) -> Parameter | None:
    if not isinstance(value, Mapping):
        return Const(value)
    kind = value["type"]
    if not isinstance(kind, str) or kind not in KEYS:
        known = ", ".join(KEYS)
        reason = f"is {_shown(kind)}; the types are {known}. A group of hyperparameters cannot have one called 'type'."
        problems.append(Problem(f"{path}.type", reason))
        return None
    if not _has_keys(value, kind, path, problems):
        return None
    if kind == "const":
        return Const(value["val"])
    if kind == "categorical":
        return _categorical(value["vals"], path, problems)
    found = len(problems)
    numbers = {key: _number(value[key], kind == "int", f"{path}.{key}", problems) for key in KEYS[kind][0]}
    count = _count(value.get("count"), f"{path}.count", problems)
    return _ranged(kind, numbers, count, path, problems) if len(problems) == found else None


def _has_keys(value: Mapping[str, Any], kind: str, path: str, problems: list[Problem]) -> bool:
    required, optional = KEYS[kind]
    # null is absent everywhere, except that a constant may be null.
    missing = [key for key in required if key not in value or (value[key] is None and kind != "const")]
    problems += [Problem(f"{path}.{key}", f"is missing; a hyperparameter of type {kind} needs it.") for key in missing]
    allowed = {"type", *required, *optional}
    for key in sorted(key for key in value if key not in allowed):
        known = ", ".join((*required, *optional))
        problems.append(Problem(f"{path}.{key}", f"is not a key of type {kind}, which has {known}. Remove it."))
    return not missing


def _categorical(vals: Any, path: str, problems: list[Problem]) -> Categorical | None:
    if not isinstance(vals, list | tuple) or not vals:
        problems.append(Problem(f"{path}.vals", f"is {_shown(vals)}; expected a list of at least one value."))
        return None
    return Categorical(list(vals))


def _ranged(
    kind: str, numbers: dict[str, Any], count: int | None, path: str, problems: list[Problem]
) -> Parameter | None:
    low, high = numbers["minval"], numbers["maxval"]
    if not low < high:
        problems.append(Problem(path, f"minval is {low} and maxval is {high}; minval must be below maxval."))
        return None
    if kind == "int":
        return Int(low, high, count)
    if not math.isfinite(high - low):
        problems.append(Problem(path, f"maxval - minval is more than a double holds ({low} to {high}). Narrow it."))
        return None
    if kind == "double":
        return Double(low, high, count)
    base = numbers["base"]
    if base <= 0:
        problems.append(Problem(f"{path}.base", f"is {base}; expected a number above 0, for example 10."))
        return None
    try:
        math.pow(base, low), math.pow(base, high)
    except OverflowError:
        reason = f"{base} to the power of {low} to {high} is more than a double holds. The bounds are exponents."
        problems.append(Problem(path, reason))
        return None
    return Log(base, low, high, count)


def _number(value: Any, whole: bool, path: str, problems: list[Problem]) -> Any:
    if isinstance(value, float) and whole and value.is_integer():
        return int(value)  # 3.0 and 3 are one number in JSON
    kind = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kind):
        problems.append(Problem(path, f"is {_shown(value)}; expected a {'whole ' if whole else ''}number."))
    elif not whole and not _fits_double(value):
        problems.append(Problem(path, f"is {_shown(value)}; expected a finite number."))
    return value


def _fits_double(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _count(value: Any, path: str, problems: list[Problem]) -> int | None:
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        problems.append(Problem(path, f"is {_shown(value)}; expected a whole number of at least 1."))
        return None
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _count_of(parameter: Int | Double | Log) -> int:
    if parameter.count is None:
        raise ValueError(f"{parameter} has no count, so it is no axis of a grid. Parse with needs_count=True first.")
    return parameter.count


def _rounded(numerator: int, denominator: int) -> int:
    """Return the nearest whole number, halves away from zero; exact for numbers of any size."""
    magnitude = (2 * abs(numerator) + denominator) // (2 * denominator)
    return magnitude if numerator >= 0 else -magnitude


def _spaced(low: float, high: float, count: int, index: int) -> float:
    if count == 1:
        return low + (high - low) / 2 if math.isinf(low + high) else (low + high) / 2
    return low + index * (high - low) / (count - 1)


def _declared(tree: Tree) -> dict[str, Json]:
    return {name: _declared(child) if isinstance(child, dict) else _declaration(child) for name, child in tree.items()}


def _declaration(parameter: Parameter) -> dict[str, Json]:
    given = {key: value for key, value in vars(parameter).items() if key != "count" or value is not None}
    return {"type": type(parameter).__name__.lower(), **copy.deepcopy(given)}


def _sampled(tree: Tree, generator: Generator) -> dict[str, Json]:
    return {
        name: _sampled(child, generator) if isinstance(child, dict) else child.draw(generator)
        for name, child in tree.items()
    }


def _walk(tree: Tree, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Parameter]]:
    for name, child in tree.items():
        if isinstance(child, dict):
            yield from _walk(child, (*path, name))
        else:
            yield (*path, name), child


def _shaped(tree: Tree, path: tuple[str, ...], values: Mapping[tuple[str, ...], Json]) -> dict[str, Json]:
    shaped: dict[str, Json] = {}
    for name, child in tree.items():
        here = (*path, name)
        if isinstance(child, dict):
            shaped[name] = _shaped(child, here, values)
        elif here in values:
            shaped[name] = values[here]
        else:
            assert isinstance(child, Const), f"no value for {'.'.join(here)}"
            shaped[name] = child.point(0)
    return shaped
