"""What metrics cost: a training window against a hand-written loop that appends `loss.detach()`, in the same run.

    python bench/metrics.py

Prints seconds per batch of both, their ratio (1.00 is "costs nothing"), and the memory that a long window holds.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from determined.pytorch.metrics.reducer import Reducer
from determined.pytorch.metrics.reduction import TrainingWindow, ValidationPass

WINDOW = 100  # the default reporting period
ROUNDS = 15


def by_hand(step: Callable[[], dict[str, Any]], batches: int) -> dict[str, float]:
    kept: dict[str, list[torch.Tensor]] = {}
    for _ in range(batches):
        for name, value in step().items():
            kept.setdefault(name, []).append(value.detach())
    return {name: torch.stack(values).mean().item() for name, values in kept.items()}


def with_window(step: Callable[[], dict[str, Any]], batches: int, window: TrainingWindow) -> dict[str, float]:
    for _ in range(batches):
        window.add(step())
    return window.close().metrics


def compare(name: str, step: Callable[[], dict[str, Any]], windows: int) -> None:
    """Alternate both, window by window; medians of the rounds."""
    window = TrainingWindow()
    hand, ours = [], []
    for _ in range(ROUNDS):
        for times, run in ((hand, by_hand), (ours, with_window)):
            arguments = (window,) if run is with_window else ()
            start = time.process_time()  # of this process alone: other work on the machine does not count
            for _ in range(windows):
                run(step, WINDOW, *arguments)
            times.append((time.process_time() - start) / (windows * WINDOW))
    a, b = statistics.median(hand), statistics.median(ours)
    print(
        f"{name:<44} by hand {a * 1e6:8.2f} us  window {b * 1e6:8.2f} us  +{(b - a) * 1e6:6.2f} us  ratio {a / b:.3f}"
    )


def a_model(features: int, hidden: int, batch: int) -> Callable[[], dict[str, Any]]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(features, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(batch, features), torch.randint(10, (batch,))

    def step() -> dict[str, Any]:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    return step


def long_window(batches: int) -> None:
    """Memory and time per batch as a window grows."""
    window = TrainingWindow()
    value = torch.tensor(0.5)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    for _ in range(batches):
        window.add({"loss": value, "accuracy": value})
    adding = time.perf_counter() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    start = time.perf_counter()
    result = window.close()
    closing = time.perf_counter() - start
    print(
        f"one window of {batches:>9,} batches, 2 metrics: {adding / batches * 1e6:5.2f} us per batch, "
        f"close {closing * 1e3:5.2f} ms, memory +{grown / 1024:.1f} MiB, batch_metrics {len(result.batch_metrics)}"
    )


def validation(batches: int) -> None:
    """Time per batch of a validation."""
    passes = ValidationPass()
    value = torch.tensor(0.5)
    start = time.perf_counter()
    for _ in range(batches):
        passes.add({"loss": value, "accuracy": value}, records=32)
    passes.reduce(Reducer.AVG)
    each = (time.perf_counter() - start) / batches
    print(f"one validation of {batches:>6,} batches, 2 metrics: {each * 1e6:5.2f} us per batch")


def main() -> None:
    torch.set_num_threads(1)
    weight = torch.ones((), requires_grad=True)
    compare("nothing but a fresh loss (weight * 1)", lambda: {"loss": weight * 1}, 20)
    compare("the same, and accuracy without gradient", lambda: {"loss": weight * 1, "acc": weight.detach() * 1}, 20)
    compare("train a tiny model (16-32-10, batch 8)", a_model(16, 32, 8), 5)
    compare("train a small model (784-256-10, batch 64)", a_model(784, 256, 64), 1)
    long_window(10_000)
    long_window(1_000_000)
    validation(10_000)


if __name__ == "__main__":
    main()
