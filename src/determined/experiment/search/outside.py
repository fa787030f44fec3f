"""A search whose method lives in another process: the searcher tells it events, its actions come back as an answer.

`runner` is that other process. In between lies the store: numbered events on the way out, answers on the way in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from determined.experiment.search.base import Action, SearchContext, SearchMethod, SearchState

MARK = "runner"
"""The key of a `name: custom` section whose method lives outside: it names the runner that the search belongs to."""


def is_outside(searcher: Mapping[str, Any]) -> bool:
    """Return whether this `searcher` section is of a search that a runner drives from another process."""
    return searcher.get("name") == "custom" and bool(searcher.get(MARK))


class OutsideMethod(SearchMethod):
    """Stands in for a method in another process: decides nothing, and shows the progress that it is told."""

    is_outside = True
    uses_metrics = False  # the method outside is told everything, and says what is wrong

    def __init__(self) -> None:
        self._progress = 0.0

    def initial_trials(self, ctx: SearchContext) -> list[Action]:  # noqa: ARG002
        return []

    def progress(self, state: SearchState) -> float:  # noqa: ARG002
        return self._progress

    def set_progress(self, progress: float) -> None:
        """Show this progress from now on, if it is a number."""
        if math.isfinite(progress):
            self._progress = progress

    def snapshot(self) -> dict[str, Any]:
        return {"progress": self._progress}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._progress = state["progress"]
