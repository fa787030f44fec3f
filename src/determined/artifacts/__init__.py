"""Bytes of checkpoints: publish, verify, fetch. One interface over a local directory and fsspec's file systems."""

from determined.artifacts.config import open_storage
from determined.artifacts.directory import verify_in_place
from determined.artifacts.manifest import FileEntry, Manifest
from determined.artifacts.paths import Selector
from determined.artifacts.storage import Draft, SharedFile, Storage
from determined.artifacts.tree import list_tree

__all__ = [
    "Draft",
    "FileEntry",
    "Manifest",
    "Selector",
    "SharedFile",
    "Storage",
    "list_tree",
    "open_storage",
    "verify_in_place",
]
