"""`DataLoader`: the contract's rules: what it takes and refuses, shards, skips, and batches of any structure."""

from __future__ import annotations

import warnings
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, Sampler, SequentialSampler

from determined.pytorch import DataLoader, adapt_batch_sampler, samplers
from determined.pytorch.data import loader as data_loader
from tests.unit.pytorch.loaders import TEN, Endless, calls, dataset_and_options, kinds, lists


class Numbers(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(TEN)


def test_batches_come_in_order() -> None:
    """D-01 Ten records in batches of two."""
    loader = DataLoader(TEN, batch_size=2)
    assert lists(loader) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert len(loader) == 5
    assert lists(DataLoader(list(range(5)), batch_size=2, drop_last=True)) == [[0, 1], [2, 3]]


def test_iterable_datasets_are_refused() -> None:
    """D-02, T97: an iterable dataset is refused, with what becomes the user's duty and where to read on."""
    with pytest.raises(ValueError, match=r"unsupported.*shuffling, sharding, repeating and skipping.*docs/guides/data"):
        DataLoader(Numbers())


def test_batches_are_needed() -> None:
    """D-03, T97: batch_size=None without a batch sampler is a ValueError."""
    with pytest.raises(ValueError, match="batch_size=None"):
        DataLoader(TEN, batch_size=None)


def test_a_batch_sampler_alone_is_enough() -> None:
    """D-04 It takes the place of the batch size."""
    batches = BatchSampler(SequentialSampler(TEN), 3, False)
    loader = DataLoader(TEN, batch_sampler=batches)
    assert loader.batch_size is None
    assert loader.drop_last is False
    assert loader.batch_sampler is batches
    assert lists(loader) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 2},
        {"batch_size": None},
        {"shuffle": True},
        {"sampler": SequentialSampler(TEN)},
        {"drop_last": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_batch_sampler_excludes_the_rest(options: dict[str, Any]) -> None:
    """D-05, T97: a batch sampler together with another batching option is a ValueError."""
    with pytest.raises(ValueError, match="batch_sampler"):
        DataLoader(TEN, batch_sampler=[[1], [2]], **options)


def test_sampler_excludes_shuffle() -> None:
    """D-06, T97: a sampler together with shuffle=True is a ValueError."""
    with pytest.raises(ValueError, match="sampler and shuffle"):
        DataLoader(TEN, sampler=SequentialSampler(TEN), shuffle=True)


def test_prefetch_factor() -> None:
    """D-07, T97: prefetch_factor is 2 by default with workers, refused without workers, and never negative."""
    assert DataLoader(TEN, num_workers=1).prefetch_factor == 2
    assert DataLoader(TEN).prefetch_factor is None
    with pytest.raises(ValueError, match="prefetch_factor=2"):
        DataLoader(TEN, prefetch_factor=2)
    with pytest.raises(ValueError, match="negative"):
        DataLoader(TEN, num_workers=1, prefetch_factor=-1)


def test_persistent_workers_need_workers() -> None:
    """D-08, T97: persistent_workers=True without workers is a ValueError."""
    with pytest.raises(ValueError, match="persistent_workers"):
        DataLoader(TEN, persistent_workers=True)


@pytest.mark.parametrize("options", [{"num_workers": -1}, {"timeout": -1}])
def test_negative_settings_are_refused(options: dict[str, Any]) -> None:
    """T97: a negative num_workers or timeout is a ValueError."""
    with pytest.raises(ValueError, match="-1"):
        DataLoader(TEN, **options)


def test_shards_by_example() -> None:
    """D-09: five batches on two replicas: one gets the first, third and fifth, the other the rest."""
    loader = DataLoader(TEN, batch_size=2)
    shards = [loader.get_data_loader(num_replicas=2, rank=rank) for rank in range(2)]
    assert [lists(shard) for shard in shards] == [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7]]]
    assert [len(shard) for shard in shards] == [3, 2]


def test_repeat_and_skip_by_example() -> None:
    """D-10, D-11, D-12: an endless loader on rank 1 of 2 that skips three batches goes on with exactly these."""
    stream = DataLoader(TEN, batch_size=2).get_data_loader(repeat=True, skip=3, num_replicas=2, rank=1)
    assert lists(stream, 5) == [[4, 5], [8, 9], [2, 3], [6, 7], [0, 1]]
    assert len(stream) == 2


class OneList(Sampler[list[int]]):
    """A batch sampler that fills one list again and again, as torch allows: it reads a batch before the next."""

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for record in range(6):
            batch.append(record)
            if len(batch) == 2:
                yield batch
                batch.clear()

    def __len__(self) -> int:
        return 3


def test_a_batch_sampler_may_fill_one_list_again_and_again() -> None:
    """1.3: batches are those that torch would read."""
    loader = DataLoader(list(range(6)), batch_sampler=OneList())
    assert lists(loader) == [[0, 1], [2, 3], [4, 5]]
    assert lists(loader.get_data_loader(repeat=True, skip=1, num_replicas=2, rank=1), 2) == [[0, 1], [4, 5]]


def test_no_replicas_is_one() -> None:
    """1.4: sharding is for more than one replica."""
    assert lists(DataLoader(list(range(3))).get_data_loader(num_replicas=0, skip=1)) == [[1], [2]]


@given(kinds, st.integers(1, 60), st.integers(1, 9), st.booleans(), st.integers(1, 5), st.integers(0, 30))
@settings(deadline=None, max_examples=50)
def test_ranks_share_the_repeated_stream(
    kind: str, length: int, size: int, drop_last: bool, replicas: int, skip: int
) -> None:
    """D-10, D-11, D-12 Ranks read in turn give the endless stream; a skip drops its beginning once; lengths stay."""
    dataset, options = dataset_and_options(kind, length, size, drop_last)
    loader = DataLoader(dataset, **options)
    if not len(loader):
        return
    whole = lists(loader.get_data_loader(repeat=True), (skip + 4) * replicas)
    shards = [loader.get_data_loader(True, skip, replicas, rank) for rank in range(replicas)]
    taken = [lists(shard, 4) for shard in shards]
    assert [taken[number % replicas][number // replicas] for number in range(4 * replicas)] == whole[skip * replicas :]
    assert [len(shard) for shard in shards] == [
        len(loader.get_data_loader(num_replicas=replicas, rank=rank)) for rank in range(replicas)
    ]


@given(kinds, st.integers(1, 60), st.integers(1, 9), st.booleans(), st.integers(1, 5))
@settings(deadline=None, max_examples=50)
def test_shards_make_up_an_epoch(kind: str, length: int, size: int, drop_last: bool, replicas: int) -> None:
    """D-09 Each record of a pass on exactly one rank, whatever the order, and lengths that tell the truth."""
    dataset, options = dataset_and_options(kind, length, size, drop_last)
    loader = DataLoader(dataset, **options)
    shards = [loader.get_data_loader(num_replicas=replicas, rank=rank) for rank in range(replicas)]
    seen = [lists(shard) for shard in shards]
    records = list(chain.from_iterable(chain.from_iterable(seen)))
    cut = length // size * size if drop_last and kind != "buckets" else length
    assert len(records) == len(set(records)) == cut
    assert [len(shard) for shard in shards] == [len(batches) for batches in seen]


def test_it_is_not_a_torch_loader_but_makes_them() -> None:
    """D-15 So that nobody takes it for one that is ready to use."""
    loader = DataLoader(TEN, batch_size=2)
    assert not isinstance(loader, torch.utils.data.DataLoader)
    made = loader.get_data_loader()
    assert isinstance(made, torch.utils.data.DataLoader)
    assert made.dataset is TEN
    assert made.batch_sampler is loader.batch_sampler
    assert made.collate_fn is loader.collate_fn


def test_positional_order_is_torchs() -> None:
    """The first thirteen parameters can be given by place."""
    generator = torch.Generator()
    loader: DataLoader[Any] = DataLoader(TEN, 2, False, None, None, 1, list, False, True, 3, print, "fork", generator)
    assert (loader.batch_size, loader.num_workers, loader.collate_fn) == (2, 1, list)
    assert (loader.drop_last, loader.timeout) == (True, 3)
    assert (loader.worker_init_fn, loader.multiprocessing_context, loader.generator) == (print, "fork", generator)


def test_new_torch_keywords_are_handed_on() -> None:
    """What the installed torch knows is accepted; what it does not is refused."""
    loader = DataLoader(TEN, in_order=False, pin_memory_device="")
    assert loader.in_order is False  # type: ignore[attr-defined]
    assert loader.get_data_loader().in_order is False  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="no_such_option"):
        DataLoader(TEN, no_such_option=1)


def test_what_only_torch_checks_surfaces_late() -> None:
    """A start method without workers is refused when the loader is made."""
    loader = DataLoader(TEN, multiprocessing_context="fork")
    with pytest.raises(ValueError, match="multiprocessing_context"):
        loader.get_data_loader()


def test_samplers_made_by_default() -> None:
    """Of the types that torch users expect."""
    assert isinstance(DataLoader(TEN, shuffle=True).sampler, RandomSampler)
    assert type(DataLoader(TEN).sampler) is SequentialSampler
    assert isinstance(DataLoader(TEN).batch_sampler, BatchSampler)
    assert type(DataLoader(TEN, batch_sampler=[[1]]).sampler) is SequentialSampler
    with pytest.raises(ValueError, match="num_samples"):
        DataLoader([], shuffle=True)


def test_repeating_an_empty_loader_is_an_error() -> None:
    """It would spin for ever."""
    with pytest.raises(ValueError, match="no batch"):
        next(iter(DataLoader([]).get_data_loader(repeat=True)))
    assert lists(DataLoader([])) == []


def test_skip_never_reads_what_it_skips() -> None:
    """Not a single skipped record is asked for."""
    asked: list[int] = []

    class Watching:
        def __len__(self) -> int:
            return 1_000

        def __getitem__(self, index: int) -> int:
            asked.append(index)
            return index

    stream = iter(DataLoader(Watching(), 10, shuffle=True).get_data_loader(repeat=True, skip=250))
    next(stream)
    assert len(asked) == 10


@pytest.mark.parametrize("shuffle", [False, True])
def test_skip_costs_the_same_anywhere(shuffle: bool) -> None:
    """The first batch after ten million takes as much work as the first after ten."""

    def work(loader: DataLoader[Any], skip: int) -> int:
        return calls(lambda: next(iter(loader.get_data_loader(repeat=True, skip=skip, num_replicas=3, rank=1))))

    for records in (1_000_000, 10):  # where it means many epochs, too
        loader = DataLoader(range(records), 8, shuffle=shuffle)
        work(loader, 10)
        assert work(loader, 10_000_000) < 2 * work(loader, 10)


Point = namedtuple("Point", "x y")


@dataclass
class Sample:
    x: Any
    y: Any


@pytest.mark.parametrize(
    ("record", "collate", "expected"),
    [
        (lambda i: np.full(2, i), None, torch.Tensor),
        (lambda i: torch.full((2,), i), None, torch.Tensor),
        (lambda i: (i, float(i)), None, list),
        (lambda i: {"a": i, "b": {"c": [i]}}, None, dict),
        (lambda i: Point(i, i), None, Point),
        (lambda i: i, lambda items: Sample(torch.tensor(items), items), Sample),
        (lambda i: i, np.array, np.ndarray),
    ],
)
def test_batches_of_any_structure(record: Any, collate: Any, expected: type) -> None:
    """Arrays, tensors, tuples, lists, dictionaries, named tuples, dataclasses."""
    loader = DataLoader([record(index) for index in range(4)], 2, collate_fn=collate)
    assert all(isinstance(batch, expected) for batch in loader)


class Broken:
    """Fails at one record."""

    def __init__(self, error: Exception | type[Exception], length: int = 10) -> None:
        self.error, self.length = error, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == 7:
            raise self.error
        return index


def text_of(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def test_an_error_names_the_record_and_keeps_its_type() -> None:
    """Which record of which dataset, in which batch."""
    with pytest.raises(KeyError) as caught:
        lists(DataLoader(Broken(KeyError("label")), 3))
    assert "Broken[7], whose length is 10" in text_of(caught.value)
    assert "[6, 7, 8]" in text_of(caught.value)


def test_a_dataset_that_ends_early_is_an_error() -> None:
    """StopIteration does not end the epoch in silence."""
    with pytest.raises(RuntimeError, match=r"StopIteration came out of Broken\[7\], whose length is 10"):
        lists(DataLoader(Broken(StopIteration), 3))


def test_an_error_while_collating_names_the_records() -> None:
    """Records of unequal shape, for example."""
    ragged = [torch.zeros(2), torch.zeros(2), torch.zeros(3), torch.zeros(2)]
    with pytest.raises(RuntimeError) as caught:
        list(DataLoader(ragged, 2))
    assert "the batch of records [2, 3] of list" in text_of(caught.value)


def test_datasets_that_read_batches_themselves() -> None:
    """`__getitems__` gets the plain indices, and its errors name them."""

    class Batched:
        def __len__(self) -> int:
            return 6

        def __getitems__(self, indices: list[int]) -> list[int]:
            assert type(indices) is list
            if 5 in indices:
                raise ValueError("no five")
            return [index * 10 for index in indices]

    loader = iter(DataLoader(Batched(), 2))
    assert next(loader).tolist() == [0, 10]
    with pytest.raises(ValueError, match="no five") as caught:
        list(loader)
    assert "[4, 5]" in text_of(caught.value)


def test_adapting_wraps_in_the_contracts_order() -> None:
    """Repeat, then shard if there are several, then skip if there is something to skip."""
    batches = BatchSampler(SequentialSampler(TEN), 2, False)
    assert adapt_batch_sampler(batches) is batches
    assert adapt_batch_sampler(batches, skip=-1, num_replicas=1, rank=7) is batches
    chain_ = adapt_batch_sampler(batches, repeat=True, skip=3, num_replicas=2, rank=1)
    assert isinstance(chain_, samplers.SkipBatchSampler)
    assert isinstance(chain_.batch_sampler, samplers.DistributedBatchSampler)
    assert isinstance(chain_.batch_sampler.batch_sampler, samplers.RepeatBatchSampler)
    assert list(islice(chain_, 5)) == [[4, 5], [8, 9], [2, 3], [6, 7], [0, 1]]


def test_a_loader_without_length() -> None:
    """Its length is a TypeError, and it can still be read, repeated and sharded."""
    loader = DataLoader(TEN, batch_sampler=Endless())
    with pytest.raises(TypeError):
        len(loader)
    whole = lists(loader, 6)
    assert lists(loader.get_data_loader(num_replicas=2, rank=1), 3) == whole[1::2]


def test_pin_memory_without_an_accelerator_only_warns() -> None:
    """As torch does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert lists(DataLoader(TEN, 5, pin_memory=True)) == [TEN[:5], TEN[5:]]


def test_the_type_names() -> None:
    """`TorchData` is what users annotate with, and `DataLoader[...]` can be written."""
    assert torch.Tensor in data_loader.TorchData.__args__  # type: ignore[attr-defined]
    assert np.ndarray[Any, Any] in data_loader._Data.__args__  # type: ignore[attr-defined]
    assert DataLoader[int] is not None
