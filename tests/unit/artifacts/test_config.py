"""From what a user writes as `checkpoint_storage` to a storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from determined import errors
from determined.artifacts import open_storage
from determined.artifacts.config import normal_prefix


@pytest.mark.parametrize("spec", ["/tmp/abc", "file:///tmp/abc", "file:/tmp/abc", Path("/tmp/abc"), "/tmp//abc/"])
def test_paths_and_file_urls(spec: str | Path) -> None:
    """C-04: a path and its file URL are the same place."""
    storage = open_storage(spec)
    assert storage.is_direct
    assert storage.url == "/tmp/abc"


@pytest.mark.parametrize("spec", ["~/here", Path("~/here"), {"type": "directory", "container_path": "~/here"}], ids=str)
def test_a_tilde_is_the_home_directory(spec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody means a directory called `~`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_storage(spec).url == str(tmp_path / "here")


def test_a_home_directory_of_nobody() -> None:
    """A user that does not exist has no home directory."""
    with pytest.raises(errors.StorageConfigError, match="~nobody-of-this-name/here"):
        open_storage("~nobody-of-this-name/here")


def test_relative_paths_are_resolved_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path means the directory that was current when it was given."""
    monkeypatch.chdir(tmp_path)
    assert open_storage("ckpts").url == open_storage(Path("ckpts")).url == str(tmp_path / "ckpts")


@pytest.mark.parametrize(
    "spec",
    ["file://host/p", "http://x/y", "/tmp/x?y=1", "", "/tmp/x#y", "/tmp/x;y", "file:rel", "s3://", "s3:///x", "s3://b?v",
     "s3://b/../x", "s3://b/a/../..", "gs://b\\c", "s3://user@b", "s3://b:80/x", "abc:x", "/tmp/\0", "s3://[x"],
)  # fmt: skip
def test_strings_that_mean_nothing(spec: str) -> None:
    """C-05: a host in a file URL, an unknown scheme, a query, a fragment or an empty string is a ValueError."""
    with pytest.raises(errors.StorageConfigError):
        open_storage(spec)


@pytest.mark.parametrize("spec", [5, 1.5, b"/tmp", ["/tmp"], object()])
def test_other_types(spec: object) -> None:
    """C-03: a checkpoint_storage of another type is a TypeError."""
    with pytest.raises(TypeError, match="checkpoint_storage"):
        open_storage(spec)


def test_shared_fs_may_be_forbidden(tmp_path: Path) -> None:
    """C-03: where only an experiment's configuration may say `shared_fs`, a dict that does is a ValueError."""
    config = {"type": "shared_fs", "host_path": str(tmp_path)}
    with pytest.raises(ValueError, match="shared_fs"):
        open_storage(config, allow_shared_fs=False)
    assert open_storage(config).url == str(tmp_path)


def test_default_root(tmp_path: Path) -> None:
    """None means the default directory, and without one there is an error."""
    assert open_storage(None, default_root=tmp_path).url == str(tmp_path)
    with pytest.raises(errors.StorageConfigError):
        open_storage(None)


def test_type_is_needed() -> None:
    """C-39: no type and a type that is no text are ValueErrors, an unknown type is a TypeError."""
    for config in ({}, {"type": 4}, {"type": None}):
        with pytest.raises(ValueError, match="type"):
            open_storage(config)
    with pytest.raises(TypeError, match="unknown"):
        open_storage({"type": "unknown"})


def test_shared_fs_root(tmp_path: Path) -> None:
    """C-40: the root is inside host_path, or inside the container's path where there is one."""
    config = {"type": "shared_fs", "host_path": "/h", "storage_path": "s"}
    assert open_storage(config, container_root=None).url == "/h/s"
    assert open_storage(config, container_root=tmp_path / "absent").url == "/h/s"
    assert open_storage(config, container_root=tmp_path).url == str(tmp_path / "s")
    del config["storage_path"]
    assert open_storage(config, container_root=None).url == "/h"
    assert open_storage(config, container_root=tmp_path).url == str(tmp_path)


@pytest.mark.parametrize("key", ["checkpoint_path", "tensorboard_path"])
def test_legacy_storage_paths(key: str) -> None:
    """The older names of storage_path are understood where it is missing."""
    config = {"type": "shared_fs", "host_path": "/h", key: "old"}
    assert open_storage(config, container_root=None).url == "/h/old"
    assert open_storage({**config, "storage_path": "new"}, container_root=None).url == "/h/new"


@pytest.mark.parametrize("path", ["../x", "/other", "a/../../x", "../h2", "/h2", "/h/../x"])
def test_storage_path_outside(path: str) -> None:
    """C-41: a storage_path outside host_path is an error, also one whose name merely starts like it."""
    with pytest.raises(errors.StorageConfigError, match="storage_path"):
        open_storage({"type": "shared_fs", "host_path": "/h", "storage_path": path})


@pytest.mark.parametrize("path", ["/h/s", "s", "./s", "x/../s", "s/"])
def test_storage_path_inside(path: str) -> None:
    """C-41: `/h/s` in `/h` is accepted."""
    config = {"type": "shared_fs", "host_path": "/h", "storage_path": path}
    assert open_storage(config, container_root=None).url == "/h/s"


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"type": "shared_fs", "host_path": "/h", "hots": 1}, "hots"),
        ({"type": "directory", "container_path": "/h", "host_path": "/x"}, "host_path"),
        ({"type": "s3", "bucket": "b", "buckte": None}, "buckte"),
        ({"type": "shared_fs"}, "host_path"),
        ({"type": "shared_fs", "host_path": "rel"}, "host_path"),
        ({"type": "shared_fs", "host_path": 3}, "host_path"),
        ({"type": "directory"}, "container_path"),
        ({"type": "s3"}, "bucket"),
        ({"type": "s3", "bucket": ""}, "bucket"),
        ({"type": "s3", "bucket": "b", "prefix": "a/../b"}, "prefix"),
        ({"type": "gcs", "bucket": "b", "prefix": 5}, "prefix"),
        ({"type": "azure", "connection_string": "x"}, "container"),
        ({"type": "azure", "container": "c"}, "connection_string"),
    ],
)
def test_keys(config: dict[str, object], key: str) -> None:
    """C-44: an unknown, missing or unusable key is an error that names it, and the type."""
    with pytest.raises(errors.StorageConfigError, match=rf"{config['type']}.*{key}|{key}"):
        open_storage(config)


@pytest.mark.parametrize(
    ("config", "url"),
    [
        ({"type": "directory", "container_path": "/c"}, "/c"),
        ({"type": "s3", "bucket": "b", "prefix": "/a//b/", "access_key": None}, "s3://b/a/b"),
        ({"type": "gcs", "bucket": "b", "temp_dir": "/t"}, "gs://b"),
        ({"type": "azure", "container": "c/in", "account_url": "https://x"}, "abfs://c/in"),
        ({"type": "azure", "container": "c", "prefix": "p", "connection_string": "x"}, "abfs://c/p"),
        (
            {"type": "s3", "bucket": "b", "save_trial_best": 1, "save_trial_latest": 2, "save_experiment_best": 0},
            "s3://b",
        ),
    ],
)
def test_roots(config: dict[str, object], url: str) -> None:
    """Every type opens without touching the network; retention settings are the platform's business."""
    assert open_storage(config).url == url


@pytest.mark.parametrize(
    ("spec", "url"), [("s3://b", "s3://b"), ("s3://b/a//c/", "s3://b/a/c"), ("gs://b/%2e%2e/x", "gs://b/%2e%2e/x")]
)
def test_bucket_urls(spec: str, url: str) -> None:
    """C-04: bucket and prefix come from the URL, and percent signs are literal."""
    assert open_storage(spec).url == url


@pytest.mark.parametrize(
    ("prefix", "normal"), [(None, ""), ("", ""), ("a/b/", "a/b"), ("/a//b", "a/b"), ("./a/.", "a"), ("/", "")]
)
def test_prefixes(prefix: str | None, normal: str) -> None:
    """Slashes at the ends and doubled ones do not matter."""
    assert normal_prefix(prefix) == normal


def test_secrets_are_not_shown() -> None:
    """Neither the name of a storage nor its errors show a key."""
    storage = open_storage({"type": "s3", "bucket": "b", "access_key": "AKIA", "secret_key": "hunter2"})
    assert "hunter2" not in repr(storage) + storage.url
    with pytest.raises(errors.StorageConfigError) as caught:
        open_storage({"type": "s3", "bucket": "b", "secret_key": "hunter2", "oops": 1})
    assert "hunter2" not in str(caught.value)


def test_what_was_recorded_opens_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 11, point 4: a redacted storage is the same place, opened with what the driver finds in the environment."""
    stars = "********"
    recorded = {
        "type": "s3",
        "bucket": "b",
        "access_key": stars,
        "secret_key": stars,
        "endpoint_url": f"http://{stars}@h",
    }
    opened: Any = open_storage(recorded)
    assert opened.driver._values == {"bucket": "b", "endpoint_url": "http://h"}
    azure = {"type": "azure", "container": "c", "connection_string": stars}
    with pytest.raises(errors.StorageConfigError, match="set AZURE_STORAGE_CONNECTION_STRING"):
        open_storage(azure)
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=a")
    opened = open_storage(azure)
    assert opened.driver._values["connection_string"] == "AccountName=a"
