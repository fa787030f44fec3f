"""Lines of a trial's log."""

from __future__ import annotations

import datetime

from determined.server.answers.common import Answer


class LineAnswer(Answer):
    """One line. Its text may hold colours as terminals know them; the page shows those and drops other escapes."""

    id: int
    time: datetime.datetime
    level: str | None
    rank: int | None
    node: str
    source: str  # trial or controller
    stream: str  # stdout or stderr
    attempt: int | None
    text: str
    is_policy: bool  # a log policy matched it


class Lines(Answer):
    """Lines in the order in which they were stored, and where to go on in both directions."""

    lines: list[LineAnswer]
    oldest: int | None  # ask with `before` for earlier ones; null: there are none
    newest: int  # ask with `after` for later ones


class LogInfo(Answer):
    """What a log can be filtered by."""

    ranks: list[int]
    nodes: list[str]
    levels: list[str]
    policies: list[str]


class Matches(Answer):
    """Ids of the lines in which a search found something, in order; at most 1000."""

    ids: list[int]
    is_all: bool
    next_after: int | None  # ask again with `after` for those that follow; null: there are none
