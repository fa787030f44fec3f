"""Files that are measured while they are written."""

from __future__ import annotations

import errno
import io
import os
import threading
from pathlib import Path

import pytest
import torch

from determined.artifacts import tree, writer
from determined.artifacts.writer import MeasuredFile


@pytest.mark.parametrize("pieces", [[], [0], [1, 2], [writer.LARGE - 1, 1, 1], [5, writer.LARGE, 7, writer.PIECE + 3]])
def test_what_is_measured_is_what_is_there(tmp_path: Path, pieces: list[int]) -> None:
    """Size and checksum are those of the file, however it was written; no thread is left."""
    threads = threading.active_count()
    content = b""
    with MeasuredFile(tmp_path / "f") as file:
        for i, size in enumerate(pieces):
            piece = bytes([i + 1]) * size
            assert file.write(memoryview(piece)) == size
            content += piece
    assert (tmp_path / "f").read_bytes() == content
    assert file.entry == tree.measure(tmp_path / "f")
    assert threading.active_count() == threads


def test_torch_writes_what_it_always_writes(tmp_path: Path) -> None:
    """torch.save into it is read by torch.load, large tensors and small."""
    state = {"large": torch.randn(3, 200_000), "small": torch.arange(3), "text": "x", "empty": torch.empty(0)}
    with MeasuredFile(tmp_path / "f") as file:
        torch.save(state, file)  # type: ignore[arg-type]  # it needs no more of a file than write() and flush()
    buffer = io.BytesIO()
    torch.save(state, buffer)
    assert (tmp_path / "f").read_bytes() == buffer.getvalue()
    loaded = torch.load(tmp_path / "f", weights_only=True)
    assert all(torch.equal(loaded[name], state[name]) for name in ("large", "small", "empty"))
    assert file.entry == tree.measure(tmp_path / "f")


def test_a_full_disk_is_said_when_the_file_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's writer must not meet the error: it would end the process, or say something else."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = MeasuredFile(tmp_path / "f")
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"), file:
        torch.save({"w": torch.zeros(1_000_000)}, file)  # type: ignore[arg-type]  # see above
    monkeypatch.undo()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file._handle)


def test_an_error_of_the_caller_comes_first(tmp_path: Path) -> None:
    """What went wrong in the block is what is raised, and the file is closed."""
    with pytest.raises(ZeroDivisionError), MeasuredFile(tmp_path / "f") as file:
        file.write(b"abc")
        file.write(b"x" * (1 // 0))


def test_all_files_and_directories_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them, few or many."""
    synced: list[str] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda h: (synced.append(Path(f"/proc/self/fd/{h}").readlink().name), fsync(h)))
    for count in (0, 3, 20):
        paths = [tmp_path / f"{count}-{i}" for i in range(count)]
        for path in paths:
            path.touch()
        synced.clear()
        writer.sync(paths, [tmp_path])
        assert sorted(synced) == sorted([tmp_path.name, *(path.name for path in paths)])
