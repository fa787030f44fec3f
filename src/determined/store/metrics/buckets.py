"""Points and cells become the buckets of a picture: arithmetic only, no SQL."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence

from determined.store.metrics.rollups import Cell, Envelope, join

Reported = tuple[int, float, "int | None"]  # steps, value, and how many batches it is an average of, if that was said


def of_points(points: Sequence[Reported], buckets: int) -> Envelope:
    """Return points, which are in order of steps, in so many buckets or fewer; with few, each has one of its own."""
    windows = [window for _, _, window in points if window]
    typical = statistics.median_low(windows) if windows else 0
    if windows and 2 * min(windows) < typical:
        return of_cells(_even(points, typical), buckets)
    if len(points) <= buckets:
        return _singles(points)
    weighed = [(steps, value, window or 1) for steps, value, window in points]
    return columns([Cell.of(weighed[start:end]) for start, end in _parts(len(weighed), buckets)])


def of_cells(cells: Sequence[Cell], buckets: int) -> Envelope:
    """Return neighbouring cells in so many buckets or fewer, about equally many in each."""
    return columns(fewer(cells, buckets))


def fewer(cells: Sequence[Cell], most: int) -> Sequence[Cell]:
    """Return so many cells or fewer: neighbours are joined, about equally many into each."""
    if len(cells) <= most:
        return cells
    joined = (join(cells[start:end]) for start, end in _parts(len(cells), most))
    return [cell for cell in joined if cell is not None]


def _parts(length: int, parts: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of so many parts of about the same length."""
    return itertools.pairwise(number * length // max(parts, 1) for number in range(max(parts, 1) + 1))


def _even(points: Sequence[Reported], typical: int) -> list[Cell]:
    """Return a cell for each point; averages of few batches are first joined, to be of about as many as the others.

    Windows end at validations and checkpoints too, so that one of 100 batches may be followed by one of 5: drawn as it
    is, the second one is noise that looks like a jump.
    """
    cells: list[Cell] = []
    small: list[tuple[int, float, int]] = []  # averages of few batches, waiting for more

    def average() -> Cell:
        cell = Cell.of(small)
        mean = 0.0 if cell.mean is None else cell.mean
        batches = sum(batches for *_, batches in small)
        small.clear()
        return Cell.of([(cell.last_steps, mean, batches)])

    for steps, value, window in points:
        if not window or not math.isfinite(value):
            cells += [average()] if small else []
            cells.append(Cell.of([(steps, value, window or 1)]))
            continue
        small.append((steps, value, window))
        if 2 * sum(batches for *_, batches in small) >= typical:
            cells.append(average())
    if small and cells and cells[-1].weight is not None and cells[-1].mean is not None:
        last = cells.pop()
        small.insert(0, (last.last_steps, last.mean or 0.0, last.weight or 1))
    return cells + ([average()] if small else [])


def _singles(points: Sequence[Reported]) -> Envelope:
    steps = [step for step, _, _ in points]
    found = [value if math.isfinite(value) else None for _, value, _ in points]
    odd = [int(value is None) for value in found]
    return Envelope(steps, list(steps), [1 - each for each in odd], found, list(found), list(found), odd)


def columns(cells: Sequence[Cell]) -> Envelope:
    """Return cells, each as a bucket."""
    return Envelope(
        steps=[cell.first_steps for cell in cells],
        ends=[cell.last_steps for cell in cells],
        count=[cell.count for cell in cells],
        min=[cell.min for cell in cells],
        mean=[cell.mean for cell in cells],
        max=[cell.max for cell in cells],
        odd=[cell.odd for cell in cells],
    )
