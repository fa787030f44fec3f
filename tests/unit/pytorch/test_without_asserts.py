"""`python -O` strips assert statements; the AssertionErrors that the contract promises are raised all the same."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from types import SimpleNamespace

import pytest

import determined.pytorch


@pytest.fixture
def optimized(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module of the pytorch room as `python -O` would compile it; attributes name the modules."""
    loaded = types.ModuleType("optimized")
    for name in ("_plan", "checkpoint/load", "metrics/reduction"):
        module = types.ModuleType(f"determined.pytorch.{name.replace('/', '.')}")
        file = Path(determined.pytorch.__file__).parent / f"{name}.py"
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, module.__name__, module)  # dataclasses look themselves up
            exec(compile(file.read_bytes(), str(file), "exec", optimize=1), vars(module))  # noqa: S102
        setattr(loaded, name.split("/")[-1], module)
    return loaded


def test_periods_in_records(optimized: types.ModuleType) -> None:
    """4.1: records without a batch size is an AssertionError."""
    for size in (None, 0):
        with pytest.raises(AssertionError, match="100 records needs global_batch_size"):
            optimized._plan.TrainUnit._from_values(records=100, global_batch_size=size)


@pytest.mark.parametrize("key", ["experiment_config", "hparams"])
def test_legacy_checkpoints(optimized: types.ModuleType, key: str) -> None:
    """6.6: a legacy checkpoint without config or hparams is an AssertionError."""
    saved = {"experiment_config": {}, "hparams": {}, key: None}
    with pytest.raises(AssertionError, match=f"c has no {key}"):
        optimized.load._legacy_context(Path("c"), saved)


def test_averages_of_one_rank(optimized: types.ModuleType) -> None:
    """data-and-reducers: averaging over ranks is an AssertionError if size is 1."""
    with pytest.raises(AssertionError, match="one rank"):
        optimized.reduction._combine_and_average_training_metrics(SimpleNamespace(size=1, rank=0), [{"loss": 1.0}])
