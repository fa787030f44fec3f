"""What one event costs a search: microseconds per event after 1,000, 10,000 and 100,000 events.

    python bench/search.py

Trials report at every rung and exit when they are stopped; the cost per event should not grow with the search. The last
columns are the cost of a snapshot, which does grow: that is why events are stored, and snapshots only now and then.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from determined.experiment.hparams import parse
from determined.experiment.search.base import (
    Action,
    Create,
    Event,
    Initial,
    Pause,
    Resume,
    Stop,
    TrialCreated,
    TrialExited,
    ValidationCompleted,
)
from determined.experiment.search.searcher import Searcher
from determined.experiment.simulation.curves import Landscape

SPACE, _ = parse(
    {
        "dropout": {"type": "double", "minval": 0.0, "maxval": 0.5},
        "layers": {"type": "int", "minval": 1, "maxval": 8},
        "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    }
)
UNITS = (1, 4, 16, 64, 256)
MARKS = (1_000, 10_000, 100_000)
COMMON = {"metric": "loss", "smaller_is_better": True, "time_metric": "batches", "divisor": 4, "max_time": 256}
SEARCHES: dict[str, dict[str, Any]] = {
    "adaptive_asha": {"name": "adaptive_asha", "max_trials": 1_000_000, "max_concurrent_trials": 64},
    "adaptive_asha, promotion": {
        "name": "adaptive_asha", "max_trials": 1_000_000, "max_concurrent_trials": 64, "form": "promotion"
    },
    "async_halving": {"name": "async_halving", "max_trials": 1_000_000, "max_concurrent_trials": 64, "num_rungs": 5},
    "random": {"name": "random", "max_trials": 1_000_000, "max_concurrent_trials": 64},
}  # fmt: skip


class Story:
    """Makes up what happens next from what the search decided: created, reports rung by rung, exited when stopped."""

    def __init__(self) -> None:
        self._landscape = Landscape(SPACE, 1)
        self._queue: deque[tuple[str, int]] = deque()
        self._curves: dict[str, Any] = {}
        self._rung: dict[str, int] = {}
        self._stopped: set[str] = set()

    def note(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Create):
                self._curves[action.request_id] = self._landscape.curve(action.hparams, action.seed)
                self._queue.append((action.request_id, -1))
            elif isinstance(action, Stop):
                self._stopped.add(action.request_id)
                self._queue.append((action.request_id, len(UNITS)))
            elif isinstance(action, Pause):
                self._stopped.add(action.request_id)
            elif isinstance(action, Resume):
                self._stopped.discard(action.request_id)
                self._queue.append((action.request_id, self._rung[action.request_id] + 1))

    def events(self) -> Iterator[Event]:
        yield Initial()
        while self._queue:
            request_id, rung = self._queue.popleft()
            if rung < 0:
                self._queue.append((request_id, 0))
                yield TrialCreated(request_id)
            elif rung < len(UNITS):
                if request_id in self._stopped:
                    continue
                self._rung[request_id] = rung
                self._queue.append((request_id, rung + 1))
                loss = self._curves[request_id].at(UNITS[rung] / UNITS[-1])
                yield ValidationCompleted(request_id, {"loss": loss, "batches": UNITS[rung]}, UNITS[rung])
            else:
                self._stopped.discard(request_id)
                if self._curves.pop(request_id, None) is not None:
                    yield TrialExited(request_id)


def measure(section: dict[str, Any]) -> list[tuple[int, float, int, float, int]]:
    """At each mark: events, microseconds per event over its last half, trials, snapshot ms and kB."""
    story, searcher = Story(), Searcher({**COMMON, **section}, SPACE, 0)
    rows, spent, counted, trials = [], 0.0, 0, 0
    for number, event in enumerate(story.events(), 1):
        start = time.process_time()  # of this process alone: other work on the machine does not count
        actions = searcher.handle(event)
        spent += time.process_time() - start
        counted += 1
        story.note(actions)
        trials += sum(isinstance(action, Create) for action in actions)
        if number * 2 in MARKS:
            spent, counted = 0.0, 0  # measure the last half: what an event costs now, not on average
        if number in MARKS:
            start = time.process_time()
            text = json.dumps(searcher.snapshot())
            taken = time.process_time() - start
            rows.append((number, spent / counted * 1e6, trials, taken * 1e3, len(text) // 1000))
        if number == MARKS[-1]:
            break
    return rows


def main() -> None:
    table = Table(
        title="One event through a search", caption="us/event of processor time, over the last half before each mark"
    )
    for heading in ("search", "events", "trials", "us/event", "against 1,000", "snapshot ms", "snapshot kB"):
        table.add_column(heading, justify="left" if heading == "search" else "right")
    for name, section in SEARCHES.items():
        rows = measure(section)
        for events, cost, trials, taken, size in rows:
            ratio = f"{cost / rows[0][1]:.2f}"
            table.add_row(name, f"{events:,}", f"{trials:,}", f"{cost:.1f}", ratio, f"{taken:.1f}", f"{size:,}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
