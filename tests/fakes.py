"""Stand-ins for what a test should not need: a link that keeps its reports, and one that fails when told to."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TypeVar

from determined.core.recording.link import NullLink
from determined.store.messages import Report, Signal

R = TypeVar("R", bound=Report)


class MemoryLink(NullLink):
    """Keeps every report. Set `trouble` to have `send` and `signal` raise it until it is None again."""

    place = "memory"

    def __init__(self, listens: bool = False) -> None:
        self.listens = self.is_managed = listens
        self.reports: list[Report] = []
        self.trouble: Exception | None = None
        self.asked_to_stop = False
        self.best: float | None = None
        self.threads: set[str] = set()
        self.times_asked = 0
        self.is_closed = False

    def send(self, reports: Sequence[Report]) -> None:
        self.threads.add(threading.current_thread().name)
        if self.trouble is not None:
            raise self.trouble
        self.reports.extend(reports)

    def signal(self) -> Signal:
        self.times_asked += 1
        if self.trouble is not None:
            raise self.trouble
        return Signal.PREEMPT if self.asked_to_stop else Signal.NONE

    def best_validation(self) -> float | None:
        return self.best

    def close(self) -> None:
        self.is_closed = True

    def of(self, kind: type[R]) -> list[R]:
        """The reports of one kind, in order."""
        return [report for report in self.reports if isinstance(report, kind)]
