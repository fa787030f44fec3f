"""A checkpoint that is being read is not cleared away; a reader that is gone holds nothing."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.artifacts import Storage, bucket, open_storage
from determined.artifacts.bucket import BucketStorage
from determined.artifacts.directory import DirectoryStorage

ID = "0c5d1b9e-5d1f-4a38-9a4e-1d6a0a3f3c11"


@pytest.fixture(params=["directory", "bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    place = open_storage(tmp_path / "c" if request.param == "directory" else f"memory://leases-{uuid.uuid4().hex}/x")
    draft = place.draft(ID)
    draft.publish(draft.put_bytes("weights", b"w"))
    yield place
    place.delete(ID)


def test_what_is_read_stays(storage: Storage) -> None:
    """4.9: clearing up passes over a checkpoint that somebody reads, and takes it afterwards."""
    with storage.reading(ID), storage.reading(ID):
        assert not storage.delete_unread(ID)
        assert storage.exists(ID)
    assert storage.delete_unread(ID)
    assert not storage.exists(ID)


def test_a_download_is_reading(storage: Storage, tmp_path: Path) -> None:
    """A checkpoint is held while it is fetched."""
    attempts = []

    def try_to_delete(path: str) -> bool:
        attempts.append(storage.delete_unread(ID))
        return True

    storage.fetch(ID, tmp_path / "copy", try_to_delete)
    assert attempts == [False]
    assert (tmp_path / "copy" / "weights").read_bytes() == b"w"


def test_what_is_not_there_can_be_read_and_deleted(storage: Storage) -> None:
    """A missing checkpoint is somebody else's error."""
    other = str(uuid.uuid4())
    with storage.reading(other):
        pass
    assert storage.delete_unread(other)


def test_reading_leaves_no_traces(tmp_path: Path) -> None:
    """A directory looks the same before and after, and can be read without the right to write."""
    storage = open_storage(tmp_path / "c")
    draft = storage.draft(ID)
    draft.publish(draft.put_bytes("weights", b"w"))
    before = sorted(tmp_path.rglob("*"))
    with storage.reading(ID):
        assert sorted(tmp_path.rglob("*")) == before


def test_a_note_that_is_old_does_not_count() -> None:
    """A reader of a bucket that crashed holds a checkpoint for an hour; a sweep removes its note."""
    offset = 0.0
    plain = open_storage(f"memory://leases-{uuid.uuid4().hex}/x")
    assert isinstance(plain, BucketStorage)

    storage = BucketStorage(plain.driver, "x", clock=lambda: time.time() + offset)
    draft = storage.draft(ID)
    draft.publish(draft.put_bytes("weights", b"w"))
    storage.driver.put_bytes(f"{storage._reading_prefix(ID)}crashed.json", b"{}")
    assert not storage.delete_unread(ID)
    offset = bucket.NOTE_SECONDS + 1
    assert storage.delete_unread(ID)
    storage.driver.put_bytes(f"{storage._reading_prefix(ID)}crashed.json", b"{}")
    offset = 2 * 86400.0
    assert len(storage.sweep()) == 1
    assert storage.sweep() == []


def test_a_checkpoint_of_the_original_product_is_held_by_its_directory(tmp_path: Path) -> None:
    """There is no manifest to lock there."""
    (tmp_path / ID).mkdir()
    (tmp_path / ID / "metadata.json").write_text("{}")
    storage = DirectoryStorage(tmp_path)
    with storage.reading(ID):
        assert not storage.delete_unread(ID)
    assert storage.delete_unread(ID)
    assert not (tmp_path / ID).exists()
