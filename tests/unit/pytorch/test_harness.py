"""The entrypoint of older experiments: a class, and everything else from the config."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest

from determined import errors
from determined.pytorch import Batch, Epoch, _harness
from tests.trials import OneWeightTrial, managed

HERE = f"{__name__}:Watched"


class Watched(OneWeightTrial):
    """Keeps what was made of it."""

    made: ClassVar[list[Any]] = []

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.made.append(self)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Watched, "made", [])


def test_fields_of_the_config():
    """D.2: the table from config fields to arguments of `fit()`; 0 is never."""
    config = {
        "min_checkpoint_period": {"records": 64},
        "min_validation_period": {"epochs": 2},
        "scheduling_unit": 7,
        "checkpoint_policy": "all",
        "perform_initial_validation": True,
        "profiling": {"enabled": True},
    }
    assert _harness.fit_arguments(config, {"global_batch_size": 32}) == {
        "checkpoint_period": Batch(2),
        "validation_period": Epoch(2),
        "reporting_period": Batch(7),
        "checkpoint_policy": "all",
        "step_zero_validation": True,
        "profiling_enabled": True,
    }
    never = _harness.fit_arguments({"min_checkpoint_period": {"batches": 0}}, {})
    assert never == {
        "checkpoint_period": None,
        "validation_period": None,
        "reporting_period": Batch(100),
        "checkpoint_policy": "best",
        "step_zero_validation": False,
        "profiling_enabled": False,
    }


def test_a_class_is_trained():
    """D.2: built with the context only, for the length of the searcher, with its aggregation; it warns."""
    config: dict[str, Any] = {
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 4}},
        "optimizations": {"aggregation_frequency": 2, "average_aggregated_gradients": False},
    }
    with managed(**config), pytest.warns(FutureWarning, match="entrypoint module:Class|max_length"):
        _harness.main([HERE])
    (trial,) = Watched.made
    assert trial.weight == -(1.5 + 3.5 + 5.5 + 7.5)
    assert trial.context.gradients.aggregation_frequency == 2


@pytest.mark.parametrize(
    ("spec", "says"),
    [("model_def", "expected module:Class"), ("json:Nothing", "no Nothing in json"), ("json:dumps", "no PyTorchTrial")],
)
def test_what_is_no_trial_class(spec: str, says: str):
    """One sentence for each way to name no trial class."""
    with pytest.raises(errors.InvalidConfigurationException, match=says):
        _harness.find_class(spec)


def test_trying_out_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """6.2: `--test` trains one batch with the config of stdin, records nothing, and leaves no checkpoint."""
    config = {"hyperparameters": {"global_batch_size": 2}, "searcher": {"name": "single", "metric": "validation_loss"}}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(config)))
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _harness.main(["--test", HERE])
    (trial,) = Watched.made
    assert trial.context.get_hparams() == {"global_batch_size": 2}
    assert not list(tmp_path.glob("det-test-*"))
    assert not (tmp_path / "home").exists()
