"""One of the two tables over all runs: what stands in each of its columns, row by row."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import numpy as np

from determined.server.answers.tables import Kind
from determined.server.run_index.column import NAN, NOTHING, TEXT, Codes, Column, Floats, Mask, Whole, Words
from determined.server.run_index.documents import SECTIONS
from determined.server.run_index.fields import FIELDS, Field, Type
from determined.server.run_index.rows import Rows
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
        # Runs of one trial each, in the order of their experiments: nothing has to be copied.
        other = self.trials if kind == "experiments" else self.experiments
        self._is_one_to_one = runs.trials.size == self.size == runs.experiments.size and np.array_equal(
            other, np.arange(self.size)
        )

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
                numbers, codes = self._taken(column, self._runs.trials)
                self._held[key] = Values(_type(numbers, codes, column.words), numbers, codes, column.words)
        return self._held.get(key)

    def hidden(self, name: str) -> Values:
        """Return a field of the rows' experiments, also one that is no column."""
        column = self._runs.experiments.fields[name]
        return Values("number", *self._taken(column, self._runs.experiments), column.words)

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
        rows = runs.trials if of_trials else runs.experiments
        column = rows.fields[name]
        return Values(field.type, *self._taken(column, rows), column.words, field.is_whole)

    def _plain(self, field: Field, numbers: Floats) -> Values:
        return Values(field.type, np.where(self.rows.is_there, numbers, np.nan), None, Words(), field.is_whole)

    def _taken(self, column: Column, rows: Rows) -> tuple[Floats, Codes | None]:
        """Return a column of experiments or of trials, for the rows of this table."""
        numbers, codes = column.numbers(rows.size), column.codes(rows.size)
        if rows is self.rows or self._is_one_to_one:
            return numbers, codes
        where = self.trials if rows is self._runs.trials else self.experiments
        # A row more, which is empty: -1 is that one.
        return np.append(numbers, np.nan)[where], None if codes is None else np.append(codes, np.int32(NOTHING))[where]


def _type(numbers: Floats, codes: Codes | None, words: Words) -> Type:
    """Return what kind of values a column of documents holds."""
    if codes is None:
        return "number"
    kinds = words.kinds()[codes]
    if (kinds <= NAN).all():
        return "number"
    return "text" if (kinds == TEXT).any() or not np.isnan(numbers).all() else "boolean"


def _place(key: str) -> tuple[int, bool, str]:
    section = key.split(".", 1)[0]
    return SECTIONS.index(section), not key.startswith("metrics.validation."), key.casefold()


def moment(seconds: float) -> str:
    """Return a time as ISO 8601."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat().replace("+00:00", "Z")


def is_mixed(found: Values) -> bool:
    """Return whether a column holds numbers in some rows and texts in others."""
    return found.type == "text" and not np.isnan(found.numbers).all()
