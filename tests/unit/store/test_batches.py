"""Metrics of single batches: whatever way they are kept, they come back as they were."""

from __future__ import annotations

import array
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.core.recording.values import BatchColumns, plain_batches
from determined.store.metrics.batches import pack, unpack

names = st.text(max_size=8)


@given(st.dictionaries(names, st.sampled_from("fdiqBQ"), min_size=1, max_size=4), st.integers(1, 5), st.data())
def test_columns_come_back_as_rows(codes: dict[str, str], count: int, data: st.DataObject) -> None:
    """Issue 6: values of every type are kept to the bit, NaN and the infinities included."""
    numbers = {"f": st.floats(width=32), "d": st.floats(), "i": st.integers(-(2**31), 2**31 - 1)}
    numbers |= {"q": st.integers(-(2**63), 2**63 - 1), "B": st.integers(0, 255), "Q": st.integers(0, 2**64 - 1)}
    columns = {
        name: array.array(code, data.draw(st.lists(numbers[code], min_size=count, max_size=count)))
        for name, code in codes.items()
    }
    rows = unpack(pack(dict(columns)))
    assert rows is not None
    assert len(rows) == count
    for name, column in columns.items():
        assert array.array(column.typecode, [row[name] for row in rows]).tobytes() == column.tobytes()


def test_other_forms_come_back_too() -> None:
    """Dicts per batch, and lists per name, may hold anything that JSON can."""
    rows = [{"loss": math.inf, "note": "NaN"}, {"loss": 1, "note": None}]
    assert unpack(pack(rows)) == rows
    assert unpack(pack({"loss": [0.5, None], "n": array.array("q", [1, 2])})) == [
        {"loss": 0.5, "n": 1},
        {"loss": None, "n": 2},
    ]
    assert unpack(pack([])) is unpack(pack(None)) is None


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint64", "longdouble", ">f4"])
def test_numpy_columns_of_any_type_find_their_way(dtype: str) -> None:
    """What a window brings as numpy columns is read back as the same numbers."""
    column = np.array([0, 1, 100], dtype=dtype)
    assert unpack(pack(plain_batches(BatchColumns({"m": column}, list)))) == [{"m": 0}, {"m": 1}, {"m": 100}]
