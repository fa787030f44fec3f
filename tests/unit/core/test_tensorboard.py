"""Reported metrics become TensorBoard scalars with the documented names."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from determined import core
from determined.artifacts.bucket import BucketStorage
from determined.core import TensorboardMode
from determined.core.recording import tensorboard
from determined.core.recording.tensorboard import EventFiles, all_but_events, every_file, rank_aware_path, scalars
from determined.store.messages import MetricReport
from tests.ranks import run_threads


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


@pytest.fixture
def bucket() -> Iterator[str]:
    """The URL of a bucket in memory."""
    name = str(uuid.uuid4())
    yield f"memory://{name}/prefix"
    memory = fsspec.filesystem("memory")
    if memory.exists(f"/{name}"):
        memory.rm(f"/{name}", recursive=True)


def kept(bucket: str) -> list[str]:
    """What lies below the run's directory in the bucket; event files by the first part of their names only."""
    paths = fsspec.filesystem("memory").find(f"{bucket.removeprefix('memory:/')}/tensorboard")
    names = [path.split("/tensorboard/")[1].split("/", 1)[1] for path in paths]
    return sorted(re.sub(r"\.tfevents\..*", ".tfevents", name) for name in names)


def test_auto_mode_brings_event_files_to_the_bucket(bucket: str) -> None:
    """Core contract 5.5: in AUTO mode files follow the reports, and are complete when the context closes."""
    with core.init(checkpoint_storage=bucket) as context:
        context.train.report_training_metrics(1, {"loss": 0.5})
    assert kept(bucket) == ["events.out.tfevents"]


def test_manual_mode_makes_a_last_sync(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data contract 6.5 Better: what was written after the last upload is not lost, though nobody asks again."""
    monkeypatch.setattr(tensorboard, "PAUSE_SECONDS", 0.0)
    with core.init(checkpoint_storage=bucket, tensorboard_mode=TensorboardMode.MANUAL) as context:
        context.train.upload_tensorboard_files()
        (context.train.get_tensorboard_path() / "late.txt").write_text("x")
    assert kept(bucket) == ["late.txt"]


def test_a_bucket_that_refuses_stops_nobody(
    bucket: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Data contract 6.3: uploads run outside the caller's thread, and their errors are warnings."""
    threads: list[threading.Thread] = []

    def refuse(*_: object) -> None:
        threads.append(threading.current_thread())
        raise OSError("the bucket is gone")

    monkeypatch.setattr(BucketStorage, "keep", refuse)
    with core.init(checkpoint_storage=bucket, tensorboard_mode=TensorboardMode.MANUAL) as context:
        (context.train.get_tensorboard_path() / "file").write_text("x")
        context.train.upload_tensorboard_files()
    assert threads
    assert threading.main_thread() not in threads
    assert "the bucket is gone" in caplog.text


@pytest.mark.parametrize("broken", ["selector", "mangler"])
def test_a_selector_that_raises_ends_nothing(bucket: str, broken: str, caplog: pytest.LogCaptureFixture) -> None:
    """D-53: trouble with one file is a warning, also where the caller's own function makes it."""

    def fail(*_: object) -> Path:
        raise KeyError("mine")

    with core.init(checkpoint_storage=bucket, tensorboard_mode=TensorboardMode.MANUAL) as context:
        (context.train.get_tensorboard_path() / "file").write_text("x")
        context.train.upload_tensorboard_files(**{broken: fail})  # type: ignore[arg-type]  # one of the two
    assert "mine" in caplog.text


def test_ranks_have_their_own_directories_and_bring_their_own_files(bucket: str) -> None:
    """Data contract 6.5 Better and 8.2: the rank is in the path; the chief brings all, others all but event files."""

    def body(distributed: core.DistributedContext) -> str:
        with core.init(
            distributed=distributed, checkpoint_storage=bucket, tensorboard_mode=TensorboardMode.MANUAL
        ) as context:
            path = context.train.get_tensorboard_path()
            distributed.allgather(None)  # both write before either uploads
            for name in ("events.out.tfevents.17", "host.pt.trace.json"):
                (path / name).write_text("x")
            distributed.allgather(None)
            selector = every_file if distributed.rank == 0 else all_but_events
            context.train.upload_tensorboard_files(selector, rank_aware_path)
            return str(path)

    chief, other = map(Path, run_threads(2, body))
    assert other == chief / "rank_1"
    assert kept(bucket) == ["events.out.tfevents", "host#0.pt.trace.json", "host#1.pt.trace.json"]


def test_a_rank_that_writes_nothing_leaves_no_directory(bucket: str, home: Path) -> None:
    """Asking for uploads, as training does at every stop, makes no directory."""

    def body(distributed: core.DistributedContext) -> None:
        with core.init(
            distributed=distributed, checkpoint_storage=bucket, tensorboard_mode=TensorboardMode.MANUAL
        ) as context:
            context.train.upload_tensorboard_files()

    run_threads(2, body)
    assert list((home / "tensorboard").glob("*")) == []
