"""Hyperparameters, metric summaries and metadata of trials, as columns by key. What is not asked for is not read."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pydantic_core

from determined.client._compare import GROUPS
from determined.server.run_index.column import Column
from determined.store import values

MOST_COLUMNS = 2000
MOST_CELLS = 32_000_000  # 256 MB of numbers: with a million runs, only the commonest 50 keys or so have columns
LONGEST_KEY = 300
MOST_OF_ONE = 5000  # keys of one run
_MOST_COUNTED = 50_000
FIGURES = ("last", "min", "max", "mean")  # as a summary has them
SECTIONS = ("hparams", "metrics", "metadata")

Texts = tuple[str, str, str]  # of hyperparameters, metric summaries, metadata


class Documents:
    """The columns of all keys, for trials by position.

    Of too many keys the commonest have columns. Which these are is known once all documents have been seen: if there
    were too many, `settle` says so, and all are read again.
    """

    def __init__(self) -> None:
        self.columns: dict[str, Column] = {}
        self.hashes: dict[int, int] = {}  # position to what its texts were
        self._counts: collections.Counter[str] | None = collections.Counter()
        self._is_crowded = False
        self._most = MOST_COLUMNS

    def put(self, texts: Mapping[int, Texts], size: int) -> bool:
        """Read the documents of trials, by position, in a table of so many rows; return whether any had changed."""
        fresh = {at: hash(three) for at, three in texts.items()}
        new = [at for at, mark in fresh.items() if self.hashes.get(at) != mark]
        for at in new:
            self.remove(at)
            self.hashes[at] = fresh[at]
        self._most = max(50, min(MOST_COLUMNS, MOST_CELLS // max(size, 1)))
        for keys, positions, rows in _by_shape({at: cells(texts[at]) for at in new}):
            for key, several in zip(keys, zip(*rows, strict=True), strict=True):
                if len(key) <= LONGEST_KEY and (column := self._column(key, len(positions))) is not None:
                    column.put(positions, several, size)
        return bool(new)

    def _column(self, key: str, number: int) -> Column | None:
        counts = self._counts
        if counts is not None and (key in counts or len(counts) < _MOST_COUNTED):
            counts[key] += number
        column = self.columns.get(key)
        if column is None:
            if counts is None or len(self.columns) >= 2 * self._most:
                self._is_crowded = True
                return None
            column = self.columns[key] = Column()
        return column

    def remove(self, at: int) -> None:
        """Forget what a trial has said."""
        if self.hashes.pop(at, None) is None:
            return
        for key, column in list(self.columns.items()):
            column.clear(at)
            if not column.count and self._counts is not None:
                del self.columns[key]

    def settle(self) -> bool:
        """Choose the commonest keys once all documents were read; return whether they have to be read again."""
        if self._counts is None or not (self._is_crowded or len(self.columns) > self._most):
            return False
        common = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))[: self._most]
        self._counts = None  # from here on these are the columns
        self.columns = {key: Column() for key, _ in common}
        self.hashes.clear()
        return True


def _by_shape(found: Mapping[int, dict[str, Any]]) -> Iterable[tuple[Sequence[str], list[int], list[Any]]]:
    """Yield rows that have the same keys together, as most have: a column takes many values faster than one by one."""
    shapes: dict[tuple[str, ...], list[int]] = {}
    for at, row in found.items():
        shapes.setdefault(tuple(row), []).append(at)
    alone: dict[str, list[int]] = {}
    for keys, positions in shapes.items():
        if len(positions) > 2:
            yield keys, positions, [found[at].values() for at in positions]
            continue
        for at in positions:
            for key in keys:
                alone.setdefault(key, []).append(at)
    for key, positions in alone.items():
        yield (key,), positions, [(found[at][key],) for at in positions]


def cells(texts: Texts) -> dict[str, Any]:
    """Return the values of a trial's documents by their keys."""
    hparams, summary, metadata = map(_parsed, texts)
    found = flat(hparams, "hparams.")
    _add_summary(found, summary)
    found |= flat(metadata, "metadata.")
    return dict(list(found.items())[:MOST_OF_ONE]) if len(found) > MOST_OF_ONE else found


def _parsed(text: str) -> dict[str, Any]:
    try:
        is_odd = 'NaN"' in text or 'Infinity"' in text
        found = values.load(text) if is_odd else pydantic_core.from_json(text)  # three times as fast as `json`
    except (ValueError, RecursionError):  # nobody nests hyperparameters a thousand deep in earnest
        return {}
    return found if isinstance(found, dict) else {}


def flat(nested: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return leaves by their dotted keys. An explicit stack: documents may be deep."""
    found: dict[str, Any] = {}
    stack = [(prefix, nested)]
    while stack:
        before, level = stack.pop()
        for key, value in level.items():
            if isinstance(value, dict) and value:
                stack.append((f"{before}{key}.", value))
            else:
                found[before + key] = value
    return found


_metric_keys: dict[tuple[str, str], Sequence[str]] = {}


def _add_summary(found: dict[str, Any], summary: Mapping[str, Any]) -> None:
    for where, entries in summary.items():
        if not isinstance(entries, dict):
            continue
        for name, entry in entries.items():
            if not isinstance(entry, dict):
                continue
            keys = _metric_keys.get((where, name))
            if keys is None:
                if len(_metric_keys) > _MOST_COUNTED:
                    _metric_keys.clear()
                keys = _metric_keys[where, name] = [
                    f"metrics.{GROUPS.get(where, where)}.{name}.{figure}" for figure in FIGURES
                ]
            found[keys[0]] = entry.get("last")
            if "mean" in entry:  # of numbers
                found[keys[1]], found[keys[2]], found[keys[3]] = entry.get("min"), entry.get("max"), entry["mean"]
