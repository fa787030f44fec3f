"""Pages of a trial's log in both directions. However long the log and rare the lines that fit, a page costs little.

A question that finds too few lines looks at so many at most, and says how far it came; the next one goes on there.
"""

from __future__ import annotations

import dataclasses
import datetime
import time as clock
from collections.abc import Callable, Sequence

import sqlalchemy as sa

from determined.store import rows
from determined.store.logs import LogFilter, conditions, task_ids
from determined.store.messages import LogEntry
from determined.store.schema import logs

WINDOW = 20_000  # lines that one statement looks at
MOST_LINES = 400_000  # lines that one question looks at
MOST_SECONDS = 1.0  # after which it looks no further
MATCHED = 5000  # lines that a matcher is given at once
SAMPLE = 2000

Matcher = Callable[[Sequence[str]], Sequence[bool]]
"""Says of each text whether it fits: what SQL cannot say."""


@dataclasses.dataclass(frozen=True)
class LogPage:
    """Lines in the order in which they arrived. `oldest` and `newest` are where to go on."""

    lines: list[LogEntry]
    oldest: int | None  # lines before this id were not looked at; None: there are none
    newest: int  # lines after this id were not looked at, or are not there yet


@dataclasses.dataclass(frozen=True)
class Scan:
    """What was found in one direction."""

    lines: list[LogEntry]  # in the direction of the scan
    reached: int  # the last id that was looked at
    is_end: bool  # nothing is beyond it


def page(
    conn: sa.Connection,
    trial_id: int,
    which: LogFilter,
    *,
    after: int | None = None,
    before: int | None = None,
    around: int | None = None,
    time: datetime.datetime | None = None,
    limit: int = 500,
    matcher: Matcher | None = None,
) -> LogPage:
    """Return lines of a trial after or before a line, around it, or from a time on; else the last ones.

    Args:
        conn: Where.
        trial_id: Whose.
        which: What they have to fit; its `regex` is left to `matcher`.
        after: Lines after the one of this id.
        before: Lines before the one of this id.
        around: Lines on both sides of this one, and itself.
        time: Lines from this time on.
        limit: At most so many.
        matcher: Says which of the texts fit.
    """
    log = Log(conn, trial_id, which, matcher)
    if after is not None:
        return log.forward(after, limit)
    if around is None and time is not None:
        return log.forward(log.place_of(time) - 1, limit)
    if around is None:
        return log.backward(before, limit)
    earlier = log.backward(around, limit // 2)
    later = log.forward(around - 1, limit - len(earlier.lines))
    return LogPage([*earlier.lines, *later.lines], earlier.oldest, later.newest)


class Log:
    """The lines of a trial that fit.

    Args:
        conn: Where.
        trial_id: Whose.
        which: What they have to fit; its `regex` is left to `matcher`.
        matcher: Says which of the texts fit.
    """

    def __init__(self, conn: sa.Connection, trial_id: int, which: LogFilter, matcher: Matcher | None = None) -> None:
        self._conn = conn
        self._tasks = task_ids(conn, trial_id)
        self._conditions = conditions(which)
        self._matcher = matcher
        self.last = max((self._end(task, newest=True) for task in self._tasks), default=0)

    def forward(self, after: int, limit: int) -> LogPage:
        """Return the next lines after an id."""
        found = self.scan(after, limit, descending=False)
        firsts = [first for task in self._tasks if (first := self._end(task, newest=False))]
        is_first = not firsts or after < min(firsts)
        oldest = found.lines[0].id if found.lines else after + 1
        return LogPage(found.lines, None if is_first else oldest, found.reached)

    def backward(self, before: int | None, limit: int) -> LogPage:
        """Return the lines before an id; without one, the last ones."""
        start = self.last + 1 if before is None else before
        found = self.scan(start, limit, descending=True)
        return LogPage(found.lines[::-1], None if found.is_end else found.reached, min(start - 1, self.last))

    def scan(self, start: int, limit: int, *, descending: bool) -> Scan:
        """Look for lines that fit beyond the one of id `start`, window by window."""
        is_choosy = bool(self._conditions or self._matcher)
        size = MATCHED if self._matcher else WINDOW if is_choosy else max(limit, 1)
        found: list[LogEntry] = []
        looked_at, until = 0, clock.monotonic() + MOST_SECONDS
        while len(found) < limit:
            edge = self._edge(start, size, descending=descending)
            found += self._fitting(start, edge, limit - len(found), descending=descending)
            if edge is None and len(found) < limit:
                return Scan(found, 0 if descending else max(start, self.last), is_end=True)
            start, looked_at = start if edge is None else edge, looked_at + size
            if len(found) < limit and (looked_at >= MOST_LINES or clock.monotonic() > until):
                return Scan(found, start, is_end=False)
        return Scan(found, found[-1].id if found else start, is_end=False)

    def place_of(self, time: datetime.datetime) -> int:
        """Return about the first line from a time on, by halving: clocks of ranks differ by little."""
        low, high = 1, self.last + 1
        while low < high:
            middle = (low + high) // 2
            query = sa.select(logs.c.timestamp).where(logs.c.id >= middle).order_by(logs.c.id).limit(1)
            seen = [self._conn.scalar(query.where(logs.c.task_id == task)) for task in self._tasks]
            known = [moment for moment in seen if moment is not None]
            low, high = (low, middle) if not known or min(known) >= time else (middle + 1, high)
        return low

    def _end(self, task: str, *, newest: bool) -> int:
        chosen = sa.func.max(logs.c.id) if newest else sa.func.min(logs.c.id)
        return self._conn.scalar(sa.select(chosen).where(logs.c.task_id == task)) or 0

    def _edge(self, start: int, size: int, *, descending: bool) -> int | None:
        """Return the id at which a window of so many lines ends; None if fewer are left."""
        column = logs.c.id
        beyond = column < start if descending else column > start
        order = column.desc() if descending else column.asc()
        edges = [
            self._conn.scalar(
                sa.select(column).where(logs.c.task_id == task, beyond).order_by(order).offset(size - 1).limit(1)
            )
            for task in self._tasks
        ]
        known = [edge for edge in edges if edge is not None]
        return None if not known else max(known) if descending else min(known)

    def _fitting(self, start: int, edge: int | None, limit: int, *, descending: bool) -> list[LogEntry]:
        column = logs.c.id
        order = column.desc() if descending else column.asc()
        here = [column < start if descending else column > start]
        if edge is not None:
            here.append(column >= edge if descending else column <= edge)
        query = sa.select(logs).where(self._of_tasks(), *self._conditions, *here).order_by(order).limit(limit)
        if self._matcher is not None:
            texts = self._conn.execute(query.with_only_columns(column, logs.c.text).limit(None)).all()
            fits = self._matcher([text for _, text in texts]) if texts else ()
            ids = [ident for (ident, _), is_fit in zip(texts, fits, strict=True) if is_fit][:limit]
            query = sa.select(logs).where(column.in_(ids)).order_by(order)
        return [rows.build(LogEntry, row) for row in self._conn.execute(query).mappings()]

    def _of_tasks(self) -> sa.ColumnElement[bool]:
        return logs.c.task_id == self._tasks[0] if len(self._tasks) == 1 else logs.c.task_id.in_(self._tasks)


def seen(conn: sa.Connection, trial_id: int) -> tuple[list[int], list[str]]:
    """Return ranks and nodes that the first and the last lines of a trial are of."""
    ranks: set[int] = set()
    nodes: set[str] = set()
    for task in task_ids(conn, trial_id):
        for order in (logs.c.id.asc(), logs.c.id.desc()):
            some = sa.select(logs.c.rank, logs.c.node).where(logs.c.task_id == task).order_by(order).limit(SAMPLE)
            for rank, node in conn.execute(sa.select(some.subquery()).distinct()):
                ranks |= set() if rank is None else {rank}
                nodes |= {node} if node else set()
    return sorted(ranks), sorted(nodes)
