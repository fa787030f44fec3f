"""Reported metrics become TensorBoard scalars with the documented names."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.core import TensorboardMode
from determined.core.recording.tensorboard import EventFiles, scalars
from determined.store.messages import MetricReport


def test_training_batches_come_before_their_average() -> None:
    """Data contract 4.5: batch k of n is at step steps - n + k; averages only for names no batch had."""
    batches = [{"loss": 1}, {"loss": 2}, {"loss": 3}]
    assert list(scalars("training", 100, {"loss": 2.0, "lr": 0.1, "note": "x"}, batches)) == [
        ("Determined/loss", 1.0, 97),
        ("Determined/loss", 2.0, 98),
        ("Determined/loss", 3.0, 99),
        ("Determined/lr", 0.1, 100),
    ]


def test_validation_metrics_say_val_once() -> None:
    """Data contract 4.5 and 4.7 Better: val_ is put before names that do not have it; `value` is no such name."""
    metrics = {"loss": 9.0, "val_acc": 1.0, "value": 2.0, "validation_f1": 3.0}
    assert [tag for tag, _, _ in scalars("validation", 5, metrics)] == [
        "Determined/val_loss",
        "Determined/val_acc",
        "Determined/val_value",
        "Determined/validation_f1",
    ]


@pytest.mark.parametrize("group", ["inference", "cpu"])
def test_other_groups_are_not_written(group: str) -> None:
    """Contract 5.5: only training and validation become scalars."""
    assert list(scalars(group, 1, {"a": 1.0})) == []


def read_scalars(path: Path) -> list[tuple[str, float, int]]:
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    events = [e for file in sorted(path.glob("events*")) for e in LegacyEventFileLoader(str(file)).Load()]
    return [(v.tag, v.simple_value, e.step) for e in events for v in e.summary.value]


def test_auto_mode_writes_what_tensorboard_reads(tmp_path: Path) -> None:
    """Contract 5.5 AUTO: reported metrics are in the event file as soon as they were followed."""
    files = EventFiles(tmp_path, TensorboardMode.AUTO)
    files.follow([MetricReport("training", {"loss": 0.5}, 1), MetricReport("validation", {"acc": 0.25}, 2)])
    assert read_scalars(tmp_path) == [("Determined/loss", 0.5, 1), ("Determined/val_acc", 0.25, 2)]


def test_manual_mode_writes_nothing(tmp_path: Path) -> None:
    """Contract 5.5 MANUAL: the directory stays the script's own."""
    files = EventFiles(tmp_path / "tb", TensorboardMode.MANUAL)
    files.follow([MetricReport("training", {"loss": 0.5}, 1)])
    assert not (tmp_path / "tb").exists()
