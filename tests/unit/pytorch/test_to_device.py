"""Batches: their length, and moving them without changing what they are. The meta device stands in for a GPU."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from determined.pytorch import data_length, to_device

Point = namedtuple("Point", "x y")


class Pair(NamedTuple):
    image: Any
    label: Any


@dataclass
class Sample:
    image: Any
    label: Any = None


@dataclass(frozen=True)
class Frozen:
    image: Any
    total: int = field(init=False, default=7)


class Movable:
    def __init__(self) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def to(self, *args: Any, **kwargs: Any) -> str:
        self.calls.append((args, kwargs))
        return "moved"


class Stubborn(list):  # type: ignore[type-arg]
    def __init__(self) -> None:
        super().__init__([torch.zeros(1)])


@pytest.fixture
def warnings_logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, logger="determined.pytorch")
    return caplog


def test_arrays_become_tensors_of_their_type() -> None:
    """D-17 A float64 array becomes a float64 tensor, which shares its memory on the CPU."""
    array = np.ones(2)
    moved = to_device({"a": array}, "cpu")["a"]
    assert moved.dtype == torch.float64
    assert moved.shape == (2,)
    array[0] = 5
    assert moved[0] == 5


def test_one_warning_per_type(warnings_logged: pytest.LogCaptureFixture) -> None:
    """D-18, T101: with a shared set a type is warned about once; without a set, once in each call."""
    warned: set[type] = set()
    for _ in range(2):
        assert to_device(["s", "s"], "cpu", warned) == ["s", "s"]
    assert len(warnings_logged.records) == 1
    assert warned == {str}
    to_device(["s", "s"], "cpu")
    to_device(["s", "s"], "cpu")
    assert len(warnings_logged.records) == 3
    assert all(record.name == "determined.pytorch" for record in warnings_logged.records)


def test_arrays_of_strings_stay(warnings_logged: pytest.LogCaptureFixture) -> None:
    """D-19 They come back as the same object, with one warning."""
    array = np.array(["a", "b"])
    assert to_device(array, "cpu") is array
    assert len(warnings_logged.records) == 1
    assert "<U1" in warnings_logged.text


def test_objects_move_themselves_once() -> None:
    """D-20 `.to(device)` is called exactly once, with nothing but the device."""
    movable = Movable()
    assert to_device([movable], "cpu") == ["moved"]
    assert movable.calls == [(("cpu",), {})]


def test_the_warning_says_where(warnings_logged: pytest.LogCaptureFixture) -> None:
    """The path inside the batch is named."""
    to_device({"meta": [Sample(torch.zeros(1), "cat")]}, "cpu")
    assert "batch['meta'][0].label is a str" in warnings_logged.text


@pytest.mark.parametrize(
    "batch",
    [
        [torch.zeros(1)],
        (torch.zeros(1),),
        {"a": torch.zeros(1)},
        Point(torch.zeros(1), torch.zeros(1)),
        Pair(torch.zeros(1), np.zeros(1)),
        OrderedDict(b=torch.zeros(1), a=torch.zeros(1)),
        defaultdict(list, {"a": torch.zeros(1)}),
        UserDict({"a": torch.zeros(1)}),
        Sample(torch.zeros(1), torch.zeros(1)),
        Frozen(torch.zeros(1)),
        pack_sequence([torch.zeros(2)]),
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_containers_keep_their_type(batch: Any) -> None:
    """Named tuples, mappings, dataclasses and types with `.to` come back as what they were (W41), on the device."""
    moved = to_device(batch, "meta", {int})
    assert type(moved) is type(batch)

    def tensors(data: Any) -> list[torch.Tensor]:
        inside = data.values() if hasattr(data, "values") else getattr(data, "__dict__", None)
        values = inside.values() if isinstance(inside, dict) else data if inside is None else inside
        return [value for value in values if isinstance(value, torch.Tensor)]

    if isinstance(batch, PackedSequence):
        assert moved.data.is_meta
    else:
        assert tensors(moved)
        assert all(tensor.is_meta for tensor in tensors(moved))
        assert not any(tensor.is_meta for tensor in tensors(batch))  # the user's batch is not changed


def test_containers_keep_more_than_their_items() -> None:
    """A default factory, the order of keys, and fields that no constructor takes."""
    assert to_device(defaultdict(list, {"a": torch.zeros(1)}), "cpu").default_factory is list
    assert list(to_device(OrderedDict(b=torch.zeros(1), a=torch.zeros(1)), "cpu")) == ["b", "a"]
    assert to_device(Frozen(torch.zeros(1)), "meta", {int}).total == 7


class Fields(MutableMapping[str, Any]):
    """A mapping that keeps its items in a dict, which a shallow copy would share."""

    def __init__(self, items: Mapping[str, Any]) -> None:
        self.items_ = dict(items)

    def __getitem__(self, key: str) -> Any:
        return self.items_[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.items_[key] = value

    def __delitem__(self, key: str) -> None:
        del self.items_[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_)

    def __len__(self) -> int:
        return len(self.items_)


def test_mappings_with_manners_of_their_own() -> None:
    """W41: what a Counter counted is not counted again, and a mapping of the user's own is not changed."""
    assert to_device(Counter("aab"), "cpu", {int}) == {"a": 2, "b": 1}
    batch = Fields({"a": torch.zeros(1)})
    moved = to_device(batch, "meta")
    assert type(moved) is Fields
    assert (moved["a"].is_meta, batch["a"].is_meta) == (True, False)


def test_a_container_that_cannot_be_made_becomes_a_plain_one() -> None:
    """Its constructor refuses, so a list, tuple or dict takes its place."""
    assert type(to_device(Stubborn(), "meta")) is list
    assert type(to_device(MappingProxyType({"a": torch.zeros(1)}), "meta")) is MappingProxyType


def test_nesting_and_order_are_kept() -> None:
    """D-75 Tuples inside a dictionary stay where they are."""
    batch = {"x": (torch.tensor([1]), [np.array([2.0]), (torch.tensor([3]),)]), "y": torch.tensor([4])}
    moved = to_device(batch, "cpu")
    assert list(moved) == ["x", "y"]
    assert isinstance(moved["x"], tuple)
    assert isinstance(moved["x"][1], list)
    assert moved["x"][1][1][0].item() == 3


@pytest.mark.parametrize(
    "array",
    [
        np.arange(4)[::-1],
        np.arange(4).astype(">f8"),
        np.broadcast_to(np.float32(3), (2, 2)),
        np.arange(4, dtype=np.uint16),
        np.array([True, False]),
        np.array(1.5),
        np.array([1j]),
    ],
    ids=["negative strides", "byte order", "read-only", "uint16", "bool", "0-d", "complex"],
)
def test_awkward_arrays_arrive(array: np.ndarray[Any, Any]) -> None:
    """Layouts that torch cannot share are copied."""
    assert np.array_equal(to_device(array, "cpu").numpy(), array)


def test_what_torch_cannot_hold_stays(warnings_logged: pytest.LogCaptureFixture) -> None:
    """A longdouble array is returned as it is, and so are numpy's scalars and None."""
    array = np.ones(2, dtype=np.longdouble)
    assert to_device(array, "cpu") is array
    assert to_device([None, np.float32(1), 3], "cpu") == [None, np.float32(1), 3]
    assert len(warnings_logged.records) == 4


def test_pinned_tensors_move_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """non_blocking where pinned, and only there."""
    asked: list[dict[str, Any]] = []

    class Recording(torch.Tensor):
        def to(self, *args: Any, **kwargs: Any) -> Any:
            asked.append(kwargs)
            return self

        def is_pinned(self, *args: Any) -> bool:
            return bool(self.numel() == 2)

    to_device([torch.zeros(2).as_subclass(Recording), torch.zeros(1).as_subclass(Recording)], "meta")
    assert asked == [{"non_blocking": True}, {}]


@pytest.mark.parametrize("empty", [{}, [], ()])
def test_empty_batches_have_no_length(empty: Any) -> None:
    """D-21, T102: the length of an empty container is refused."""
    with pytest.raises(ValueError, match="empty"):
        data_length(empty)


@pytest.mark.parametrize("other", [0, "abc", None, object(), [0], {"a": "text"}, torch.tensor(1.0)])
def test_other_things_have_no_length(other: Any) -> None:
    """D-21, T102: the length of a number or a string is refused, since neither is a batch."""
    with pytest.raises(TypeError):
        data_length(other)


@pytest.mark.parametrize(
    ("batch", "length"),
    [
        (torch.zeros(5, 2), 5),
        (np.zeros((4, 2)), 4),
        ({"a": torch.zeros(5), "b": torch.zeros(7)}, 5),
        ((torch.zeros(3), 1), 3),
        ({"a": {"x": torch.zeros(9), "y": 1}}, 9),
        ([[torch.zeros(8)]], 8),
        ({"names": ["a", "b"], "x": torch.zeros(2, 3)}, 2),
        ({"scale": torch.tensor(1.0), "x": torch.zeros(6)}, 6),
        (Sample("name", torch.zeros(4)), 4),
        (UserDict({"x": torch.zeros(0, 3)}), 0),
    ],
)
def test_the_first_array_decides(batch: Any, length: int) -> None:
    """D-22, W40: the first array decides the length of a batch, however deep it lies."""
    assert data_length(batch) == length


@pytest.mark.parametrize("batch", [[torch.ones(2)], {"a": torch.ones(2)}])
def test_a_trial_may_change_its_batch(batch: Any) -> None:
    """On the CPU nothing moves, and still the container is the trial's own: the loader's stays whole."""
    moved = to_device(batch, torch.device("cpu"))
    assert moved is not batch
    moved.clear()
    assert len(batch) == 1
