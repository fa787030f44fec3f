"""One column of a table in memory: a number, a word or nothing for each row, eight or four bytes each."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from determined.store.values import as_float

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

NOTHING = -1  # the code of a row without a word
NONE, NAN, FLAG, TEXT = range(4)  # kinds of words
_PLAIN = {str, bool, tuple}  # where equal values are the same word
_DENSE = 12  # a value in a dictionary takes about as much memory as so many in an array


class Words:
    """The distinct words of a column, by code: anything that is not a number. NaN is one: it has no place in order."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._codes: dict[Any, int] = {None: NOTHING}
        self._ranks: Codes | None = None
        self._kinds: npt.NDArray[np.int8] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def texts(self) -> list[str]:
        """The words as people read them."""
        return [value if type(value) is str else text_of(value) for value in self.values]

    def code(self, value: Any) -> int:
        """Return the code of a word; a new one gets the next."""
        key = value if type(value) in _PLAIN else (type(value), text_of(value))
        if (found := self._codes.get(key)) is None:
            found = self._codes[key] = len(self.values)
            self.values.append(value)
            self._ranks = None
        return found

    def ranks(self) -> Codes:
        """Return the place of each word in the order of words, whatever their case; NaN comes last."""
        if self._ranks is None or len(self._ranks) != len(self.values):
            order = sorted(range(len(self.values)), key=lambda code: word_key(self.values[code]))
            self._ranks = np.empty(len(order), np.int32)
            self._ranks[order] = np.arange(len(order), dtype=np.int32)
        return self._ranks

    def kinds(self) -> npt.NDArray[np.int8]:
        """Return of each code whether it is NaN, a flag or a text; and one more, for the code of nothing."""
        if self._kinds is None or len(self._kinds) != len(self.values) + 1:
            found = (NAN if is_nan(each) else FLAG if isinstance(each, bool) else TEXT for each in self.values)
            self._kinds = np.fromiter((*found, NONE), np.int8, len(self.values) + 1)
        return self._kinds

    def fitting(self, test: Iterable[bool]) -> Mask:
        """Return which codes pass; the one beyond the last, which is that of nothing, does not."""
        return np.fromiter((*test, False), np.bool_, len(self.values) + 1)


def is_nan(value: Any) -> bool:
    """Return whether a value is the number that is none."""
    return isinstance(value, float) and math.isnan(value)


def is_number(value: Any) -> bool:
    """Return whether a value has a place among numbers."""
    kind = type(value)
    return (kind is float and value == value) or kind is int


def text_of(value: Any) -> str:
    """Return a value as a person reads it: 64.0 as 64, lists as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return json.dumps(value, ensure_ascii=False)


def word_key(value: Any) -> tuple[bool, str, str]:
    """Return what words are ordered by."""
    text = text_of(value)
    return is_nan(value), text.casefold(), text


class Column:
    """The values of one column, by the position of their rows.

    Few values are kept in a dictionary, so that thousands of keys which one run has, and no other, cost little.
    """

    def __init__(self) -> None:
        self.words = Words()
        self.count = 0  # rows with a value
        self._few: dict[int, Any] | None = {}
        self._numbers: Floats | None = None
        self._codes: Codes | None = None

    def put(self, positions: Sequence[int], values: Sequence[Any], size: int) -> None:
        """Set values of rows that have none yet, in a table of so many rows. None is no value."""
        if self._few is not None:
            if (len(self._few) + len(values)) * _DENSE <= size:
                self._few.update((at, value) for at, value in zip(positions, values, strict=True) if value is not None)
                self.count = len(self._few)
                return
            few, self._few, self.count = self._few, None, 0
            self.put(list(few), list(few.values()), size)
        if (numbers := _all_numbers(values)) is not None:
            self._grow_numbers(size)[positions] = numbers
            self.count += len(numbers)
            return
        found: dict[int, float] = {}
        coded: dict[int, int] = {}
        code = self.words.code
        for at, value in zip(positions, values, strict=True):
            if is_number(value):
                found[at] = as_float(value)
            elif value is not None:
                coded[at] = code(value)
        if found:
            self._grow_numbers(size)[list(found)] = list(found.values())
        if coded:
            self._grow_codes(size)[list(coded)] = list(coded.values())
        self.count += len(found) + len(coded)

    def clear(self, at: int) -> None:
        """Take away the value of a row, if it has one."""
        if self._few is not None:
            self._few.pop(at, None)
            self.count = len(self._few)
            return
        for held, nothing in ((self._numbers, math.nan), (self._codes, NOTHING)):
            if held is not None and at < len(held) and (held[at] == held[at] if nothing != NOTHING else held[at] >= 0):
                held[at] = nothing
                self.count -= 1

    def set(self, at: int, value: Any, size: int) -> None:
        """Change the value of a row."""
        self.clear(at)
        if value is not None:
            self.put([at], [value], size)

    def numbers(self, size: int) -> Floats:
        """Return the numbers of all rows; NaN where there is none. Not to be changed."""
        if self._few is not None:
            return _spread(size, {at: as_float(value) for at, value in self._few.items() if is_number(value)})
        return self._grow_numbers(size)[:size] if self._numbers is not None else np.full(size, math.nan)

    def codes(self, size: int) -> Codes | None:
        """Return the codes of words of all rows; None if there are no words."""
        if self._few is not None:
            coded = {at: self.words.code(value) for at, value in self._few.items() if not is_number(value)}
            found = np.full(size, NOTHING, np.int32)
            found[list(coded)] = list(coded.values())
            return found if coded else None
        if self._codes is None:
            return None
        if len(self.words) > 2 * size + 1000:
            self._forget_words()
        return self._grow_codes(size)[:size]

    def _forget_words(self) -> None:
        """Let go of words that no row has any more."""
        assert self._codes is not None
        old, self.words = self.words, Words()
        new = np.full(len(old) + 1, NOTHING, np.int32)
        for code in np.unique(self._codes[self._codes >= 0]):
            new[code] = self.words.code(old.values[code])
        self._codes = new[self._codes]

    def _grow_numbers(self, size: int) -> Floats:
        held = self._numbers
        if held is None or len(held) < size:
            grown = np.full(_room(size), math.nan)
            if held is not None:
                grown[: len(held)] = held
            self._numbers = held = grown
        return held

    def _grow_codes(self, size: int) -> Codes:
        held = self._codes
        if held is None or len(held) < size:
            grown = np.full(_room(size), NOTHING, np.int32)
            if held is not None:
                grown[: len(held)] = held
            self._codes = held = grown
        return held


def _room(size: int) -> int:
    """Return how many rows to make room for: a few more than there are."""
    return size + size // 8 + 16


def _spread(size: int, few: Mapping[int, float]) -> Floats:
    found = np.full(size, math.nan)
    found[list(few)] = list(few.values())
    return found


def _all_numbers(values: Sequence[Any]) -> Floats | None:
    """Return the values as an array; None if one of them is no number, or more than a float can hold."""
    if not set(map(type, values)) <= {float, int}:
        return None
    try:
        found = np.array(values, np.float64)
    except OverflowError:
        return None
    return None if np.isnan(found).any() else found
