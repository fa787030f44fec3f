"""The order of `DataLoader`: shuffled anew in each pass, by streams of its own, whatever else is drawn."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import RandomSampler, Sampler, SubsetRandomSampler, WeightedRandomSampler

from determined.pytorch import DataLoader, samplers
from tests.unit.pytorch.loaders import TEN, Buckets, Endless, flat, lists, streams


def test_every_pass_reshuffles() -> None:
    """A plain loop over epochs sees a new order in each, with and without persistent loaders."""
    loader = DataLoader(list(range(100)), batch_size=10, shuffle=True)
    passes = [flat(loader) for _ in range(3)]
    assert all(sorted(records) == list(range(100)) for records in passes)
    assert passes[0] != passes[1] != passes[2]
    made = loader.get_data_loader()
    assert [flat(made) for _ in range(3)] == passes
    assert flat(loader.get_data_loader(repeat=True), 30) == [record for records in passes for record in records]
    assert flat(loader.sampler.data_source and [torch.tensor(list(loader.sampler))]) == passes[0]


def test_shards_agree_whatever_else_is_drawn() -> None:
    """W39 Ranks with different seeds and draws of their own still share one order."""
    loader = DataLoader(list(range(100)), batch_size=10, shuffle=True)
    torch.manual_seed(1)
    first = flat(loader.get_data_loader(num_replicas=2, rank=0))
    torch.manual_seed(2)
    torch.rand(3)
    again = DataLoader(list(range(100)), batch_size=10, shuffle=True)  # as in another process
    second = flat(again.get_data_loader(num_replicas=2, rank=1))
    assert sorted(first + second) == list(range(100))


def test_a_generator_decides_the_order() -> None:
    """Its seed does, so equal generators give equal orders, and nothing depends on what was drawn from it."""

    def order(seed: int, draws: int = 0) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        torch.rand(draws, generator=generator)
        return flat(DataLoader(list(range(50)), shuffle=True, generator=generator))

    assert order(1) == order(1, draws=5)
    assert order(1) != order(2)


def random_batches(batches: int, size: int) -> Iterator[list[int]]:
    for _ in range(batches):
        yield [random.randrange(50) for _ in range(size)]


MAKERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "sequential": lambda: DataLoader(TEN, 2),
    "shuffled": lambda: DataLoader(TEN, 2, shuffle=True),
    "random sampler": lambda: DataLoader(TEN, 2, sampler=RandomSampler(TEN)),
    "with replacement": lambda: DataLoader(TEN, 2, sampler=RandomSampler(TEN, replacement=True, num_samples=40)),
    "subset": lambda: DataLoader(TEN, 2, sampler=SubsetRandomSampler(TEN)),
    "weighted": lambda: DataLoader(TEN, 2, sampler=WeightedRandomSampler([1.0] * 10, 10)),
    "own batches": lambda: DataLoader(TEN, batch_sampler=Buckets(10, 3)),
    "endless": lambda: DataLoader(TEN, batch_sampler=Endless()),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_no_global_stream_is_drawn_from(make: Callable[[], DataLoader[Any]]) -> None:
    """W59 Building, iterating, repeating, skipping and sharding leave `random`, `numpy` and `torch` where they were."""
    before = streams()
    loader = make()
    lists(loader, 7)
    lists(loader.get_data_loader(repeat=True, num_replicas=2, rank=1), 7)
    if hasattr(type(loader.batch_sampler), "__len__"):
        lists(loader.get_data_loader(repeat=True, skip=2), 7)
    assert streams() == before


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_order_does_not_depend_on_global_streams(make: Callable[[], DataLoader[Any]]) -> None:
    """W38 Samplers that draw from global streams are given streams that depend on seed and epoch only."""
    torch.manual_seed(1)
    random.seed(1)
    first = lists(make().get_data_loader(repeat=True), 15)
    torch.manual_seed(2)
    random.seed(2)
    np.random.seed(2)
    assert lists(make().get_data_loader(repeat=True), 15) == first


def test_a_samplers_own_generator_is_left_as_it_was() -> None:
    """Each epoch is a function of its seed, and the user can go on drawing from it."""
    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()
    loader = DataLoader(TEN, 2, sampler=RandomSampler(TEN, generator=generator))
    passes = [flat(loader), flat(loader)]
    assert passes[0] != passes[1]
    assert torch.equal(generator.get_state(), state)
    assert generator.initial_seed() == 3


def test_a_sampler_with_a_state_of_its_own_is_brought_up_to_the_epoch() -> None:
    """Its earlier passes are read again, as nothing else could tell what it would yield."""

    class Stateful(Sampler[int]):
        def __init__(self) -> None:
            self.own = np.random.RandomState(5)

        def __iter__(self) -> Iterator[int]:
            return iter(self.own.permutation(10).tolist())

        def __len__(self) -> int:
            return 10

    whole = flat(DataLoader(TEN, 5, sampler=Stateful()).get_data_loader(repeat=True), 8)
    assert flat(DataLoader(TEN, 5, sampler=Stateful()).get_data_loader(repeat=True, skip=6), 2) == whole[30:]
    assert sorted(whole[30:]) == TEN


def test_set_epoch_of_samplers_is_called() -> None:
    """Also of one that another wraps."""
    told: list[int] = []

    class Told(Sampler[int]):
        def set_epoch(self, epoch: int) -> None:
            told.append(epoch)

        def __iter__(self) -> Iterator[int]:
            return iter(TEN)

        def __len__(self) -> int:
            return 10

    loader = DataLoader(TEN, 5, sampler=samplers.SkipSampler(Told(), 5))
    assert lists(loader.get_data_loader(repeat=True), 3) == [[5, 6, 7, 8, 9]] * 3
    assert told == [0, 1, 2]
