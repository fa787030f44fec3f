"""Where event files are kept: beside the checkpoints, in a directory or a bucket."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from determined.artifacts.bucket import BucketStorage
from determined.artifacts.config import CONTAINER_ROOT, KEYS, open_storage
from determined.artifacts.directory import DirectoryStorage
from determined.errors import UnknownStorageType
from determined.tensorboard._manager import TensorboardManager
from determined.tensorboard._paths import get_base_path, get_experiment_sync_path, get_sync_path


class SharedFSTensorboardManager(TensorboardManager):
    """Keeps event files in a directory.

    Args:
        storage_path: The directory; `sync_path` is below it.
        base_path: As for `TensorboardManager`, and so are the others.
    """

    def __init__(
        self,
        storage_path: os.PathLike[str] | str,
        base_path: os.PathLike[str] | str,
        sync_path: os.PathLike[str] | str,
        async_upload: bool = True,
        sync_on_close: bool = True,
    ) -> None:
        super().__init__(base_path, sync_path, async_upload, sync_on_close)
        self.target = Path(storage_path) / self.sync_path

    def upload(self, source: Path, name: PurePosixPath) -> None:
        target = self.target / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads whatever is named like an event file, so an unfinished copy has another name.
        partial = target.parent / f".{secrets.token_hex(8)}.part"
        try:
            shutil.copyfile(source, partial)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def delete(self) -> None:
        shutil.rmtree(self.target, ignore_errors=not self.target.exists())


class _BucketManager(TensorboardManager):
    """Keeps event files in a bucket that `checkpoint_storage` describes."""

    def __init__(
        self,
        storage: Mapping[str, Any] | str,
        base_path: os.PathLike[str] | str,
        sync_path: os.PathLike[str] | str,
        async_upload: bool = True,
        sync_on_close: bool = True,
    ) -> None:
        super().__init__(base_path, sync_path, async_upload, sync_on_close)
        bucket = open_storage(storage)
        assert isinstance(bucket, BucketStorage), storage
        self._driver = bucket.driver
        self._prefix = PurePosixPath(bucket.url.removeprefix(bucket.driver.url).strip("/")) / self.sync_path

    def upload(self, source: Path, name: PurePosixPath) -> None:
        self._driver.put_file(source, str(self._prefix / name))

    def delete(self) -> None:
        self._driver.remove(sorted(self._driver.find(f"{self._prefix}/")))


class S3TensorboardManager(_BucketManager):
    """Keeps event files in S3, or in a service with the same API.

    Args:
        bucket: Its name.
        access_key: Taken from the environment if None; so are the next two.
        secret_key: See `access_key`.
        endpoint_url: See `access_key`.
        prefix: Where in the bucket.
        arguments: `base_path`, `sync_path`, `async_upload` and `sync_on_close` of `TensorboardManager`.
    """

    def __init__(
        self,
        bucket: str,
        access_key: str | None = None,
        secret_key: str | None = None,
        endpoint_url: str | None = None,
        prefix: str | None = None,
        **arguments: Any,
    ) -> None:
        keys = {"access_key": access_key, "secret_key": secret_key, "endpoint_url": endpoint_url, "prefix": prefix}
        super().__init__({"type": "s3", "bucket": bucket, **keys}, **arguments)


class GCSTensorboardManager(_BucketManager):
    """Keeps event files in Google Cloud Storage.

    Args:
        bucket: Its name.
        prefix: Where in the bucket.
        arguments: `base_path`, `sync_path`, `async_upload` and `sync_on_close` of `TensorboardManager`.
    """

    def __init__(self, bucket: str, prefix: str | None = None, **arguments: Any) -> None:
        super().__init__({"type": "gcs", "bucket": bucket, "prefix": prefix}, **arguments)


class AzureTensorboardManager(_BucketManager):
    """Keeps event files in Azure Blob Storage.

    Args:
        container: Its name.
        connection_string: How to reach it; or
        account_url: the account, with
        credential: a key or token.
        arguments: `base_path`, `sync_path`, `async_upload` and `sync_on_close` of `TensorboardManager`.
    """

    def __init__(
        self,
        container: str,
        connection_string: str | None = None,
        account_url: str | None = None,
        credential: str | None = None,
        **arguments: Any,
    ) -> None:
        keys = {"connection_string": connection_string, "account_url": account_url, "credential": credential}
        super().__init__({"type": "azure", "container": container, **keys}, **arguments)


def build(
    cluster_id: str,
    experiment_id: str,
    trial_id: str | None,
    checkpoint_config: Mapping[str, Any] | str,
    container_path: str | None = None,
    async_upload: bool = True,
    sync_on_close: bool = True,
) -> TensorboardManager:
    """Return the manager that keeps a trial's event files beside its checkpoints.

    Args:
        cluster_id: First part of the path they are kept under.
        experiment_id: Second part.
        trial_id: Third part; None for files of the whole experiment.
        checkpoint_config: The experiment's `checkpoint_storage`, or its path or URL.
        container_path: Where containers have the shared file system.
        async_upload: Upload in a thread of its own.
        sync_on_close: Make a last sync when closed.

    Raises:
        TypeError: The config has no known `type`.
        StorageConfigError: The rest of it cannot be understood.
    """
    if isinstance(checkpoint_config, Mapping):
        kind = checkpoint_config.get("type")
        if not isinstance(kind, str) or kind not in KEYS:
            raise UnknownStorageType(f"checkpoint_storage.type is {kind!r}. Use one of {', '.join(KEYS)}.")
        base_path = get_base_path(checkpoint_config)
        checkpoint_config = {key: value for key, value in checkpoint_config.items() if key != "base_path"}
    elif isinstance(checkpoint_config, str):
        base_path = get_base_path({})
    else:
        raise UnknownStorageType(f"checkpoint_storage is a {type(checkpoint_config).__name__}. Pass a dict or a str.")
    if trial_id is None:
        sync_path = get_experiment_sync_path(cluster_id, experiment_id)
    else:
        sync_path = get_sync_path(cluster_id, experiment_id, trial_id)
    root = Path(container_path) if container_path else CONTAINER_ROOT
    storage = open_storage(checkpoint_config, container_root=root)
    if isinstance(storage, DirectoryStorage):
        return SharedFSTensorboardManager(storage.root, base_path, sync_path, async_upload, sync_on_close)
    return _BucketManager(checkpoint_config, base_path, sync_path, async_upload, sync_on_close)
