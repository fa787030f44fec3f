"""What resuming data costs, and how our loader keeps up with torch's. Run it: python bench/data.py

Ratios, not seconds: both loaders read the same records in the same process, in turns, piece by piece, so that a busy
machine disturbs both alike. A ratio of 1.00 is torch's own speed, more is faster.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from operator import truediv
from typing import Any

import psutil
import torch
from torch.utils.data import TensorDataset

from determined.pytorch import DataLoader
from determined.pytorch.data.stream import training_stream

RECORDS = 200_000
TARGET = 0.98


def skip_milliseconds(make: Callable[[int], Iterator[Any]], batches: int) -> float:
    """Time to the first batch after `batches` batches: the best of a few."""

    def once() -> float:
        started = time.process_time()
        next(make(batches))
        return (time.process_time() - started) * 1e3

    return min(once() for _ in range(7))


def skip_costs() -> None:
    cases = {
        "in order, 1 million records": DataLoader(range(1_000_000), 8),
        "shuffled, 1 million records": DataLoader(range(1_000_000), 8, shuffle=True),
        "shuffled, 100 million records": DataLoader(range(100_000_000), 8, shuffle=True),
    }
    print(f"{'milliseconds to the first batch after':<40}{'10':>9}{'10^4':>9}{'10^7':>9} batches")
    for name, loader in cases.items():
        ways: dict[str, Callable[[int], Iterator[Any]]] = {
            "get_data_loader(skip)": lambda skip, loader=loader: iter(loader.get_data_loader(True, skip, 4, 1)),  # type: ignore[misc]
            "training stream": lambda skip, loader=loader: training_stream(  # type: ignore[misc]
                loader, seed=1, rank=1, size=4, batches_trained=skip
            ),
        }
        for way, make in ways.items():
            costs = [skip_milliseconds(make, skip) for skip in (10, 10**4, 10**7)]
            print(f"  {name + ':':<31} {way:<22}" + "".join(f"{cost:9.2f}" for cost in costs))


class Reader:
    """Reads one loader piece by piece, and notes what each piece costs this process, and all of them the workers."""

    def __init__(self, open_: Callable[[], Iterator[Any]], piece: int) -> None:
        before = set(psutil.Process().children())
        self.batches, self.piece = open_(), piece
        next(self.batches)
        self.workers = set(psutil.Process().children()) - before
        self.cpu: list[float] = []
        self.wall: list[float] = []
        self.workers_before = self._workers_cpu()

    def read(self) -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in islice(self.batches, self.piece):
            pass
        self.cpu.append(time.process_time() - cpu)
        self.wall.append(time.perf_counter() - wall)

    def all_cpu(self) -> float:
        return sum(self.cpu) + self._workers_cpu() - self.workers_before

    def _workers_cpu(self) -> float:
        times = [worker.cpu_times() for worker in self.workers]
        return sum(spent.user + spent.system for spent in times)


def throughput(workers: int, batch_size: int) -> tuple[float, float]:
    """How often as fast as torch's loader ours is, by CPU time and by the clock."""
    dataset = TensorDataset(torch.rand(RECORDS, 8), torch.arange(RECORDS))
    options: dict[str, Any] = {"batch_size": batch_size, "shuffle": True, "num_workers": workers}
    stream = training_stream(DataLoader(dataset, **options), seed=1)
    piece, pieces = (max(2, 2_000 // batch_size), 400) if workers == 0 else (max(64, 60_000 // (batch_size + 64)), 24)
    plain = Reader(lambda: iter(torch.utils.data.DataLoader(dataset, **options)), piece)
    ours = Reader(lambda: stream, piece)
    for number in range(min(pieces, RECORDS // batch_size // piece - 1)):
        for reader in (plain, ours) if number % 2 else (ours, plain):
            reader.read()
    wall = statistics.median(map(truediv, plain.wall, ours.wall))
    # The system's accounting of other processes is coarse: sums, not single pieces.
    cpu = plain.all_cpu() / ours.all_cpu() if workers else statistics.median(map(truediv, plain.cpu, ours.cpu))
    stream.close()
    return cpu, wall


def main() -> int:
    skip_costs()
    print(f"\n{'speed against torch.utils.data.DataLoader':<44}{'CPU time':>10}{'clock':>9}")
    worst = math.inf
    for workers in (0, 2):
        for batch_size in (8, 256):
            cpu, wall = throughput(workers, batch_size)
            worst = min(worst, cpu)
            print(f"  {f'{workers} workers, shuffled, batches of {batch_size}':<42}{cpu:10.3f}{wall:9.3f}")
    print(f"lowest by CPU time {worst:.3f}, target {TARGET}")
    return 0 if worst >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
