"""TensorBoard files of a context: metrics as scalars, the user's writer, and their uploads."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from determined.core import DistributedContext
from determined.core.recording import event_file
from determined.core.recording.event_file import EventFile
from determined.core.recording.tensorboard import all_but_events, rank_aware_path
from determined.pytorch.display.tensorboard import EventWriter
from tests.unit.pytorch.contexts import make_context


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """All scalars in a directory, as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(directory))
    accumulator.Reload()
    return {tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


def test_metrics_become_scalars():
    """T86: a window of 2 batches ending at 10 gives steps 8 and 9, a reducer's metric 10; val_ is said once."""
    context = make_context()
    context.write_events("training", 10, {"loss": 1.5, "score": 4}, [{"loss": 1.0}, {"loss": 2.0}])
    context.write_events("validation", 10, {"loss": 0.5, "val_x": 1, "text": "no scalar"})
    context.upload_events()
    assert scalars(context.get_tensorboard_path()) == {
        "Determined/loss": [(8, 1.0), (9, 2.0)],
        "Determined/score": [(10, 4.0)],
        "Determined/val_loss": [(10, 0.5)],
        "Determined/val_x": [(10, 1.0)],
    }
    context.close()


def test_nothing_is_written_when_switched_off():
    """T87: with TensorBoard logging off no event is written and nothing is uploaded."""
    context = make_context(tensorboard=False)
    context.write_events("training", 1, {"loss": 1.0})
    context.upload_events()
    assert list(context.get_tensorboard_path().iterdir()) == []


def test_other_ranks_write_nothing():
    """8.2: the chief writes events."""
    context = make_context()
    context.distributed = DistributedContext()
    context.distributed.rank = 1
    context.write_events("training", 1, {"loss": 1.0})
    context.close()
    assert list(context.get_tensorboard_path().iterdir()) == []


def test_the_file_is_what_tensorboard_reads(tmp_path):
    """Many steps, names, types and sizes come back as float32; the first record tells the version."""
    file = EventFile(tmp_path)
    expected: dict[str, list[tuple[int, float]]] = {}
    for step in [*range(130), 2**31, 2**40]:
        for tag, value in (("a", step * 0.5), ("name/" + "x" * 200, True)):
            file.add_scalar(tag, value, step)
            expected.setdefault(tag, []).append((step, float(value)))
        if step == 100:
            file.flush()
    file.add_scalar("ä", float("inf"), 7)
    file.flush()
    file.flush()
    assert scalars(tmp_path) == {**expected, "ä": [(7, float("inf"))]}
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture
def full_disk(monkeypatch) -> list[int]:
    """Every write into a file whose name says so stops half way, until the list is emptied."""
    is_full = [1]

    class Half(io.FileIO):
        def write(self, data: Any) -> int:
            if not is_full:
                return super().write(data)
            super().write(bytes(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", lambda self, mode, buffering: Half(self, mode))
    return is_full


def test_a_full_disk_loses_nothing(tmp_path, full_disk, caplog):
    """Decision 4: what could not be written is said once and written later, behind nothing half written."""
    file = EventFile(tmp_path)
    full_disk.clear()
    file.add_scalar("a", 0.0, 0)
    file.flush()
    full_disk.append(1)
    for step in (1, 2):
        file.add_scalar("a", 1.0, step)
        file.flush()
    full_disk.clear()
    file.add_scalar("a", 1.0, 3)
    file.flush()
    assert scalars(tmp_path) == {"a": [(0, 0.0), (1, 1.0), (2, 1.0), (3, 1.0)]}
    assert len(caplog.messages) == 1
    assert "No space left on device" in caplog.messages[0]


def test_what_waits_for_the_disk_is_bounded(tmp_path, full_disk, monkeypatch):
    """Memory stays flat however long the disk is full; the latest steps are those that are kept."""
    monkeypatch.setattr(event_file, "_MOST_STEPS", 10)
    file = EventFile(tmp_path)
    for first in range(0, 100, 4):
        file.add_rows(["a"], first, np.zeros((4, 1)))
        file.flush()
    full_disk.clear()
    file.flush()
    assert [step for step, _ in scalars(tmp_path)["a"]] == list(range(88, 100))


def test_odd_steps_names_and_values_are_written(tmp_path):
    """A report of more batches than steps, a number beyond floats and a name beyond Unicode end nobody's files."""
    file = EventFile(tmp_path)
    for step, value in ((-2, 1.0), (0, 10**400), (1, -(10**400)), (2**62, 2.0)):
        file.add_scalar("a", value, step)
    file.add_scalar("\ud800", 1.0, 0)
    file.flush()
    assert scalars(tmp_path) == {
        "a": [(-2, 1.0), (0, float("inf")), (1, float("-inf")), (2**62, 2.0)],
        "?": [(0, 1.0)],
    }


def test_a_directory_that_cannot_be_made_stops_nobody(caplog):
    """Decision 4: events are left out with one warning, whether it is the directory or the user's writer."""

    def refuse() -> Path:
        raise PermissionError(errno.EACCES, "Permission denied")

    files = EventWriter(refuse)
    for step in (1, 2):
        files.write("training", step, {"loss": 1.0})
        files.rotate()
    files.close()
    assert len(caplog.messages) == 1
    assert "Permission denied" in caplog.messages[0]


def test_an_upload_that_fails_stops_nobody(monkeypatch, caplog):
    """Data contract 6.3: an error of an upload is a warning."""
    context = make_context()

    def refuse(*_: Any) -> None:
        raise OSError("the bucket is gone")

    monkeypatch.setattr(context.core_context.train, "upload_tensorboard_files", refuse)
    context.upload_events()
    context.close()
    assert "the bucket is gone" in caplog.text


def test_the_writer_is_one_object_and_closes():
    """3.2: the same SummaryWriter each time, in the directory of the run; metrics join its file."""
    context = make_context()
    context.write_events("training", 1, {"loss": 1.0})
    writer = context.get_tensorboard_writer()
    assert scalars(context.get_tensorboard_path()) == {"Determined/loss": [(1, 1.0)]}  # its file is complete
    assert context.get_tensorboard_writer() is writer
    writer.add_scalar("mine", 2.0, 3)
    context.write_events("training", 2, {"loss": 3.0})
    context.close()
    assert scalars(context.get_tensorboard_path()) == {
        "Determined/loss": [(1, 1.0), (2, 3.0)],
        "mine": [(3, 2.0)],
    }
    assert len(list(context.get_tensorboard_path().iterdir())) == 2


class Recorder:
    """Stands in for a SummaryWriter."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def flush(self) -> None:
        self.calls.append("flush")

    def close(self) -> None:
        self.calls.append("close")


def test_the_writer_rotates_once_a_second(tmp_path):
    """3.8: the first call flushes, one within the second flushes, one after it closes."""
    now = [100.9]
    files = EventWriter(lambda: tmp_path, clock=lambda: now[0])
    recorder: Any = Recorder()
    files._writer = recorder
    for moment in (100.9, 100.95, 101.0, 101.5, 103.0):
        now[0] = moment
        files.rotate()
    assert recorder.calls == ["flush", "flush", "close", "flush", "close"]


def test_a_missing_package_is_named(monkeypatch):
    """Without tensorboard the error says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"resolute\[tensorboard\]"):
        make_context().get_tensorboard_writer()


def test_profiles_say_whose_they_are():
    """8.2: other ranks bring everything but event files; traces get the rank behind the worker's name."""
    trace = Path("plugins/host.example.org_12.345.pt.trace.json")
    assert rank_aware_path(trace, 3) == Path("plugins/host.example.org_12#3.345.pt.trace.json")
    event = Path("events.out.tfevents.1.host.2.0")
    assert rank_aware_path(event, 3) == event
    assert (all_but_events(trace), all_but_events(event)) == (True, False)
