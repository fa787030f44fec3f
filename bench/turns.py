"""Two sides that take turns within one process, so that whatever else the machine does meets both alike."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator


@dataclasses.dataclass
class Turns:
    """Lets the other side run for a turn, and keeps what both took, in nanoseconds of CPU time.

    Args:
        other: The hand-written side; it yields after each turn.
        clock: What counts: by default this thread's CPU time.
    """

    other: Iterator[None]
    clock: Callable[[], int] = time.thread_time_ns
    mine: list[float] = dataclasses.field(default_factory=list)
    theirs: list[float] = dataclasses.field(default_factory=list)
    background: list[int] = dataclasses.field(default_factory=list)
    since: int | None = None

    def switch(self) -> None:
        """Our turn ends, theirs is run, ours begins."""
        self.pause()
        self.background.append(time.process_time_ns() - time.thread_time_ns())
        started = self.clock()
        next(self.other)
        self.since = self.clock()
        self.theirs.append(self.since - started)

    def pause(self) -> None:
        """Our turn ends, and nothing counts until the next begins."""
        if self.since is not None:
            self.mine.append(self.clock() - self.since)
        self.since = None

    def medians(self) -> tuple[float, float]:
        """The median turn of both sides, ours first, without the first tenth."""
        warm = len(self.theirs) // 10
        return statistics.median(self.mine[warm:]), statistics.median(self.theirs[warm:])

    def behind(self) -> float:
        """What other threads of this process took per turn, without the first tenth, when they import things."""
        warm = len(self.background) // 10
        return (self.background[-1] - self.background[warm]) / max(len(self.background) - warm - 1, 1)
