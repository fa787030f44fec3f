"""Event files on their way to where they are kept."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import fsspec
import pytest

from determined import tensorboard
from determined.core.recording import tensorboard as event_files
from determined.errors import StorageConfigError
from determined.tensorboard.util import get_rank_aware_path


class Keeping(tensorboard.TensorboardManager):
    """Writes down what it was given; raises `trouble` if there is any."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.kept: list[str] = []
        self.threads: set[str] = set()
        self.trouble: Exception | None = None

    def upload(self, source: Path, name: PurePosixPath) -> None:
        random.random()
        self.threads.add(threading.current_thread().name)
        if self.trouble is not None:
            raise self.trouble
        self.kept.append(str(name))

    def delete(self) -> None:
        self.kept.clear()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "base" / "sub").mkdir(parents=True)
    return tmp_path / "base"


def touch(path: Path, text: str = "x") -> None:
    path.write_text(text)


def eventually(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 90
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()


def test_a_second_sync_within_a_second_uploads_nothing(base: Path, monkeypatch: pytest.MonkeyPatch):
    """D-51: and the files it left are made up for when the manager closes, even without `sync_on_close`."""
    assert event_files.PAUSE_SECONDS == 1.0
    monkeypatch.setattr(event_files, "PAUSE_SECONDS", 3600.0)  # a slow machine's second
    manager = Keeping(base, "sync", async_upload=False, sync_on_close=False)
    touch(base / "a")
    manager.sync()
    touch(base / "b")
    manager.sync()
    assert manager.kept == ["a"]
    manager.close()
    assert manager.kept == ["a", "b"]


def test_what_a_dropped_sync_left_is_uploaded_a_little_later(base: Path, monkeypatch: pytest.MonkeyPatch):
    """Wart 6.5: with a thread, a sync within the second is put off, not dropped."""
    monkeypatch.setattr(event_files, "PAUSE_SECONDS", 0.3)
    with Keeping(base, "sync", sync_on_close=False) as manager:
        touch(base / "a")
        manager.sync()
        assert eventually(lambda: manager.kept == ["a"])
        touch(base / "b")
        manager.sync()
        assert eventually(lambda: manager.kept == ["a", "b"])
        assert manager.threads == {"tensorboard"}


def test_unchanged_files_are_not_uploaded_again(base: Path, monkeypatch: pytest.MonkeyPatch):
    """D-52: a file is uploaded again when it has changed, and only then."""
    monkeypatch.setattr(event_files, "PAUSE_SECONDS", 0.0)
    manager = Keeping(base, "sync", async_upload=False)
    touch(base / "a")
    touch(base / "sub" / "b")
    manager.sync()
    manager.sync()
    assert manager.kept == ["a", "sub/b"]
    touch(base / "sub" / "b", "longer")
    manager.sync()
    assert manager.kept == ["a", "sub/b", "sub/b"]
    os.utime(base / "a", (1, 1))
    manager.close()
    assert manager.kept == ["a", "sub/b", "sub/b", "a"]


@pytest.mark.parametrize("in_thread", [True, False])
def test_trouble_is_a_warning_and_the_file_is_tried_again(
    base: Path, in_thread: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """D-53: an upload that raises is logged, and later syncs work."""
    monkeypatch.setattr(event_files, "PAUSE_SECONDS", 0.0)
    with Keeping(base, "sync", async_upload=in_thread) as manager:
        manager.trouble = OSError("no route")
        touch(base / "a")
        manager.sync()
        assert eventually(lambda: "no route" in caplog.text)
        manager.trouble = None
        manager.sync()
        assert eventually(lambda: manager.kept == ["a"])
    assert manager.kept == ["a"]


def test_selector_mangler_and_rank(base: Path):
    """Contract 6.3: rank 3 uploads everything but event files, profiler files under its own name."""
    touch(base / "events.out.tfevents.1")
    touch(base / "host.pt.trace.json")
    manager = Keeping(base, "sync", async_upload=False)
    manager.sync(selector=lambda path: "tfevents" not in path.name, mangler=get_rank_aware_path, rank=3)
    assert manager.kept == ["host#3.pt.trace.json"]
    touch(base / "other.xplane.pb")
    manager.close()  # the last sync keeps to what was asked for before
    assert manager.kept == ["host#3.pt.trace.json", "other#3.xplane.pb"]


def test_closing_makes_the_last_sync_once(base: Path):
    """Contract 6.3: `close` syncs everything if `sync_on_close`; a second close does nothing."""
    with Keeping(base, "sync") as manager:
        touch(base / "a")
    assert manager.kept == ["a"]
    touch(base / "late")
    manager.close()
    assert manager.kept == ["a"]
    with Keeping(base, "sync", sync_on_close=False) as manager:
        touch(base / "b")
    assert manager.kept == []


def test_uploads_leave_python_random_alone(base: Path):
    """D-74: uploading in the caller's thread does not disturb `random`."""
    touch(base / "a")
    random.seed(1)
    expected = random.random()
    random.seed(1)
    manager = Keeping(base, "sync", async_upload=False)
    manager.sync()
    assert manager.kept == ["a"]
    assert random.random() == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/host.input_pipeline.pb", "a/host#3.input_pipeline.pb"),
        ("a/host.pt.trace.json", "a/host#3.pt.trace.json"),
        ("a/host.1619499959628.pt.trace.json.gz", "a/host#3.1619499959628.pt.trace.json.gz"),
        ("a/node1.site_12.1619499959628.pt.trace.json", "a/node1.site_12#3.1619499959628.pt.trace.json"),
        ("events.out.tfevents.1", "events.out.tfevents.1"),
        ("a.b/model.pb", "a.b/model.pb"),
    ],
)
def test_rank_aware_paths(path: str, expected: str):
    """D-50: profiler files get `#<rank>` after their host, others keep their name."""
    assert get_rank_aware_path(path, 3) == expected
    assert get_rank_aware_path(PurePath(path), 3) == PurePath(expected)


def test_paths(monkeypatch: pytest.MonkeyPatch):
    """Contract 6.2: sync paths; wart 6.5: the directory is named by the real rank."""
    assert str(tensorboard.get_sync_path("c", "1", "7")) == "c/tensorboard/experiment/1/trial/7"
    assert str(tensorboard.get_experiment_sync_path("c", "1")) == "c/tensorboard/experiment/1"
    for variable in ("RANK", "HOROVOD_RANK", "DET_ALLOCATION_ID"):
        monkeypatch.delenv(variable, raising=False)
    assert str(tensorboard.get_base_path({})) == "/tmp/tensorboard--0"
    monkeypatch.setenv("DET_ALLOCATION_ID", "x")
    monkeypatch.setenv("RANK", "2")
    assert str(tensorboard.get_base_path({"base_path": "/b"})) == "/b/tensorboard-x-2"


def kept_under(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("kind", ["shared_fs", "directory", "text"])
def test_build_keeps_files_beside_the_checkpoints(kind: str, tmp_path: Path):
    """Contract 6.2, 6.3: directories by `type`, or by a path; stored under root, sync path and relative path."""
    root = tmp_path / "storage"
    config: Any = {
        "shared_fs": {"type": "shared_fs", "host_path": str(root), "base_path": str(tmp_path)},
        "directory": {"type": "directory", "container_path": str(root), "base_path": str(tmp_path)},
        "text": str(root),
    }[kind]
    manager = tensorboard.build("c", "1", "7", config, async_upload=False)
    assert isinstance(manager, tensorboard.SharedFSTensorboardManager)
    if kind != "text":
        assert manager.base_path == tensorboard.get_base_path({"base_path": str(tmp_path)})
    manager.base_path = tmp_path / "base"
    (manager.base_path / "sub").mkdir(parents=True)
    touch(manager.base_path / "sub" / "events.out.tfevents.1", "data")
    manager.close()
    assert kept_under(root) == {"c/tensorboard/experiment/1/trial/7/sub/events.out.tfevents.1": "data"}
    manager.delete()
    manager.delete()
    assert kept_under(root) == {}


def test_build_keeps_files_in_a_bucket(base: Path):
    """Contract 6.3: buckets through the same storage as checkpoints; `delete` removes the trial's files only."""
    memory = fsspec.filesystem("memory")
    manager = tensorboard.build("c", "1", None, "memory://bucket/pre", async_upload=False)
    manager.base_path = base
    touch(base / "sub" / "a", "data")
    memory.pipe_file("/bucket/pre/c/tensorboard/experiment/10/b", b"theirs")
    manager.close()
    assert memory.cat_file("/bucket/pre/c/tensorboard/experiment/1/sub/a") == b"data"
    manager.delete()
    assert memory.find("/bucket") == ["/bucket/pre/c/tensorboard/experiment/10/b"]
    memory.rm("/bucket", recursive=True)


@pytest.mark.parametrize("config", [{}, {"type": 4}, {"type": "ftp"}, 5, None])
def test_an_unknown_type_is_a_type_error(config: Any):
    """Contract 6.3: `TypeError` for a missing, non-string or unknown type."""
    with pytest.raises(TypeError, match="checkpoint_storage"):
        tensorboard.build("c", "1", "7", config)


def test_azure_takes_an_account_url(base: Path):
    """Wart 6.5: `account_url` alone will do; neither of the two is refused."""
    where: dict[str, Any] = {"base_path": base, "sync_path": "s"}
    assert tensorboard.AzureTensorboardManager("box", account_url="https://a.blob.core.windows.net", **where)
    assert tensorboard.S3TensorboardManager("bucket", prefix="p", **where)
    assert tensorboard.GCSTensorboardManager("bucket", **where)
    with pytest.raises(StorageConfigError, match="account_url"):
        tensorboard.AzureTensorboardManager("box", **where)
