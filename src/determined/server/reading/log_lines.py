"""Lines of a log as the page shows them: colours stay, other control sequences go; which ones a log policy matched."""

from __future__ import annotations

import re
from collections.abc import Iterable

from determined._wording import visible
from determined.server.answers.logs import LineAnswer
from determined.store.control.log_policies import PolicyHit
from determined.store.logs import without_prefix
from determined.store.messages import LogEntry

# Titles and links (OSC and its like, up to their end), then what moves or clears (CSI but for colours), then the rest.
_CONTROL = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[(?![0-9;:]*m)[0-?]*[ -/]*[@-~]?|\x1b(?!\[)[ -/]*[0-~]?"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def shown(text: str) -> str:
    """Return a line with its colours and without what else a terminal would obey; what is left unseen is escaped.

    Example::

        assert shown("\\x1b]0;title\\x07\\x1b[31mred\\x1b[2K") == "\\x1b[31mred\\x1b[0m"
    """
    if "\x1b" in text:
        text = _CONTROL.sub("", text)
    return visible(text.rstrip("\r\n").replace("\n", "\\n"), lines=True, colours=True)


def plain(text: str) -> str:
    """Return a line as a file holds it: without colours, too."""
    return _COLOUR.sub("", shown(text))


class Flags:
    """Which lines matched a log policy."""

    def __init__(self, hits: Iterable[PolicyHit], longest: int = 500) -> None:
        self._whole = {(hit.task_id, without_prefix(hit.line)) for hit in hits if len(hit.line) < longest}
        self._begun = [(hit.task_id, without_prefix(hit.line)) for hit in hits if len(hit.line) >= longest]

    def is_hit(self, row: LogEntry) -> bool:
        """Return whether a policy matched this line; long ones were recorded by their beginning."""
        if (row.task_id, row.text) in self._whole:
            return True
        return any(task == row.task_id and row.text.startswith(begin) for task, begin in self._begun)


def answers(found: Iterable[LogEntry], attempts: dict[str, int], flags: Flags) -> list[LineAnswer]:
    """Return lines as JSON has them; they were checked when they were stored."""
    return [
        LineAnswer.model_construct(
            id=row.id,
            time=row.timestamp,
            level=row.level,
            rank=row.rank,
            node=row.node,
            source=row.source,
            stream=row.stdtype,
            attempt=attempts.get(row.allocation_id or ""),
            text=shown(row.text),
            is_policy=flags.is_hit(row),
        )
        for row in found
    ]
