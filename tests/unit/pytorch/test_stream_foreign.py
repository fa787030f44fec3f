"""Loaders that are not ours: refused by name, or, unchecked, used as they are and resumed as far as they can be."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SequentialSampler

from determined.pytorch import DataLoader, _dataset_repro_warning
from determined.pytorch.data.stream import TrainingStream, epoch_length, validation_loader
from tests.contracts.training_stream import BATCH, RECORDS, Make, TrainingStreamContract
from tests.fuzz_loaders import FOREIGN, FirstPassSkips, Rereading, make_loader
from tests.unit.pytorch.loaders import SEED, saved, stream, taken


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, logger="determined.pytorch")
    return caplog


class Stateful:
    """A loader that can save its place, such as torchdata's StatefulDataLoader."""

    def __init__(self, length: int = 4) -> None:
        self.length, self.place = length, 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        while self.place < self.length:
            self.place += 1
            yield self.place - 1
        self.place = 0

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


class Batches:
    """An iterable of a user's own, shuffled or not, whose first pass skips."""

    def __init__(self, numbers: list[int], skip: int, shuffles: bool) -> None:
        self.numbers, self.skip, self.shuffles = numbers, skip, shuffles

    def __len__(self) -> int:
        return -(-len(self.numbers) // BATCH)

    def __iter__(self) -> Iterator[list[int]]:
        starts = list(range(0, len(self.numbers), BATCH))
        if self.shuffles:
            random.shuffle(starts)
        skip, self.skip = self.skip, 0
        return (self.numbers[start : start + BATCH] for start in starts[skip:])


class TestForeignStream(TrainingStreamContract):
    @pytest.fixture(params=["list", "iterable", "shuffled iterable", "torch", "shuffled torch", "wrapped torch"])
    def make(self, request: pytest.FixtureRequest) -> Make:
        kind = request.param

        def make(*, trained: int = 0, rank: int = 0, size: int = 1, records: int = RECORDS) -> TrainingStream:
            numbers = list(range(records))[rank * records // size : (rank + 1) * records // size]
            length = -(-len(numbers) // BATCH)
            skip = trained % length if length else 0
            if kind == "list":
                loader: Any = list(Batches(numbers, 0, shuffles=False))
                loader = loader[skip:] + loader[:skip]
            elif kind.endswith("iterable"):
                loader = Batches(numbers, skip, shuffles=kind.startswith("shuffled"))
            elif kind == "wrapped torch":
                loader = Rereading(torch.utils.data.DataLoader(numbers, BATCH), skip) if numbers else []
            else:
                order = RandomSampler(numbers) if numbers and kind == "shuffled torch" else SequentialSampler(numbers)
                batches: Any = BatchSampler(order, BATCH, drop_last=False)
                batches = FirstPassSkips(batches, skip) if numbers else batches
                loader = torch.utils.data.DataLoader(numbers, batch_sampler=batches)
            return stream(loader, rank=rank, size=size, batches_trained=trained, is_checked=False)

        return make


class Noisy(Batches):
    """An iterable whose batches draw, and which skips without reading."""

    def __iter__(self) -> Iterator[list[float]]:  # type: ignore[override]
        return ([number + random.random() for number in batch] for batch in super().__iter__())


def test_a_batch_that_was_not_trained_draws_the_same_again() -> None:
    """Issue 11: after `step_back()`, what a loader draws for the batch that was taken back is drawn again."""
    numbers = list(range(RECORDS))
    first = stream(Noisy(numbers, 0, shuffles=False), is_checked=False)
    *_, expected = islice(first, 3)
    first.step_back()
    resumed = stream(Noisy(numbers, 2, shuffles=False), batches_trained=2, is_checked=False)
    resumed.load_state_dict(first.state_dict())
    assert next(resumed) == expected


class ShufflingGenerator(Batches):
    """An iterable that draws its order when its first batch is asked for."""

    def __iter__(self) -> Iterator[list[int]]:
        yield from super().__iter__()


@pytest.mark.parametrize(
    "trained",
    [
        pytest.param(1, marks=pytest.mark.xfail(strict=True, reason="one batch: its draws may be of order or record")),
        2,
        3,
    ],
)
def test_an_order_that_a_generator_draws(trained: int) -> None:
    """Issue 11: an order drawn inside a generator resumes exactly once two batches of the pass were read.

    After one batch only, its draw cannot be told from one for the batch itself: docs/guides/data.md says so.
    """
    numbers = list(range(RECORDS))
    first = stream(ShufflingGenerator(numbers, 0, shuffles=True), is_checked=False)
    for _ in range(trained):
        next(first)
    state = first.state_dict()
    expected = next(first)
    resumed = stream(ShufflingGenerator(numbers, trained, shuffles=True), batches_trained=trained, is_checked=False)
    resumed.load_state_dict(state)
    assert next(resumed) == expected


def test_other_loaders_are_refused_by_name() -> None:
    """D-13, T26 With what to do about it, for training and validation."""
    loader = torch.utils.data.DataLoader([1, 2])
    for method, build in (("training", stream), ("validation", lambda it: validation_loader(it, seed=SEED))):
        with pytest.raises(RuntimeError) as caught:
            build(loader)
        for part in (
            f"build_{method}_data_loader()",
            "a DataLoader",
            "determined.pytorch.DataLoader",
            "context.experimental.disable_dataset_reproducibility_checks()",
        ):
            assert part in str(caught.value)
    deepspeed = _dataset_repro_warning("f", [], is_deepspeed_trial=True)
    assert "call context.disable_dataset_reproducibility_checks()" in deepspeed


def test_unchecked_loaders_are_used_untouched() -> None:
    """D-14 Rank 1 of 2 sees the same batches as rank 0."""
    ranks = [
        stream(torch.utils.data.DataLoader(list(range(6)), batch_size=2), rank=rank, size=2, is_checked=False)
        for rank in range(2)
    ]
    assert [taken(source, 3) for source in ranks] == [[[0, 1], [2, 3], [4, 5]]] * 2
    loader = [torch.zeros(1)]
    assert validation_loader(loader, seed=SEED, rank=1, size=2, is_checked=False) is loader


def test_a_loader_without_length_has_one_epoch() -> None:
    """D-16, T27 The epoch index stays 0, however often the loader is started again."""

    class Numbers(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    source = stream(torch.utils.data.DataLoader(Numbers()), is_checked=False)
    ends = [(batch.item(), source.epoch_idx, source.starts_epoch, source.ends_epoch) for batch in islice(source, 7)]
    assert [end[0] for end in ends] == [0, 1, 2, 0, 1, 2, 0]
    assert [end[1:] for end in ends] == [(0, True, False)] + [(0, False, False)] * 6


def test_a_finite_loader_is_started_again() -> None:
    """T25 Two batches, five steps, and epochs that follow them."""
    source = stream([10, 20], is_checked=False)
    seen = [(batch, source.epoch_idx, source.starts_epoch, source.ends_epoch) for batch in islice(source, 5)]
    assert seen == [
        (10, 0, True, False),
        (20, 0, False, True),
        (10, 1, True, False),
        (20, 1, False, True),
        (10, 2, True, False),
    ]
    assert epoch_length([10, 20], size=2) == 2


def test_a_generator_that_ends_is_an_error() -> None:
    """It cannot be started again; an endless one is welcome."""
    source = stream((number for number in range(2)), is_checked=False)
    assert taken(source, 2) == [0, 1]
    with pytest.raises(RuntimeError, match="a generator, which ended after 2 batches and cannot be started again"):
        next(source)


def test_a_foreign_loader_without_batches_is_an_error() -> None:
    """Known by its length, or found out."""
    with pytest.raises(ValueError, match="a list without a single batch"):
        stream([], is_checked=False)

    class Nothing:
        def __iter__(self) -> Iterator[int]:
            return iter(())

    with pytest.raises(ValueError, match="a Nothing without a single batch"):
        next(stream(Nothing(), is_checked=False))


@pytest.mark.parametrize("steps", range(9))
def test_stateful_loaders_are_saved_and_restored(steps: int, log: pytest.LogCaptureFixture) -> None:
    """At any batch, also the last of an epoch."""
    whole = stream(Stateful(), is_checked=False)
    taken(whole, steps)
    resumed = stream(Stateful(), is_checked=False)
    resumed.load_state_dict(saved(whole))
    assert [(batch, resumed.epoch_idx) for batch in islice(resumed, 6)] == [
        (batch, whole.epoch_idx) for batch in islice(whole, 6)
    ]
    assert not log.records


def test_a_loader_that_cannot_be_resumed_says_so_once(log: pytest.LogCaptureFixture) -> None:
    """Where it matters: not at the start of an epoch."""
    boundary = stream([1, 2, 3], is_checked=False, batches_trained=3)
    taken(boundary, 1)
    assert not log.records
    whole = stream([1, 2, 3], is_checked=False)
    taken(whole, 4)
    resumed = stream([1, 2, 3], is_checked=False)
    resumed.load_state_dict(saved(whole))
    assert taken(resumed, 7) == [1, 2, 3, 1, 2, 3, 1]
    assert [record.message for record in log.records] == [
        (
            "list has no state_dict() and load_state_dict(), so after batch 4 training goes on with the first batch "
            "that it gives: some records of the epoch are seen twice, others not at all, unless "
            "build_training_data_loader() made it skip context.get_initial_batch() batches."
        )
    ]


def test_changing_loaders_between_runs_is_said(log: pytest.LogCaptureFixture) -> None:
    """From a foreign loader to ours, and back."""
    foreign = stream([1, 2, 3], is_checked=False)
    taken(foreign, 2)
    ours = stream(DataLoader(list(range(6)), 2))
    ours.load_state_dict(saved(foreign))
    assert "not determined.pytorch.DataLoader" in log.text
    assert taken(ours, 1) == [[4, 5]]
    back = stream([1, 2, 3], is_checked=False, batches_trained=3)
    back.load_state_dict(saved(ours))
    assert taken(back, 1) == [1]


@pytest.mark.parametrize("kind", FOREIGN)
def test_reading_leaves_the_streams_of_training_alone(kind: str) -> None:
    """Decision 5: opening and reading any loader, in this epoch and the next, with records that draw for themselves."""
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    np.random.randn()  # of these there is one in store

    def current() -> str:
        return str((random.getstate(), np.random.get_state(), torch.get_rng_state().tolist()))

    with np.printoptions(threshold=sys.maxsize):
        before = current()
        options: dict[str, Any] = {"workers": 0, "persistent": False, "skip": 0, "rank": 0, "size": 1, "on_read": None}
        source = stream(make_loader(kind, noise="all", batch_size=4, **options), is_checked=False)
        seen = [next(source) for _ in range(6)]
        assert current() == before
    again = stream(make_loader(kind, noise="all", batch_size=4, **options), is_checked=False)
    torch.rand(1)
    assert all(torch.equal(batch, next(again)) for batch in seen)  # nor do the loader's depend on them


def test_a_generator_of_ones_own_decides() -> None:
    """torch's `generator=` gives the order that it gives without us."""

    def loader() -> Any:
        return torch.utils.data.DataLoader(range(9), 2, shuffle=True, generator=torch.Generator().manual_seed(3))

    plain = loader()
    expected = [batch.tolist() for _ in range(2) for batch in plain]
    assert [batch.tolist() for batch in islice(stream(loader(), is_checked=False), 10)] == expected
