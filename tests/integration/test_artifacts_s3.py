"""Checkpoints in S3, against moto's server."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import fsspec.asyn
import pytest
from moto.server import ThreadedMotoServer

from determined import errors
from determined.artifacts import Storage, open_storage
from determined.artifacts.bucket import BucketStorage
from determined.artifacts.driver import Driver
from tests.contracts.storage import TABLE, StorageContract, make_files, new_id, store
from tests.unit.artifacts.test_bucket import BucketBackdoor

PREFIX = "some/prefix"


def start_fsspec_threads() -> None:
    """Start the threads that fsspec keeps for the whole process, before a test can be blamed for them."""
    threads = 4
    all_are_there = threading.Barrier(threads)

    async def fill_the_pool() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(threads))
        await asyncio.gather(*(loop.run_in_executor(None, all_are_there.wait) for _ in range(threads)))

    fsspec.asyn.sync(fsspec.asyn.get_loop(), fill_the_pool)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    start_fsspec_threads()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def driver(endpoint: str) -> Driver:
    values = {"access_key": "key", "secret_key": "secret", "endpoint_url": endpoint}
    driver = Driver("s3", "models", values)
    driver._call(lambda fs: fs.mkdir("models"))
    return driver


@pytest.fixture
def storage(driver: Driver) -> Iterator[Storage]:
    prefix = f"{PREFIX}/{new_id()}"
    storage = BucketStorage(driver, prefix)
    yield storage
    driver.remove(list(driver.find(f"{prefix}/")))


@pytest.fixture
def backdoor(storage: BucketStorage) -> BucketBackdoor:
    return BucketBackdoor(storage.driver, storage._base)


class TestS3Storage(StorageContract):
    pass


def test_directories_are_objects(storage: Storage, backdoor: BucketBackdoor, tmp_path: Path) -> None:
    """C-38: directories are empty objects with a trailing slash, as the original's tools expect."""
    storage_id = store(storage, make_files(tmp_path, TABLE))
    home = f"{backdoor.base}{storage_id}/"
    assert {f"{home}empty_dir/", f"{home}subdir/"} <= set(backdoor.names())


def test_old_checkpoints_with_directories(storage: Storage, backdoor: BucketBackdoor, tmp_path: Path) -> None:
    """C-38: empty directories of the original product's checkpoints are found too."""
    storage_id = new_id()
    backdoor.write(f"{storage_id}/state_dict.pth", b"x")
    backdoor.driver.put_directory(f"{backdoor.base}{storage_id}/empty/")
    storage.fetch(storage_id, tmp_path / "t")
    assert (tmp_path / "t" / "empty").is_dir()
    storage.delete(storage_id)
    assert backdoor.names() == []


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "a\\b", "a//b", "C:/x"])
def test_hostile_keys(storage: Storage, backdoor: BucketBackdoor, tmp_path: Path, name: str) -> None:
    """A bucket with keys that would leave the target is refused, and a delete does not follow them."""
    storage_id = new_id()
    key = f"{backdoor.base}{storage_id}/{name}"
    backdoor.write(f"{storage_id}/good", b"x")
    backdoor.driver._call(lambda fs: fs.call_s3("put_object", Bucket="models", Key=key, Body=b"x"))
    before = backdoor.names()
    with pytest.raises(errors.UnsafePath):
        storage.fetch(storage_id, tmp_path / "t")
    with pytest.raises(errors.UnsafePath):
        storage.delete(storage_id)
    assert not (tmp_path / "t").exists()
    assert not (tmp_path / "evil").exists()
    assert set(before) <= set(backdoor.names())


def test_big_deletes(storage: BucketStorage, backdoor: BucketBackdoor) -> None:
    """More objects than one call may delete are deleted in several."""
    backdoor.write("x/metadata.json", b"{}")
    keys = [f"{backdoor.base}x/{i}" for i in range(1001)]
    backdoor.driver.remove(keys)
    storage.delete("x")
    assert backdoor.names() == []


def test_large_files_travel_in_parts(storage: Storage, tmp_path: Path) -> None:
    """A file that is uploaded in several parts comes back as it was."""
    data = os.urandom(1 << 20) * 6
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "big").write_bytes(data)
    storage_id = store(storage, tmp_path / "s")
    assert storage.verify(storage_id) == []
    storage.fetch(storage_id, tmp_path / "t")
    assert (tmp_path / "t" / "big").read_bytes() == data


def test_missing_bucket(endpoint: str, tmp_path: Path) -> None:
    """A probe of a bucket that does not exist names the place and the cause."""
    values = {"access_key": "key", "secret_key": "secret", "endpoint_url": endpoint}
    storage = open_storage({"type": "s3", "bucket": "nowhere", **values})
    with pytest.raises(errors.StorageConfigError, match=r"s3://nowhere.*bucket does not exist"):
        storage.probe()


def test_no_credentials(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without credentials the error is `NoDirectStorageAccess`, and says where they can come from."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    storage = open_storage({"type": "s3", "bucket": "models", "endpoint_url": endpoint})
    with pytest.raises(errors.NoDirectStorageAccess, match=r"s3://models.*aws configure"):
        storage.list()
