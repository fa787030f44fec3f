"""The lines of a trial's log: which ones, the last ones, or one after the other as they are written."""

from __future__ import annotations

import dataclasses
import datetime
import heapq
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from determined import store
from determined.client._enums import LogLevel
from determined.client._session import Session
from determined.store.messages import LogEntry as LogEntry

if TYPE_CHECKING:
    import sqlalchemy as sa


PAGE = 2000
POLL_SECONDS = 0.5
DRAIN_SECONDS = 2.0


def log_filter(
    *,
    container_ids: Sequence[str] | None = None,
    node_ids: Sequence[str] | None = None,
    rank_ids: Sequence[int] | None = None,
    stdtypes: Sequence[str] | None = None,
    min_level: LogLevel | str | None = None,
    timestamp_before: str | float | datetime.datetime | None = None,
    timestamp_after: str | float | datetime.datetime | None = None,
    sources: Sequence[str] | None = None,
    search_text: str | None = None,
    regex: str | None = None,
) -> store.logs.LogFilter:
    """Return the store's filter for the SDK's arguments."""
    return store.logs.LogFilter(
        min_level=None if min_level is None else str(LogLevel(min_level)),
        ranks=rank_ids,
        stdtypes=stdtypes,
        sources=sources,
        allocation_ids=container_ids,
        nodes=node_ids,
        after=None if timestamp_after is None else moment(timestamp_after),
        before=None if timestamp_before is None else moment(timestamp_before),
        text=search_text,
        regex=regex,
    )


def moment(given: str | float | datetime.datetime) -> datetime.datetime:
    """Parse an aware time from RFC 3339 text, seconds since the epoch, or a time. Without an offset it is UTC.

    Example::

        assert moment("2025-01-31T12:00:00Z") == moment(1738324800)
    """
    if isinstance(given, (int, float)):
        return datetime.datetime.fromtimestamp(given, datetime.timezone.utc)
    if isinstance(given, str):
        text = given.strip()
        try:
            given = datetime.datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in "zZ" else text)
        except ValueError as e:
            raise ValueError(f"{text!r} is no time. Write it like 2025-01-31T12:00:00Z, or in seconds.") from e
    return given if given.tzinfo else given.replace(tzinfo=datetime.timezone.utc)


def checked_lines(head: int | None, tail: int | None, follow: bool) -> None:
    """Refuse negative numbers of lines, and options that exclude each other."""
    for name, lines in (("head", head), ("tail", tail)):
        if lines is not None and lines < 0:
            raise ValueError(f"{name} is {lines}, and a number of lines is at least 0.")
    if (head is not None) + (tail is not None) + follow > 1:
        raise ValueError("head, tail and follow exclude each other. Choose one.")


def read(
    session: Session, trial_id: int, which: store.logs.LogFilter, *, head: int | None, tail: int | None
) -> Iterator[LogEntry]:
    """Yield the lines that are there, those of several ranks in order of time.

    They are read a page at a time: no transaction stays open while the caller thinks.
    """
    merged = _Merged.of(session, trial_id, which)
    if tail is not None:
        with session.read() as conn:
            ends = [store.logs.tail(conn, trial_id, tail, part) for part in merged.parts]
        found = merged.in_order(*ends)
        yield from itertools.islice(found, max(sum(map(len, ends)) - tail, 0), None)
        return
    streams = [_pages(session, trial_id, part, head=head) for part in merged.parts]
    yield from itertools.islice(merged.in_order(*streams), head)


def follow(
    session: Session, trial_id: int, which: store.logs.LogFilter, *, sleep: Callable[[float], None] = time.sleep
) -> Iterator[LogEntry]:
    """Yield all lines, also those to come; end when the trial has ended or paused and every line was yielded.

    What is there at first is in order of time; of what comes later, what arrives together is.
    """
    merged = _Merged.of(session, trial_id, which)
    with session.read() as conn:
        after = store.logs.newest_id(conn, trial_id)
    yield from merged.in_order(*(_pages(session, trial_id, part, last_id=after) for part in merged.parts))
    while True:
        with session.read() as conn:
            left_at = _left_at(conn, store.trials.get(conn, trial_id))
            found = store.logs.read(conn, trial_id, which, after_id=after, limit=PAGE)
        if found:
            after = found[-1].id
            yield from sorted(found, key=merged.place)
        elif left_at is not None and _is_drained(left_at):
            return
        if len(found) < PAGE:
            sleep(POLL_SECONDS if not found or left_at is None else 0)


@dataclasses.dataclass(frozen=True)
class _Merged:
    """How the lines of a trial's ranks become one log: each rank's in the order they arrived, merged by time."""

    parts: Sequence[store.logs.LogFilter]
    attempts: dict[str, int]  # a clock that was set back between two of them mixes nothing up

    @classmethod
    def of(cls, session: Session, trial_id: int, which: store.logs.LogFilter) -> _Merged:
        with session.read() as conn:
            launches = store.attempts.of_trial(conn, trial_id)
            ranks = which.ranks
            if ranks is None and any(launch.slots > 1 for launch in launches):
                ranks = store.logs.ranks(conn, trial_id)
        parts = [dataclasses.replace(which, ranks=[rank]) for rank in ranks or ()]
        return cls(parts or [which], {launch.allocation_id: i for i, launch in enumerate(launches)})

    def place(self, row: LogEntry) -> tuple[int, datetime.datetime, int]:
        return self.attempts.get(row.allocation_id or "", -1), row.timestamp, row.id

    def in_order(self, *streams: Iterable[LogEntry]) -> Iterator[LogEntry]:
        return heapq.merge(*streams, key=self.place)


def _pages(
    session: Session, trial_id: int, which: store.logs.LogFilter, *, head: int | None = None, last_id: int | None = None
) -> Iterator[LogEntry]:
    """Yield lines as they arrived, at most `head` of them, a page at a time."""
    after, left = 0, head
    while left is None or left > 0:
        size = PAGE if left is None else min(PAGE, left)
        with session.read() as conn:
            found = store.logs.read(conn, trial_id, which, after_id=after, last_id=last_id, limit=size)
        yield from found
        if len(found) < size:
            return
        after, left = found[-1].id, None if left is None else left - len(found)


def _left_at(conn: sa.Connection, trial: store.trials.TrialRow) -> datetime.datetime | None:
    """Return when its processes ended for good; None while they run, or may be restarted automatically.

    A run of `python train.py` that was asked to stop is paused, and only its user can start it again.
    """
    if trial.state in store.experiments.TERMINAL:
        return trial.end_time or trial.start_time
    if trial.state != "PAUSED" or not store.experiments.get(conn, trial.experiment_id).unmanaged:
        return None
    launches = store.attempts.of_trial(conn, trial.id)
    return launches[-1].end_time if launches else None


def _is_drained(left_at: datetime.datetime) -> bool:
    """Return whether no line is pending any more: other ranks may deliver theirs a moment after the end."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return (now - left_at).total_seconds() > DRAIN_SECONDS
