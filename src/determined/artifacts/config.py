"""From what a user writes as `checkpoint_storage` to a `Storage`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from determined._redact import MASK
from determined.artifacts.directory import DirectoryStorage
from determined.artifacts.manifest import check_path
from determined.artifacts.storage import Storage
from determined.errors import StorageConfigError, UnknownStorageType

CONTAINER_ROOT = Path("/determined_shared_fs")
BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SCHEMES = {"s3": "s3", "gs": "gcs", "memory": "memory"}
AZURE_VARIABLE = "AZURE_STORAGE_CONNECTION_STRING"
RETENTION = {"save_experiment_best", "save_trial_best", "save_trial_latest"}  # the platform's business, not ours

# type: (required keys, optional keys)
KEYS: dict[str, tuple[set[str], set[str]]] = {
    "shared_fs": (
        {"host_path"},
        {"storage_path", "propagation", "container_path", "checkpoint_path", "tensorboard_path"},
    ),
    "directory": ({"container_path"}, set()),
    "s3": ({"bucket"}, {"access_key", "secret_key", "endpoint_url", "prefix", "temp_dir"}),
    "gcs": ({"bucket"}, {"prefix", "temp_dir"}),
    "azure": ({"container"}, {"connection_string", "account_url", "credential", "prefix", "temp_dir"}),
}


def open_storage(
    spec: str | Mapping[str, Any] | os.PathLike[str] | None,
    *,
    default_root: Path | None = None,
    allow_shared_fs: bool = True,
    container_root: Path | None = CONTAINER_ROOT,
) -> Storage:
    """Open the place that `checkpoint_storage` names. Nothing is read or written yet.

    Args:
        spec: A path, `file:///path`, `s3://bucket/prefix` or `gs://bucket/prefix`; a dict as in an experiment's
            `checkpoint_storage`; or None.
        default_root: The directory to use for None, and for a dict that says only how many checkpoints to keep.
        allow_shared_fs: Whether a dict may have `type: shared_fs`, which only makes sense in an experiment's config.
        container_root: Where containers have the shared file system. It stands for `host_path` where it exists.

    Example::

        open_storage("s3://models/resnet").list()
    """
    if spec is None or (isinstance(spec, Mapping) and spec and spec.keys() <= RETENTION):
        if default_root is None:
            raise StorageConfigError("No checkpoint_storage was given. Pass for example a directory.")
        return DirectoryStorage(Path(default_root).absolute())
    if isinstance(spec, str):
        return from_string(spec)
    if isinstance(spec, os.PathLike):
        return _directory(spec)
    if isinstance(spec, Mapping):
        return from_config(spec, allow_shared_fs=allow_shared_fs, container_root=container_root)
    raise UnknownStorageType(
        f"checkpoint_storage is {spec!r}, a {type(spec).__name__}. Pass a path, a URL such as 's3://bucket/prefix', "
        "or a dict with a 'type'."
    )


def from_string(text: str) -> Storage:
    """Open a path or URL. Percent signs are taken literally."""
    try:
        url = urlparse(text)
    except ValueError as e:
        raise StorageConfigError(f"checkpoint_storage {text!r} cannot be understood: {e}.") from e
    if not text or "\0" in text:
        raise StorageConfigError(f"checkpoint_storage is {text!r}. Pass a path, or a URL such as 's3://bucket/prefix'.")
    if any(mark in text for mark in "?#;"):
        raise StorageConfigError(
            f"checkpoint_storage {text!r} has a query, parameters or a fragment, which mean nothing here. "
            "If it is a path, pass it as pathlib.Path."
        )
    if url.scheme in ("", "file"):
        if url.netloc:
            raise StorageConfigError(
                f"checkpoint_storage {text!r} names the host {url.netloc!r}. Write three slashes: 'file:///path'."
            )
        if not url.path or (url.scheme and not url.path.startswith("/")):
            raise StorageConfigError(f"checkpoint_storage {text!r} has no absolute path. Write 'file:///path'.")
        return _directory(url.path)
    if url.scheme not in SCHEMES:
        raise StorageConfigError(
            f"checkpoint_storage {text!r} has the unknown scheme {url.scheme!r}. "
            "Use a path, file:///path, s3://bucket/prefix or gs://bucket/prefix."
        )
    return _bucket(SCHEMES[url.scheme], {"bucket": url.netloc, "prefix": url.path})


def from_config(
    config: Mapping[str, Any], *, allow_shared_fs: bool = True, container_root: Path | None = CONTAINER_ROOT
) -> Storage:
    """Open what an experiment's `checkpoint_storage` describes."""
    kind = _kind(config)
    if kind == "shared_fs" and not allow_shared_fs:
        raise StorageConfigError(
            "checkpoint_storage has type 'shared_fs', which works in an experiment's configuration only. "
            "Pass the path itself, or {'type': 'directory', 'container_path': '/path'}."
        )
    values = _values(kind, config)
    if kind == "shared_fs":
        return DirectoryStorage(_shared_fs_root(values, container_root))
    if kind == "directory":
        return _directory(values["container_path"])
    return _bucket(kind, values)


def _directory(path: str | os.PathLike[str]) -> Storage:
    try:
        return DirectoryStorage(Path(path).expanduser().absolute())
    except RuntimeError as e:
        raise StorageConfigError(f"checkpoint_storage {os.fspath(path)!r} names nobody's home directory: {e}") from e


def _kind(config: Mapping[str, Any]) -> str:
    kind = config.get("type")
    if kind is None:
        raise StorageConfigError(f"checkpoint_storage has no 'type'. Use one of {', '.join(KEYS)}.")
    if not isinstance(kind, str):
        raise StorageConfigError(f"checkpoint_storage.type is {kind!r}, not a str. Use one of {', '.join(KEYS)}.")
    if kind not in KEYS:
        raise UnknownStorageType(f"checkpoint_storage.type is {kind!r}. Use one of {', '.join(KEYS)}.")
    return kind


def _values(kind: str, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys that have a value, all of them known and all of them text.

    What was recorded, and redacted, has none: whoever opens it brings the keys, as the driver finds them.
    """
    required, optional = KEYS[kind]
    values = {
        key: value.replace(f"{MASK}@", "") if isinstance(value, str) else value
        for key, value in config.items()
        if value not in (None, MASK) and key not in RETENTION | {"type"}
    }
    if unknown := sorted(str(key) for key in config.keys() - required - optional - RETENTION - {"type"}):
        raise StorageConfigError(
            f"checkpoint_storage of type {kind!r} has the unknown key {', '.join(map(repr, unknown))}. "
            f"It may have {', '.join(sorted(required | optional))}."
        )
    if missing := sorted(key for key in required if not values.get(key)):
        raise StorageConfigError(f"checkpoint_storage of type {kind!r} needs {', '.join(map(repr, missing))}.")
    for key, value in values.items():
        if not isinstance(value, str) or "\0" in value:
            raise StorageConfigError(f"checkpoint_storage.{key} is a {type(value).__name__} and has to be plain text.")
    return values


def _shared_fs_root(values: Mapping[str, str], container_root: Path | None) -> Path:
    host = Path(os.path.normpath(values["host_path"]))
    if not host.is_absolute():
        raise StorageConfigError(f"checkpoint_storage.host_path is {values['host_path']!r} and has to be absolute.")
    inner = values.get("storage_path") or values.get("checkpoint_path") or values.get("tensorboard_path") or ""
    full = Path(os.path.normpath(host / inner))
    if not full.is_relative_to(host):  # by component: /host2 is not inside /host
        raise StorageConfigError(
            f"checkpoint_storage.storage_path is {inner!r}, which is not inside host_path {str(host)!r}. "
            "Use a relative path without '..'."
        )
    if container_root is not None and container_root.is_dir():
        return container_root / full.relative_to(host)
    return full


def _bucket(kind: str, values: Mapping[str, str]) -> Storage:
    from determined.artifacts.bucket import BucketStorage  # not needed for directories
    from determined.artifacts.driver import Driver

    container, _, inner = values.get("bucket", values.get("container", "")).partition("/")
    if not BUCKET.fullmatch(container):
        raise StorageConfigError(
            f"checkpoint_storage names the bucket {container!r}, which cannot be one. Use for example 's3://bucket/prefix'."
        )
    if kind == "azure" and not (values.get("connection_string") or values.get("account_url")):
        if not (found := os.environ.get(AZURE_VARIABLE)):
            raise StorageConfigError(
                "checkpoint_storage of type 'azure' needs 'connection_string' or 'account_url'. "
                f"A connection string is never recorded: to read what was saved with one, set {AZURE_VARIABLE}."
            )
        values = {**values, "connection_string": found}
    prefix = "/".join(part for part in (normal_prefix(inner), normal_prefix(values.get("prefix"))) if part)
    temp_dir = values.get("temp_dir")
    driver = Driver(kind, container, values)
    return BucketStorage(driver, prefix, temp_dir=Path(temp_dir).absolute() if temp_dir else None)


def normal_prefix(prefix: str | None) -> str:
    """`/a//b/` is `a/b`. A prefix is checked like a path, so that nothing in it can lead elsewhere."""
    parts = [part for part in (prefix or "").split("/") if part not in ("", ".")]
    if ".." in parts:
        raise StorageConfigError(f"checkpoint_storage has the prefix {prefix!r}. Write it without '..'.")
    return check_path("/".join(parts)) if parts else ""
