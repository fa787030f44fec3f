"""Bytes of checkpoints: publish, verify, fetch. One interface over a local directory and fsspec's file systems."""

from determined.artifacts.config import open_storage
from determined.artifacts.directory import verify_in_place
from determined.artifacts.manifest import FileEntry, Manifest
from determined.artifacts.paths import Selector
from determined.artifacts.storage import Draft, Storage
from determined.artifacts.tree import list_tree

__all__ = ["open_storage", "Storage", "Draft", "Manifest", "FileEntry", "Selector", "list_tree", "verify_in_place"]
