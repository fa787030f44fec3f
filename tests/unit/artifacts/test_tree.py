"""Trees of files on a disk, and manifests of them."""

from __future__ import annotations

import errno
import io
import os
import tempfile
import threading
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import errors
from determined.artifacts import FileEntry, Manifest, list_tree, open_storage, tree
from determined.artifacts.tree import MeasuredFile
from tests.contracts.storage import content, make_files, new_id, store

names = st.text(st.characters(exclude_characters="/\\\0:", exclude_categories=("Cs",)), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..") and len(name.encode()) <= 255
)
trees = st.recursive(
    st.binary(max_size=64), lambda inner: st.dictionaries(names, inner, max_size=4), max_leaves=12
).filter(lambda found: isinstance(found, dict))


def grow(root: Path, content: bytes | dict) -> None:
    if isinstance(content, bytes):
        root.write_bytes(content)
        return
    root.mkdir()
    for name, inner in content.items():
        grow(root / name, inner)


@settings(max_examples=40, deadline=None)
@given(found=trees, move=st.booleans())
def test_any_tree_round_trips(found: dict, move: bool) -> None:
    """C-38: any tree of files and directories comes back as it was, copied or moved, and nothing else remains."""
    with tempfile.TemporaryDirectory() as scratch:
        storage = open_storage(Path(scratch) / "root")
        draft = storage.draft(new_id())
        source = (draft.workspace() if move else Path(scratch)) / "source"
        grow(source, found)
        expected = content(source)
        manifest = draft.publish(draft.put(source, list_tree(source), move=move))
        storage.fetch(draft.storage_id, Path(scratch) / "target", lambda _: True)
        back = content(Path(scratch) / "target") if expected else {}
        assert back == expected == content(storage.directory(draft.storage_id))
        assert Manifest.from_bytes(draft.storage_id, manifest.to_bytes()) == manifest
        storage.delete(draft.storage_id)
        assert storage.sweep(timedelta(0)) == []


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_any_bytes_are_no_manifest(data: bytes) -> None:
    """Whatever stands in place of a manifest, the error is ours."""
    with pytest.raises((errors.CheckpointDamaged, errors.UnsafePath)):
        Manifest.from_bytes("x", data)


@pytest.mark.parametrize(
    "files",
    [
        {"a": FileEntry(-1, "0" * 64)},
        {"a": FileEntry(True, "0" * 64)},
        {"a": FileEntry("1", "0" * 64)},
        {"a": FileEntry(1, "")},
        {"a": FileEntry(1, "0" * 63 + "g")},
        {"a/": FileEntry(1, "")},
        {"a": FileEntry(1, "0" * 64), "a/b": FileEntry(1, "0" * 64)},
        {"a": FileEntry(1, "0" * 64), "a/": FileEntry(0, "")},
    ],
)
def test_impossible_entries(files: dict[str, FileEntry]) -> None:
    """A manifest of sizes or checksums that cannot be, or of a file that is a directory too, is refused."""
    with pytest.raises(ValueError):
        Manifest("x", files)


def test_manifest_of_another_checkpoint() -> None:
    """A manifest that was copied from another checkpoint is not believed."""
    data = Manifest("one", {}).to_bytes()
    with pytest.raises(errors.CheckpointDamaged, match="one"):
        Manifest.from_bytes("two", data)


def test_list_tree(tmp_path: Path) -> None:
    """Paths are relative and sorted, directories end in a slash, links are followed, and a loop ends."""
    make_files(tmp_path / "s", ["b", "a/x", "empty/"])
    (tmp_path / "s" / "link").symlink_to("a")
    (tmp_path / "s" / "a" / "up").symlink_to("..")
    (tmp_path / "s" / "dangling").symlink_to("nowhere")
    (tmp_path / "s" / "self").symlink_to("self")
    found = list_tree(tmp_path / "s")
    assert found == {
        "a/": 0,
        "a/up/": 0,
        "a/x": 3,
        "b": 1,
        "dangling": 0,
        "empty/": 0,
        "link/": 0,
        "link/up/": 0,
        "link/x": 3,
        "self": 0,
    }
    assert list(found) == sorted(found)


def test_missing_root(tmp_path: Path) -> None:
    """A directory that does not exist is an error, not an empty tree."""
    with pytest.raises(FileNotFoundError):
        list_tree(tmp_path / "nope")


def test_write_durably_leaves_no_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If writing fails, what was there before is still there, and nothing else."""
    tree.write_durably(tmp_path / "f", b"one")

    def fail(_: int) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no"):
        tree.write_durably(tmp_path / "f", b"two")
    assert content(tmp_path) == {"f": b"one"}


def test_everything_is_synced_before_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, directories and manifest are on the disk before the rename, and the root after it."""
    source = make_files(tmp_path / "s", ["a", "d/b"])
    events: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def note(handle: int) -> None:
        events.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        fsync(handle)

    def commit(self: Path, target: Path) -> Path:
        events.append("COMMIT")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(Path, "rename", commit)
    store(open_storage(tmp_path / "root"), source, "x")
    before, after = events[: events.index("COMMIT")], events[events.index("COMMIT") + 1 :]
    assert {"a", "b", "x.json", "d", "tree", "manifests", "root"} <= set(before)
    assert after == ["root"]


@pytest.mark.parametrize("pieces", [[], [0], [1, 2], [tree.LARGE - 1, 1, 1], [5, tree.LARGE, 7, tree.PIECE + 3]])
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
        tree.sync(paths, [tmp_path])
        assert sorted(synced) == sorted([tmp_path.name, *(path.name for path in paths)])
