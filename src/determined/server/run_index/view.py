"""One of the two tables over all runs: what stands in each of its columns, row by row."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import numpy as np

from determined.server.answers.tables import Kind
from determined.server.run_index.column import NOTHING, Codes, Column, Floats, Mask, Whole, Words
from determined.server.run_index.documents import SECTIONS
from determined.server.run_index.fields import FIELDS, Field, Type
from determined.server.run_index.runs import Runs

_OF_TRIALS = ("experiment_id", "state", "start_time", "end_time", "batches", "restarts", "seed", "progress",
              "best_metric", "latest_metric", "checkpoint_count", "checkpoint_size", "external_id")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Values:
    """The values of one column for all rows. What is no number has a code, which stands for a word."""

    type: Type
    numbers: Floats
    codes: Codes | None
    words: Words
    is_whole: bool = False

    @property
    def is_empty(self) -> Mask:
        """Where there is no value."""
        return np.isnan(self.numbers) if self.codes is None else np.isnan(self.numbers) & (self.codes < 0)

    def cells(self, rows: Whole) -> list[Any]:
        """Return the values of some rows as an answer shows them; None where there is none."""
        numbers = self.numbers[rows]
        found: list[Any]
        if self.type == "time":
            found = [None if each != each else moment(each) for each in numbers.tolist()]
        elif self.is_whole:
            found = [None if each != each else int(each) for each in numbers.tolist()]
        else:
            found = [None if each != each else each for each in numbers.tolist()]
        if self.codes is not None:
            for place, code in enumerate(self.codes[rows].tolist()):
                if code >= 0:
                    found[place] = self.words.values[code]
        return found


class View:
    """The table of experiments or of trials, at one moment.

    Args:
        runs: All runs. They must not change while the view is used.
        kind: Which table.
        time: Now, for how long runs have been going on.
    """

    def __init__(self, runs: Runs, kind: Kind, time: float) -> None:
        self.kind: Kind = kind
        self.rows = runs.experiments if kind == "experiments" else runs.trials
        self.size = self.rows.size
        self._runs = runs
        self._time = time
        self._fields = {field.key: field for field in FIELDS[kind]}
        self._held: dict[str, Values] = {}

    @property
    def experiments(self) -> Whole:
        """The position of each row's experiment."""
        return np.arange(self.size) if self.kind == "experiments" else self._runs.owners

    @property
    def trials(self) -> Whole:
        """The position of each row's trial, of an experiment its best or first; -1 if it has none."""
        return self._runs.chosen if self.kind == "experiments" else np.arange(self.size)

    def keys(self) -> list[str]:
        """Return all columns that there are: those of every run first, then by section and name."""
        return [*self._fields, *sorted(self._runs.documents.columns, key=_place)]

    def document_keys(self) -> list[str]:
        """Return the columns that not every run has."""
        return list(self._runs.documents.columns)

    def field(self, key: str) -> Field | None:
        """Return the column that every run has; None for others."""
        return self._fields.get(key)

    def column(self, key: str) -> Values | None:
        """Return the values of a column; None if there is no such column."""
        if key not in self._held:
            if (field := self._fields.get(key)) is not None:
                self._held[key] = self._of_field(field)
            elif (column := self._runs.documents.columns.get(key)) is not None:
                found = self._taken(column, self._runs.trials.size, self.trials, "number")
                self._held[key] = dataclasses.replace(found, type=_type(found))
        return self._held.get(key)

    def hidden(self, name: str) -> Values:
        """Return a field of the rows' experiments, also one that is no column."""
        experiments = self._runs.experiments
        return self._taken(experiments.fields[name], experiments.size, self.experiments, "number")

    def experiment_ids(self) -> Whole:
        """Return the id of each row's experiment."""
        if self.kind == "experiments":
            return self.rows.ids
        ids, where = self._runs.experiments.ids, self._runs.owners
        return np.where(where >= 0, ids[np.maximum(where, 0)], 0) if len(ids) else np.zeros(self.size, np.int64)

    def trial_ids(self) -> Whole:
        """Return the id of each row's trial; 0 if it has none."""
        ids, where = self._runs.trials.ids, self.trials
        return np.where(where >= 0, ids[np.maximum(where, 0)], 0) if len(ids) else np.zeros(self.size, np.int64)

    def _of_field(self, field: Field) -> Values:
        runs, name = self._runs, field.name
        if name == "id":
            return self._plain(field, self.rows.ids.astype(np.float64))
        if name == "trials":
            return self._plain(field, runs.trial_counts().astype(np.float64))
        if name == "duration":
            start, end = (self._of_field(Field(each, "", "time")).numbers for each in ("start_time", "end_time"))
            return self._plain(field, np.maximum(np.where(np.isnan(end), self._time, end) - start, 0.0))
        of_trials = name in _OF_TRIALS if self.kind == "trials" else name == "best_metric"
        rows, where = (runs.trials, self.trials) if of_trials else (runs.experiments, self.experiments)
        return self._taken(rows.fields[name], rows.size, where, field.type, is_whole=field.is_whole)

    def _plain(self, field: Field, numbers: Floats) -> Values:
        return Values(field.type, numbers, None, Words(), field.is_whole)

    @staticmethod
    def _taken(column: Column, size: int, where: Whole, type: Type, *, is_whole: bool = False) -> Values:
        """Return a column of other rows, of which each row has one, or -1."""
        numbers, codes = column.numbers(size), column.codes(size)
        if len(where) == size and np.array_equal(where, np.arange(size)):  # runs of one trial: nothing to copy
            return Values(type, numbers, codes, column.words, is_whole)
        # A row more, which is empty: -1 is that one.
        numbers = np.append(numbers, np.nan)[where]
        codes = None if codes is None else np.append(codes, np.int32(NOTHING))[where]
        return Values(type, numbers, codes, column.words, is_whole)


def _type(found: Values) -> Type:
    """Return what kind of values a column of documents holds."""
    if found.codes is None or not (found.codes >= 0).any():
        return "number"
    used = {type(found.words.values[code]) for code in np.unique(found.codes[found.codes >= 0])}
    if used == {float}:  # NaN
        return "number"
    return "boolean" if used == {bool} and np.isnan(found.numbers).all() else "text"


def _place(key: str) -> tuple[int, bool, str]:
    section = key.split(".", 1)[0]
    return SECTIONS.index(section), not key.startswith("metrics.validation."), key.casefold()


def moment(seconds: float) -> str:
    """Return a time as ISO 8601."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat().replace("+00:00", "Z")


def is_mixed(found: Values) -> bool:
    """Return whether a column holds numbers in some rows and texts in others."""
    return found.type == "text" and not np.isnan(found.numbers).all()
