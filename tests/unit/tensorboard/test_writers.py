"""Writers of older scripts."""

from __future__ import annotations

import shutil
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from determined import tensorboard
from determined.tensorboard.metric_writers.pytorch import TorchWriter


@pytest.fixture
def allocation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    name = f"test-{uuid.uuid4().hex}"
    monkeypatch.setenv("DET_ALLOCATION_ID", name)
    monkeypatch.delenv("RANK", raising=False)
    path = Path(f"/tmp/tensorboard-{name}-0")
    yield path
    shutil.rmtree(path, ignore_errors=True)


def scalars(directory: Path) -> list[tuple[str, float, int]]:
    """What the event files of a directory hold, in the order of their names."""
    from tensorboard.compat.proto.event_pb2 import Event

    found = []
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            for value in event.summary.value:
                number = value.simple_value or (value.tensor.float_val[0] if value.tensor.float_val else 0.0)
                found.append((value.tag, number, event.step))
    return found


def test_torch_writer_warns_and_writes_where_it_always_did(allocation: Path):
    """D-48: a `FutureWarning`, and the log directory is `/tmp/tensorboard-<allocation>-0`."""
    with pytest.warns(FutureWarning, match="get_tensorboard_writer"):
        writer = TorchWriter()
    assert writer.writer.log_dir == str(allocation)
    writer.add_scalar("x", 1.5, 3)
    writer.flush()
    assert scalars(allocation) == [("x", 1.5, 3)]
    writer.reset()


def test_reset_begins_a_new_file(allocation: Path):
    """D-49: write, `reset`, write: two event files."""
    with pytest.warns(FutureWarning):
        writer = TorchWriter()
    writer.add_scalar("x", 1.0, 1)
    writer.reset()
    writer.add_scalar("x", 2.0, 2)
    writer.reset()
    assert len(list(allocation.glob("*tfevents*"))) == 2
    assert sorted(scalars(allocation)) == [("x", 1.0, 1), ("x", 2.0, 2)]


class Recording(tensorboard.MetricWriter):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def add_scalar(self, name: str, value: Any, step: int) -> None:
        self.calls.append((name, value, step))

    def reset(self) -> None:
        self.calls.append("reset")

    def flush(self) -> None:
        self.calls.append("flush")


def test_batch_metric_writer_flushes_and_rotates_by_the_second():
    """Contract 6.1: flush after each call; a new file when the second has advanced since the last flush."""
    now, recording = [100.2], Recording()
    writer = tensorboard.BatchMetricWriter(recording, clock=lambda: now[0])
    writer.on_train_step_end(2, {"loss": 1.5, "auc": 0.5}, [{"loss": 1.0}, {"loss": 2.0}])
    now[0] = 100.9
    writer.on_validation_step_end(2, {"loss": 3.0})
    now[0] = 101.1
    writer.on_train_step_end(3, {"loss": 4.0})
    assert recording.calls == [
        ("Determined/loss", 1.0, 0), ("Determined/loss", 2.0, 1), ("Determined/auc", 0.5, 2), "flush",
        ("Determined/val_loss", 3.0, 2), "flush",
        "reset", ("Determined/loss", 4.0, 3), "flush",
    ]  # fmt: skip


def test_get_metric_writer_writes_event_files(allocation: Path):
    """Contract 6.1: a BatchMetricWriter over the torch writer, which says nothing about deprecation."""
    writer = tensorboard.get_metric_writer()
    writer.on_validation_step_end(5, {"loss": 2.0})
    assert scalars(allocation) == [("Determined/val_loss", 2.0, 5)]
    writer.writer.reset()


def test_a_metric_writer_needs_all_three_methods():
    """Contract 6.1: a MetricWriter without all three of its methods cannot be made."""
    with pytest.raises(TypeError):
        tensorboard.MetricWriter()  # type: ignore[abstract]
