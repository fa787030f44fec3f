"""What the loop trains on: endless, resumable at any batch and by any number of ranks, whatever the trial returned."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, Sampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from determined.pytorch import DataLoader, samplers
from determined.pytorch.data.stream import TrainingStream, validation_loader
from tests.contracts.training_stream import BATCH, RECORDS, Make, TrainingStreamContract
from tests.unit.pytorch.loaders import (
    SEED,
    Buckets,
    Endless,
    calls,
    dataset_and_options,
    kinds,
    lists,
    saved,
    stream,
    streams,
    taken,
)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, logger="determined.pytorch")
    return caplog


class TestOrderedStream(TrainingStreamContract):
    @pytest.fixture(params=["sequential", "shuffled", "sampler", "torch batches", "buckets"])
    def make(self, request: pytest.FixtureRequest) -> Make:
        def make(*, trained: int = 0, rank: int = 0, size: int = 1, records: int = RECORDS) -> TrainingStream:
            dataset, options = dataset_and_options(request.param, records, BATCH, drop_last=False)
            return stream(DataLoader(dataset, **options), rank=rank, size=size, batches_trained=trained)

        return make


# Our loader.


def test_one_rank_reads_epoch_after_epoch() -> None:
    """Two epochs, and what the stream says of each batch."""
    source = stream(DataLoader(list(range(5)), 2))
    seen = [
        (batch.tolist(), source.epoch_idx, source.starts_epoch, source.ends_epoch, source.is_stand_in)
        for batch in islice(source, 4)
    ]
    assert seen == [
        ([0, 1], 0, True, False, False),
        ([2, 3], 0, False, False, False),
        ([4], 0, False, True, False),
        ([0, 1], 1, True, False, False),
    ]
    assert source.epoch_length == 3


def test_epochs_align_when_batches_do_not_divide() -> None:
    """T22, W44: five one-record batches on two ranks make epochs of three steps, and each epoch is one pass."""
    dataset = [1, 2, 3, 4, 5]
    ranks = [stream(DataLoader(dataset), rank=rank, size=2) for rank in range(2)]
    seen = [[(batch.item(), source.is_stand_in) for batch in islice(source, 4)] for source in ranks]
    assert seen[0] == [(1, False), (3, False), (5, False), (1, False)]
    assert seen[1] == [(2, False), (4, False), (5, True), (2, False)]
    assert ranks[0].epoch_length == ranks[1].epoch_length == 3
    assert ranks[0].epoch_idx == ranks[1].epoch_idx == 1


def test_the_last_two_rounds_share_their_records() -> None:
    """Where the last round alone would make tiny batches: 85 records, batches of 10, four ranks."""
    ranks = [stream(DataLoader(list(range(85)), 10), rank=rank, size=4) for rank in range(4)]
    sizes = [[len(batch) for batch in taken(source, 4)] for source in ranks]
    assert sizes == [[10, 6, 6, 10], [10, 6, 6, 10], [10, 6, 5, 10], [10, 5, 5, 10]]


def test_ranks_see_each_batch_once() -> None:
    """D-68 Ten batches, two ranks, five each."""
    ranks = [stream(DataLoader(list(range(20)), 2, shuffle=True), rank=rank, size=2) for rank in range(2)]
    assert sorted(chain.from_iterable(chain.from_iterable(taken(source, 5) for source in ranks))) == list(range(20))


@given(kinds, st.integers(1, 40), st.integers(1, 6), st.booleans(), st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_an_epoch_is_one_pass(kind: str, length: int, size: int, drop_last: bool, ranks: int) -> None:
    """W44 Every epoch holds each record once (stand-ins aside), in the steps agreed on, and no rank goes without."""
    dataset, options = dataset_and_options(kind, length, size, drop_last)
    loader = DataLoader(dataset, **options)
    if not len(loader):
        return
    sources = [stream(loader, rank=rank, size=ranks) for rank in range(ranks)]
    for epoch in range(2):
        seen: list[int] = []
        for source in sources:
            for step in range(source.epoch_length):
                batch = next(source).tolist()
                assert (source.epoch_idx, source.starts_epoch) == (epoch, step == 0)
                assert source.ends_epoch == (step == source.epoch_length - 1)
                seen += [] if source.is_stand_in else batch
        cut = length // size * size if drop_last and kind != "buckets" else length
        assert len(seen) == len(set(seen)) == cut


@given(kinds, st.integers(1, 30), st.integers(1, 4), st.booleans(), st.integers(1, 3), st.integers(0, 40))
@settings(deadline=None, max_examples=60)
def test_resume_equals_continuation(kind: str, length: int, size: int, drop_last: bool, ranks: int, steps: int) -> None:
    """D-69, T45 From the saved state, or only the number of batches, the stream goes on as if it had never stopped."""
    dataset, options = dataset_and_options(kind, length, size, drop_last)
    if not len(DataLoader(dataset, **options)):
        return
    rank = steps % ranks

    def fresh(**more: Any) -> TrainingStream:
        dataset, options = dataset_and_options(kind, length, size, drop_last)
        return stream(DataLoader(dataset, **options), rank=rank, size=ranks, **more)

    whole = fresh()
    taken(whole, steps)
    state = saved(whole)
    rest = taken(whole, 7)
    resumed = fresh()
    resumed.load_state_dict(state)
    assert taken(resumed, 7) == rest
    assert taken(fresh(batches_trained=steps), 7) == rest


@given(
    kinds,
    st.integers(1, 60),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6)), min_size=1, max_size=3),
)
@settings(deadline=None, max_examples=60)
def test_ranks_may_change_between_runs(kind: str, length: int, runs: list[tuple[int, int, int]]) -> None:
    """D-70 However many ranks (and however large their batches) each run had: each record of the epoch exactly once."""
    seen: list[int] = []
    state: dict[str, Any] | None = None
    epoch = 0
    for ranks, size, steps in [*runs, (2, 3, 1_000)]:
        size = 3 if kind == "buckets" else size  # a user's own batches must stay what they were
        dataset, options = dataset_and_options(kind, length, size, False)
        sources = [stream(DataLoader(dataset, **options), rank=rank, size=ranks) for rank in range(ranks)]
        for _ in range(steps):
            for source in sources:
                if state is not None and source.state_dict() != state:
                    source.load_state_dict(state)
                batch = next(source).tolist()
                epoch = source.epoch_idx
                if not epoch:
                    seen += [] if source.is_stand_in else batch
            state = saved(sources[0])
            assert all(saved(source) == state for source in sources)
            if state["epoch"]:
                break
        if state and state["epoch"]:
            break
    assert sorted(seen) == list(range(length))


def test_state_is_plain_and_small() -> None:
    """JSON, and the same on every rank, in records of the epoch over all ranks."""
    sources = [stream(DataLoader(list(range(100)), 4, shuffle=True), rank=rank, size=3) for rank in range(3)]
    for source in sources:
        taken(source, 5)
    assert [saved(source) for source in sources] == [
        {"version": 1, "seed": SEED, "epoch": 0, "position": 60, "unit": "records", "length": 100}
        | {"layout": [9, 3, 4], "shift": 0}
    ] * 3


@given(st.integers(1, 30), st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 12)), min_size=1))
@settings(deadline=None, max_examples=60)
def test_batches_are_counted_in_epochs_when_ranks_change(length: int, runs: list[tuple[int, int, int]]) -> None:
    """Decision 5: index plus shift, divided by the epoch length, is the epoch, with ends where epochs end."""
    state, trained = None, 0
    for batch_size, size, steps in runs:
        source = stream(DataLoader(list(range(length)), batch_size), size=size)
        if state is not None:
            source.load_state_dict(state)
        shift = source.epoch_shift(trained)
        for _ in range(steps):
            next(source)
            epoch, place = divmod(trained + shift, source.epoch_length)
            assert (epoch, place + 1 == source.epoch_length) == (source.epoch_idx, source.ends_epoch)
            trained += 1
        state = saved(source)


def test_epochs_of_varying_length_do_not_shift() -> None:
    """Decision 5: a resume with the same ranks counts as if there had been none, whatever epochs turned out to be."""

    class Varying(torch.utils.data.Sampler[int]):
        passes = 0

        def __iter__(self) -> Iterator[int]:
            self.passes += 1
            return iter(range(3 + self.passes % 2))

        def __len__(self) -> int:
            return 4

    source = stream(DataLoader(list(range(4)), sampler=Varying()))
    taken(source, 9)
    again = stream(DataLoader(list(range(4)), sampler=Varying()))
    again.load_state_dict(saved(source))
    assert again.epoch_shift(9) == 0


@pytest.mark.parametrize("steps", range(8))
def test_a_batch_can_be_taken_back(steps: int) -> None:
    """One that raised was not trained, so the saved position is before it, also at the ends of epochs."""
    loader = DataLoader(list(range(13)), 2, shuffle=True)
    whole = stream(loader, rank=1, size=2)
    taken(whole, steps)
    before, again = saved(whole), taken(whole, 1)
    whole.step_back()
    assert saved(whole) == before
    assert taken(whole, 1) == again


def test_taking_back_at_the_start_changes_nothing() -> None:
    """Nor does it for a loader that is not ours, whose count goes back."""
    fresh = stream(DataLoader(list(range(4))), batches_trained=2)
    fresh.step_back()
    assert taken(fresh, 1) == [[2]]
    foreign = stream([1, 2, 3], is_checked=False)
    foreign.step_back()
    taken(foreign, 2)
    foreign.step_back()
    assert saved(foreign)["batches"] == 1


def test_after_an_epoch_comes_the_next() -> None:
    """The position at the end of an epoch is the start of the next, whatever drop_last left out."""
    source = stream(DataLoader(list(range(11)), 5, drop_last=True))
    taken(source, 2)
    assert (saved(source)["epoch"], saved(source)["position"]) == (1, 0)
    smaller = stream(DataLoader(list(range(11)), 1))
    smaller.load_state_dict(saved(source))
    assert taken(smaller, 1) == [[0]]


def test_the_order_that_was_begun_is_finished() -> None:
    """A resume with another seed goes on in the saved one's order."""
    whole = stream(DataLoader(list(range(50)), 5, shuffle=True))
    taken(whole, 3)
    state = saved(whole)
    resumed = stream(DataLoader(list(range(50)), 5, shuffle=True), seed=99)
    resumed.load_state_dict(state)
    assert taken(resumed, 20) == taken(whole, 20)


def test_seeds_decide() -> None:
    """Another trial seed gives another order; a generator of the user's has the first word."""
    orders = [taken(stream(DataLoader(list(range(50)), 50, shuffle=True), seed=seed), 1) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]

    def own(trial_seed: int) -> list[Any]:
        generator = torch.Generator().manual_seed(5)
        return taken(stream(DataLoader(list(range(50)), 50, shuffle=True, generator=generator), seed=trial_seed), 1)

    assert own(1) == own(2) != orders[0]


def test_a_changed_dataset_is_said(log: pytest.LogCaptureFixture) -> None:
    """In one sentence; training goes on at about the same place."""
    whole = stream(DataLoader(list(range(100)), 10))
    taken(whole, 5)
    resumed = stream(DataLoader(list(range(200)), 10))
    resumed.load_state_dict(saved(whole))
    assert taken(resumed, 1) == [list(range(100, 110))]
    assert [record.message for record in log.records] == [
        (
            "The checkpoint stopped at 50 of 100 records, and an epoch now has 200 records: it goes on at about the "
            "same place, but records may be repeated or missed until the next epoch."
        )
    ]


def test_a_resume_costs_the_same_anywhere() -> None:
    """At batch ten million as at batch ten, shuffled, by number or by state."""
    loader = DataLoader(range(50_000_000), 8, shuffle=True)

    def work(batches: int) -> int:
        return calls(lambda: next(stream(loader, batches_trained=batches, rank=1, size=4)))

    work(10)
    assert work(10_000_000) < 2 * work(10)


def test_streams_leave_random_numbers_alone() -> None:
    """W59 Training and validation data draw nothing from the global streams."""
    before = streams()
    loader = DataLoader(list(range(20)), batch_sampler=Buckets(20, 3))
    taken(stream(loader, rank=1, size=2), 10)
    lists(validation_loader(loader, seed=SEED, rank=1, size=2))
    assert streams() == before


def test_an_empty_training_set_is_refused_by_name() -> None:
    """With what was found."""
    for loader in (DataLoader([]), DataLoader([1, 2], 3, drop_last=True), DataLoader([1], batch_sampler=[])):
        with pytest.raises(ValueError, match=r"build_training_data_loader\(\) returned a DataLoader without"):
            stream(loader)


def test_epochs_that_turn_out_empty_are_an_error() -> None:
    """Also when the sampler said otherwise."""
    loader = DataLoader([1, 2], sampler=samplers.SkipSampler(range(2), 2))
    with pytest.raises(ValueError, match="has no batch"):
        next(stream(loader))


def test_ranks_must_describe_the_same_data() -> None:
    """A rank whose epoch differs from the chief's is told so, before anything can hang."""
    with pytest.raises(ValueError, match="rank 1 an epoch of 2 batches and the chief one of 3"):
        stream(DataLoader([1, 2, 3, 4]), rank=1, size=2, chief_length=3)


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": DistributedSampler(range(8), num_replicas=2, rank=0)},
        {"sampler": samplers.DistributedSampler(range(8), 2, 0)},
        {"batch_sampler": samplers.DistributedBatchSampler(BatchSampler(SequentialSampler(range(8)), 2, False), 2, 0)},
    ],
)
def test_sharding_twice_is_said(options: dict[str, Any], log: pytest.LogCaptureFixture) -> None:
    """W50 A loader that the user already sharded; with one rank there is nothing to say."""
    stream(DataLoader(range(8), **options))
    assert not log.records
    stream(DataLoader(range(8), **options), rank=0, size=2)
    assert "already deals records to ranks" in log.text


def test_unordered_workers_are_said(log: pytest.LogCaptureFixture) -> None:
    """in_order=False cannot be resumed exactly."""
    stream(DataLoader([1, 2], num_workers=2, in_order=False))
    assert "in_order=False" in log.text


def test_a_batch_sampler_without_length() -> None:
    """D-16 One epoch that never ends, resumed by reading indices forward, and sharded."""
    whole = stream(DataLoader(list(range(10)), batch_sampler=Endless()))
    seen = taken(whole, 12)
    assert (whole.epoch_idx, whole.ends_epoch, whole.epoch_length) == (0, False, sys.maxsize)
    ranks = [stream(DataLoader(list(range(10)), batch_sampler=Endless()), rank=rank, size=2) for rank in range(2)]
    assert [taken(source, 3) for source in ranks] == [seen[0:6:2], seen[1:6:2]]
    state = saved(ranks[0])
    three = [stream(DataLoader(list(range(10)), batch_sampler=Endless()), rank=rank, size=3) for rank in range(3)]
    for source in three:
        source.load_state_dict(state)
    assert [taken(source, 2) for source in three] == [seen[6:12:3], seen[7:12:3], seen[8:12:3]]


@pytest.mark.parametrize("steps", [1, 2, 5, 6])
def test_a_sampler_with_a_state_of_its_own_resumes(steps: int) -> None:
    """Nobody tells it the epoch, so its earlier passes are read again."""

    class Remembering(Sampler[int]):
        def __init__(self) -> None:
            self.own = random.Random(5)

        def __iter__(self) -> Iterator[int]:
            return iter(self.own.sample(range(10), 10))

        def __len__(self) -> int:
            return 10

    whole = stream(DataLoader(list(range(10)), 5, sampler=Remembering()))
    taken(whole, steps)
    resumed = stream(DataLoader(list(range(10)), 5, sampler=Remembering()))
    resumed.load_state_dict(saved(whole))
    assert taken(resumed, 5) == taken(whole, 5)


def test_epochs_of_varying_length() -> None:
    """A sampler that yields more batches in one epoch than in another is followed, and resumed."""

    class Growing(Sampler[list[int]]):
        def __init__(self) -> None:
            self.epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Iterator[list[int]]:
            return iter([[number] for number in range(self.epoch + 1)])

        def __len__(self) -> int:
            return 5

    whole = stream(DataLoader(list(range(9)), batch_sampler=Growing()))
    assert [(*batch, whole.epoch_idx) for batch in (next(whole).tolist() for _ in range(6))] == [
        (0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)
    ]  # fmt: skip
    resumed = stream(DataLoader(list(range(9)), batch_sampler=Growing()))
    taken(resumed, 4)
    again = stream(DataLoader(list(range(9)), batch_sampler=Growing()))
    again.load_state_dict(saved(resumed))
    assert taken(again, 2) == [[1], [2]]


# Validation.


def test_validation_shards() -> None:
    """Batches in turn, each rank its share, which may be empty, and the same in every validation."""
    loader = DataLoader(list(range(10)), 4, shuffle=True)
    ranks = [validation_loader(loader, seed=SEED, rank=rank, size=4) for rank in range(4)]
    seen = [lists(source) for source in ranks]
    assert [len(source) for source in ranks] == [1, 1, 1, 0]
    assert sorted(chain.from_iterable(chain.from_iterable(seen))) == list(range(10))
    assert [lists(source) for source in ranks] == seen


def test_the_chief_can_validate_alone() -> None:
    """D-71 The whole dataset once, by a torch loader that shows the user's dataset."""
    dataset = list(range(10))
    loader = validation_loader(DataLoader(dataset, 4), seed=SEED)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert loader.dataset is dataset
    assert lists(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_validation_data_that_is_used_up_is_refused() -> None:
    """A generator would serve the first validation only."""
    with pytest.raises(TypeError, match="read only once"):
        validation_loader(iter([1]), seed=SEED, is_checked=False)


def test_in_process_augmentation_uses_the_streams_of_training() -> None:
    """Decision 5: with no workers, records draw from the process's streams, which a checkpoint restores."""

    class Noisy:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> float:
            return index + random.random()

    random.seed(4)
    source = stream(DataLoader(Noisy(), 2))
    drawn = [value % 1 for batch in taken(source, 3) for value in batch]
    random.seed(4)
    assert drawn == pytest.approx([random.random() for _ in range(6)], abs=1e-9)
