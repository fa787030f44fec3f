"""State as tensors and plain values: what goes in comes out, through a file that needs no trust."""

from __future__ import annotations

import datetime
import enum
import io
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from determined import errors
from determined.pytorch.checkpoint.encoding import TYPE, from_plain, to_plain


class Colour(enum.Enum):
    RED = "red"
    BOTH = (1, "x")


class Level(enum.IntEnum):
    HIGH = 3


def through_a_file(value: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(to_plain(value, "state"), buffer)
    buffer.seek(0)
    return from_plain(torch.load(buffer, weights_only=True), "state")


VALUES: list[Any] = [
    None, True, 0, -(2**70), 1.5, "text", "", b"\x00\xff", b"", set(), 2**5000, -(2**5000),
    "\ud800", 3 + 4j, (), (1, (2, [3])), [], {}, {1: "a", (1, "b"): None},
    {1, 2}, {(1, 2), (3, 4)}, frozenset({1}), bytearray(b"ab"), Counter("aab"), OrderedDict(b=1, a=2),
    deque([1, (2,)], maxlen=3), range(1, 9, 2), slice(1, None), Path("a/b"),
    np.float64(0.1), np.float32(0.1), np.int8(-3), np.bool_(True), np.str_("x"), np.datetime64("2024-01-02"),
    datetime.datetime(2024, 1, 2, 3, 4, 5, 6, fold=1), datetime.date(2024, 1, 2), datetime.time(1, 2, 3),
    datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc), datetime.timedelta(days=-1, microseconds=3),
    Colour.RED, Colour.BOTH, Level.HIGH, {Colour.RED: [Level.HIGH]}, {np.int64(3): 1}, {TYPE: "enum"},
    torch.Size([1, 2]), torch.float16, torch.device("cpu"), float("inf"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:40])
def test_values_come_back_as_they_were(value: Any) -> None:
    """Decision 6: contents are tensors and plain values, and nothing is lost by it."""
    back = through_a_file({"nested": [value]})["nested"][0]
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6, dtype=">i4"),
        np.arange(6)[::-2],
        np.array(5.0),
        np.zeros((0, 3), dtype=np.uint16),
        np.array([1, 2**63], dtype=np.uint64),
        np.array(["a", "bcd"]),
        np.array(["2024-01-01"], dtype="M8[D]"),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array([1 + 2j]),
    ],
    ids=lambda array: str(array.dtype),
)
def test_arrays_come_back_as_they_were(array: np.ndarray[Any, Any]) -> None:
    """numpy arrays of every kind but objects; the copy can be written to."""
    array.flags.writeable = False
    back = through_a_file(array)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert (back == array).all()
    if back.dtype.kind in "iuf":
        back[...] = 0


def test_a_defaultdict_keeps_its_default() -> None:
    """... if it is one of the plain types."""
    back = through_a_file(defaultdict(list, {"a": [1]}))
    back["b"].append(2)
    assert back == {"a": [1], "b": [2]}


def test_tensors_stay_what_they_are() -> None:
    """Tensors are neither copied nor changed, and shared memory stays shared."""
    weight = torch.arange(4.0)
    plain = to_plain({"a": weight, "b": weight[1:], "p": torch.nn.Parameter(weight)}, "state")
    assert plain["a"] is weight
    back = through_a_file({"a": weight, "b": weight[1:]})
    back["a"][1] = 9
    assert back["b"][0] == 9


def test_metadata_of_a_model_state_stays() -> None:
    """torch hangs versions of modules on the state, and looks at them when it loads."""
    state = torch.nn.BatchNorm1d(2).state_dict()
    assert through_a_file(state)._metadata == state._metadata


class Odd:
    pass


@pytest.mark.parametrize("value", [Odd(), lambda: 0, np.array([Odd()]), object, defaultdict(Odd), Odd])
def test_other_things_are_refused_by_place(value: Any) -> None:
    """A TypeError that says where it is, when saving."""
    with pytest.raises(TypeError, match=r"the state of callback 'a'\['history'\]\[1\]"):
        to_plain({"history": [0, value]}, "the state of callback 'a'")


def test_what_contains_itself_is_refused() -> None:
    """No endless recursion."""
    knot: list[Any] = []
    knot.append(knot)
    with pytest.raises(TypeError, match="contains itself"):
        to_plain(knot, "state")


def test_an_enum_is_never_imported() -> None:
    """A file does not get to import modules: the program must have the enum."""
    saved = to_plain(Colour.RED, "state")
    for path in ("this:Absent", "os:system", f"{__name__}:Odd", f"{__name__}:Colour.RED"):
        with pytest.raises(errors.InvalidCheckpointException, match="has not imported"):
            from_plain({**saved, "class": path}, "state")


@pytest.mark.parametrize("broken", [{TYPE: "nonsense"}, {TYPE: "set"}, {TYPE: "date", "value": 3}, {TYPE: ["x"]}])
def test_a_broken_marker_is_an_error(broken: dict[str, Any]) -> None:
    """One exception for everything that cannot be rebuilt."""
    with pytest.raises(errors.InvalidCheckpointException, match="cannot be rebuilt"):
        from_plain(broken, "state")


class Inner:
    def __init__(self, value: int) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value = state_dict["value"]


def test_schedulers_keep_their_code() -> None:
    """Functions are taken from the live object, and of nested schedulers the state is restored in place."""
    saved = to_plain({"fn": max, "after": Inner(5), "n": 1}, "state", keeps_code=True)
    live = Inner(0)
    back = from_plain(saved, "state", live={"fn": min, "after": live, "n": 2})
    assert back == {"fn": min, "after": live, "n": 1}
    assert live.value == 5
    with pytest.raises(errors.InvalidCheckpointException, match="nothing here"):
        from_plain(saved, "state", live={})
