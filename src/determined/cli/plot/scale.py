"""Axes of numbers and of names: which range they span, where a value lies on them, and what is written along them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

FLAT = 1e-9  # of the values: less than that is rounding, not a curve
AIR = 0.04  # of the range, above and below the curves
STEPS_BETWEEN: tuple[tuple[int, ...], ...] = ((1, 3), (1, 2, 5), (1, 2, 3, 5, 7), tuple(range(1, 10)))
NEARLY_STRAIGHT = 5  # a logarithmic axis that spans less has its ticks at even distances
FEWEST = 4  # ticks that say how an axis goes


@dataclasses.dataclass(frozen=True)
class Axis:
    """A range of values, laid out from 0 (low) to 1 (high).

    Example::

        axis = Axis.around([0.0, 10.0])
        axis.place(5.0)   # 0.5
        axis.ticks(5)     # [(0.0, '0'), (2.0, '2'), (4.0, '4'), ...]
    """

    low: float
    high: float
    is_log: bool = False
    is_whole: bool = False  # only whole numbers mean something on it

    @classmethod
    def around(cls, values: Iterable[float], *, is_log: bool = False, air: float = 0.0) -> Axis:
        """Return the axis that spans all these values; a logarithmic one leaves out values up to 0."""
        seen = [v for v in values if math.isfinite(v) and (not is_log or v > 0)]
        if not seen:
            return cls(0.1, 10.0, True) if is_log else cls(0.0, 1.0)
        low, high = min(seen), max(seen)
        if is_log:
            if high - low <= high * FLAT:
                return cls(low / 2, high * 2, True)
            margin = (high / low) ** air
            return cls(low / margin, high * margin, True)
        if high - low <= abs(high) * FLAT:  # a flat line lies in the middle
            reach = abs(low) * 0.1 or 1.0
            return cls(low - reach, high + reach)
        margin = (high - low) * air
        return cls(low - margin, high + margin)

    def place(self, value: float) -> float:
        """Return where the value lies: 0 is the low end, 1 the high end."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def value(self, place: float) -> float:
        """Return the value that lies at a place: the other way round."""
        if self.is_log:
            return self.low * math.pow(self.high / self.low, place)
        return self.low + (self.high - self.low) * place

    def holds(self, value: float) -> bool:
        """Return whether the value can be drawn at all."""
        return math.isfinite(value) and (not self.is_log or value > 0)

    def ticks(self, wanted: int) -> list[tuple[float, str]]:
        """Return about `wanted` round values, each with its label."""
        if self.is_log:
            return self._log_ticks(wanted)
        step = nice_step((self.high - self.low) / max(wanted, 1))
        step = max(step, 1.0) if self.is_whole else step
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [(i * step, label(i * step, step)) for i in range(first, last + 1)]

    def _log_ticks(self, wanted: int) -> list[tuple[float, str]]:
        """Powers of ten, with as many steps between them as there is room for; other round values if those are few."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        widest = max(1, math.ceil((last - first) / max(wanted, 1)))
        sparse = [(stride, (1,)) for stride in range(widest, 0, -1)]
        ticks: list[tuple[float, str]] = []
        for stride, between in (*sparse, *((1, steps) for steps in STEPS_BETWEEN)):
            values = [m * 10.0**e for e in range(first, last + 1, stride) for m in between]
            denser = [(v, label(v, v)) for v in values if self.low * 0.999 <= v <= self.high * 1.001]
            if len(ticks) >= FEWEST and len(denser) > wanted + 2:
                break
            ticks = denser
        if self.high < self.low * NEARLY_STRAIGHT:
            ticks = []
        while len(ticks) < FEWEST:
            ticks, wanted = Axis(self.low, self.high).ticks(wanted), wanted + 1
        return ticks


@dataclasses.dataclass(frozen=True)
class Categories:
    """Names at even distances, laid out from 0 to 1; the value of a name is its position.

    Example::

        axis = Categories(("adam", "sgd"))
        axis.place(0)   # 0.25
        axis.ticks(5)   # [(0.0, 'adam'), (1.0, 'sgd')]
    """

    names: tuple[str, ...]

    def place(self, value: float) -> float:
        """Return where a position lies: in the middle of its part."""
        return (value + 0.5) / max(len(self.names), 1)

    def holds(self, value: float) -> bool:
        """Return whether there is such a position."""
        return 0 <= value < len(self.names)

    def ticks(self, wanted: int) -> list[tuple[float, str]]:
        """Return the positions with their names; of very many only every second, third..."""
        stride = max(1, -(-len(self.names) // max(wanted * 3, 1)))
        return [(float(i), self.names[i]) for i in range(0, len(self.names), stride)]


def nice_step(rough: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)


def label(value: float, step: float) -> str:
    """Format a tick: as many decimals as the step needs; thousands and millions are k and M."""
    if value == 0:
        return "0"
    size = abs(value)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit and step >= unit / 1000:
            return f"{value / unit:.{_decimals(step / unit)}f}{letter}" if size < 1e13 else f"{value:.0e}"
    if size < 1e-3 and step < 1e-3:
        return f"{value:.{max(0, math.floor(math.log10(size)) - math.floor(math.log10(step)))}e}"
    return f"{value:.{_decimals(step)}f}"


def _decimals(step: float) -> int:
    return min(max(0, -math.floor(math.log10(step) + 1e-9)), 12)
