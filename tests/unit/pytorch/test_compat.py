"""Underscore names of `pytorch` that older code still calls."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from determined import pytorch
from determined.pytorch import Reducer
from determined.pytorch.metrics import reduction


def test_simple_reductions():
    """D-31: AVG 4.98, SUM 29.9, MIN 0.25, MAX 25.5; weighted AVG 6.43."""
    values = np.array([0.25, 0.5, 0.75, 1, 25.5, 1.9])
    reduce = pytorch._simple_reduce_metrics
    assert reduce(Reducer.AVG, values) == pytest.approx(4.98, abs=0.005)
    assert reduce(Reducer.SUM, values) == pytest.approx(29.9)
    assert (reduce(Reducer.MIN, values), reduce(Reducer.MAX, values)) == (0.25, 25.5)
    assert reduce(Reducer.AVG, values, [1, 2, 5, 4, 5, 6]) == pytest.approx(6.43, abs=0.005)
    assert reduce(Reducer.AVG, np.array([1.0, 3.0]), [1, 3]) == 2.5
    with pytest.raises(RuntimeError):
        reduce(Reducer.AVG, values, [1, 2])
    with pytest.raises(NotImplementedError):
        reduce("AVG", values)  # type: ignore[arg-type]


def test_entries_without_batches_are_ignored():
    """D-34: `[({},0), ({"l":[1,2]},2), ({"l":[3,4]},2)]` is `{"l": [[1,2],[3,4]]}` and counts [2,2]."""
    combined = reduction._combine_metrics([({}, 0), ({"l": [1, 2]}, 2), ({"l": [3, 4]}, 2)])
    assert combined == ({"l": [[1, 2], [3, 4]]}, [2, 2])


def test_conversion_is_in_place():
    """D-37: the same dict object with a numpy value; bfloat16 works, a tensor that requires grad is torch's error."""
    metrics = {"a": torch.tensor(2), "b": torch.tensor(1.0, dtype=torch.bfloat16), "c": "text"}
    assert pytorch._convert_metrics_to_numpy(metrics) is metrics
    assert isinstance(metrics["a"], np.ndarray)
    assert (metrics["a"].item(), metrics["b"].item(), metrics["c"]) == (2, 1.0, "text")
    with pytest.raises(RuntimeError, match="requires grad"):
        pytorch._convert_metrics_to_numpy({"a": torch.ones((), requires_grad=True)})
