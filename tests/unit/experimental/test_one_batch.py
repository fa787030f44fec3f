"""The old way to try a trial."""

from __future__ import annotations

from pathlib import Path

import pytest

import determined
from tests.trials import OneWeightTrial


def test_it_trains_one_batch(home: Path) -> None:
    """pytorch.md 1.3: one batch in test mode, with the config's hyperparameters, and no TensorBoard files."""
    seen: list[object] = []

    class Trial(OneWeightTrial):
        def __init__(self, context: determined.pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            seen.append((context.get_hparam("lr"), self))

    determined.experimental.test_one_batch(Trial, {"hyperparameters": {"lr": 0.5}})
    ((rate, trial),) = seen  # type: ignore[misc]
    assert rate == 0.5
    assert trial.weight == -1.5
    assert not list(home.rglob("*tfevents*"))


def test_a_missing_searcher_metric_is_said(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Issue 12: a metric that no validation returns is learned from one batch, with the names that there are."""
    determined.experimental.test_one_batch(OneWeightTrial, {"searcher": {"metric": "acuracy"}})
    assert "searcher.metric is 'acuracy', but this validation returned ['loss']" in caplog.text


def test_the_base_class_has_its_old_name() -> None:
    """pytorch.md 1.3: LegacyTrial is the base of PyTorchTrial, at the top level."""
    assert issubclass(determined.pytorch.PyTorchTrial, determined.LegacyTrial)
