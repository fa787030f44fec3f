"""Log policies: which lines of a trial match, and what a match is recorded as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from determined.experiment.log_pattern import compiled
from determined.store.attempts import Attempt
from determined.store.control import log_policies

if TYPE_CHECKING:
    from sqlalchemy import Connection

CANCEL_RETRIES = "cancel_retries"
LONGEST_QUOTE = 500


@dataclass(frozen=True)
class Match:
    """A line that matched a policy."""

    pattern: str
    line: str
    name: str | None
    action: str | None

    def sentence(self) -> str:
        """Return what people read about it."""
        return describe(self.name, self.pattern, self.line)


@dataclass
class Policies:
    """The policies of one attempt.

    Attributes:
        entries: `log_policies` of the config.
    """

    entries: Sequence[Mapping[str, Any]]
    _seen: set[str] = field(default_factory=set)
    _label: str | None = None

    def match(self, line: str) -> list[Match]:
        """Return what is new about this line: first matches of a pattern, and those that change the trial's label."""
        found = []
        for entry in self.entries:
            pattern, name = entry.get("pattern"), entry.get("name")
            if pattern is None or (pattern in self._seen and name in (None, self._label)):
                continue
            if compiled(_without_leading_any(pattern)).search(line):
                self._seen.add(pattern)
                self._label = name or self._label
                found.append(Match(pattern, line, name, entry.get("action")))
        return found

    def forget(self, matches: Sequence[Match]) -> None:
        """Take back matches that could not be recorded."""
        self._seen.difference_update(match.pattern for match in matches)
        if matches:
            self._label = None


def record(conn: Connection, attempt: Attempt, match: Match, node: str) -> bool:
    """Record a match; return whether it is the first of its pattern in this task."""
    return log_policies.record(
        conn,
        attempt,
        pattern=match.pattern,
        line=match.line[:LONGEST_QUOTE],
        name=match.name,
        action=match.action,
        node=node,
    )


def that_cancels_retries(conn: Connection, task_id: str) -> str | None:
    """Return a sentence on the first match of this task whose policy says not to try again; None if there is none."""
    for hit in log_policies.of_task(conn, task_id):
        if hit.action == CANCEL_RETRIES:
            return describe(hit.name, hit.pattern, hit.line)
    return None


def describe(name: str | None, pattern: str, line: str) -> str:
    """Return a match in words, with its pattern and line."""
    return f"log policy {name or pattern!r}: pattern {pattern!r} matched the line {line[:LONGEST_QUOTE]!r}"


def _without_leading_any(pattern: str) -> str:
    """Drop a leading `.*`, which changes no answer of a search but makes it slow on long lines."""
    rest = pattern[2:]
    return rest if pattern.startswith(".*") and rest[:1] not in ("?", "+", "*", "{") else pattern
