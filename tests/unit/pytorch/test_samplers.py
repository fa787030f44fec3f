"""Samplers: the contract's exact sequences, and that nothing is lost or doubled, for any length, ranks and skip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, RandomSampler, Sampler, SequentialSampler

from determined.pytorch import DataLoader, samplers
from tests.unit.pytorch.loaders import calls

lengths = st.integers(0, 1_000)
replicas = st.integers(1, 9)
skips = st.integers(-3, 2_500)
batch_sizes = st.integers(1, 40)


class Forward(Sampler[Any]):
    """A sampler of the user's own, about which nothing is known but its items."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self.items))

    def __len__(self) -> int:
        return len(self.items)


Make = Callable[[int, int, bool], Any]


def torch_batches(length: int, size: int, drop_last: bool) -> Any:
    return BatchSampler(SequentialSampler(range(length)), size, drop_last)


def our_batches(length: int, size: int, drop_last: bool) -> Any:
    return DataLoader(range(length), size, drop_last=drop_last).batch_sampler


def shuffled_batches(length: int, size: int, drop_last: bool) -> Any:
    if not length:  # torch refuses to shuffle nothing
        return our_batches(length, size, drop_last)
    sampler = DataLoader(range(length), size, shuffle=True, drop_last=drop_last).batch_sampler
    sampler.sampler.set_epoch(0)
    return sampler


def opaque_batches(length: int, size: int, drop_last: bool) -> Any:
    return Forward(list(torch_batches(length, size, drop_last)))


kinds = st.sampled_from([torch_batches, our_batches, shuffled_batches, opaque_batches])


def ten_batches() -> Forward:
    return Forward([f"b{number}" for number in range(10)])


def names(numbers: str) -> list[str]:
    return [f"b{number}" for number in numbers.split()]


def test_distributed_by_example() -> None:
    """D-23: ten batches on three ranks: each rank gets every third one."""
    shards = [samplers.DistributedBatchSampler(ten_batches(), 3, rank) for rank in range(3)]
    assert [list(shard) for shard in shards] == [names("0 3 6 9"), names("1 4 7"), names("2 5 8")]
    assert [len(shard) for shard in shards] == [4, 3, 3]


def test_repeat_then_distributed_by_example() -> None:
    """D-23 The endless stream on three ranks."""
    repeated = samplers.RepeatBatchSampler(ten_batches())
    shards = [samplers.DistributedBatchSampler(repeated, 3, rank) for rank in range(3)]
    assert [list(islice(shard, 8)) for shard in shards] == [
        names("0 3 6 9 2 5 8 1"),
        names("1 4 7 0 3 6 9 2"),
        names("2 5 8 1 4 7 0 3"),
    ]
    assert [len(shard) for shard in shards] == [4, 3, 3]


def test_repeat_then_distributed_then_skip_by_example() -> None:
    """D-23: skipping two batches of the endless stream on three ranks leaves exactly these."""
    repeated = samplers.RepeatBatchSampler(ten_batches())
    chains = [samplers.SkipBatchSampler(samplers.DistributedBatchSampler(repeated, 3, rank), 2) for rank in range(3)]
    assert [list(islice(items, 6)) for items in chains] == [
        names("6 9 2 5 8 1"),
        names("7 0 3 6 9 2"),
        names("8 1 4 7 0 3"),
    ]


def test_order_of_skip_and_repeat() -> None:
    """D-23 Skipping after repeating skips once; before, in every epoch."""
    four = Forward(names("0 1 2 3"))
    skip_last = samplers.SkipBatchSampler(samplers.RepeatBatchSampler(four), 1)
    skip_first = samplers.RepeatBatchSampler(samplers.SkipBatchSampler(four, 1))
    assert list(islice(skip_last, 7)) == names("1 2 3 0 1 2 3")
    assert list(islice(skip_first, 6)) == names("1 2 3 1 2 3")


def test_records_by_example() -> None:
    """D-23, T98: nineteen records on four ranks, one by one and in batches of two, are split exactly so."""
    shards = [samplers.DistributedSampler(range(19), 4, rank) for rank in range(4)]
    assert [list(shard) for shard in shards] == [
        [0, 4, 8, 12, 16],
        [1, 5, 9, 13, 17],
        [2, 6, 10, 14, 18],
        [3, 7, 11, 15],
    ]
    batches = [samplers.DistributedBatchSampler(torch_batches(19, 2, False), 4, rank) for rank in range(4)]
    assert [list(shard) for shard in batches] == [
        [[0, 1], [8, 9], [16, 17]],
        [[2, 3], [10, 11], [18]],
        [[4, 5], [12, 13]],
        [[6, 7], [14, 15]],
    ]
    assert len(batches[1]) == 3


@pytest.mark.parametrize(
    ("length", "seed", "first", "second"),
    [
        (5, 777, [0, 4, 1, 2, 3], [2, 0, 1, 3, 4]),
        (5, 0, [2, 0, 1, 3, 4], [0, 2, 1, 4, 3]),
        (6, 42, [0, 1, 5, 2, 4, 3], [3, 0, 1, 2, 5, 4]),
    ],
)
def test_shuffle_by_example(length: int, seed: int, first: list[int], second: list[int]) -> None:
    """D-23, T99: the first two passes of a shuffle with a given seed are exactly these."""
    sampler = samplers.ReproducibleShuffleSampler(range(length), seed)
    assert [list(sampler), list(sampler)] == [first, second]
    assert len(sampler) == length


def test_batch_shuffle_by_example() -> None:
    """D-23 Batches keep their contents and change places."""
    sampler = samplers.ReproducibleShuffleBatchSampler(torch_batches(10, 2, False), 777)
    assert list(sampler) == [[0, 1], [8, 9], [2, 3], [4, 5], [6, 7]]
    assert list(sampler) == [[4, 5], [0, 1], [2, 3], [6, 7], [8, 9]]
    assert len(sampler) == 5


def test_repeat_gives_identical_passes() -> None:
    """D-24 Ten items, three times, of length ten."""
    sampler = samplers.RepeatSampler(SequentialSampler(range(10)))
    assert list(islice(sampler, 30)) == list(range(10)) * 3
    assert len(sampler) == 10


def test_one_worker_changes_nothing() -> None:
    """D-25 A single rank gets the whole stream."""
    assert list(samplers.DistributedBatchSampler(ten_batches(), 1, 0)) == list(ten_batches())


@pytest.mark.parametrize("kind", [samplers.DistributedBatchSampler, samplers.DistributedSampler])
@pytest.mark.parametrize(("num_workers", "rank"), [(2, -1), (0, 0), (2, 2)])
def test_impossible_ranks_are_refused(kind: Any, num_workers: int, rank: int) -> None:
    """D-26 Ranks that do not exist, for records too."""
    with pytest.raises(ValueError, match=f"{rank if num_workers else num_workers}"):
        kind(range(4), num_workers, rank)


def test_skipping_everything() -> None:
    """D-27 Skipping more than there is yields nothing and keeps the length."""
    sampler = samplers.SkipBatchSampler(torch_batches(8, 2, False), 9)
    assert list(sampler) == []
    assert len(sampler) == 4


def test_skip_starts_later_and_keeps_its_length() -> None:
    """T100 Skip 2 of 8 batches: length 8, and the third comes first."""
    sampler = samplers.SkipBatchSampler(torch_batches(16, 2, False), 2)
    assert len(sampler) == 8
    assert next(iter(sampler)) == [4, 5]


def test_skip_needs_a_length_only_for_batches() -> None:
    """A stream without a length can be skipped record by record."""
    with pytest.raises(TypeError):
        samplers.SkipBatchSampler(iter([[1], [2]]), 1)
    assert list(samplers.SkipSampler(iter([1, 2]), 1)) == [2]


@settings(deadline=None)
@given(lengths, st.integers(0, 2**32 - 1), st.integers(0, 4))
def test_equal_seeds_shuffle_equally(length: int, seed: int, passes: int) -> None:
    """D-28, D-29 The k-th passes of two samplers with one seed are equal, and each is a permutation."""
    first = samplers.ReproducibleShuffleSampler(range(length), seed)
    second = samplers.ReproducibleShuffleSampler(range(length), seed)
    for _ in range(passes + 1):
        one, two = list(first), list(second)
        assert one == two
        assert sorted(one) == list(range(length))


def test_passes_differ() -> None:
    """D-29 Pass 1 is not pass 2."""
    sampler = samplers.ReproducibleShuffleSampler(range(100), 1)
    assert list(sampler) != list(sampler)


@pytest.mark.parametrize("kind", [samplers.ReproducibleShuffleSampler, samplers.ReproducibleShuffleBatchSampler])
def test_set_epoch_makes_passes_independent_of_history(kind: Any) -> None:
    """An extra iter() shifts the series, but not the pass of a numbered epoch; epoch 0 is the first pass either way."""
    plain, numbered = kind(range(50), 9), kind(range(50), 9)
    first = list(plain)
    numbered.set_epoch(3)
    third = list(numbered)
    assert list(numbered) == third
    numbered.set_epoch(0)
    assert list(numbered) == first
    fresh = kind(range(50), 9)
    fresh.set_epoch(3)
    assert list(fresh) == third
    assert third != first


@settings(deadline=None)
@given(kinds, lengths, batch_sizes, st.booleans(), replicas)
def test_shards_partition_the_stream(make: Make, length: int, size: int, drop_last: bool, workers: int) -> None:
    """D-30 Lengths are true, and the shards of all ranks make up the stream, each item once."""
    whole = list(torch_batches(length, size, drop_last)) if make is not shuffled_batches else None
    shards = []
    for rank in range(workers):
        shard = samplers.DistributedBatchSampler(make(length, size, drop_last), workers, rank)
        items = list(shard)
        assert len(items) == len(shard)
        shards.append(items)
    joined = [shards[number % workers][number // workers] for number in range(sum(map(len, shards)))]
    if whole is None:
        records = list(chain.from_iterable(joined))
        assert len(records) == len(set(records)) == (length // size * size if drop_last else length)
    else:
        assert joined == whole


@settings(deadline=None)
@given(lengths, replicas)
def test_record_shards_partition_the_stream(length: int, workers: int) -> None:
    """D-30 The same for records, over a source that jumps and one that does not."""
    for source in (range(length), SequentialSampler(range(length)), Forward(list(range(length)))):
        shards = [samplers.DistributedSampler(source, workers, rank) for rank in range(workers)]
        assert all(len(list(shard)) == len(shard) for shard in shards)
        assert sorted(chain.from_iterable(shards)) == list(range(length))


@settings(deadline=None)
@given(kinds, lengths, batch_sizes, st.booleans(), replicas, skips)
def test_skipping_is_reading_and_discarding(
    make: Make, length: int, size: int, drop_last: bool, workers: int, skip: int
) -> None:
    """Resuming equals continuing: the endless stream of each rank, from any place, by any kind of source."""
    rank = skip % workers
    if not len(make(length, size, drop_last)):
        return

    def stream() -> Any:
        repeated = samplers.RepeatBatchSampler(make(length, size, drop_last))
        return samplers.DistributedBatchSampler(repeated, workers, rank)

    resumed = list(islice(samplers.SkipBatchSampler(stream(), skip), 5))
    assert resumed == list(islice(stream(), max(skip, 0), max(skip, 0) + 5))


@settings(deadline=None)
@given(kinds, lengths, batch_sizes, st.booleans(), st.integers(1, 4))
def test_repeated_epochs_lose_nothing(make: Make, length: int, size: int, drop_last: bool, epochs: int) -> None:
    """Each pass of a repeated sampler holds each record once, in a new order if it is shuffled."""
    sampler = make(length, size, drop_last)
    per_epoch = len(sampler)
    if not per_epoch:
        return
    batches = list(islice(samplers.RepeatBatchSampler(sampler), per_epoch * epochs))
    records = length // size * size if drop_last else length
    for epoch in range(epochs):
        seen = list(chain.from_iterable(batches[epoch * per_epoch : (epoch + 1) * per_epoch]))
        assert len(seen) == len(set(seen)) == records


@pytest.mark.parametrize("kind", [samplers.RepeatSampler, samplers.RepeatBatchSampler])
@pytest.mark.parametrize("source", [range(0), Forward([]), SequentialSampler(range(0))])
def test_repeating_nothing_is_an_error(kind: Any, source: Any) -> None:
    """An empty source would spin for ever."""
    with pytest.raises(ValueError, match="yields nothing"):
        next(iter(kind(source)))


def test_a_random_sampler_is_read_anew_each_pass() -> None:
    """Repeating reshuffles, and a generator's draws are the user's own."""
    sampler = RandomSampler(range(100), generator=torch.Generator().manual_seed(1))
    items = list(islice(samplers.RepeatSampler(sampler), 200))
    assert sorted(items[:100]) == sorted(items[100:]) == list(range(100))
    assert items[:100] != items[100:]


def test_skip_costs_the_same_anywhere() -> None:
    """Ten million batches in, the first batch takes as much work as at ten."""
    batches = samplers.RepeatBatchSampler(torch_batches(1_000_000, 8, False))
    shard = samplers.DistributedBatchSampler(batches, 4, 1)

    def work(skip: int) -> int:
        return calls(lambda: next(iter(samplers.SkipBatchSampler(shard, skip))))

    work(10)
    assert work(10_000_000) < 2 * work(10)


def test_bases() -> None:
    """Each is a Sampler, and batch samplers are BatchSamplers; constructors of the bases were called."""
    batches = torch_batches(4, 2, True)
    for sampler in (
        samplers.RepeatBatchSampler(batches),
        samplers.DistributedBatchSampler(batches, 2, 0),
        samplers.SkipBatchSampler(batches, 1),
        samplers.ReproducibleShuffleBatchSampler(batches, 1),
    ):
        assert isinstance(sampler, BatchSampler)
        assert (sampler.batch_size, sampler.drop_last) == (2, True)
    for record_sampler in (
        samplers.RepeatSampler(range(3)),
        samplers.DistributedSampler(range(3), 2, 0),
        samplers.SkipSampler(range(3), 1),
        samplers.ReproducibleShuffleSampler(range(3), 1),
    ):
        assert isinstance(record_sampler, Sampler)
        assert not isinstance(record_sampler, BatchSampler)


def test_public_attributes() -> None:
    """The documented attributes of a sampler can be read."""
    batches = torch_batches(4, 2, False)
    assert samplers.RepeatBatchSampler(batches).batch_sampler is batches
    distributed = samplers.DistributedBatchSampler(batches, 2, 1)
    assert (distributed.batch_sampler, distributed.num_workers, distributed.rank) == (batches, 2, 1)
    skipping = samplers.SkipBatchSampler(batches, 1)
    assert (skipping.batch_sampler, skipping.skip, skipping.length) == (batches, 1, 2)


def test_with_a_plain_torch_loader() -> None:
    """A chain serves as torch's own batch sampler."""
    stream = samplers.SkipBatchSampler(samplers.RepeatBatchSampler(torch_batches(4, 2, False)), 1)
    loader = torch.utils.data.DataLoader(list(range(4)), batch_sampler=stream)
    assert [batch.tolist() for batch in islice(loader, 3)] == [[2, 3], [0, 1], [2, 3]]
