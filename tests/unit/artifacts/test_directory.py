"""Checkpoints in a directory: the contract, and what only a directory can promise."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from determined import errors
from determined.artifacts import SharedFile, Storage, list_tree, open_storage, tree
from determined.artifacts.directory import DirectoryStorage
from tests.contracts.storage import NOW, TABLE, StorageContract, content, make_files, new_id, store


class DirectoryBackdoor:
    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, data: bytes) -> None:
        place = self.root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)

    def remove(self, name: str) -> None:
        (self.root / name).unlink()

    def names(self) -> list[str]:
        found = tree.list_plain(self.root) if self.root.exists() else {}
        return [name for name in found if name.count("/") > 2 or not name.endswith("/") or name[0] != "."]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def storage(root: Path) -> Storage:
    return open_storage(root)


class TestDirectoryStorage(StorageContract):
    @pytest.fixture
    def backdoor(self, root: Path) -> DirectoryBackdoor:
        return DirectoryBackdoor(root)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_files(tmp_path / "source", TABLE)


def test_the_stored_directory_holds_nothing_of_ours(storage: Storage, source: Path, root: Path) -> None:
    """The directory of a checkpoint holds exactly the user's files and metadata.json; readers get it as it is."""
    storage_id = store(storage, source)
    assert storage.directory(storage_id) == root / storage_id
    assert content(root / storage_id) == content(source) | {"metadata.json": b"{}"}


def test_nothing_is_made_before_the_first_draft(storage: Storage, root: Path) -> None:
    """Opening, listing and asking write nothing."""
    assert storage.list() == []
    assert not storage.exists(new_id())
    assert storage.delete(new_id()) == {}
    assert storage.sweep(NOW) == []
    assert not root.exists()


def test_directory_without_verifying(storage: Storage, source: Path, root: Path) -> None:
    """A reader may ask for a damaged checkpoint on purpose."""
    storage_id = store(storage, source)
    (root / storage_id / "root.txt").write_text("changed")
    assert storage.directory(storage_id, verify=False) == root / storage_id


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("step", ["write", "fsync", "manifest", "rename"])
def test_full_disk(
    storage: Storage, source: Path, root: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: int
) -> None:
    """A disk that is full at any step leaves earlier checkpoints alone, removes the staging, and says so."""
    earlier = store(storage, source)
    before = content(root)

    def full(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    draft = storage.draft(new_id())
    entries = draft.put(source, ["subdir/file1.txt"])
    if step == "write":
        monkeypatch.setattr(os, "write", full)
    elif step == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    elif step == "manifest":
        monkeypatch.setattr(tree, "write_file", full)
    else:
        monkeypatch.setattr(Path, "rename", full)

    def save() -> None:
        draft.publish(entries | draft.put(source, ["root.txt"]))

    with pytest.raises(OSError, match=r"was not stored.*Earlier checkpoints are untouched.*Free some space") as caught:
        save()
    assert caught.value.errno == code
    monkeypatch.undo()
    assert content(root) == before
    assert storage.verify(earlier) == []


def test_any_other_failure_of_the_commit(
    storage: Storage, source: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt between manifest and rename leaves no checkpoint, and `discard` no manifest."""
    draft = storage.draft("x")
    entries = draft.put(source, ["root.txt"])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        draft.publish(entries)
    monkeypatch.undo()
    assert storage.list() == []
    draft.discard()
    assert DirectoryBackdoor(root).names() == []
    store(storage, source, "x")


def test_an_interrupt_after_the_commit(storage: Storage, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once renamed, the checkpoint exists: a `discard` after an interrupted publish does not take its manifest."""
    draft = storage.draft("x")
    entries = draft.put(source, ["root.txt"])
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> None:
        rename(self, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        draft.publish(entries)
    monkeypatch.undo()
    draft.discard()
    assert storage.manifest("x").verified
    assert storage.verify("x") == []


SHARED = {"code/a.py": SharedFile(b"a"), "code/pkg/b.py": SharedFile(b"b")}


class Crash(BaseException):
    """Stands for SIGKILL."""


class Steps:
    """Lets so many changes of the disk happen, and then none: as if the process had been killed."""

    CHANGES = ((Path, "rename"), (Path, "replace"), (Path, "mkdir"), (Path, "unlink"), (Path, "rmdir"))
    CALLS = ((os, "fsync"), (os, "open"), (os, "write"), (os, "link"), (shutil, "rmtree"))

    def __init__(self, monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
        self.left = allowed
        for owner, name in (*self.CHANGES, *self.CALLS):
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, real: Callable[..., object]) -> Callable[..., object]:
        def step(*args: object, **kwargs: object) -> object:
            self.left -= 1
            if self.left < 0:
                raise Crash
            return real(*args, **kwargs)

        return step


@pytest.mark.parametrize("action", ["publish", "alone", "share", "delete", "delete a part"])
def test_a_crash_at_every_step(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    """Whichever change of the disk is the last one, what is listed is whole, and a sweep removes the rest."""
    finished, first = False, ""
    for allowed in range(200):
        root = tmp_path / str(allowed)
        storage_id = new_id()  # one that would pass for the original product's if it lost its manifest
        sharing = open_storage(root)
        if action == "share":
            first = share(sharing, SHARED)
        elif action.startswith("delete"):
            store(open_storage(root), source, storage_id)
        with monkeypatch.context() as patch, contextlib.suppress(Crash):
            steps = Steps(patch, allowed)
            if action == "publish":
                store(open_storage(root), source, storage_id)
            elif action == "share":
                share(sharing, SHARED, storage_id)
            elif action == "alone":
                write_alone(open_storage(root), storage_id)
            else:
                open_storage(root).delete(storage_id, ["subdir"] if action == "delete a part" else None)
        storage = open_storage(root)
        listed = storage.list()
        assert all(storage.manifest(i).verified and not storage.verify(i) for i in listed), f"after {allowed} steps"
        storage.sweep(NOW)
        assert storage.list() == listed
        left = [name for name in DirectoryBackdoor(root).names() if name.startswith(".artifacts/")]
        assert left == [f".artifacts/manifests/{i}.json" for i in listed], f"after {allowed} steps"
        if finished := steps.left >= 0:
            break
    assert finished
    expected = {"delete": [], "share": sorted([first, storage_id])}
    assert listed == expected.get(action, [storage_id])


def test_two_publishers_of_one_id(storage: Storage, source: Path) -> None:
    """While one writer publishes, another one cannot touch its manifest."""
    one, two = storage.draft("x"), storage.draft("x")
    entries = one.put(source, ["root.txt"])
    one._take_lock()
    with pytest.raises(FileExistsError, match="another writer"):
        two.publish({})
    two.discard()
    one._lock.rmdir()
    one.publish(entries)
    assert storage.verify("x") == []


def test_two_writers_disagree(storage: Storage, source: Path, tmp_path: Path) -> None:
    """Different content under one name is an error; the same content is not."""
    one, two = storage.draft("x"), storage.draft("x")
    one.put(source, ["root.txt"])
    two.put(source, ["root.txt"])
    (tmp_path / "root.txt").write_text("other")
    with pytest.raises(FileExistsError, match=r"root\.txt"):
        two.put(tmp_path, ["root.txt"])


def test_a_folder_that_is_no_checkpoint_is_kept(storage: Storage, root: Path) -> None:
    """A draft never takes the place of something else that lies in the root."""
    make_files(root, ["src/train.py"])
    with pytest.raises(FileExistsError, match="src"):
        storage.draft("src")
    assert list_tree(root) == {"src/": 0, "src/train.py": 12}


def test_move_copies_what_is_shared(storage: Storage, tmp_path: Path) -> None:
    """A file of a workspace that has a second name elsewhere is copied, so that later changes there do no harm."""
    precious = make_files(tmp_path / "p", ["data"]) / "data"
    draft = storage.draft(new_id())
    space = draft.workspace()
    os.link(precious, space / "hard")
    (space / "soft").symlink_to(precious)
    (space / "linked").symlink_to(precious.parent)
    draft.publish(draft.put(space, list_tree(space), move=True))
    with precious.open("r+b") as file:
        file.write(b"XXXX")
    assert storage.verify(draft.storage_id) == []
    assert precious.exists()


def write_alone(storage: Storage, storage_id: str) -> dict[str, bytes]:
    """Write a checkpoint as training does: into a workspace that nobody else has, with files that are known already."""
    draft = storage.draft(storage_id, is_sole=True)
    try:
        space = draft.workspace()
        (space / "code").mkdir()
        written = {"weights": tree.write_measured(space / "weights", b"w" * 2_000_000)}
        make_files(space, ["deep/er/own", "metadata.json"])
        entries = draft.put(space, ["weights", "code/", "deep/er/own"], move=True, known=written)
        entries |= draft.put_shared(SHARED) | draft.put_bytes("metadata.json", b"{}")
        draft.publish(entries)
    finally:
        draft.discard()
    files = {"weights": b"w" * 2_000_000, "deep/er/own": b"deep/er/own", "metadata.json": b"{}"}
    return files | {path: file.content for path, file in SHARED.items()}


def test_a_sole_writer(storage: Storage, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that one writer wrote is on the disk before the commit, in a handful of steps; the second time too."""
    events: list[str] = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda h: (events.append(Path(f"/proc/self/fd/{h}").readlink().name), fsync(h)))
    monkeypatch.setattr(Path, "rename", lambda path, to: (events.append("COMMIT"), rename(path, to)))
    for storage_id in ("one", "two"):
        events.clear()
        expected = write_alone(storage, storage_id)
        assert {name: data for name, data in content(root / storage_id).items() if data is not None} == expected
        assert storage.verify(storage_id) == []
        commit = events.index("COMMIT")
        shared = {"a.py", "b.py"} if storage_id == "one" else set()
        files = {"weights", "own", "metadata.json", f"{storage_id}.json"} | shared
        assert files | {storage_id, "code", "pkg", "deep", "er", "manifests"} <= set(events[:commit])
        assert events[commit + 1 :] == ["root"]
    assert not {"a.py", "b.py"} & set(events), "those are durable since the first"
    assert [name for name in DirectoryBackdoor(root).names() if "staging" in name] == []


def test_a_sole_writer_whose_files_have_other_names(storage: Storage, root: Path, tmp_path: Path) -> None:
    """Links in a workspace are followed and what has a second name is copied: later changes there do no harm."""
    precious = make_files(tmp_path / "p", ["data"]) / "data"
    draft = storage.draft("x", is_sole=True)
    space = draft.workspace()
    make_files(space, ["own"])
    os.link(precious, space / "hard")
    (space / "soft").symlink_to(space / "own")
    (space / "linked").symlink_to(precious.parent)
    draft.publish(draft.put(space, list_tree(space), move=True))
    draft.discard()
    precious.write_bytes(b"XXXX")
    assert storage.verify("x") == []
    assert content(root / "x") == {
        "own": b"own",
        "hard": b"data",
        "soft": b"own",
        "linked/": None,
        "linked/data": b"data",
    }
    assert not any(path.is_symlink() for path in (root / "x").rglob("*"))


def share(storage: Storage, files: dict[str, SharedFile], storage_id: str | None = None) -> str:
    draft = storage.draft(storage_id or new_id())
    try:
        draft.publish(draft.put_shared(files))
    finally:
        draft.discard()
    return draft.storage_id


def test_shared_files_are_written_once(storage: Storage, root: Path) -> None:
    """Issue 12, 4: the bytes lie on the disk once, read-only, as long as any checkpoint of this process has them."""
    files = {"code/a.py": SharedFile(b"a"), "code/run.sh": SharedFile(b"b", 0o555)}
    one, two = share(storage, files), share(storage, files)
    storage.delete(one)
    three = share(storage, files)
    places = [(root / i / "code" / "a.py").stat() for i in (two, three)]
    assert places[0].st_ino == places[1].st_ino
    assert places[0].st_mode & 0o777 == 0o444
    assert (root / three / "code" / "run.sh").stat().st_mode & 0o777 == 0o555
    storage.delete(two)
    storage.delete(three)
    four = share(storage, files)
    assert (root / four / "code" / "a.py").stat().st_nlink == 1, "written anew"
    assert storage.verify(four) == []


def test_a_shared_file_that_was_changed_is_written_anew(storage: Storage, root: Path) -> None:
    """What somebody did to one stored file is refused there, and does not spread to later checkpoints."""
    files = {"a.py": SharedFile(b"aaa")}
    one = share(storage, files)
    place = root / one / "a.py"
    place.chmod(0o644)
    place.write_bytes(b"bbb")
    os.utime(place, (5, 5))  # the clock of the file system may not have moved on
    two = share(storage, files)
    assert storage.verify(one) != []
    assert storage.verify(two) == []


@pytest.mark.parametrize("error", [errno.EPERM, errno.EMLINK, errno.EXDEV])
def test_without_hard_links_shared_files_are_copied(
    storage: Storage, root: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Some file systems have no hard links, and all have a limit."""
    files = {"a.py": SharedFile(b"aaa")}
    share(storage, files)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "link", refuse)
    two = share(storage, files)
    assert storage.verify(two) == []
    assert (root / two / "a.py").stat().st_nlink == 1


def test_copies_keep_times(storage: Storage, source: Path, root: Path) -> None:
    """Copied files keep their modification times, and are still counted as young."""
    os.utime(source / "root.txt", (1, 1))
    draft = storage.draft("x")
    entries = draft.put(source, ["root.txt"])
    assert storage.sweep(timedelta(hours=1)) == []
    draft.publish(entries)
    assert (root / "x" / "root.txt").stat().st_mtime == 1


def test_sweep_removes_each_kind_of_leftover(storage: DirectoryStorage, source: Path, root: Path) -> None:
    """Staging, orphaned manifests, half-written manifests and trash go; the finished checkpoint stays."""
    kept = store(storage, source)
    before = DirectoryBackdoor(root).names()
    records = root / ".artifacts"
    make_files(records, ["staging/a/tree/x", "manifests/gone.json", "manifests/00.tmp", "trash/b/x"])
    removed = storage.sweep(NOW)
    assert {name.partition("/")[0] for name in removed} == {"staging", "manifests", "trash"}
    assert DirectoryBackdoor(root).names() == before
    assert storage.list() == [kept]


def test_sweep_spares_a_publisher(storage: DirectoryStorage, root: Path) -> None:
    """A manifest whose checkpoint is about to be renamed into place is not an orphan."""
    records = root / ".artifacts"
    make_files(records, ["staging/a/tree/x", "manifests/a.json"])
    assert not storage._is_orphan(records / "manifests/a.json")


class TestLinksInStoredCheckpoints:
    def test_delete_does_not_follow_links(self, storage: Storage, source: Path, root: Path, tmp_path: Path) -> None:
        """Deleting, whole or in part, removes links and leaves alone what they point at."""
        outside = make_files(tmp_path / "outside", ["precious", "sub/precious"])
        storage_id = store(storage, source)
        (root / storage_id / "link").symlink_to(outside)
        assert "link" in storage.delete(storage_id, ["link/*", "link/**/*", "link/precious"])
        assert len(list_tree(outside)) == 3
        storage.delete(storage_id, ["link"])
        assert not (root / storage_id / "link").is_symlink()
        (root / storage_id / "link").symlink_to(outside)
        storage.delete(storage_id)
        assert len(list_tree(outside)) == 3

    def test_a_linked_checkpoint(self, storage: Storage, root: Path, tmp_path: Path) -> None:
        """Deleting a checkpoint that is itself a link to elsewhere removes the link only."""
        outside = make_files(tmp_path / "outside", ["metadata.json"])
        root.mkdir()
        (root / "old").symlink_to(outside)
        storage.delete("old")
        assert storage.list() == []
        assert list(list_tree(outside)) == ["metadata.json"]

    def test_reading_does_not_leave_the_checkpoint(
        self, storage: Storage, source: Path, root: Path, tmp_path: Path
    ) -> None:
        """A link that leads out of a stored checkpoint is refused, with a manifest or without; one inside is fine."""
        secret = make_files(tmp_path / "secret", ["root.txt"])
        storage_id = store(storage, source)
        (root / storage_id / "root.txt").unlink()
        (root / storage_id / "root.txt").symlink_to(secret / "root.txt")
        assert storage.verify(storage_id)
        with pytest.raises(errors.UnsafePath, match=r"root\.txt"):
            storage.fetch(storage_id, tmp_path / "t")
        old = root / new_id()
        make_files(old, ["state_dict.pth"])
        (old / "latest").symlink_to("state_dict.pth")
        assert list(storage.manifest(old.name).files) == ["latest", "state_dict.pth"]
        (old / "out").symlink_to(secret)
        for ask in (storage.manifest, storage.directory, lambda i: storage.fetch(i, tmp_path / "t")):
            with pytest.raises(errors.UnsafePath, match="out"):
                ask(old.name)

    def test_fetching_does_not_leave_the_target(self, storage: Storage, source: Path, tmp_path: Path) -> None:
        """A link in the target directory that leads elsewhere is not written through."""
        storage_id = store(storage, source)
        outside = make_files(tmp_path / "outside", ["file1.txt"])
        (tmp_path / "target").mkdir()
        (tmp_path / "target" / "subdir").symlink_to(outside)
        with pytest.raises(errors.UnsafePath, match="subdir"):
            storage.fetch(storage_id, tmp_path / "target")
        assert content(outside) == {"file1.txt": b"file1.txt"}


def test_pipes_are_refused(storage: Storage, tmp_path: Path) -> None:
    """A named pipe is not waited for: it is refused by name."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe"):
        storage.draft("x").put(tmp_path, ["pipe"])


@pytest.mark.parametrize("publishes", [True, False])
def test_unwritable_root(source: Path, publishes: bool) -> None:
    """A probe of a root that cannot be made names the place and the cause."""
    storage = open_storage(source / "root.txt")
    with pytest.raises(errors.StorageConfigError, match=r"DirectoryStorage\(.*root\.txt\) does not work: .*Error"):
        storage.probe(publishes=publishes)


def test_records_are_as_open_as_the_root(storage: Storage, source: Path, root: Path) -> None:
    """In a root that several people may write, they may all write our records too."""
    root.mkdir()
    root.chmod(0o777)
    storage_id = store(storage, source)
    storage.delete(storage_id)
    for name in ("", "staging", "manifests", "trash"):
        assert (root / ".artifacts" / name).stat().st_mode & 0o777 == 0o777
