"""Rows by position: the ids of a table's rows, and the plain fields of each as columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from determined.server.run_index.column import Column, Mask, Whole


class Rows:
    """The rows of one table. A row keeps its position; that of a removed one is used again."""

    def __init__(self, fields: Iterable[str]) -> None:
        self.fields = {name: Column() for name in fields}
        self.at: dict[int, int] = {}
        self.size = 0
        self._ids = np.zeros(16, np.int64)
        self._marks: dict[int, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.at)

    @property
    def ids(self) -> Whole:
        """The id at each position; 0 where there is no row."""
        return self._ids[: self.size]

    @property
    def is_there(self) -> Mask:
        """Whether there is a row at each position."""
        return self.ids > 0

    def put(self, found: Mapping[int, Hashable], columns: Callable[[list[Any]], Sequence[Sequence[Any]]]) -> list[int]:
        """Take rows as they were read, by id; returns those that are new or have changed.

        Args:
            found: What was read of each row.
            columns: Makes the values of all fields, in their order, of what was read of several rows.
        """
        marks = {ident: hash(read) for ident, read in found.items()}
        changed = [ident for ident, mark in marks.items() if self._marks.get(ident) != mark]
        for ident in changed:
            if ident in self.at:
                for column in self.fields.values():
                    column.clear(self.at[ident])
            else:
                self.at[ident] = self._room_for(ident)
            self._marks[ident] = marks[ident]
        if changed:
            positions = [self.at[ident] for ident in changed]
            several = columns([found[ident] for ident in changed])
            for column, values in zip(self.fields.values(), several, strict=True):
                column.put(positions, values, self.size)
        return changed

    def _room_for(self, ident: int) -> int:
        if self._free:
            at = self._free.pop()
        else:
            at, self.size = self.size, self.size + 1
            if self.size > len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros(len(self._ids), np.int64)])
        self._ids[at] = ident
        return at

    def remove(self, ident: int) -> int:
        """Forget a row; returns its position."""
        at = self.at.pop(ident)
        del self._marks[ident]
        for column in self.fields.values():
            column.clear(at)
        self._ids[at] = 0
        self._free.append(at)
        return at

    def positions(self, ids: Whole) -> Whole:
        """Return the positions of ids; -1 where there is no such row."""
        order = np.argsort(self.ids, kind="stable")
        place = np.searchsorted(self.ids, ids, sorter=order)
        found = order[np.minimum(place, max(len(order) - 1, 0))] if len(order) else np.zeros(len(ids), np.int64)
        is_it = (self.ids[found] == ids) & (ids > 0) if len(order) else np.zeros(len(ids), np.bool_)
        return np.where(is_it, found, -1).astype(np.int64)
