"""Bytes of checkpoints: publish, verify, fetch. One interface over a local directory and fsspec's file systems."""

from determined.artifacts import documents
from determined.artifacts.config import open_storage
from determined.artifacts.directory import verify_in_place
from determined.artifacts.documents import CARRIED
from determined.artifacts.manifest import FileEntry, Manifest, Selector
from determined.artifacts.storage import Draft, Storage
from determined.artifacts.tree import SharedFile, list_tree, open_plain, read_plain

__all__ = [
    "CARRIED",
    "Draft",
    "FileEntry",
    "Manifest",
    "Selector",
    "SharedFile",
    "Storage",
    "documents",
    "list_tree",
    "open_plain",
    "open_storage",
    "read_plain",
    "verify_in_place",
]
