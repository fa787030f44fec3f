"""What a trial did at each step: reports of all groups and checkpoints together, a page at a time."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from determined.store import rows, values
from determined.store.metrics.curves import envelope
from determined.store.metrics.validations import GROUP as VALIDATION
from determined.store.schema import checkpoints, metric_series, metrics

WHICH = ("all", "validation", "checkpoint")


@dataclasses.dataclass
class StepRow:
    """All that was reported at one step, of all groups, and the checkpoint that was saved there."""

    steps: int
    time: datetime.datetime | None = None  # of the last of it
    attempt: int = 0
    values: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)  # group to name to value
    checkpoint_uuid: str | None = None

    @property
    def has_validation(self) -> bool:
        """Whether a validation was reported here."""
        return VALIDATION in self.values

    def note(self, time: datetime.datetime, attempt: int) -> None:
        """Take in when something of it was reported, and by which attempt."""
        self.time = time if self.time is None else max(self.time, time)
        self.attempt = max(self.attempt, attempt)


def page(
    conn: sa.Connection, trial_id: int, which: str = "all", *, limit: int = 100, offset: int = 0
) -> tuple[list[StepRow], int]:
    """Return steps of a trial, the last first, and how many there are.

    Only the steps of the page are read in full; those before it are counted in an index.

    Args:
        conn: Where.
        trial_id: Whose.
        which: `all` steps, or only those with a `validation` or a `checkpoint`.
        limit: At most so many.
        offset: Leave out the last so many.
    """
    groups = _groups(conn, trial_id)
    places = _places(trial_id, groups, which)
    if not places:
        return [], 0
    selects = [sa.select(column.label("steps")).where(where, column >= 0) for column, where, _ in places]
    found = selects[0].distinct() if len(selects) == 1 else sa.union(*selects)
    steps = conn.scalars(found.order_by(sa.text("steps DESC")).limit(limit).offset(offset)).all()
    return _read(conn, trial_id, groups, list(steps)), _count(conn, places)


def _groups(conn: sa.Connection, trial_id: int) -> list[str]:
    """Return the groups that have reports of steps, the largest first."""
    column = metric_series.c
    query = sa.select(column.metric_group).where(column.trial_id == trial_id, column.last_steps.is_not(None))
    return list(conn.scalars(query.group_by(column.metric_group).order_by(sa.func.max(column.points).desc())))


class Place(NamedTuple):
    """Where steps of a trial are found."""

    column: sa.Column[int]
    where: sa.ColumnElement[bool]
    is_unique: bool  # no step is there twice


def _places(trial_id: int, groups: list[str], which: str) -> list[Place]:
    here = checkpoints.alias()
    saved = Place(here.c.steps, sa.and_(here.c.trial_id == trial_id, here.c.state != "DELETED"), is_unique=False)
    if which == "checkpoint":
        return [saved]
    found: list[Place] = []
    for group in groups:
        if which in ("all", group):
            there = metrics.alias()
            mine = (there.c.trial_id == trial_id, there.c.metric_group == group, there.c.archived == sa.false())
            found.append(Place(there.c.steps, sa.and_(*mine), is_unique=True))
    return [*found, saved] if which == "all" else found


def _count(conn: sa.Connection, places: list[Place]) -> int:
    """Return how many steps there are: those of the first place, and those of each other that no earlier one has.

    Only the largest place is counted row by row; for the smaller ones there is an index.
    """
    total = 0
    for number, (column, where, is_unique) in enumerate(places):
        earlier = [sa.exists().where(other.where, other.column == column) for other in places[:number]]
        counted = sa.func.count() if is_unique else sa.func.count(column.distinct())
        query = sa.select(counted).select_from(column.table).where(where, column >= 0, *(~each for each in earlier))
        total += conn.scalar(query) or 0
    return total


def _reports(trial_id: int) -> tuple[sa.ColumnElement[bool], ...]:
    return metrics.c.trial_id == trial_id, metrics.c.archived == sa.false()


def _read(conn: sa.Connection, trial_id: int, groups: list[str], steps: list[int]) -> list[StepRow]:
    found = {step: StepRow(step) for step in steps}
    columns = [metrics.c[name] for name in ("metric_group", "steps", "report_time", "attempt", "body")]
    for some in rows.chunks(steps):
        query = sa.select(*columns).where(
            *_reports(trial_id), metrics.c.metric_group.in_(groups), metrics.c.steps.in_(some)
        )
        for row in conn.execute(query):
            found[row.steps].values[row.metric_group] = values.load(row.body)
            found[row.steps].note(row.report_time, row.attempt)
        column = checkpoints.c
        saved = sa.select(column.uuid, column.steps, column.report_time).where(
            column.trial_id == trial_id, column.state != "DELETED", column.steps.in_(some)
        )
        for row in conn.execute(saved.order_by(column.report_time)):
            found[row.steps].checkpoint_uuid = row.uuid
            found[row.steps].note(row.report_time, 0)
    return list(found.values())


def spread(conn: sa.Connection, trial_id: int, group: str, *, most: int) -> list[tuple[int, datetime.datetime]]:
    """Return steps and times of reports of a group, evenly spread over them: at most so many, the last among them."""
    column = metric_series.c
    longest = sa.select(column.name).where(column.trial_id == trial_id, column.metric_group == group, column.points > 0)
    name = conn.scalar(longest.order_by(column.points.desc()).limit(1))
    if name is None:
        return []
    ends = envelope(conn, trial_id, group, name, buckets=most).ends
    query = sa.select(metrics.c.steps, metrics.c.report_time).where(
        *_reports(trial_id), metrics.c.metric_group == group, metrics.c.steps.in_(ends)
    )
    return [(row.steps, row.report_time) for row in conn.execute(query.order_by(metrics.c.steps))]
