"""Ranks as threads: enough of a `DistributedContext` for metrics; everything is pickled on the way, as in real life."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 90


class ThreadRank:
    def __init__(self, rank: int, size: int, slots: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.size, self._slots, self._barrier = rank, size, slots, barrier
        self.exchanges = 0

    def allgather(self, stuff: Any) -> list[Any]:
        self.exchanges += 1
        self._slots[self.rank] = pickle.dumps(stuff)
        self._barrier.wait(PATIENCE_SECONDS)
        gathered = [pickle.loads(slot) for slot in self._slots]
        self._barrier.wait(PATIENCE_SECONDS)
        return gathered


def on_ranks(size: int, work: Callable[[ThreadRank], Any]) -> list[Any]:
    """What `work` returns on each rank, or the exception that it raised there. A rank that waits in vain raises too."""
    barrier = threading.Barrier(size)
    slots: list[Any] = [None] * size
    answers: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            answers[rank] = work(ThreadRank(rank, size, slots, barrier))
        except Exception as error:
            answers[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
