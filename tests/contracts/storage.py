"""What every storage of checkpoints promises. Suites inherit `StorageContract` and supply `storage` and `backdoor`."""

from __future__ import annotations

import contextlib
import json
import random
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import pytest

from determined import errors
from determined.artifacts import FileEntry, SharedFile, Storage, list_tree

NOW = timedelta(0)
TABLE = ["root.txt", "subdir/file1.txt", "subdir/file2.txt", "empty_dir/"]
UNSAFE_PATHS = [
    "",
    "/",
    "/etc/passwd",
    "..",
    "../x",
    "a/../../x",
    "a/..",
    "./a",
    "a//b",
    "a/./b",
    "a\\b",
    "..\\x",
    "a\0b",
    "C:/x",
    "c:x",
    "a/C:x",
    "x" * 256,
    "a/" + "é" * 128,
    "/".join(["x" * 200] * 21),
    "\ud800",
]


class Backdoor(Protocol):
    """Reaches around the storage, as another program, a crash or an attacker would."""

    def write(self, name: str, data: bytes) -> None: ...

    def remove(self, name: str) -> None: ...

    def names(self) -> list[str]:
        """Every file or object under the root, our records included."""


def make_files(root: Path, names: list[str]) -> Path:
    """Make these files, each holding its own name, and directories."""
    for name in names:
        place = root / name
        if name.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(name.encode())
    return root


def new_id() -> str:
    return str(uuid.uuid4())


def store(storage: Storage, source: Path, storage_id: str | None = None, metadata: bytes | None = b"{}") -> str:
    """Store a whole directory."""
    draft = storage.draft(storage_id or new_id())
    entries = draft.put(source, list_tree(source))
    if metadata is not None:
        entries |= draft.put_bytes("metadata.json", metadata)
    draft.publish(entries)
    draft.discard()
    return draft.storage_id


def content(root: Path) -> dict[str, bytes | None]:
    return {path: None if path.endswith("/") else (root / path).read_bytes() for path in list_tree(root)}


@contextlib.contextmanager
def refusing(name: str, *others: type[Exception]) -> Iterator[None]:
    try:
        yield
    except (errors.UnsafePath, *others):
        return
    pytest.fail(f"{name!a} was not refused")


class StorageContract:
    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        return make_files(tmp_path / "source", TABLE)

    @pytest.fixture
    def target(self, tmp_path: Path) -> Path:
        return tmp_path / "target"

    def test_a_checkpoint_comes_back_as_it_was(self, storage: Storage, source: Path, target: Path) -> None:
        """C-38: files, and empty directories too, survive a round trip."""
        storage_id = store(storage, source, metadata=b'{"steps_completed": 3}')
        storage.fetch(storage_id, target)
        assert content(target) == content(source) | {"metadata.json": b'{"steps_completed": 3}'}
        assert storage.verify(storage_id) == []
        assert storage.exists(storage_id)
        assert storage.list() == [storage_id]

    def test_manifest_tells_sizes(self, storage: Storage, source: Path) -> None:
        """The manifest names exactly the stored files with their bytes; directories end in a slash and have none."""
        manifest = storage.manifest(store(storage, source))
        assert manifest.verified
        assert manifest.resources == {
            "empty_dir/": 0,
            "metadata.json": 2,
            "root.txt": 8,
            "subdir/": 0,
            "subdir/file1.txt": 16,
            "subdir/file2.txt": 16,
        }

    def test_shared_files_are_in_each_checkpoint(self, storage: Storage, target: Path) -> None:
        """Files that several checkpoints hold are in each of them, whichever of the others is deleted."""
        files = {"code/a.py": SharedFile(b"a"), "code/pkg/b.py": SharedFile(b""), "load_data.json": SharedFile(b"{}")}
        ids = [new_id() for _ in range(3)]
        for storage_id in ids:
            draft = storage.draft(storage_id)
            draft.publish(draft.put_shared(files) | draft.put_bytes("metadata.json", storage_id.encode()))
            draft.discard()
        storage.delete(ids[0])
        storage.delete(ids[1], ["code/pkg"])
        assert storage.verify(ids[1]) == storage.verify(ids[2]) == []
        storage.fetch(ids[2], target)
        assert {name: data for name, data in content(target).items() if data is not None} == {
            **{name: file.content for name, file in files.items()},
            "metadata.json": ids[2].encode(),
        }
        (target / "code" / "a.py").write_bytes(b"what is downloaded may be changed")
        assert storage.verify(ids[2]) == []

    def test_read_bytes(self, storage: Storage, source: Path) -> None:
        """One file can be read without fetching the rest; one that is not there is named."""
        storage_id = store(storage, source, metadata=b'{"a": 1}')
        assert json.loads(storage.read_bytes(storage_id, "metadata.json")) == {"a": 1}
        with pytest.raises(FileNotFoundError, match=r"nope\.json"):
            storage.read_bytes(storage_id, "nope.json")

    def test_put_takes_the_parents_along(self, storage: Storage, tmp_path: Path) -> None:
        """C-22: storing only `sub/g` stores exactly `sub/` and `sub/g`."""
        source = make_files(tmp_path / "s", ["f", "sub/g", "sub/h", "other/"])
        draft = storage.draft(new_id())
        entries = draft.put(source, ["sub/g"])
        assert sorted(entries) == ["sub/", "sub/g"]
        assert list(draft.publish(entries).resources) == ["sub/", "sub/g"]
        draft.discard()

    def test_fetch_selects(self, storage: Storage, source: Path, target: Path) -> None:
        """C-22: a selected file brings its directories; a selected directory does not bring its files."""
        storage_id = store(storage, source)
        asked: list[str] = []
        storage.fetch(storage_id, target, lambda path: bool(asked.append(path)) or path == "subdir/file1.txt")
        assert list_tree(target) == {"subdir/": 0, "subdir/file1.txt": 16}
        assert asked == list(storage.manifest(storage_id).files)
        storage.fetch(storage_id, target / "two", lambda path: path == "subdir/")
        assert list_tree(target / "two") == {"subdir/": 0}

    def test_fetch_of_nothing_makes_nothing(self, storage: Storage, source: Path, target: Path) -> None:
        """If nothing is selected, the target directory is not made."""
        storage.fetch(store(storage, source), target, lambda path: False)
        assert not target.exists()

    def test_missing_checkpoint(self, storage: Storage, target: Path) -> None:
        """C-33: whatever is asked of an id that does not exist, the answer is `CheckpointNotFound`."""
        missing = new_id()
        assert not storage.exists(missing)
        for ask in (storage.manifest, storage.verify, lambda i: storage.fetch(i, target)):
            with pytest.raises(errors.CheckpointNotFound, match=missing):
                ask(missing)
        with pytest.raises(errors.CheckpointNotFound, match=missing):
            storage.read_bytes(missing, "metadata.json")
        assert not target.exists()

    def test_delete_twice(self, storage: Storage, source: Path, backdoor: Backdoor, target: Path) -> None:
        """C-34, C-43: deleting twice is no error, nothing remains, and a later fetch finds no checkpoint."""
        storage_id = store(storage, source)
        assert storage.delete(storage_id) == {}
        assert storage.delete(storage_id) == {}
        assert backdoor.names() == []
        assert storage.list() == []
        with pytest.raises(errors.CheckpointNotFound):
            storage.fetch(storage_id, target)

    @pytest.mark.parametrize(
        ("globs", "remaining"),
        [
            (["empty_dir/*", "subdir/*"], ["empty_dir/", "root.txt", "subdir/"]),
            (["empty_dir"], ["root.txt", "subdir/", "subdir/file1.txt", "subdir/file2.txt"]),
            (["subdir"], ["empty_dir/", "root.txt"]),
            (["**/*.txt"], ["empty_dir/", "subdir/"]),
            (["**.txt"], ["empty_dir/", "subdir/", "subdir/file1.txt", "subdir/file2.txt"]),
            ([], ["empty_dir/", "root.txt", "subdir/", "subdir/file1.txt", "subdir/file2.txt"]),
            (["**/*"], []),
        ],
    )
    def test_partial_delete(
        self, storage: Storage, source: Path, target: Path, globs: list[str], remaining: list[str]
    ) -> None:
        """C-42: exactly the remaining files of the table stay, and are returned."""
        storage_id = store(storage, source, metadata=None)
        sizes = storage.manifest(storage_id).resources
        assert storage.delete(storage_id, globs) == {path: sizes[path] for path in remaining}
        assert storage.exists(storage_id) == bool(remaining)
        if remaining:
            assert storage.verify(storage_id) == []
            storage.fetch(storage_id, target)
            assert list(list_tree(target)) == remaining

    def test_an_id_that_starts_like_another(self, storage: Storage, tmp_path: Path) -> None:
        """An id that is a prefix of another one is told apart from it, in listings and deletes."""
        one = store(storage, make_files(tmp_path / "a", ["a"]), "abc")
        two = store(storage, make_files(tmp_path / "b", ["b"]), "abcd")
        assert storage.list() == ["abc", "abcd"]
        assert list(storage.manifest(one).resources) == ["a", "metadata.json"]
        storage.delete(one)
        assert storage.list() == [two]
        assert storage.verify(two) == []

    def test_an_id_is_never_overwritten(self, storage: Storage, source: Path) -> None:
        """A finished checkpoint refuses a second draft, and one that was opened before it was finished."""
        late = storage.draft("taken")
        entries = late.put_bytes("late", b"late")
        store(storage, source, "taken")
        with pytest.raises(FileExistsError, match="taken"):
            storage.draft("taken")
        with pytest.raises(FileExistsError, match="taken"):
            late.publish(entries)
        late.discard()
        assert "late" not in storage.manifest("taken").files
        assert storage.verify("taken") == []

    def test_unpublished_is_invisible(self, storage: Storage, source: Path, backdoor: Backdoor) -> None:
        """C-37: what was not published does not exist, and `discard` removes all of it, more than once if asked."""
        draft = storage.draft(new_id())
        space = draft.workspace()
        draft.put(source, list_tree(source))
        draft.put_bytes("metadata.json", b"{}")
        assert storage.list() == []
        assert not storage.exists(draft.storage_id)
        draft.discard()
        draft.discard()
        assert backdoor.names() == []
        assert not space.exists()

    def test_workspaces_are_private_and_temporary(self, storage: Storage) -> None:
        """C-37: every workspace is a new empty directory, files move out of it, and it is gone in the end."""
        draft = storage.draft(new_id())
        one, two = draft.workspace(), draft.workspace()
        assert one != two
        assert list_tree(one) == {}
        make_files(one, ["deep/file", "deep/link-target", "empty/"])
        (one / "link").symlink_to("deep/link-target")
        entries = draft.put(one, list_tree(one), move=True)
        draft.publish(entries)
        assert storage.manifest(draft.storage_id).resources["link"] == len("deep/link-target")
        assert storage.verify(draft.storage_id) == []
        draft.discard()
        assert not one.exists()
        assert not two.exists()

    def test_several_writers(self, storage: Storage, tmp_path: Path, target: Path) -> None:
        """Ranks open drafts of one id, each puts its part, and one publishes all; the others' discard harms nothing."""
        storage_id = new_id()
        drafts = [storage.draft(storage_id) for _ in range(3)]
        entries: dict[str, FileEntry] = {}
        for rank, draft in enumerate(drafts):
            entries |= draft.put(make_files(draft.workspace(), [f"rank{rank}", "shared/x/"]), [f"rank{rank}"])
            entries |= draft.put(make_files(tmp_path / str(rank), [f"shared/{rank}"]), [f"shared/{rank}"])
        drafts[0].publish(entries)
        for draft in drafts:
            draft.discard()
        storage.fetch(storage_id, target)
        assert list(list_tree(target)) == ["rank0", "rank1", "rank2", "shared/", "shared/0", "shared/1", "shared/2"]
        assert storage.verify(storage_id) == []

    def test_one_writer_of_several_gives_up(self, storage: Storage, source: Path, backdoor: Backdoor) -> None:
        """A writer that discards takes only its own files; when the last one does, nothing is left."""
        one, two = storage.draft("x"), storage.draft("x")
        one.put(source, ["subdir/file1.txt"])
        kept = two.put(source, ["subdir/file2.txt"])
        one.discard()
        assert any("file2.txt" in name for name in backdoor.names())
        two.publish(kept)
        assert list(storage.manifest("x").resources) == ["subdir/", "subdir/file2.txt"]
        assert storage.verify("x") == []

    def test_publish_is_exact(self, storage: Storage, source: Path, target: Path, backdoor: Backdoor) -> None:
        """Only the entries handed to `publish` are in the checkpoint; one that was never put prevents it."""
        draft = storage.draft(new_id())
        draft.put(source, ["root.txt"])
        entries = draft.put(source, ["subdir/file1.txt"])
        with pytest.raises(errors.CheckpointDamaged, match="ghost"):
            storage.draft("y").publish({"ghost": FileEntry(5, "0" * 64)})
        assert not storage.exists("y")
        draft.publish(entries)
        storage.fetch(draft.storage_id, target)
        assert list(list_tree(target)) == ["subdir/", "subdir/file1.txt"]
        assert not any(name.endswith("root.txt") for name in backdoor.names())

    @pytest.mark.parametrize("damage", ["truncated", "flipped", "missing"])
    def test_damage_is_refused(
        self, storage: Storage, source: Path, target: Path, backdoor: Backdoor, damage: str
    ) -> None:
        """A checkpoint whose files changed since is refused with the file and the reason."""
        storage_id = store(storage, source)
        name = f"{storage_id}/root.txt"
        if damage == "missing":
            backdoor.remove(name)
        else:
            backdoor.write(name, b"root" if damage == "truncated" else b"ROOT.TXT")
        (problem,) = storage.verify(storage_id)
        assert problem.startswith("root.txt ")
        with pytest.raises(errors.CheckpointDamaged, match=r"root\.txt"):
            storage.fetch(storage_id, target)
        assert "root.txt" not in list_tree(target)
        assert not any(path.name.startswith(".fetch") for path in target.iterdir())
        with pytest.raises(errors.CheckpointDamaged, match=r"root\.txt"):
            storage.read_bytes(storage_id, "root.txt")
        if storage.is_direct:
            with pytest.raises(errors.CheckpointDamaged, match=r"root\.txt"):
                storage.directory(storage_id)

    def test_later_additions_are_no_damage(self, storage: Storage, source: Path, backdoor: Backdoor) -> None:
        """A file that somebody added later does not make a checkpoint unusable."""
        storage_id = store(storage, source)
        backdoor.write(f"{storage_id}/.DS_Store", b"x")
        assert storage.verify(storage_id) == []
        storage.delete(storage_id)
        assert backdoor.names() == []

    def test_old_checkpoints_are_readable(self, storage: Storage, target: Path, backdoor: Backdoor) -> None:
        """A checkpoint of the original product, which kept no manifest, is listed and read, and marked unverified."""
        storage_id = new_id()
        backdoor.write(f"{storage_id}/state_dict.pth", b"tensors")
        backdoor.write(f"{storage_id}/code/model.py", b"pass")
        backdoor.write("named/metadata.json", b"{}")
        assert storage.list() == sorted([storage_id, "named"])
        manifest = storage.manifest(storage_id)
        assert not manifest.verified
        assert manifest.resources == {"code/": 0, "code/model.py": 4, "state_dict.pth": 7}
        assert storage.verify(storage_id) == []
        storage.fetch(storage_id, target)
        assert content(target) == {"code/": None, "code/model.py": b"pass", "state_dict.pth": b"tensors"}
        assert storage.read_bytes(storage_id, "state_dict.pth") == b"tensors"
        assert storage.delete(storage_id, ["code"]) == {"state_dict.pth": 7}
        assert storage.delete(storage_id) == {}
        assert storage.list() == ["named"]

    def test_other_things_in_the_root_are_no_checkpoints(self, storage: Storage, backdoor: Backdoor) -> None:
        """TensorBoard files of the original product and the user's own folders are neither listed nor deleted."""
        cluster = new_id()
        backdoor.write(f"{cluster}/tensorboard/experiment/1/trial/1/events", b"x")
        backdoor.write("src/train.py", b"x")
        before = backdoor.names()
        assert storage.list() == []
        for name in (cluster, "src"):
            assert storage.delete(name) == {}
            with pytest.raises(errors.CheckpointNotFound):
                storage.manifest(name)
        assert storage.sweep(NOW) == []
        assert backdoor.names() == before

    def test_sweep(self, storage: Storage, source: Path, backdoor: Backdoor) -> None:
        """A sweep removes drafts that nobody finishes, once they are old enough, and no finished checkpoint."""
        kept = store(storage, source)
        before = backdoor.names()
        draft = storage.draft("abandoned")
        draft.put(source, list_tree(source))
        assert storage.sweep(timedelta(hours=1)) == []
        assert storage.sweep() == []
        assert backdoor.names() != before
        assert any("abandoned" in name for name in storage.sweep(NOW))
        assert backdoor.names() == before
        assert storage.verify(kept) == []
        draft.discard()

    def test_first_draft_sweeps(self, storage: Storage, source: Path, backdoor: Backdoor) -> None:
        """Opening the first draft clears old leftovers away, and a young draft of somebody else stays."""
        draft = storage.draft("left")
        draft.put(source, ["root.txt"])
        storage._has_swept = False
        storage.draft("another")
        assert any("root.txt" in name for name in backdoor.names())
        real = storage._clock
        storage._clock = lambda: real() + 8 * 86400
        storage._has_swept = False
        storage.draft("another")
        assert backdoor.names() == []
        draft.discard()

    @pytest.mark.parametrize("publishes", [True, False])
    def test_probe(self, storage: Storage, backdoor: Backdoor, publishes: bool) -> None:
        """A probe of a working storage leaves nothing behind."""
        storage.probe(publishes=publishes)
        assert backdoor.names() == []

    def test_random_state(self, storage: Storage, source: Path, target: Path) -> None:
        """C-45: saving, fetching and deleting leave Python's `random` where it was."""
        random.seed(1)
        expected = random.random()
        random.seed(1)
        storage_id = store(storage, source)
        storage.fetch(storage_id, target)
        storage.delete(storage_id)
        assert random.random() == expected

    def test_odd_names_are_literal(self, storage: Storage, tmp_path: Path, target: Path) -> None:
        """Names with spaces, patterns or percent signs are kept as they are, and never stand for another name."""
        odd = [
            "a b",
            "ü",
            "100%",
            "%2e%2e%2fx",
            "a*",
            "[ab]",
            "a?",
            "x+y=z",
            "~",
            "...",
            "-rf",
            "q'\"",
            "#",
            "{}",
            "a&b",
        ]
        source = make_files(tmp_path / "s", ["ab", "a", *(f"{name}.d/{name}" for name in odd), *odd])
        storage_id = store(storage, source)
        storage.fetch(storage_id, target)
        assert content(target) == content(source) | {"metadata.json": b"{}"}
        draft = storage.draft("unfinished")
        kept = draft.put(source, ["a", "ab"])
        other = storage.draft("unfinished")
        other.put(source, odd)
        other.discard()
        draft.publish(kept)
        assert storage.verify("unfinished") == []
        assert storage.verify(storage_id) == []

    def test_unsafe_paths(self, storage: Storage, source: Path, backdoor: Backdoor) -> None:
        """A path that would leave the checkpoint is refused by every call, before anything is written or deleted."""
        storage_id = store(storage, source)
        before = backdoor.names()
        draft = storage.draft("x")
        calls: list[Callable[[str], object]] = [
            lambda path: draft.put(source, [path]),
            lambda path: draft.put_bytes(path, b"x"),
            lambda path: draft.publish({path: FileEntry(1, "0" * 64)}),
            lambda path: storage.read_bytes(storage_id, path),
            lambda path: storage.delete(storage_id, [path]),
        ]
        for path in UNSAFE_PATHS:
            for call in calls:
                with refusing(path):
                    call(path)
        draft.discard()
        assert backdoor.names() == before

    def test_unsafe_ids(self, storage: Storage, target: Path, backdoor: Backdoor) -> None:
        """An id that is not one plain name is refused by every call."""
        calls: list[Callable[[str], object]] = [
            storage.draft,
            storage.exists,
            storage.manifest,
            storage.verify,
            storage.delete,
            lambda storage_id: storage.fetch(storage_id, target),
            lambda storage_id: storage.read_bytes(storage_id, "a"),
        ]
        for storage_id in [*UNSAFE_PATHS, "a/b", "a/", ".", ".artifacts", ".hidden"]:
            for call in calls:
                with refusing(storage_id):
                    call(storage_id)
        assert backdoor.names() == []

    def test_hostile_manifest(self, storage: Storage, source: Path, target: Path, backdoor: Backdoor) -> None:
        """A manifest that names an unsafe path is refused, and nothing is written or deleted."""
        storage_id = store(storage, source)
        before = backdoor.names()
        for path in UNSAFE_PATHS:
            record = {"version": 1, "storage_id": storage_id, "files": {path: [1, "0" * 64]}, "directories": []}
            backdoor.write(f".artifacts/manifests/{storage_id}.json", json.dumps(record).encode())
            for call in (storage.manifest, storage.verify, lambda i: storage.fetch(i, target)):
                with refusing(path, errors.CheckpointDamaged):
                    call(storage_id)
        assert backdoor.names() == before
        assert not target.exists()

    def test_broken_manifest(self, storage: Storage, source: Path, backdoor: Backdoor) -> None:
        """A manifest that cannot be read makes a damaged checkpoint, not a crash; it can still be deleted."""
        storage_id = store(storage, source)
        for data in (b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"version": 2}', b'{"version": 1}', b"\xff\xfe"):
            backdoor.write(f".artifacts/manifests/{storage_id}.json", data)
            with pytest.raises(errors.CheckpointDamaged, match=storage_id):
                storage.manifest(storage_id)
        assert storage.list() == [storage_id]
        storage.delete(storage_id)
        assert backdoor.names() == []

    def test_links_and_special_files(self, storage: Storage, tmp_path: Path, target: Path) -> None:
        """Links are followed, loops end, and what cannot be stored is named instead of being left out silently."""
        source = make_files(tmp_path / "s", ["real/file"])
        (source / "dir").symlink_to("real")
        (source / "loop").symlink_to(".")
        storage.fetch(store(storage, source), target)
        assert list(list_tree(target)) == ["dir/", "dir/file", "loop/", "metadata.json", "real/", "real/file"]
        (source / "dangling").symlink_to("nowhere")
        with pytest.raises(FileNotFoundError, match="dangling"):
            store(storage, source)
        assert len(storage.list()) == 1

    def test_other_files_lie_beside(self, storage: Storage, backdoor: Backdoor, tmp_path: Path) -> None:
        """Contract 4.1: event files lie beside the checkpoints, are replaced when kept again, and are no checkpoint."""
        source = tmp_path / "events"
        for text in ("one", "two"):
            source.write_text(text)
            storage.keep(source, "tensorboard/run/events.1")
        (found,) = [name for name in backdoor.names() if "events" in name]
        assert found.endswith("tensorboard/run/events.1")
        assert storage.list() == []

    @pytest.mark.parametrize("path", UNSAFE_PATHS)
    def test_other_files_stay_inside(self, storage: Storage, tmp_path: Path, path: str) -> None:
        """A mangler cannot place a file outside the storage."""
        (tmp_path / "events").write_text("x")
        with pytest.raises(errors.UnsafePath):
            storage.keep(tmp_path / "events", path)
