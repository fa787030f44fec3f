"""Tags and steps of the scalars that metrics become."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from determined.pytorch import _log_tb_metrics


class Written:
    def __init__(self) -> None:
        self.scalars: list[tuple[str, Any, int]] = []

    def add_scalar(self, name: str, value: Any, step: int) -> None:
        self.scalars.append((name, value, step))


def written(*arguments: Any) -> list[tuple[str, Any, int]]:
    writer = Written()
    _log_tb_metrics(writer, *arguments)
    return writer.scalars


@pytest.mark.parametrize("metric_type", ["validation", "val"])
def test_validation_tags_say_val_once(metric_type: str):
    """D-38, T86: `loss` is `Determined/val_loss`, and `val_acc` stays. Wart 4.7: `value` is no prefix."""
    metrics = {"loss": 9.0, "val_acc": 1.0, "validation_loss": 2.0, "value": 3.0}
    assert written(metric_type, 10, metrics) == [
        ("Determined/val_loss", 9.0, 10),
        ("Determined/val_acc", 1.0, 10),
        ("Determined/validation_loss", 2.0, 10),
        ("Determined/val_value", 3.0, 10),
    ]


def test_batches_have_their_own_steps():
    """T86: a window of 2 batches that ends at 10 has steps 8 and 9, and a reducer's metric is at 10."""
    found = written("training", 10, {"loss": 1.5, "auc": 0.5}, [{"loss": 1.0}, {"loss": 2.0}])
    assert found == [("Determined/loss", 1.0, 8), ("Determined/loss", 2.0, 9), ("Determined/auc", 0.5, 10)]
    assert [step for _, _, step in written("train", 100, {}, [{"x": 1}] * 3)] == [97, 98, 99]


def test_without_batches_the_averages_are_written():
    """Contract 4.5: what no batch shows is at `steps_completed`."""
    assert written("training", 4, {"loss": 1.0}) == [("Determined/loss", 1.0, 4)]


def test_only_numbers_are_written():
    """Contract 4.5: int, float, bool, numpy numbers and 0-d arrays; tensors, text and the rest are left out."""
    numbers = {"i": 1, "f": 0.5, "b": True, "n": np.float32(2), "nb": np.bool_(True), "zero_d": np.array(3)}
    others = {"t": torch.tensor(1.0), "s": "x", "none": None, "v": np.ones(2), "word": np.array("w"), "l": [1]}
    assert [name for name, _, _ in written("training", 1, {**numbers, **others})] == [
        f"Determined/{n}" for n in numbers
    ]


def test_another_type_only_warns(caplog: pytest.LogCaptureFixture):
    """Contract 4.2: an unknown metric type writes nothing and raises nothing."""
    assert written("inference", 1, {"x": 1}) == []
    assert "'inference'" in caplog.text
