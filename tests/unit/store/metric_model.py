"""The rules for metrics in a few lines of plain Python, to compare the store with."""

from __future__ import annotations

import math
from typing import Any

from determined.store.metrics import rollups


def same(one: Any, other: Any) -> bool:
    """Equal, where NaN equals NaN."""
    return one == other or (one != one and other != other)


class Model:
    """A trial that remembers every report in a list."""

    def __init__(self) -> None:
        self.attempt = 0
        self.rows: list[dict[str, Any]] = []

    def begin(self) -> None:
        self.attempt += 1

    def report(self, group: str, steps: int | None, metrics: dict[str, Any]) -> bool:
        """Take a report; False if it says something else about a step than before."""
        if steps is None:
            self.rows.append({"attempt": self.attempt, "group": group, "steps": None, "body": metrics, "hidden": False})
            return True
        if not any(r["attempt"] == self.attempt and r["steps"] is not None for r in self.rows):
            for row in self.rows:
                if row["steps"] is not None and row["steps"] >= steps + (row["group"] != group):
                    row["hidden"] = True
        for row in self.visible(group):
            if row["steps"] == steps and row["attempt"] < self.attempt:
                row["hidden"] = True
            elif row["steps"] == steps:
                if any(name in row["body"] and not same(row["body"][name], v) for name, v in metrics.items()):
                    return False
                row["body"] = {**metrics, **row["body"]}
                return True
        self.rows.append(
            {"attempt": self.attempt, "group": group, "steps": steps, "body": dict(metrics), "hidden": False}
        )
        return True

    def visible(self, group: str | None = None) -> list[dict[str, Any]]:
        """Samples first, then in order of steps."""
        rows = [row for row in self.rows if not row["hidden"] and group in (None, row["group"])]
        return sorted(rows, key=lambda row: -1 if row["steps"] is None else row["steps"])

    def groups(self) -> set[str]:
        return {row["group"] for row in self.visible()}

    def series(self, group: str, name: str) -> list[tuple[int | None, Any]]:
        return [(row["steps"], row["body"][name]) for row in self.visible(group) if name in row["body"]]

    def summary(self) -> dict[str, dict[str, dict[str, Any]]]:
        whole: dict[str, dict[str, dict[str, Any]]] = {}
        for group in self.groups():
            for name in {name for row in self.visible(group) for name in row["body"]}:
                whole.setdefault(rollups.summary_key(group), {})[name] = self._entry(
                    [value for _, value in self.series(group, name)]
                )
        return whole

    def _entry(self, values: list[Any]) -> dict[str, Any]:
        types = {rollups.type_of(value) for value in values}
        if types != {"number"}:
            return {"last": values[-1], "type": types.pop() if len(types) == 1 else "string"}
        finite = [value for value in values if math.isfinite(value)]
        return {
            "count": len(finite),
            "min": min(finite, default=None),
            "max": max(finite, default=None),
            "sum": sum(finite) if finite else None,
            "mean": sum(finite) / len(finite) if finite else None,
            "last": values[-1],
            "type": "number",
        }

    def total_batches(self) -> int:
        return max((row["steps"] for row in self.visible() if row["steps"] is not None), default=0)

    def validations(self, metric: str) -> list[tuple[int, Any]]:
        return [(steps, value) for steps, value in self.series("validation", metric) if steps is not None]
