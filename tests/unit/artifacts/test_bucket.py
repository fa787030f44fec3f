"""Checkpoints in a bucket, on fsspec's file system in memory."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from determined import errors
from determined.artifacts import Storage, open_storage
from determined.artifacts.bucket import BucketStorage
from determined.artifacts.driver import Driver, _options
from tests.contracts.storage import NOW, TABLE, StorageContract, make_files, new_id, store


class BucketBackdoor:
    """Reaches a bucket through its driver; `base` is the prefix of the storage, with a slash."""

    def __init__(self, driver: Driver, base: str) -> None:
        self.driver, self.base = driver, base

    def write(self, name: str, data: bytes) -> None:
        self.driver.put_bytes(self.base + name, data)

    def remove(self, name: str) -> None:
        self.driver.remove([self.base + name])

    def names(self) -> list[str]:
        return sorted(self.driver.find(self.base))


@pytest.fixture
def bucket() -> Iterator[str]:
    name = new_id()
    yield name
    memory = fsspec.filesystem("memory")
    if memory.exists(f"/{name}"):
        memory.rm(f"/{name}", recursive=True)


@pytest.fixture
def storage(bucket: str) -> Storage:
    return open_storage(f"memory://{bucket}/some/prefix")


@pytest.fixture
def backdoor(storage: BucketStorage) -> BucketBackdoor:
    return BucketBackdoor(storage.driver, "some/prefix/")


class TestMemoryStorage(StorageContract):
    pass


class Crash(BaseException):
    """Stands for SIGKILL: nothing of ours handles it."""


class CrashingDriver(Driver):
    """Dies at the n-th call that changes something."""

    def __init__(self, bucket: str, calls: int) -> None:
        super().__init__("memory", bucket, {})
        self.calls = calls

    def _count(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise Crash

    def put_bytes(self, key: str, data: bytes) -> None:
        self._count()
        super().put_bytes(key, data)

    def put_file(self, source: Path, key: str) -> None:
        self._count()
        super().put_file(source, key)

    def _remove_one(self, key: str) -> None:
        self._count()
        super()._remove_one(key)


@pytest.mark.parametrize("calls", range(8))
def test_a_crash_while_publishing(storage: BucketStorage, bucket: str, tmp_path: Path, calls: int) -> None:
    """After a crash at any call the checkpoint is there whole or not at all, and a sweep removes the rest."""
    source = make_files(tmp_path / "s", TABLE)
    storage_id = new_id()  # one that would pass for the original product's
    with contextlib.suppress(Crash):
        store(BucketStorage(CrashingDriver(bucket, calls), "some/prefix"), source, storage_id)
    finished = storage.list()
    assert finished == [i for i in [storage_id] if storage.exists(i)]
    assert all(storage.manifest(i).verified and not storage.verify(i) for i in finished)
    storage.sweep(NOW)
    assert storage.list() == finished
    home = f"some/prefix/{storage_id}/"
    left = {*storage.driver.find(home), *storage.driver.find("some/prefix/.artifacts/pending/")}
    assert bool(left) == bool(finished)
    assert not any("pending" in key for key in left)


@pytest.mark.parametrize("calls", range(8))
def test_a_crash_while_deleting(storage: BucketStorage, bucket: str, tmp_path: Path, calls: int) -> None:
    """A delete that crashes has deleted nothing or everything, as far as readers see."""
    storage_id = store(storage, make_files(tmp_path / "s", TABLE), new_id())
    with contextlib.suppress(Crash):
        BucketStorage(CrashingDriver(bucket, calls), "some/prefix").delete(storage_id)
    finished = storage.list()
    assert all(storage.manifest(i).verified and not storage.verify(i) for i in finished)
    storage.sweep(NOW)
    assert storage.list() == finished
    if not finished:
        assert storage.driver.find("some/prefix/") == {}


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "a\\b", "a//b", "C:/x"])
def test_hostile_listing(storage: Storage, backdoor: BucketBackdoor, tmp_path: Path, name: str) -> None:
    """A bucket that lists unsafe names is refused: nothing is written to the target."""
    storage_id = new_id()
    backdoor.write(f"{storage_id}/good", b"x")
    memory = fsspec.filesystem("memory")
    memory.store[f"/{backdoor.driver.bucket}/some/prefix/{storage_id}/{name}"] = memory.store[
        f"/{backdoor.driver.bucket}/some/prefix/{storage_id}/good"
    ]
    with pytest.raises(errors.UnsafePath):
        storage.fetch(storage_id, tmp_path / "t")
    assert not (tmp_path / "t").exists()
    assert not (tmp_path / "evil").exists()


def test_temp_dir(bucket: str, tmp_path: Path) -> None:
    """Workspaces are made in `temp_dir`, which is made if it is missing."""
    storage = BucketStorage(Driver("memory", bucket, {}), temp_dir=tmp_path / "big" / "disk")
    draft = storage.draft("x")
    assert draft.workspace().parent == tmp_path / "big" / "disk"
    draft.discard()
    assert list((tmp_path / "big" / "disk").iterdir()) == []


def test_there_is_no_directory_to_give(storage: Storage) -> None:
    """A bucket says that it cannot give a directory, and what to do."""
    assert not storage.is_direct
    with pytest.raises(NotImplementedError, match="fetch"):
        storage.directory("x")


class _Refusing:
    def __init__(self, error: Exception) -> None:
        self.error, self.asked = error, 0

    def cat_file(self, path: str) -> bytes:
        self.asked += 1
        random.random()
        raise self.error


class NoCredentialsError(Exception):
    """Named like botocore's."""


class HttpError(Exception):
    """Shaped like gcsfs's."""

    code = 403


@pytest.mark.parametrize("error", [PermissionError("Forbidden"), NoCredentialsError("none"), HttpError("denied")])
def test_denied(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Refused access is `NoDirectStorageAccess`, with what to do; credentials are read anew once before giving up."""
    storage = open_storage("s3://bucket")
    opened: list[_Refusing] = []
    monkeypatch.setattr(Driver, "_open", lambda self: opened.append(_Refusing(error)) or opened[-1])
    with pytest.raises(errors.NoDirectStorageAccess, match=r"s3://bucket refused us.*AWS_ACCESS_KEY_ID"):
        storage.manifest("x")
    assert [fs.asked for fs in opened] == [1, 1]


def test_other_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a driver's package raises becomes an OSError that names the bucket and the cause."""
    monkeypatch.setattr(Driver, "_open", lambda self: _Refusing(ValueError("cannot connect to endpoint")))
    with pytest.raises(OSError, match="s3://bucket could not be used: ValueError: cannot connect"):
        open_storage("s3://bucket").manifest("x")


def test_drivers_may_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """C-45: a driver that draws random numbers, as they do when they retry, does not move training's."""
    monkeypatch.setattr(Driver, "_open", lambda self: _Refusing(OSError("try later")))
    random.seed(1)
    expected = random.random()
    random.seed(1)
    with pytest.raises(OSError, match="try later"):
        open_storage("s3://bucket").manifest("x")
    assert random.random() == expected


@pytest.mark.parametrize(("url", "extra"), [("s3://b", "s3"), ("gs://b", "gcs")])
def test_missing_driver(monkeypatch: pytest.MonkeyPatch, url: str, extra: str) -> None:
    """Without the driver's package the error says what to install."""

    def missing(*_: object, **__: object) -> None:
        raise ImportError("Install something")

    monkeypatch.setattr(fsspec, "filesystem", missing)
    with pytest.raises(ImportError, match=rf"pip install 'resolute\[{extra}\]'"):
        open_storage(url).list()


def test_driver_options() -> None:
    """What `checkpoint_storage` names reaches the driver under the driver's names."""
    s3 = {"bucket": "b", "access_key": "k", "secret_key": "s", "endpoint_url": "http://e"}
    assert _options("s3", s3) == {"key": "k", "secret": "s", "endpoint_url": "http://e"}
    assert _options("gcs", {"bucket": "b"}) == {}
    assert _options("azure", {"connection_string": "c"}) == {"connection_string": "c"}
    url = {"account_url": "https://acct.blob.core.windows.net", "credential": "k"}
    assert _options("azure", url) == {
        "account_name": "acct",
        "account_host": "acct.blob.core.windows.net",
        "credential": "k",
    }
