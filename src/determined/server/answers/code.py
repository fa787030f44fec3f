"""The code snapshot of an experiment."""

from __future__ import annotations

from determined.server.answers.checkpoints import FileAnswer
from determined.server.answers.common import Answer


class CodeTree(Answer):
    """All files of a snapshot, by path."""

    files: list[FileAnswer]
    said: str  # why there are none, if so


class CodeFile(Answer):
    """The text of one file."""

    path: str
    size: int
    text: str
    is_whole: bool  # False: only the first 1 MiB
    is_text: bool
