"""The contract of managers: what older scripts copy event files with."""

from __future__ import annotations

import abc
import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from determined.artifacts.bucket import BucketStorage
from determined.artifacts.config import CONTAINER_ROOT, KEYS, open_storage
from determined.artifacts.directory import DirectoryStorage
from determined.core.recording.tensorboard import EventUploads
from determined.errors import UnknownStorageType


class TensorboardManager(EventUploads):
    """Uploads files of one directory that changed since they were last uploaded.

    Trouble with an upload is a warning, never an exception: the file is tried again with the next sync.

    Args:
        base_path: The directory that event files are written to.
        sync_path: Where they are kept, relative to the storage.
        async_upload: Upload in a thread of its own, between `start()` and `close()`.
        sync_on_close: Make a last sync in `close()`. One that was asked for and put off is made in any case.

    Example::

        with build("cluster", "1", "7", "/data/checkpoints") as manager:
            manager.sync()
    """

    def __init__(
        self,
        base_path: os.PathLike[str] | str,
        sync_path: os.PathLike[str] | str,
        async_upload: bool = True,
        sync_on_close: bool = True,
    ) -> None:
        super().__init__(base_path, async_upload, sync_on_close)
        self.sync_path = PurePosixPath(sync_path)

    @abc.abstractmethod
    def delete(self) -> None:
        """Remove everything under the sync path."""

    def __enter__(self) -> TensorboardManager:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def get_base_path(checkpoint_config: Mapping[str, Any]) -> Path:
    """Return the directory on this machine that this process writes its event files to. Ranks do not share one."""
    rank = os.environ.get("RANK") or os.environ.get("HOROVOD_RANK") or "0"
    name = f"tensorboard-{os.environ.get('DET_ALLOCATION_ID', '')}-{rank}"
    return Path(checkpoint_config.get("base_path") or "/tmp") / name


def get_sync_path(cluster_id: str, experiment_id: str, trial_id: str) -> PurePosixPath:
    """Return where a trial's files are kept, relative to the checkpoint storage."""
    return get_experiment_sync_path(cluster_id, experiment_id) / "trial" / str(trial_id)


def get_experiment_sync_path(cluster_id: str, experiment_id: str) -> PurePosixPath:
    """Return where an experiment's files are kept, relative to the checkpoint storage."""
    return PurePosixPath(cluster_id) / "tensorboard" / "experiment" / str(experiment_id)


class SharedFSTensorboardManager(TensorboardManager):
    """Keeps event files in a directory.

    Args:
        storage_path: The directory; `sync_path` is below it.
        arguments: `base_path`, `sync_path`, `async_upload` and `sync_on_close` of `TensorboardManager`.
    """

    def __init__(self, storage_path: os.PathLike[str] | str, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._storage = DirectoryStorage(Path(storage_path))
        self.target = Path(storage_path) / self.sync_path

    def upload(self, source: Path, name: PurePosixPath) -> None:
        self._storage.keep(source, str(self.sync_path / name))

    def delete(self) -> None:
        shutil.rmtree(self.target, ignore_errors=not self.target.exists())


class _BucketManager(TensorboardManager):
    """Keeps event files in a bucket that `checkpoint_storage` describes."""

    def __init__(self, storage: Mapping[str, Any] | str, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        bucket = open_storage(storage)
        assert isinstance(bucket, BucketStorage), storage
        self._bucket = bucket

    def upload(self, source: Path, name: PurePosixPath) -> None:
        self._bucket.keep(source, str(self.sync_path / name))

    def delete(self) -> None:
        prefix = PurePosixPath(self._bucket.url.removeprefix(self._bucket.driver.url).strip("/")) / self.sync_path
        self._bucket.driver.remove(sorted(self._bucket.driver.find(f"{prefix}/")))


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
