"""CheckpointContext: whole checkpoints or none, on one rank and on several."""

from __future__ import annotations

import json
import logging
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch

from determined import artifacts, core, errors
from determined.artifacts import Storage
from determined.core import CheckpointContext, DistributedContext, DownloadMode
from determined.core.recording.shipper import Shipper
from determined.store.messages import CheckpointReport
from tests.fakes import MemoryLink
from tests.ranks import run_threads

STEPS = {"steps_completed": 1}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def checkpoints(root: Path) -> CheckpointContext:
    return CheckpointContext(storage=artifacts.open_storage(str(root)))


@pytest.fixture(params=["directory", "bucket"])
def storage(request: pytest.FixtureRequest, root: Path) -> Storage:
    """A local directory, and a bucket (fsspec's memory file system)."""
    return artifacts.open_storage(str(root) if request.param == "directory" else f"memory://{uuid.uuid4()}/prefix")


def tree(path: Path) -> dict[str, str]:
    """What a directory holds, without the manifest of a download; directories end in a slash."""
    return {
        f"{p.relative_to(path).as_posix()}{'/' if p.is_dir() else ''}": "" if p.is_dir() else p.read_text()
        for p in sorted(path.rglob("*"))
        if p != path / artifacts.CARRIED
    }


def fill(path: Path, **files: str) -> Path:
    """A directory with these files; `__` in a name stands for a slash."""
    for name, text in files.items():
        file = path / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    path.mkdir(parents=True, exist_ok=True)
    return path


def test_upload_stores_the_directory(checkpoints: CheckpointContext, root: Path, tmp_path: Path) -> None:
    """C-19: a uuid comes back, and the stored tree is the directory plus metadata.json, which says {} for none."""
    source = fill(tmp_path / "source", f="1", sub__g="2")
    storage_id = checkpoints.upload(source)
    assert str(uuid.UUID(storage_id, version=4)) == storage_id
    assert tree(root / storage_id) == {"f": "1", "sub/": "", "sub/g": "2", "metadata.json": "{}"}
    assert tree(source) == {"f": "1", "sub/": "", "sub/g": "2"}, "3.9 Better: the caller's directory stays as it was"


def test_metadata_is_written_as_json(checkpoints: CheckpointContext, root: Path, tmp_path: Path) -> None:
    """Contract 3.2: metadata.json is the metadata, indented by 2; get_metadata reads it back."""
    storage_id = checkpoints.upload(fill(tmp_path / "s", f="1"), {"steps_completed": 5, "note": {"a": [1]}})
    text = (root / storage_id / "metadata.json").read_text()
    assert text == json.dumps({"steps_completed": 5, "note": {"a": [1]}}, indent=2)
    assert checkpoints.get_metadata(storage_id) == {"steps_completed": 5, "note": {"a": [1]}}


def test_list_names_what_is_stored(storage: Storage, tmp_path: Path) -> None:
    """The ids of finished checkpoints, and of nothing else."""
    context = CheckpointContext(storage=storage)
    assert context.list() == []
    ids = [context.upload(fill(tmp_path / "s", f="1"), STEPS) for _ in range(2)]
    with context.store_path(STEPS):
        assert context.list() == sorted(ids), "one that is being written is not there yet"
    context.delete(ids[0])
    assert ids[1] in context.list()
    assert ids[0] not in context.list()


def test_other_ranks_must_shard(tmp_path: Path, root: Path) -> None:
    """C-20: upload and store_path without shard on rank 1 are RuntimeErrors naming method and "non-chief"."""

    def body(distributed: DistributedContext) -> None:
        if distributed.rank == 0:
            return
        context = CheckpointContext(distributed, artifacts.open_storage(str(root)))
        with pytest.raises(RuntimeError, match=r"upload.*non-chief"):
            context.upload(tmp_path, STEPS)
        with pytest.raises(RuntimeError, match=r"store_path.*non-chief"), context.store_path(STEPS):
            pass

    run_threads(2, body)


def test_uploading_nothing_is_an_error(checkpoints: CheckpointContext) -> None:
    """C-21: upload(None) is a RuntimeError."""
    with pytest.raises(RuntimeError, match="nothing to upload"):
        checkpoints.upload(None, STEPS)


def test_a_selector_selects(checkpoints: CheckpointContext, root: Path, tmp_path: Path) -> None:
    """C-22: with a selector for sub/g, exactly sub/ and sub/g are stored."""
    source = fill(tmp_path / "source", f="1", sub__g="2", sub__h="3")
    storage_id = checkpoints.upload(source, STEPS, selector=lambda path: path == "sub/g")
    assert tree(root / storage_id) == {"sub/": "", "sub/g": "2"}


def test_a_selector_sees_every_path(checkpoints: CheckpointContext, tmp_path: Path) -> None:
    """C-23: it is called with directories as name/ and with metadata.json."""
    seen: set[str] = set()

    def selector(path: str) -> bool:
        seen.add(path)
        return True

    checkpoints.upload(fill(tmp_path / "source", f="1", sub__g="2"), STEPS, selector=selector)
    assert seen == {"f", "sub/", "sub/g", "metadata.json"}


def test_a_selector_that_wants_nothing_still_leaves_metadata(
    checkpoints: CheckpointContext, root: Path, tmp_path: Path
) -> None:
    """3.9 Better: an id never stands for nothing at all."""
    storage_id = checkpoints.upload(fill(tmp_path / "source", f="1"), STEPS, selector=lambda path: False)
    assert list(tree(root / storage_id)) == ["metadata.json"]


@pytest.mark.parametrize("metadata", [{"epoch": 1}, {"note": "x"}])
def test_metadata_says_how_far_training_was(
    checkpoints: CheckpointContext, root: Path, tmp_path: Path, metadata: dict[str, object]
) -> None:
    """C-35 and 3.9 Better: metadata without steps_completed is a ValueError in every mode, before a byte is written."""
    with pytest.raises(ValueError, match="no steps_completed"):
        checkpoints.upload(fill(tmp_path / "source", f="1"), metadata)
    with pytest.raises(ValueError, match="no steps_completed"), checkpoints.store_path(metadata):
        pytest.fail("the block must not run")
    assert not root.exists() or tree(root) == {}


@pytest.mark.parametrize("steps", ["5", None, 1.5, float("nan"), float("inf"), True, [5]])
def test_steps_are_a_whole_number(steps: object, checkpoints: CheckpointContext, root: Path, tmp_path: Path) -> None:
    """C-35: what the store could not record afterwards is a ValueError with its value, before a byte is written."""
    with pytest.raises(ValueError, match=re.escape(f"is {steps!r}; expected the number of steps")):
        checkpoints.upload(fill(tmp_path / "source", f="1"), {"steps_completed": steps})
    assert not root.exists() or tree(root) == {}


@pytest.mark.parametrize("steps", [2**63, 1e300])
def test_steps_fit_into_64_bits(steps: object, checkpoints: CheckpointContext, root: Path, tmp_path: Path) -> None:
    """C-35: a number that no database holds is refused too, before a byte is written."""
    with pytest.raises(ValueError, match=r"expected at most 2\*\*63 - 1"):
        checkpoints.upload(fill(tmp_path / "source", f="1"), {"steps_completed": steps})
    assert not root.exists() or tree(root) == {}


@pytest.mark.parametrize("steps", [numpy.int64(5), 5.0, torch.tensor(5)])
def test_steps_may_come_from_a_computation(steps: object, checkpoints: CheckpointContext, tmp_path: Path) -> None:
    """Contract 3.2: a whole number is stored as one, however the script had it."""
    storage_id = checkpoints.upload(fill(tmp_path / "source", f="1"), {"steps_completed": steps})
    assert repr(checkpoints.get_metadata(storage_id)) == "{'steps_completed': 5}"


def test_metadata_is_a_dict(checkpoints: CheckpointContext, tmp_path: Path) -> None:
    """Contract 3.1: anything else is a TypeError that shows it."""
    with pytest.raises(TypeError, match=r"metadata is a dict, not list: \['steps_completed'\]"):
        checkpoints.upload(fill(tmp_path / "source", f="1"), ["steps_completed"])  # type: ignore[arg-type]


def test_a_managed_trial_needs_metadata(root: Path, tmp_path: Path) -> None:
    """C-35: a managed trial cannot leave it out either."""
    context = CheckpointContext(storage=artifacts.open_storage(str(root)), needs_metadata=True)
    with pytest.raises(ValueError, match="steps_completed"):
        context.upload(fill(tmp_path / "source", f="1"))


def test_a_failing_block_leaves_nothing(storage: Storage) -> None:
    """C-36 and 3.9 Better: the exception propagates, nothing is reported, nothing is left behind."""
    link = MemoryLink()
    shipper = Shipper(link)
    context = CheckpointContext(storage=storage, shipper=shipper)
    kept: list[Path] = []

    def write_and_fail() -> None:
        with context.store_path(STEPS) as (path, _):
            kept.append(path)
            (path / "half").write_text("x")
            raise KeyError("boom")

    with pytest.raises(KeyError, match="boom"):
        write_and_fail()
    shipper.close()
    assert link.reports == []
    assert storage.list() == []
    assert not kept[0].exists()


def test_what_is_stored_is_restored_and_reported(storage: Storage) -> None:
    """C-38, 3.9 Better: empty directories survive the round trip; the report lists what is stored, metadata too."""
    link = MemoryLink()
    shipper = Shipper(link)
    context = CheckpointContext(storage=storage, shipper=shipper)
    with context.store_path({"steps_completed": 7}) as (path, storage_id):
        fill(path, f="1", sub__g="22")
        (path / "empty").mkdir()
    with context.restore_path(storage_id) as restored:
        found = tree(restored)
    assert json.loads(found.pop("metadata.json")) == {"steps_completed": 7}
    assert found == {"empty/": "", "f": "1", "sub/": "", "sub/g": "22"}
    shipper.close()
    (report,) = link.of(CheckpointReport)
    assert (report.storage_id, report.metadata, report.state) == (storage_id, {"steps_completed": 7}, "COMPLETED")
    sizes = {k: v for k, v in report.resources.items() if k != "metadata.json"}
    assert sizes == {"empty/": 0, "f": 1, "sub/": 0, "sub/g": 2}
    assert report.resources["metadata.json"] > 0


def test_a_download_leaves_nothing_behind(tmp_path: Path) -> None:
    """C-37: what restore_path downloaded from a bucket is gone after the block, also after an error in it."""
    context = CheckpointContext(storage=artifacts.open_storage(f"memory://{uuid.uuid4()}"))
    storage_id = context.upload(fill(tmp_path / "source", f="1"), STEPS)
    for mode in DownloadMode:
        with context.restore_path(storage_id, mode) as path:
            assert tree(path)["f"] == "1"
        assert not path.exists()

    def fail_inside() -> Path:
        nonlocal path
        with context.restore_path(storage_id) as path:
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert not path.exists()


def test_a_missing_checkpoint_is_not_found(storage: Storage, tmp_path: Path) -> None:
    """C-33: restore_path and download of an unknown id raise CheckpointNotFound."""
    context = CheckpointContext(storage=storage)
    for mode in DownloadMode:
        with pytest.raises(errors.CheckpointNotFound), context.restore_path(str(uuid.uuid4()), mode):
            pass
        with pytest.raises(errors.CheckpointNotFound):
            context.download(str(uuid.uuid4()), tmp_path / "target", mode)
    assert not (tmp_path / "target").exists()


def test_deleting_twice_is_no_error(storage: Storage, tmp_path: Path) -> None:
    """C-34: deleting twice is fine, and the checkpoint is gone."""
    context = CheckpointContext(storage=storage)
    storage_id = context.upload(fill(tmp_path / "source", f="1"), STEPS)
    context.delete(storage_id)
    context.delete(storage_id)
    with pytest.raises(errors.CheckpointNotFound), context.restore_path(storage_id):
        pass


def test_a_damaged_checkpoint_is_refused(checkpoints: CheckpointContext, root: Path, tmp_path: Path) -> None:
    """3.9 Better, decision 6: a changed file is refused by name on restore and on download."""
    storage_id = checkpoints.upload(fill(tmp_path / "source", f="12345"), STEPS)
    (root / storage_id / "f").write_text("12346")
    with pytest.raises(errors.CheckpointDamaged, match="f"), checkpoints.restore_path(storage_id):
        pass
    with pytest.raises(errors.CheckpointDamaged, match="f"):
        checkpoints.download(storage_id, tmp_path / "target")


def test_an_unknown_download_mode_is_refused(checkpoints: CheckpointContext, tmp_path: Path) -> None:
    """Contract 3.1: the string values are accepted too, others are a ValueError."""
    storage_id = checkpoints.upload(fill(tmp_path / "source", f="1"), STEPS)
    with checkpoints.restore_path(storage_id, "NO_SHARED_DOWNLOAD") as path:
        assert (path / "f").exists()
    with pytest.raises(ValueError, match="SOMEHOW"), checkpoints.restore_path(storage_id, "SOMEHOW"):
        pass


def test_a_selector_is_only_mentioned_when_given(
    checkpoints: CheckpointContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """3.9 Better: reading in place ignores a selector with a warning, and is silent without one."""
    storage_id = checkpoints.upload(fill(tmp_path / "source", f="1"), STEPS)
    with caplog.at_level(logging.WARNING, "determined.core"):
        with checkpoints.restore_path(storage_id):
            pass
        assert caplog.records == []
        with checkpoints.restore_path(storage_id, selector=lambda path: False) as path:
            assert (path / "f").exists()
    assert "ignored" in caplog.text


# Several ranks.


def on_ranks(
    size: int, storage: Storage, body: Callable[[CheckpointContext, DistributedContext], object]
) -> list[object]:
    """Run `body` with a checkpoint context on each of `size` ranks."""
    return run_threads(size, lambda distributed: body(CheckpointContext(distributed, storage), distributed))


def test_shards_become_one_checkpoint(storage: Storage, tmp_path: Path) -> None:
    """3.4: every rank adds its files; all get the same id; the report lists all of them once, from the chief."""
    link = MemoryLink()
    shipper = Shipper(link)

    def body(distributed: DistributedContext) -> str:
        context = CheckpointContext(distributed, storage, shipper)
        source = fill(tmp_path / f"rank{distributed.rank}", **{f"part{distributed.rank}": "x", "same": "y"})
        return context.upload(source, {"steps_completed": 1, f"r{distributed.rank}": 0}, shard=True)

    first, second, third = run_threads(3, body)
    assert first == second == third
    shipper.close()
    (report,) = link.of(CheckpointReport)
    assert set(report.resources) == {"part0", "part1", "part2", "same", "metadata.json"}
    assert report.metadata == {"steps_completed": 1, "r0": 0, "r1": 0, "r2": 0}
    storage.fetch(first, tmp_path / "all")
    assert set(tree(tmp_path / "all")) == set(report.resources)


def test_different_content_under_one_name(storage: Storage, tmp_path: Path) -> None:
    """C-25: every rank raises RuntimeError with `files conflicts` and the name; nothing is stored."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> str:
        source = fill(tmp_path / f"rank{distributed.rank}", file0=str(distributed.rank))
        with pytest.raises(RuntimeError, match=r"(?s)files conflicts.*file0") as caught:
            context.upload(source, STEPS, shard=True)
        return str(caught.value)

    chief, other = on_ranks(2, storage, body)
    assert "\n" in chief  # type: ignore[operator]
    assert "\n" not in other  # type: ignore[operator]
    assert storage.list() == []


def test_equal_content_is_uploaded_once(storage: Storage, tmp_path: Path) -> None:
    """C-26: identical copies are no conflict."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> str:
        return context.upload(fill(tmp_path / f"rank{distributed.rank}", same="y"), STEPS, shard=True)

    storage_id = on_ranks(2, storage, body)[0]
    assert set(storage.manifest(str(storage_id)).resources) == {"same", "metadata.json"}


def test_a_file_here_and_a_directory_there(storage: Storage, tmp_path: Path) -> None:
    """C-27: abc/ on one rank and abc on another is a RuntimeError on every rank."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> None:
        name = "abc__f" if distributed.rank == 0 else "abc"
        with pytest.raises(RuntimeError, match=r"(?s)files conflicts.*abc"):
            context.upload(fill(tmp_path / f"rank{distributed.rank}", **{name: "y"}), STEPS, shard=True)

    on_ranks(2, storage, body)


def test_one_rank_alone_can_bring_files(storage: Storage, tmp_path: Path) -> None:
    """C-28: only rank 2 passes a directory; its files and metadata.json are stored, and all get the id."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> str:
        source = fill(tmp_path / "source", f="1") if distributed.rank == 2 else None
        return context.upload(source, STEPS, shard=True)

    ids = on_ranks(3, storage, body)
    assert len(set(ids)) == 1
    assert set(storage.manifest(str(ids[0])).resources) == {"f", "metadata.json"}


def test_nobody_brings_anything(storage: Storage) -> None:
    """C-29: all ranks passing None is a RuntimeError on all."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> None:
        with pytest.raises(RuntimeError, match="every rank passed None"):
            context.upload(None, STEPS, shard=True)

    on_ranks(2, storage, body)


def test_selectors_that_want_nothing(storage: Storage, tmp_path: Path) -> None:
    """C-30: if every rank's selector rejects everything, the checkpoint holds only metadata.json."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> str:
        source = fill(tmp_path / f"rank{distributed.rank}", f="1")
        return context.upload(source, STEPS, shard=True, selector=lambda path: False)

    storage_id = on_ranks(2, storage, body)[0]
    assert set(storage.manifest(str(storage_id)).resources) == {"metadata.json"}


def test_metadata_that_disagrees(storage: Storage, tmp_path: Path) -> None:
    """3.4 point 5: conflicting metadata is a RuntimeError with `metadata conflicts` on every rank."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> None:
        with pytest.raises(RuntimeError, match=r"(?s)metadata conflicts.*/steps_completed"):
            context.upload(fill(tmp_path / "s", f="1"), {"steps_completed": distributed.rank}, shard=True)

    on_ranks(2, storage, body)


def test_a_wrong_argument_on_one_rank_is_an_error_on_all(storage: Storage, tmp_path: Path) -> None:
    """3.9 Better: an argument error of one rank reaches every rank instead of leaving them waiting."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> str:
        source = tmp_path / "missing" if distributed.rank == 1 else fill(tmp_path / "source", f="1")
        with pytest.raises((FileNotFoundError, errors.CollectiveError), match="missing") as caught:
            context.upload(source, STEPS, shard=True)
        return type(caught.value).__name__

    names = on_ranks(2, storage, body)
    assert names[1] == "FileNotFoundError"
    assert storage.list() == []


def test_sharded_store_path(storage: Storage, tmp_path: Path) -> None:
    """3.4, 3.9 Better: every rank writes into its own directory; one checkpoint with metadata.json comes out."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> str:
        with context.store_path({"steps_completed": 3}, shard=True) as (path, storage_id):
            fill(path, **{f"shard__part{distributed.rank}": "x"})
        return storage_id

    first, second = on_ranks(2, storage, body)
    assert first == second
    resources = set(storage.manifest(str(first)).resources)
    assert resources == {"shard/", "shard/part0", "shard/part1", "metadata.json"}


def test_sharded_store_path_detects_conflicts(storage: Storage) -> None:
    """3.9 Better: two ranks writing different content under one name is noticed on any storage."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> None:
        with pytest.raises(RuntimeError, match=r"(?s)files conflicts.*model"):
            with context.store_path(STEPS, shard=True) as (path, _):
                (path / "model").write_text(str(distributed.rank))

    on_ranks(2, storage, body)
    assert storage.list() == []


def test_a_failing_block_on_one_rank_stops_all(storage: Storage) -> None:
    """3.9 Better: an error in one rank's block reaches the others; nothing is published."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> str:
        with pytest.raises((KeyError, errors.CollectiveError)) as caught:
            with context.store_path(STEPS, shard=True) as (path, _):
                (path / f"f{distributed.rank}").write_text("x")
                if distributed.rank == 1:
                    raise KeyError("boom")
        return f"{type(caught.value).__name__} {caught.value}"

    chief, other = on_ranks(2, storage, body)
    assert "rank 1" in str(chief)
    assert str(other).startswith("KeyError")
    assert storage.list() == []


@pytest.fixture
def stored(storage: Storage, tmp_path: Path) -> str:
    source = fill(tmp_path / "stored", a="1", b="2", c="3")
    return CheckpointContext(storage=storage).upload(source, STEPS)


def test_local_ranks_share_one_download(storage: Storage, stored: str, tmp_path: Path) -> None:
    """C-31: with selectors A and B the local chief's directory holds the union; the others' directories stay absent."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> None:
        wanted = "ab"[distributed.rank]
        context.download(stored, tmp_path / f"t{distributed.rank}", selector=lambda path: path == wanted)
        assert tree(tmp_path / "t0") == {"a": "1", "b": "2"}, "it is complete when any rank returns"

    on_ranks(2, storage, body)
    assert not (tmp_path / "t1").exists()


def test_a_selector_that_fails_on_one_rank_fails_on_all(storage: Storage, stored: str, tmp_path: Path) -> None:
    """3.9 Better: in a shared download all local ranks raise, each knows why, and the next collective call works."""

    def refuse(path: str) -> bool:
        raise KeyError(f"{path}.")

    def body(context: CheckpointContext, distributed: DistributedContext) -> tuple[str, list[int]]:
        with pytest.raises((KeyError, errors.CollectiveError)) as raised:
            context.download(stored, tmp_path / "t", selector=refuse if distributed.rank == 1 else None)
        return str(raised.value), distributed.allgather_local(distributed.rank)

    (told, _), (own, ranks) = on_ranks(2, storage, body)
    assert told == f"rank 1 failed with KeyError: {own}. See the output of that rank."
    assert ranks == [0, 1]
    assert not (tmp_path / "t").exists()


def test_a_rank_may_download_alone(storage: Storage, stored: str, tmp_path: Path) -> None:
    """C-32: NoSharedDownload on rank 1 works while rank 0 does not call."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> None:
        if distributed.rank == 1:
            context.download(stored, tmp_path / "t1", DownloadMode.NoSharedDownload, selector=lambda path: path == "b")

    on_ranks(2, storage, body)
    assert tree(tmp_path / "t1") == {"b": "2"}


def test_a_download_carries_its_manifest(storage: Storage, stored: str, tmp_path: Path) -> None:
    """Decision 6: of all that was asked for, at once or piece by piece; restore_path shows the stored files only."""
    context, target = CheckpointContext(storage=storage), tmp_path / "t"
    with context.restore_path(stored) as path:
        assert not (path / artifacts.CARRIED).exists()
        assert not artifacts.verify_in_place(shutil.copytree(path, tmp_path / "by hand"))
    context.download(stored, target, selector=lambda path: path == "a")
    assert artifacts.verify_in_place(target)
    context.download(stored, target, selector=lambda path: path == "b")
    assert artifacts.verify_in_place(target)
    for name in "ab":
        content = (target / name).read_text()
        (target / name).write_text("3")
        with pytest.raises(errors.CheckpointDamaged, match=f"{name} has other content than was saved"):
            artifacts.verify_in_place(target)
        (target / name).write_text(content)


def test_a_download_can_be_uploaded(storage: Storage, stored: str, tmp_path: Path) -> None:
    """C-19: what is stored again is the user's files; what the download carried is about another checkpoint."""
    context = CheckpointContext(storage=storage)
    context.download(stored, tmp_path / "t")
    again = context.upload(tmp_path / "t", {"steps_completed": 1})
    with context.store_path({"steps_completed": 1}) as (path, copied):
        shutil.copytree(tmp_path / "t", path, dirs_exist_ok=True)
    for storage_id in (again, copied):
        assert storage.manifest(storage_id).files.keys() == storage.manifest(stored).files.keys()
        context.download(storage_id, tmp_path / storage_id)
        assert artifacts.verify_in_place(tmp_path / storage_id)


def test_metadata_that_could_not_be_read_back_is_refused(storage: Storage, tmp_path: Path) -> None:
    """Before any byte is written."""
    with pytest.raises(ValueError, match="metadata takes 5000040 bytes, and 4194304 is the limit"):
        CheckpointContext(storage=storage).upload(
            fill(tmp_path / "s", a="1"), {"steps_completed": 1, "text": "x" * 5_000_000}
        )
    assert storage.list() == []


def test_local_ranks_see_one_directory(storage: Storage, stored: str) -> None:
    """3.6: restore_path yields the same path on all local ranks, and it is there until the last has left."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> tuple[Path, str]:
        with context.restore_path(stored) as path:
            return path, (path / "a").read_text()

    first, second = on_ranks(2, storage, body)
    assert first == second


def test_a_failed_download_fails_on_every_local_rank(storage: Storage, tmp_path: Path) -> None:
    """3.9 Better, C-33: if the local chief cannot download, its peers get the same error instead of hanging."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> None:
        with pytest.raises(errors.CheckpointNotFound), context.restore_path("00000000-0000-4000-8000-000000000000"):
            pass
        with pytest.raises(errors.CheckpointNotFound):
            context.download("00000000-0000-4000-8000-000000000000", tmp_path / "t")

    on_ranks(2, storage, body)


def test_the_chief_stores_and_all_restore(storage: Storage) -> None:
    """C-83: a chief-only checkpoint and a broadcast id let all ranks restore in the default mode."""

    def body(context: CheckpointContext, distributed: DistributedContext) -> str:
        storage_id = None
        if distributed.rank == 0:
            with context.store_path(STEPS) as (path, storage_id):
                (path / "f").write_text("from the chief")
        with context.restore_path(distributed.broadcast(storage_id)) as path:
            return (path / "f").read_text()

    assert on_ranks(3, storage, body) == ["from the chief"] * 3


def test_the_old_name_is_the_same_thing() -> None:
    """core.md 0: the Dummy names are aliases, since a local run lacks nothing."""
    assert core.DummyCheckpointContext is core.CheckpointContext
