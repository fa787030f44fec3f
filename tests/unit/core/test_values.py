"""What users report becomes plain JSON values, or an error that names the metric."""

from __future__ import annotations

import datetime
import enum
import json
import math
import uuid

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from determined.core.recording.values import ABSENT, differences, plain, plain_metrics
from determined.store.values import dump


class Colour(enum.Enum):
    RED = 1


class Custom:
    def __json__(self) -> dict[str, float]:
        return {"half": 0.5}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.array([0.5], dtype=np.longdouble), [0.5]),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
        (torch.tensor(2), 2),
        (torch.tensor([1.5, 2.5], dtype=torch.bfloat16), [1.5, 2.5]),
        (torch.nn.Parameter(torch.tensor(0.25)), 0.25),
        ((1, 2), [1, 2]),
        (b"caf\xc3\xa9", "café"),
        (datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc), "2026-01-02T00:00:00+00:00"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "RED"),
        (Custom(), {"half": 0.5}),
        ({1: {"deep": np.float32(1)}}, {"1": {"deep": 1.0}}),
    ],
)
def test_values_become_plain(value: object, expected: object) -> None:
    """Contract 5.4: numpy, tensors, tuples, bytes, dates, UUIDs, enums and __json__ objects each become plain."""
    result = plain(value, "x")
    assert result == expected
    assert type(result) is type(expected)
    json.dumps(result)


def test_not_a_number_is_spelled_out() -> None:
    """C-53: NaN and the infinities are written as the strings "NaN", "Infinity", "-Infinity"."""
    metrics = plain_metrics({"a": float("nan"), "b": np.inf, "c": [torch.tensor(-float("inf"))], "d": 1.5})
    assert json.loads(dump(metrics)) == {"a": "NaN", "b": "Infinity", "c": ["-Infinity"], "d": 1.5}


@pytest.mark.parametrize("value", [object(), {1, 2}, 1 + 2j, np.array([1j]), torch.tensor(1j), {"a": [object()]}])
def test_what_cannot_be_written_names_the_metric(value: object) -> None:
    """Contract 5.4 and 5.7: any other value is a TypeError in the caller's thread, naming the metric."""
    with pytest.raises(TypeError, match="metric 'loss'"):
        plain_metrics({"loss": value})


def test_a_value_that_contains_itself_is_refused() -> None:
    """A list that contains itself ends in one sentence, not in a crash."""
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ValueError, match=r"'loss'.*nested more than"):
        plain_metrics({"loss": endless})


def test_metrics_are_a_mapping() -> None:
    """Metrics that are no dict are refused with their type."""
    with pytest.raises(TypeError, match="not list"):
        plain_metrics([1.0])


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), values))
def test_any_json_value_survives(metrics: dict[str, object]) -> None:
    """Whatever JSON can hold is left as it is, and its text is strict JSON on one line."""
    assert repr(plain_metrics(metrics)) == repr(metrics)
    text = dump(plain_metrics(metrics))
    assert "\n" not in text
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_differences_go_by_value() -> None:
    """Issue 12: 1 is 1.0 and a NaN is a NaN, but True is not 1; what differs is named with both values."""
    one = {"lr": 1, "nan": math.nan, "net": {"widths": [8, 9.0], "bias": True}, "only": None}
    assert differences(one, {"lr": 1.0, "nan": math.nan, "net": {"bias": True, "widths": [8.0, 9]}, "only": None}) == {}
    other = {"lr": 2, "nan": 0.0, "net": {"widths": [8], "bias": 1}, "more": "x"}
    found = differences(one, other)
    assert list(found) == ["lr", "nan", "net.widths", "net.bias", "only", "more"]
    assert found["lr"] == (1, 2)
    assert found["only"] == (None, ABSENT)
    assert repr(found["more"]) == "(absent, 'x')"
