"""Conditions on columns: which rows fit. `is not` and `does not contain` also hold where there is no value."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from determined._wording import instead
from determined.errors import InvalidValue
from determined.server.answers.tables import Condition, Group
from determined.server.run_index.column import Mask, text_of
from determined.server.run_index.fields import MIXED, NUMERIC, OPERATORS
from determined.server.run_index.view import Values, View, is_mixed

MOST_CONDITIONS = 200
DEEPEST = 3
ACTIVE = {"QUEUED", "STARTING", "RUNNING"}  # what an active run is shown as
_ODD = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_ORDER: dict[str, Callable[[Any, float], Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def fitting(view: View, group: Group) -> Mask:
    """Return which rows fit a filter.

    Raises:
        InvalidValue: It names a column that there is not, or asks something of it that cannot be.
    """
    if (number := len(conditions(group))) > MOST_CONDITIONS:
        raise InvalidValue(f"The filter has {number} conditions; {MOST_CONDITIONS} are allowed. Take some away.")
    return _group(view, group, 1)


def conditions(group: Group) -> list[Condition]:
    """Return all conditions of a filter."""
    found: list[Condition] = []
    level, depth = [group], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise InvalidValue(f"Groups of the filter are nested more than {DEEPEST} deep. Write it with fewer levels.")
        items = [item for each in level for item in (*(each.all_of or ()), *(each.any_of or ()))]
        found += [item for item in items if isinstance(item, Condition)]
        level = [item for item in items if isinstance(item, Group)]
    return found


def _group(view: View, group: Group, depth: int) -> Mask:
    fits = np.ones(view.size, np.bool_)
    for item in group.all_of or ():
        fits &= _item(view, item, depth)
    if group.any_of:
        fits &= np.logical_or.reduce([_item(view, item, depth) for item in group.any_of])
    return fits


def _item(view: View, item: Condition | Group, depth: int) -> Mask:
    return _group(view, item, depth + 1) if isinstance(item, Group) else holds(view, item)


def required(view: View, key: str) -> Values:
    """Return the values of a column, or say which name was meant."""
    if (found := view.column(key)) is None:
        raise InvalidValue(f"There is no column {key!r}.{instead(key, view.keys())}")
    return found


def holds(view: View, condition: Condition) -> Mask:
    """Return the rows for which a condition holds."""
    found = required(view, condition.column)
    operator, allowed = condition.operator, MIXED if is_mixed(found) else OPERATORS[found.type]
    if operator not in allowed:
        raise InvalidValue(
            f"{condition.column} is a {found.type} column, for which {operator!r} means nothing. "
            f"Use one of: {', '.join(allowed)}."
        )
    if operator == "is empty":
        return found.is_empty
    if operator == "is not empty":
        return ~found.is_empty
    if operator in ("is not", "does not contain"):
        opposite = condition.model_copy(update={"operator": "is" if operator == "is not" else "contains"})
        return ~holds(view, opposite)
    if operator in ("before", "after"):
        return _in_time(found, condition)
    if operator in _ORDER:
        return _compared(found, condition)
    return _contains(found, condition) if operator == "contains" else _is(found, condition)


def _compared(found: Values, condition: Condition) -> Mask:
    with np.errstate(invalid="ignore"):
        fits: Mask = _ORDER[condition.operator](found.numbers, number(condition))
    return fits


def _in_time(found: Values, condition: Condition) -> Mask:
    try:
        given = datetime.datetime.fromisoformat(str(condition.value).replace("Z", "+00:00"))
    except ValueError:
        raise InvalidValue(
            f"{condition.column} {condition.operator} {condition.value!r}: expected a time such as "
            "2026-01-31T12:00:00Z or a day such as 2026-01-31."
        ) from None
    utc = given if given.tzinfo else given.replace(tzinfo=datetime.timezone.utc)
    seconds = utc.timestamp()
    return found.numbers < seconds if condition.operator == "before" else found.numbers > seconds


def _is(found: Values, condition: Condition) -> Mask:
    value = condition.value
    if found.type in NUMERIC:
        wanted = number(condition)
        return _words(found, lambda word: word == "NaN") if math.isnan(wanted) else found.numbers == wanted
    if found.type == "labels":
        return _coded(found, (str(value) in labels for labels in found.words.values))
    text = "" if value is None else text_of(value)
    if found.type == "state":
        shown = ACTIVE if text.upper() == "ACTIVE" else {text.upper()}
        return _words(found, lambda word: word in shown)
    if found.type == "boolean":
        if text.lower() not in ("true", "false"):
            raise InvalidValue(f"{condition.column} is true or false, not {value!r}.")
        text = text.lower()
    fits = _words(found, lambda word: word == text)
    return fits | (found.numbers == parsed) if (parsed := _number(value)) is not None else fits


def _contains(found: Values, condition: Condition) -> Mask:
    part = ("" if condition.value is None else text_of(condition.value)).casefold()
    if found.type == "labels":
        return _coded(found, (any(part in label.casefold() for label in labels) for labels in found.words.values))
    fits = _words(found, lambda word: part in word.casefold())
    if is_mixed(found):
        shown = (part in text_of(each).casefold() for each in found.numbers.tolist())
        fits |= np.fromiter(shown, np.bool_, len(found.numbers)) & ~np.isnan(found.numbers)
    return fits


def _words(found: Values, test: Callable[[str], bool]) -> Mask:
    return _coded(found, map(test, found.words.texts))


def _coded(found: Values, tests: Any) -> Mask:
    if found.codes is None:
        return np.zeros(len(found.numbers), np.bool_)
    fits: Mask = found.words.fitting(tests)[found.codes]
    return fits


def number(condition: Condition) -> float:
    """Return the number that a condition compares with."""
    if (found := _number(condition.value)) is None:
        raise InvalidValue(f"{condition.column} {condition.operator} {condition.value!r}: expected a number.")
    return found


def _number(value: str | float | bool | None) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str) and value in _ODD:
        return _ODD[value]
    try:
        return float(value)
    except ValueError:
        return None


def searched(view: View, text: str) -> Mask:
    """Return the rows in whose name, description or labels a text is found, or whose id it is."""
    fits = np.zeros(view.size, np.bool_)
    for key in ("run.name", "run.description", "run.labels"):
        fits |= _contains(required(view, key), Condition(column=key, operator="contains", value=text))
    digits = text.strip().lstrip("#")
    if digits.isascii() and digits.isdigit() and len(digits) < 16:
        fits |= (view.rows.ids == int(digits)) | (view.experiment_ids() == int(digits))
    return fits
