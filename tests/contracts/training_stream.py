"""What every stream of training batches promises. Suites inherit `TrainingStreamContract` and supply `make`."""

from __future__ import annotations

import io
from itertools import islice
from typing import Any, Protocol

import pytest
import torch

from determined.pytorch.data.stream import TrainingStream
from tests.unit.pytorch.loaders import streams

RECORDS, BATCH = 12, 2
LENGTH = RECORDS // BATCH  # of an epoch of one rank


class Make(Protocol):
    """Makes the stream that one rank would get in a process that begins after `trained` batches."""

    def __call__(self, *, trained: int = 0, rank: int = 0, size: int = 1, records: int = RECORDS) -> TrainingStream:
        """Over the numbers below `records`, in batches of `BATCH`, each number once per epoch over all ranks."""


def read(stream: TrainingStream, count: int) -> list[Any]:
    """Read so many batches, each with what the stream says of it."""
    return [
        (torch.as_tensor(batch).tolist(), stream.epoch_idx, stream.starts_epoch, stream.ends_epoch, stream.is_stand_in)
        for batch in islice(stream, count)
    ]


def saved(stream: TrainingStream) -> Any:
    """Return the state as a checkpoint gives it back: tensors and plain values."""
    file = io.BytesIO()
    torch.save(stream.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


class TrainingStreamContract:
    def test_it_never_ends_and_marks_its_epochs(self, make: Make) -> None:
        """Batches come for ever; each says its epoch, and the first and the last of an epoch say so."""
        stream = make()
        assert stream.epoch_length == LENGTH
        for number, (_, *marks) in enumerate(read(stream, 3 * LENGTH + 1)):
            epoch, position = divmod(number, LENGTH)
            assert marks == [epoch, position == 0, position == LENGTH - 1, False]

    def test_every_epoch_holds_each_record_once(self, make: Make) -> None:
        """An epoch is one pass over the data."""
        stream = make()
        for _ in range(3):
            assert sorted(record for batch, *_ in read(stream, LENGTH) for record in batch) == list(range(RECORDS))

    @pytest.mark.parametrize("size", [2, 3])
    def test_ranks_share_an_epoch(self, make: Make, size: int) -> None:
        """Over all ranks, each record comes once per epoch, and all ranks say the same of the epoch at each step."""
        ranks = [make(rank=rank, size=size) for rank in range(size)]
        for _ in range(2):
            steps = [read(stream, LENGTH // size) for stream in ranks]
            assert sorted(record for rank in steps for batch, *_ in rank for record in batch) == list(range(RECORDS))
            assert all([marks for _, *marks in rank] == [marks for _, *marks in steps[0]] for rank in steps)
            assert steps[0][-1][3], "the last step ends the epoch"

    @pytest.mark.parametrize("size", [1, 2])
    @pytest.mark.parametrize("trained", range(2 * LENGTH + 1))
    def test_a_saved_position_is_resumed_exactly(self, make: Make, trained: int, size: int) -> None:
        """Decision 5: whatever batch was the last, a new process goes on with the one that would have come."""
        whole = make(rank=size - 1, size=size)
        read(whole, trained)
        resumed = make(trained=trained, rank=size - 1, size=size)
        resumed.load_state_dict(saved(whole))
        assert resumed.epoch_shift(trained) == 0, "with as many ranks, batches count as they did"
        assert read(resumed, LENGTH + 1) == read(whole, LENGTH + 1)

    @pytest.mark.parametrize("trained", [1, LENGTH - 1, LENGTH, LENGTH + 1, 10 * LENGTH + 3])
    def test_the_number_of_batches_is_a_position_too(self, make: Make, trained: int) -> None:
        """Without a saved state the stream skips as many batches as were trained."""
        whole = make()
        read(whole, trained)
        assert read(make(trained=trained), LENGTH + 1) == read(whole, LENGTH + 1)

    @pytest.mark.parametrize("trained", [0, 1, LENGTH - 1, LENGTH])
    def test_a_batch_that_was_not_trained_comes_again(self, make: Make, trained: int) -> None:
        """After `step_back()`, a resume begins with the batch that was taken back."""
        stream = make()
        read(stream, trained)
        (expected,) = read(stream, 1)
        stream.step_back()
        resumed = make(trained=trained)
        resumed.load_state_dict(saved(stream))
        assert read(resumed, 1) == [expected]

    def test_closing_keeps_the_position(self, make: Make) -> None:
        """What is saved after `close()` is what would have been saved before it."""
        stream = make()
        read(stream, LENGTH + 2)
        before = saved(stream)
        stream.close()
        after = saved(stream)
        resumed = [make(trained=LENGTH + 2) for _ in range(2)]
        for one, state in zip(resumed, (before, after), strict=True):
            one.load_state_dict(state)
        assert read(resumed[0], LENGTH) == read(resumed[1], LENGTH)

    def test_it_draws_nothing_from_the_random_streams_of_training(self, make: Make) -> None:
        """W59: making, reading, saving and resuming a stream leave the global random streams as they were."""
        before = streams()
        stream = make()
        read(stream, LENGTH + 1)
        make(trained=LENGTH + 1).load_state_dict(saved(stream))
        assert streams() == before

    def test_no_batch_is_an_error(self, make: Make) -> None:
        """Data without a single batch is a ValueError that names the method that returned it, not an endless wait."""
        with pytest.raises(ValueError, match=r"build_training_data_loader\(\) returned a .* without a single batch"):
            next(make(records=0))
