"""Datasets, samplers and streams for tests of data loading: what a loader yields, as plain lists."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from itertools import chain, islice
from types import FrameType
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, RandomSampler, Sampler, SubsetRandomSampler

from determined.pytorch.data.stream import TrainingStream, training_stream

TEN = list(range(10))
SEED = 11
kinds = st.sampled_from(["sequential", "shuffled", "sampler", "torch batches", "buckets"])


def lists(loader: Any, count: int | None = None) -> list[list[int]]:
    return [batch.tolist() for batch in islice(loader, count)]


def flat(loader: Any, count: int | None = None) -> list[int]:
    return list(chain.from_iterable(lists(loader, count)))


def streams() -> tuple[Any, ...]:
    """The state of all global random streams, to be compared."""
    numpy_state: Any = np.random.get_state(legacy=False)["state"]
    return (
        random.getstate(),
        numpy_state["key"].tobytes(),
        numpy_state["pos"],
        torch.get_rng_state().numpy().tobytes(),
    )


def dataset_and_options(kind: str, length: int, size: int, drop_last: bool) -> tuple[Any, dict[str, Any]]:
    dataset = list(range(length))
    cut: dict[str, Any] = {"batch_size": size, "drop_last": drop_last}
    if kind == "sequential" or not length:
        return dataset, cut
    if kind == "shuffled":
        return dataset, {**cut, "shuffle": True}
    if kind == "sampler":
        return dataset, {**cut, "sampler": RandomSampler(dataset)}
    if kind == "torch batches":
        return dataset, {"batch_sampler": BatchSampler(SubsetRandomSampler(dataset), size, drop_last)}
    return dataset, {"batch_sampler": Buckets(length, size)}


class Buckets(Sampler[list[int]]):
    """A batch sampler of the user's own, that draws from Python's random stream."""

    def __init__(self, length: int, size: int) -> None:
        self.length, self.size = length, size

    def __iter__(self) -> Iterator[list[int]]:
        records = list(range(self.length))
        batches = [records[start : start + self.size] for start in range(0, self.length, self.size)]
        random.shuffle(batches)
        yield from batches

    def __len__(self) -> int:
        return -(-self.length // self.size)


class Endless(Sampler[list[int]]):
    """Draws batches for ever, and has no length."""

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            yield [random.randrange(10), int(np.random.randint(10)), int(torch.randint(10, ()))]


def stream(loader: Any, **options: Any) -> TrainingStream:
    return training_stream(loader, **{"seed": SEED, **options})


def taken(source: TrainingStream, steps: int) -> list[Any]:
    return [batch.tolist() if isinstance(batch, torch.Tensor) else batch for batch in islice(source, steps)]


def saved(source: TrainingStream) -> dict[str, Any]:
    """A state as it comes back from a checkpoint: nothing but JSON survives."""
    state: dict[str, Any] = json.loads(json.dumps(source.state_dict()))
    return state


def calls(work: Callable[[], object]) -> int:
    """How many functions, of Python and of C, are called in doing this: a cost that no machine's speed changes."""
    made = 0

    def count(_frame: FrameType, event: str, _value: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made
