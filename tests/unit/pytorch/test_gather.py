"""Batches that are gathered from tensors are the batches that torch collates from records, and cost less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import RandomSampler, Subset, TensorDataset, default_collate, random_split
from torch.utils.data._utils import collate as torch_collate

from determined.pytorch import DataLoader
from determined.pytorch.data.seeded_loader import Gather
from determined.pytorch.data.stream import training_stream
from tests.unit.pytorch.loaders import streams

SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (2, 3), (1, 4, 4), (3, 2, 2), (0,)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]
CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as it is": lambda tensor: tensor,
    "every second": lambda tensor: torch.stack([tensor, tensor], -1)[..., 0],
    "expanded": lambda tensor: tensor[:1].expand(tensor.shape),
    "channels last": lambda t: t.contiguous(memory_format=torch.channels_last) if t.ndim == 4 else t,
    "conjugated": lambda tensor: tensor.conj(),
    "with a gradient": lambda t: t.clone().requires_grad_() if t.dtype.is_floating_point else t,
    "sent to meta": lambda tensor: tensor.to("meta"),
    "a parameter": lambda t: torch.nn.Parameter(t, requires_grad=False),
}


@st.composite
def tensor_datasets(draw: st.DrawFn) -> Any:
    """A `TensorDataset` of any tensors, or a subset of one, or a subset of that."""
    length = draw(st.integers(1, 12))
    tensors = []
    for _ in range(draw(st.integers(1, 3))):
        shape, dtype = (length, *draw(st.sampled_from(SHAPES))), draw(st.sampled_from(DTYPES))
        numbers = torch.arange(length * max(1, int(np.prod(shape[1:])))).reshape(-1)[: int(np.prod(shape))]
        tensors.append(CHANGES[draw(st.sampled_from(list(CHANGES)))](numbers.reshape(shape).to(dtype)))
    dataset: Any = TensorDataset(*tensors)
    for _ in range(draw(st.integers(0, 2))):
        picked = draw(st.lists(st.integers(-len(dataset), len(dataset) - 1), min_size=1, max_size=12))
        kind: Callable[[list[int]], Any] = draw(st.sampled_from([list, tuple, np.array, torch.tensor]))
        dataset = Subset(dataset, kind(picked))
    return dataset


def assert_same(ours: Any, torchs: Any) -> None:
    assert type(ours) is type(torchs)
    assert len(ours) == len(torchs)
    for mine, its in zip(ours, torchs, strict=True):
        assert type(mine) is type(its)
        assert (mine.dtype, mine.device, mine.shape, mine.stride()) == (its.dtype, its.device, its.shape, its.stride())
        assert (mine.requires_grad, mine.is_pinned(), mine.is_conj()) == (
            *(its.requires_grad, its.is_pinned()),
            its.is_conj(),
        )
        assert mine.is_meta or torch.equal(mine, its)
        assert mine.storage_offset() == its.storage_offset()
        assert mine._base is None


@given(tensor_datasets(), st.integers(1, 5), st.sampled_from(["in order", "shuffled", "sampled"]), st.booleans())
@settings(deadline=None, max_examples=150)
def test_a_gathered_batch_is_what_torch_collates(dataset: Any, size: int, order: str, drop_last: bool) -> None:
    """Values, types and structure, for any dataset of tensors, batch size and sampler; and no stream is drawn from."""
    options: dict[str, Any] = {"batch_size": size, "drop_last": drop_last, "shuffle": order == "shuffled"}
    if order == "sampled":
        options["sampler"] = RandomSampler(dataset, replacement=True, num_samples=7)
    stream = DataLoader(dataset, **options).get_data_loader()
    before = streams()
    batches = list(stream)
    assert streams() == before
    read: list[list[int]] = []
    plain = DataLoader(range(len(dataset)), collate_fn=lambda indices: read.append(indices), **options)
    list(plain.get_data_loader())
    assert len(batches) == len(read)
    for batch, indices in zip(batches, read, strict=True):
        assert_same(batch, default_collate([dataset[index] for index in indices]))


class TestWhatIsGathered:
    """No record is asked for by itself: a `TensorDataset` that would fail to give one gives its batches."""

    @pytest.fixture(autouse=True)
    def without_records(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any) -> Any:
            raise AssertionError("a single record was read")

        monkeypatch.setattr(TensorDataset, "__getitem__", refuse)

    def test_a_tensor_dataset(self) -> None:
        """Batches of a `TensorDataset` are gathered without asking for single records."""
        numbers = torch.arange(10)
        (batch, squares), *_ = DataLoader(TensorDataset(numbers, numbers**2), batch_size=4)
        assert (batch.tolist(), squares.tolist()) == ([0, 1, 2, 3], [0, 1, 4, 9])

    @pytest.mark.parametrize("kind", [list, np.array, torch.tensor, lambda numbers: list(np.array(numbers))])
    def test_a_subset_of_one(self, kind: Callable[[list[int]], Any]) -> None:
        """Batches of a `Subset` of a `TensorDataset` are gathered too, whatever kind of list holds its indices."""
        dataset = Subset(TensorDataset(torch.arange(10) * 10), kind([7, 3, 5]))
        assert [batch[0].tolist() for batch in DataLoader(dataset, batch_size=2)] == [[70, 30], [50]]

    def test_a_split_of_a_split(self) -> None:
        """Batches of a subset of a subset are gathered too."""
        first, _ = random_split(TensorDataset(torch.arange(10)), [8, 2], torch.Generator().manual_seed(0))
        second, _ = random_split(first, [4, 4], torch.Generator().manual_seed(1))
        (batch,) = next(iter(DataLoader(second, batch_size=4)))
        assert batch.tolist() == [first.indices[index] for index in second.indices]

    def test_a_kind_of_one_that_reads_alike(self) -> None:
        """Batches of a subclass that reads records as `TensorDataset` does are gathered too."""

        class Named(TensorDataset):
            name = "mine"

        assert [batch[0].tolist() for batch in DataLoader(Named(torch.arange(3)), batch_size=2)] == [[0, 1], [2]]

    def test_in_training(self) -> None:
        """The training stream gathers its batches in the same way."""
        stream = training_stream(DataLoader(TensorDataset(torch.arange(10)), batch_size=5, shuffle=True), seed=1)
        assert sorted(torch.cat([next(stream)[0], next(stream)[0]]).tolist()) == list(range(10))


class OwnRecords(TensorDataset):
    def __getitem__(self, index: int) -> Any:
        return (self.tensors[0][index] * 2,)


class OwnBatches(TensorDataset):
    def __getitems__(self, indices: list[int]) -> Any:
        return [(self.tensors[0][index] * 2,) for index in indices]


@pytest.mark.parametrize("kind", [OwnRecords, OwnBatches])
@pytest.mark.parametrize("wrap", [lambda dataset: dataset, lambda dataset: Subset(dataset, [0, 1, 2])])
def test_own_ways_to_read_are_asked(kind: type, wrap: Callable[[Any], Any]) -> None:
    """A subclass that reads in a way of its own is read in that way, also through a subset."""
    (batch,) = next(iter(DataLoader(wrap(kind(torch.arange(3))), batch_size=3)))
    assert batch.tolist() == [0, 2, 4]


def test_own_ways_to_collate_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `collate_fn` of the user's own sees the records; so does a way that `default_collate` was taught."""
    dataset = TensorDataset(torch.arange(3))
    assert list(DataLoader(dataset, batch_size=3, collate_fn=len)) == [3]
    monkeypatch.setitem(torch_collate.default_collate_fn_map, tuple, lambda batch, *, collate_fn_map: len(batch))
    assert list(DataLoader(dataset, batch_size=3)) == [3]


def test_changes_of_the_dataset_are_seen() -> None:
    """A dataset that gets other tensors while it is read gives records of those from then on."""
    dataset = TensorDataset(torch.zeros(4))
    batches = iter(DataLoader(dataset, batch_size=2))
    assert next(batches)[0].tolist() == [0, 0]
    dataset.tensors = (torch.ones(4),)
    assert next(batches)[0].tolist() == [1, 1]


def test_a_missing_record_is_named() -> None:
    """An index out of range is the error it always was, with the record's name."""
    with pytest.raises(IndexError, match="out of bounds") as caught:
        list(DataLoader(TensorDataset(torch.arange(3)), batch_sampler=[[0, 1], [2, 5]]))
    said = "".join([*getattr(caught.value, "__notes__", []), str(caught.value)])
    assert "TensorDataset[5], whose length is 3" in said


@pytest.mark.parametrize("indices", [[True, 1], [0.5], [torch.tensor(1)], [], (1, 2), range(2), [3], [-1]])
def test_unusual_indices_are_left_to_the_dataset(indices: Any) -> None:
    """Indices that tensors would understand in another way, or not at all, are for the dataset itself."""
    assert Gather(default_collate)(TensorDataset(torch.arange(3)), indices) is None


def test_a_profiler_sees_what_loading_takes() -> None:
    """Batches that are read in this process carry the mark by which torch's own loader is found in a trace."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        list(DataLoader(TensorDataset(torch.arange(4)), batch_size=2))
    marks = [event for event in profile.key_averages() if event.key.startswith("enumerate(DataLoader)#")]
    assert [mark.count for mark in marks] == [2]


def test_reading_goes_on_after_a_failure() -> None:
    """Who catches the error of a record reads the next batch, as with torch's loader."""
    batches = iter(DataLoader(TensorDataset(torch.arange(4)), batch_sampler=[[0, 9], [2, 3]]))
    with pytest.raises(IndexError):
        next(batches)
    assert next(batches)[0].tolist() == [2, 3]
