"""A page of a table, and what is said of its columns: ranges, the best row, groups."""

from __future__ import annotations

import collections
import itertools
from typing import Any

import numpy as np

from determined.server.answers.tables import TableQuestion
from determined.server.run_index import condition, selection
from determined.server.run_index.column import Whole, text_of
from determined.server.run_index.documents import FIGURES
from determined.server.run_index.fields import FIELDS, MIXED, NUMERIC, OPERATORS
from determined.server.run_index.view import Values, View, is_mixed

MOST_GROUPS = 1000
MOST_SHOWN = 6  # hyperparameters that are shown at first
_SEARCHED = ("run.best_metric", "run.latest_metric")  # values of the searcher metric
NO_RANGE = ("run.id", "run.experiment_id", "run.parent_id", "run.seed")  # numbers that measure nothing


def columns(view: View, project_id: int | None, experiment_id: int | None) -> list[dict[str, Any]]:
    """Return the columns of a table; of documents, those that a row of the project or experiment has."""
    rows = np.flatnonzero(selection.placed(view, project_id, experiment_id))
    found = []
    for field in FIELDS[view.kind]:
        is_shown = field.is_shown and not (field.name == "name" and experiment_id is not None)
        about = {"key": field.key, "title": field.title, "section": "run", "type": field.type, "is_shown": is_shown}
        found.append(about | {"operators": OPERATORS[field.type]})
    differing = 0
    for key in view.keys()[len(FIELDS[view.kind]) :]:
        values = view.column(key)
        assert values is not None
        if values.is_empty[rows].all():
            continue
        section, _, title = key.partition(".")
        is_shown = (
            experiment_id is not None and section == "hparams" and differing < MOST_SHOWN and _differs(values, rows)
        )
        differing += is_shown
        about = {"key": key, "title": title, "section": section, "type": values.type, "is_shown": is_shown}
        found.append(about | {"operators": MIXED if is_mixed(values) else OPERATORS[values.type]})
    return found


def _differs(values: Values, rows: Whole) -> bool:
    numbers = values.numbers[rows]
    if values.codes is not None and len(np.unique(values.codes[rows])) > 1:
        return True
    return len(np.unique(numbers[~np.isnan(numbers)])) > 1


def page_of(rows: Whole, question: TableQuestion) -> Whole:
    """Return the rows of the page that is asked for."""
    return rows[question.offset : question.offset + question.limit]


def table(view: View, rows: Whole, question: TableQuestion, *, is_rough: bool) -> dict[str, Any]:
    """Return the answer to a question.

    Args:
        view: The table.
        rows: All rows that fit, in order.
        question: What was asked.
        is_rough: Documents are still being read: nothing is said about all values of their columns.
    """
    page = page_of(rows, question)
    keys = list(dict.fromkeys(question.columns))
    of = {key: found for key in keys if (found := view.column(key)) is not None}
    cells = [of[key].cells(page) if key in of else [None] * len(page) for key in question.columns]
    whole = [key for key in of if not (is_rough and view.field(key) is None)]
    # In the order of positions, which is that of memory; and without copying if it is all of them.
    spread = slice(None) if len(rows) == len(view.rows) else np.sort(rows)
    ranges = {key: _range(of[key], spread) for key in whole if key not in NO_RANGE}
    return {
        "total": len(rows),
        "rows": _rows(view, page, cells),
        "ranges": {key: extremes for key, extremes in ranges.items() if extremes is not None},
        "best": _Best(view, rows).of({key: of[key] for key in whole}),
        "groups": _groups(view, rows, question.group_by),
        "is_rough": is_rough,
    }


def _rows(view: View, page: Whole, cells: list[list[Any]]) -> list[dict[str, Any]]:
    plain = [
        view.rows.ids[page].tolist(),
        view.experiment_ids()[page].tolist(),
        view.trial_ids()[page].tolist(),
        condition.required(view, "run.state").cells(page),
        view.hidden("unmanaged").cells(page),
        view.hidden("archived").cells(page),
    ]
    names = ("id", "experiment_id", "trial_id", "state", "unmanaged", "archived", "cells")
    by_row = zip(*cells, strict=True) if cells else ([] for _ in page)
    found = [dict(zip(names, row, strict=True)) for row in zip(*plain, by_row, strict=True)]
    for row in found:
        row["trial_id"] = row["trial_id"] or None
    return found


def _range(found: Values, rows: Whole | slice) -> dict[str, float] | None:
    if found.type not in NUMERIC:
        return None
    numbers = found.numbers[rows]
    low, high = np.fmin.reduce(numbers, initial=np.inf), np.fmax.reduce(numbers, initial=-np.inf)
    if not (np.isfinite(low) and np.isfinite(high)):
        numbers = numbers[np.isfinite(numbers)]
        if not len(numbers):
            return None
        low, high = numbers.min(), numbers.max()
    return {"low": float(low), "high": float(high)}


class _Best:
    """Finds the best row of a column, where it is known which way is better: by what experiments search for."""

    def __init__(self, view: View, rows: Whole) -> None:
        metric, smaller = view.hidden("searcher_metric"), view.hidden("smaller_is_better")
        self._ids = view.rows.ids
        self._rows = rows
        self._metrics = metric.words.values
        self._codes = metric.codes
        self._is_smaller = np.zeros(view.size, np.bool_)
        if smaller.codes is not None:
            is_true = smaller.words.fitting(value is True for value in smaller.words.values)
            self._is_smaller = is_true[smaller.codes]

    def of(self, columns: dict[str, Values]) -> dict[str, int]:
        """Return the ids of the best rows."""
        found = {key: self._best(key, values) for key, values in columns.items() if values.type == "number"}
        return {key: ident for key, ident in found.items() if ident is not None}

    def _best(self, key: str, values: Values) -> int | None:
        is_searched = key in _SEARCHED
        code = self._code_of(key) if key.startswith("metrics.") else None
        if self._codes is None or not (is_searched or code is not None):
            return None
        numbers, codes = values.numbers[self._rows], self._codes[self._rows]
        valued = ~np.isnan(numbers)
        if is_searched and len(np.unique(codes[valued])) != 1:  # values of different metrics
            return None
        ways = np.unique(self._is_smaller[self._rows][valued if is_searched else valued & (codes == code)])
        if len(ways) != 1:
            return None
        ranks = np.where(valued, numbers if ways[0] else -numbers, np.inf)
        return int(self._ids[self._rows[np.argmin(ranks)]])

    def _code_of(self, key: str) -> int | None:
        """Return the code of the searcher metric that a column of a metric is of."""
        name, _, figure = key.removeprefix("metrics.").rpartition(".")
        if figure not in FIGURES:
            return None
        fits = [code for code, metric in enumerate(self._metrics) if name.endswith(f".{metric}")]
        return max(fits, key=lambda code: len(self._metrics[code]), default=None)


def _groups(view: View, rows: Whole, group_by: str | None) -> list[dict[str, Any]]:
    """Return how many rows have each value, in the order of the values; nothing is an empty text."""
    if group_by is None:
        return []
    cells = condition.required(view, group_by).cells(rows)
    counts = collections.Counter("" if cell is None else text_of(cell) for cell in cells)
    return [{"value": value, "count": count} for value, count in itertools.islice(counts.items(), MOST_GROUPS)]
