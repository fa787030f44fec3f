"""Log lines: what every process of a trial printed, in order. `core` captures them."""

from __future__ import annotations

import dataclasses
import datetime
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from determined import errors
from determined.store import rows
from determined.store.attempts import Attempt
from determined.store.messages import LogEntry, LogLine
from determined.store.schema import logs, tasks, trials

LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MAX_BYTES = 8191

_PARTS = re.compile(r"(?:\[rank=(\d{1,9})\] ?)?(?:(DEBUG|INFO|WARNING|ERROR|CRITICAL): ?)?")
_SCAN = 2000  # rows looked at in one go, when what is looked for is found out here rather than in the database


@dataclasses.dataclass(frozen=True)
class LogFilter:
    """Which lines: those that fit all that is given."""

    min_level: str | None = None  # lines without a level count as INFO
    ranks: Sequence[int | None] | None = None  # None among them: lines of no rank
    stdtypes: Sequence[str] | None = None  # "stdout", "stderr"
    sources: Sequence[str] | None = None  # "trial", "controller"
    allocation_ids: Sequence[str] | None = None
    nodes: Sequence[str] | None = None
    after: datetime.datetime | None = None
    before: datetime.datetime | None = None
    text: str | None = None  # a part of the line, whatever its case
    regex: str | None = None


def append(
    conn: sa.Connection,
    attempt: Attempt,
    lines: Sequence[LogLine],
    *,
    source: str = "trial",
    node: str = "",
    process_id: int | None = None,
) -> None:
    """Add lines. A leading `[rank=N]` and `LEVEL:` become fields; lines are cut at 8191 bytes.

    Those of an attempt that has been replaced are kept too: they were printed.
    """
    if not lines:
        return
    # One writer per task at a time, or PostgreSQL might show a later line before an earlier one, and who follows
    # the log by ids would never see the earlier one.
    conn.execute(sa.select(tasks.c.task_id).where(tasks.c.task_id == attempt.task_id).with_for_update(key_share=True))
    common = {
        "task_id": attempt.task_id,
        "allocation_id": attempt.allocation_id,
        "source": source,
        "node": node,
        "process_id": process_id,
    }
    conn.execute(logs.insert(), [{**common, **_fields(line)} for line in lines])


def unknown(conn: sa.Connection, attempt: Attempt, lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the lines that are not stored yet: a process may have died without knowing how many it had added."""
    if not lines:
        return []
    since = logs.c.timestamp >= min(line.time for line in lines)
    query = sa.select(logs.c.timestamp, logs.c.stdtype, logs.c.text).where(logs.c.task_id == attempt.task_id, since)
    there = {tuple(row) for row in conn.execute(query)}

    def is_there(line: LogLine) -> bool:
        fields = _fields(line)
        return (fields["timestamp"], fields["stdtype"], fields["text"]) in there

    return [line for line in lines if not is_there(line)]


def _fields(line: LogLine) -> dict[str, Any]:
    match = _PARTS.match(line.text)
    assert match is not None  # it matches nothing, too
    rank, level = match.groups()
    return {
        "timestamp": line.time,
        "level": level,
        "rank": line.rank if rank is None else int(rank),
        "stdtype": line.stream,
        "text": cut(line.text[match.end() :]),
    }


def without_prefix(line: str) -> str:
    """Return a printed line as its row has it: without `[rank=N]` and `LEVEL:`."""
    match = _PARTS.match(line)
    return line if match is None else line[match.end() :]


def cut(text: str) -> str:
    """Return the text in at most 8191 bytes of UTF-8, whole characters only."""
    if len(text) * 4 <= MAX_BYTES:
        return text
    return text.encode("utf-8", "replace")[:MAX_BYTES].decode("utf-8", "ignore")


def read(
    conn: sa.Connection,
    trial_id: int,
    which: LogFilter | None = None,
    *,
    after_id: int = 0,
    last_id: int | None = None,
    limit: int | None = None,
) -> list[LogEntry]:
    """Return lines of a trial after line `after_id`, up to `last_id`, in the order in which they arrived.

    Call again with the last id to go on or to follow.

    Example::

        page = read(conn, 7, LogFilter(min_level="WARNING"), limit=1000)
    """
    return list(_scan(conn, trial_id, which or LogFilter(), after_id, last_id, wanted=limit, newest_first=False))


def tail(conn: sa.Connection, trial_id: int, lines: int, which: LogFilter | None = None) -> list[LogEntry]:
    """Return the last lines of a trial that fit, oldest first."""
    return list(_scan(conn, trial_id, which or LogFilter(), 0, None, wanted=lines, newest_first=True))[::-1]


def ranks(conn: sa.Connection, trial_id: int) -> list[int | None]:
    """Return the ranks that a trial has lines of; None stands for lines of no rank."""
    return list(conn.scalars(sa.select(logs.c.rank).where(_of_trial(trial_id)).distinct()))


def newest_id(conn: sa.Connection, trial_id: int) -> int:
    """Return the line of a trial that arrived last; 0 if there is none."""
    return conn.scalar(sa.select(sa.func.max(logs.c.id)).where(_of_trial(trial_id))) or 0


def expire(conn: sa.Connection, time: datetime.datetime) -> int:
    """Remove the lines of trials whose `log_retention_days` are over; returns how many."""
    kept = sa.select(trials.c.id, trials.c.log_retention_days).where(trials.c.log_retention_days.is_not(None))
    removed = 0
    for trial_id, days in conn.execute(kept).all():
        old = logs.c.timestamp < time - datetime.timedelta(days=days)
        removed += conn.execute(logs.delete().where(_of_trial(trial_id), old)).rowcount
    return removed


def task_ids(conn: sa.Connection, trial_id: int) -> list[str]:
    """Return the tasks of a trial: one, and one more each time it was continued after its end."""
    return list(conn.scalars(sa.select(tasks.c.task_id).where(tasks.c.trial_id == trial_id).order_by(tasks.c.task_id)))


def _of_trial(trial_id: int) -> sa.ColumnElement[bool]:
    return logs.c.task_id.in_(sa.select(tasks.c.task_id).where(tasks.c.trial_id == trial_id))


def _scan(
    conn: sa.Connection,
    trial_id: int,
    which: LogFilter,
    after_id: int,
    last_id: int | None,
    *,
    wanted: int | None,
    newest_first: bool,
) -> Iterator[LogEntry]:
    """Yield the first `wanted` lines that fit, looked for a page at a time."""
    left = sys.maxsize if wanted is None else wanted
    pattern = _compile(which.regex)
    size = _SCAN if wanted is None or pattern else min(wanted, _SCAN)
    query = sa.select(logs).where(_of_trial(trial_id), logs.c.id > after_id, *conditions(which))
    if last_id is not None:
        query = query.where(logs.c.id <= last_id)
    page = query = query.order_by(logs.c.id.desc() if newest_first else logs.c.id.asc()).limit(size)
    while left > 0:
        found = conn.execute(page).mappings().all()
        fitting = [row for row in found if pattern is None or pattern.search(row["text"])]
        yield from (rows.build(LogEntry, row) for row in fitting[:left])
        left -= len(fitting)
        if len(found) < size:
            return
        edge = found[-1]["id"]
        page = query.where(logs.c.id < edge if newest_first else logs.c.id > edge)


def _compile(regex: str | None) -> re.Pattern[str] | None:
    try:
        return None if regex is None else re.compile(regex)
    except re.error as wrong:
        raise errors.InvalidValue(f"{regex!r} is not a regular expression: {wrong}.") from wrong


def conditions(which: LogFilter) -> list[sa.ColumnElement[bool]]:
    """Return what a filter means in SQL; its regular expression is left out."""
    column = logs.c
    found: list[sa.ColumnElement[bool]] = []
    for given, of in (
        (which.stdtypes, column.stdtype),
        (which.sources, column.source),
        (which.allocation_ids, column.allocation_id),
        (which.nodes, column.node),
    ):
        if given is not None:
            found.append(of.in_(given))
    if which.ranks is not None:
        of_no_rank = column.rank.is_(None) if None in which.ranks else sa.false()
        found.append(column.rank.in_([rank for rank in which.ranks if rank is not None]) | of_no_rank)
    if which.min_level is not None:
        if which.min_level not in LEVELS:
            raise errors.InvalidValue(f"{which.min_level!r} is no log level. Choose one of: {', '.join(LEVELS)}.")
        loud = LEVELS[LEVELS.index(which.min_level) :]
        found.append(sa.func.coalesce(column.level, "INFO").in_(loud))
    if which.after is not None:
        found.append(column.timestamp > which.after)
    if which.before is not None:
        found.append(column.timestamp < which.before)
    if which.text is not None:
        found.append(column.text.icontains(which.text, autoescape=True))
    return found
