"""Objects in a bucket through fsspec: the few calls we make, and what their errors mean. Knows nothing of checkpoints.

Every name is passed literally. fsspec's calls that take several paths (`rm`, `get`, `put`) expand `*` and `[` in them,
so none of those is used here.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlparse

from determined.artifacts import tree
from determined.artifacts.manifest import FileEntry
from determined.errors import NoDirectStorageAccess

T = TypeVar("T")

PROTOCOLS = {"s3": "s3", "gcs": "gs", "azure": "abfs", "memory": "memory"}
DELETES_PER_CALL = 1000  # S3's limit
CREDENTIALS = {
    "s3": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or run `aws configure`, and check what the key may do",
    "gcs": "Run `gcloud auth application-default login`, and check what that account may do",
    "azure": "Check connection_string, or account_url and credential, in checkpoint_storage, "
    "or set AZURE_STORAGE_CONNECTION_STRING, and check what the key may do",
    "memory": "",
}
DENIALS = {  # by name: the packages these come from are optional
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
    "DefaultCredentialsError",
    "RefreshError",
    "ClientAuthenticationError",
}


@dataclass(frozen=True)
class Found:
    """One object of a listing: its size, and when it was written (seconds since the epoch; 0 if unknown)."""

    size: int
    written: float


class Driver:
    """One bucket.

    Args:
        kind: `s3`, `gcs`, `azure` or, for tests, `memory`.
        bucket: Its name. Keys are relative to it.
        values: Credentials and endpoint, as in `checkpoint_storage`.
    """

    def __init__(self, kind: str, bucket: str, values: Mapping[str, str]) -> None:
        self.kind = kind
        self.bucket = bucket
        self.url = f"{PROTOCOLS[kind]}://{bucket}"
        self._values = dict(values)
        self._opened: tuple[int, Any] | None = None  # with the process it belongs to: fsspec does not survive a fork

    def put_file(self, source: Path, key: str) -> None:
        self._call(lambda fs: fs.put_file(str(source), self._path(key)))

    def put_bytes(self, key: str, data: bytes) -> None:
        self._call(lambda fs: fs.pipe_file(self._path(key), data))

    def put_directory(self, key: str) -> None:
        """Leave an empty object whose name ends in `/`, where the backend can have one. Manifests do not need it."""
        if self.kind == "s3":
            with contextlib.suppress(OSError):  # some stand-ins for S3 refuse such names
                self._call(lambda fs: fs.call_s3("put_object", Bucket=self.bucket, Key=key, Body=b""))

    def get_file(self, key: str, target: Path) -> None:
        self._call(lambda fs: fs.get_file(self._path(key), str(target)))

    def get_bytes(self, key: str) -> bytes:
        return self._call(lambda fs: bytes(fs.cat_file(self._path(key))))

    def measure(self, key: str) -> FileEntry:
        def read(fs: Any) -> FileEntry:
            with fs.open(self._path(key), "rb", block_size=8 * tree.CHUNK) as file:
                return tree.measure_stream(file)

        return self._call(read)

    def find(self, prefix: str) -> dict[str, Found]:
        """Return all objects whose key starts with `prefix`, which ends in `/`; directories that are objects too."""

        def find(fs: Any) -> dict[str, Found]:
            fs.invalidate_cache()
            listed = fs.find(self._path(prefix), detail=True)
            found = {}
            for name, info in listed.items():
                key = self._key(name)
                if key.startswith(prefix):
                    found[key] = Found(int(info.get("size") or 0), _written(info))
            return found

        return self._call(find)

    def children(self, prefix: str) -> list[str]:
        """Return the names directly under `prefix`, which ends in `/` or is empty; directories end in `/`."""

        def children(fs: Any) -> list[str]:
            fs.invalidate_cache()
            try:
                listed = fs.ls(self._path(prefix), detail=True)
            except FileNotFoundError:
                return []
            names = set()
            for info in listed:
                name = self._key(info["name"]).removeprefix(prefix).rstrip("/")
                names.add(name + "/" if info["type"] == "directory" else name)
            return sorted(names - {"", "/"})

        return self._call(children)

    def remove(self, keys: Sequence[str]) -> None:
        """Remove these objects; those that are gone already are no error."""
        if self.kind == "s3":
            for start in range(0, len(keys), DELETES_PER_CALL):
                self._remove_from_s3(keys[start : start + DELETES_PER_CALL])
            return
        for key in keys:
            with contextlib.suppress(FileNotFoundError):
                self._remove_one(key)

    def _remove_one(self, key: str) -> None:
        self._call(lambda fs: fs.rm_file(self._path(key)))

    def _remove_from_s3(self, keys: Sequence[str]) -> None:
        # fsspec's own call cannot name keys that end in "/", and does not look at the errors in the answer.
        wanted = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        answer = self._call(lambda fs: fs.call_s3("delete_objects", Bucket=self.bucket, Delete=wanted))
        for error in answer.get("Errors", []):
            if error.get("Code") == "AccessDenied":
                raise self._denied(PermissionError(error.get("Message", "")))
            raise OSError(f"{self.url} could not delete {error.get('Key')!r}: {error.get('Message')}.")

    def _path(self, key: str) -> str:
        return f"{'/' if self.kind == 'memory' else ''}{self.bucket}/{key}"

    def _key(self, path: str) -> str:
        return path.lstrip("/").removeprefix(f"{self.bucket}/")

    def _call(self, action: Callable[[Any], T]) -> T:
        with random_state_kept():
            try:
                return self._translated(action)
            except NoDirectStorageAccess:
                self._opened = None  # credentials on disk may have been renewed: read them again, once
                return self._translated(action)

    def _translated(self, action: Callable[[Any], T]) -> T:
        try:
            return action(self._filesystem())
        except Exception as e:
            if _is_denial(e):
                raise self._denied(e) from e
            if isinstance(e, (OSError, ImportError)):
                raise
            raise OSError(f"{self.url} could not be used: {type(e).__name__}: {e}") from e

    def _denied(self, cause: Exception) -> NoDirectStorageAccess:
        return NoDirectStorageAccess(
            f"{self.url} refused us: {cause or type(cause).__name__}. {CREDENTIALS[self.kind]}."
        )

    def _filesystem(self) -> Any:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), self._open())
        return self._opened[1]

    def _open(self) -> Any:
        import fsspec

        options = _options(self.kind, self._values)
        if self.kind != "memory":
            options |= {"use_listings_cache": False, "skip_instance_cache": True}
        try:
            return fsspec.filesystem(PROTOCOLS[self.kind], **options)
        except ImportError as e:
            raise ImportError(f"{self.url} needs a driver. Install it with: pip install 'resolute[{self.kind}]'") from e


def _options(kind: str, values: Mapping[str, str]) -> dict[str, Any]:
    """Return what fsspec calls the things that `checkpoint_storage` names."""
    if kind == "s3":
        named = {"access_key": "key", "secret_key": "secret", "endpoint_url": "endpoint_url"}
        return {theirs: values[ours] for ours, theirs in named.items() if values.get(ours)}
    if kind == "azure":
        if values.get("connection_string"):
            return {"connection_string": values["connection_string"]}
        host = urlparse(values["account_url"]).netloc
        options = {"account_name": host.partition(".")[0], "account_host": host}
        return options | ({"credential": values["credential"]} if values.get("credential") else {})
    return {}


def _is_denial(error: Exception) -> bool:
    if isinstance(error, PermissionError):
        return error.filename is None  # with a name it is about a file of this machine
    if type(error).__name__ in DENIALS:
        return True
    status = getattr(error, "code", None) or getattr(error, "status_code", None)
    return status in (401, 403)


def _written(info: Mapping[str, Any]) -> float:
    for key in ("LastModified", "last_modified", "updated", "mtime", "created"):
        value = info.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, (int, float)):
            return float(value)
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    return 0.0


@contextlib.contextmanager
def random_state_kept() -> Iterator[None]:
    """Drivers draw from Python's `random` when they retry; training must not notice."""
    if threading.current_thread() is not threading.main_thread():
        # Setting the state back would undo what training draws meanwhile, which is worse than a rare extra draw.
        yield
        return
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
