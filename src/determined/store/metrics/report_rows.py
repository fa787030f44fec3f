"""Reports become rows of `metrics`: checked, then added, merged with what is there, or put in its place.

What follows from the rows (summaries, curves) is brought up to date by `metric_reports`.
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from determined import errors
from determined._redact import by_shape, redacted
from determined._types import Json
from determined.store import values
from determined.store.messages import MetricReport, check_group, check_steps
from determined.store.metrics import batches
from determined.store.metrics.rollups import EPOCHS, UNKNOWN, epochs_of, type_of
from determined.store.metrics.series import Fresh
from determined.store.rows import chunks
from determined.store.schema import metric_series, metrics

logger = logging.getLogger("determined.store")

LONGEST_NAME = 500


class Rules:
    """The rules for the reports of one transaction; names that were found good are not looked at twice.

    Args:
        searcher_metric: The metric that the experiment searches for.
    """

    def __init__(self, searcher_metric: str | None = None) -> None:
        self._searcher_metric = searcher_metric
        self._groups: set[str] = set()
        self._names: set[str] = set()

    def keep(self, report: MetricReport) -> dict[str, Json]:
        """Return the metrics to keep, with names that every database holds.

        Raises:
            InvalidValue: The group, the step, or a value breaks a rule.
        """
        if report.group not in self._groups:
            check_group(report.group)
            self._groups.add(report.group)
        if report.steps_completed is not None:
            try:
                check_steps(report.steps_completed)
            except TypeError as wrong:
                raise errors.InvalidValue(str(wrong)) from None
        metrics = dict(report.metrics)
        if not self._names.issuperset(metrics):
            metrics = {_checked_name(name): value for name, value in metrics.items()}
            self._names.update(metrics)
        for value in metrics.values():
            if type(value) is not float:  # nearly always it is, and then there is nothing to check
                return self._check_values(report, metrics)
        return metrics

    def _check_values(self, report: MetricReport, metrics: dict[str, Json]) -> dict[str, Json]:
        metrics = redacted(metrics)
        if any(isinstance(value, bytes) for value in metrics.values()):
            metrics = _without_bytes(metrics)
        for name in EPOCHS:
            if name in metrics and type_of(metrics[name]) != "number":
                raise _refusal(report, name, metrics[name], "it must be a number")
        if report.group != "validation":
            return metrics
        for name, value in metrics.items():
            if value is None:
                raise _refusal(report, name, value, "a validation metric must have a value")
        metric = self._searcher_metric
        if metric in metrics and type_of(metrics[metric]) != "number":
            raise _refusal(report, metric, metrics[metric], "the searcher metric must be a number")
        return metrics


def _checked_name(name: Any) -> str:
    text = name if isinstance(name, str) else str(name)
    if len(text) > LONGEST_NAME:
        raise errors.InvalidValue(
            f"The metric name {text[:20]!r}... has {len(text)} characters. Use {LONGEST_NAME} at most."
        )
    return values.clean(by_shape(text))


def _without_bytes(metrics: dict[str, Json]) -> dict[str, Json]:
    dropped = [name for name, value in metrics.items() if isinstance(value, bytes)]
    logger.warning("Metrics %s are bytes, which cannot be kept; they are left out. Report numbers or text.", dropped)
    return {name: value for name, value in metrics.items() if name not in dropped}


def _refusal(report: MetricReport, name: str, value: Json, rule: str) -> errors.InvalidValue:
    return errors.InvalidValue(
        f"{name!r} in group {report.group!r} at step {report.steps_completed} is {value!r}, but {rule}. "
        "Report a number, or leave it out."
    )


if TYPE_CHECKING:
    from determined.store.attempts import Attempt

Place = tuple[str, int]  # group, steps
Checked = tuple[MetricReport, "dict[str, Json]"]  # a report, and what is kept of its metrics


@dataclasses.dataclass
class ReportRow:
    """A row to be written, or one that is there and gets more values."""

    time: datetime.datetime
    body: dict[str, Json]
    fresh: dict[str, Json]  # what is new of the body
    batches: bytes | None = None
    id: int | None = None
    window: int | None = None

    def merge(self, place: Place, metrics: dict[str, Json], batches: bytes | None, window: int | None) -> None:
        for name, value in metrics.items():
            if name not in self.body:
                self.body[name] = self.fresh[name] = value
            elif not _same(self.body[name], value):
                raise errors.MetricConflict(
                    f"{name!r} in group {place[0]!r} at step {place[1]} is already {self.body[name]!r} and cannot "
                    f"become {value!r}. Report each metric once per step, or under another name."
                )
        self.batches = batches or self.batches
        self.window = window or self.window

    def columns(self) -> dict[str, Any]:
        return {"body": values.dump(self.body), "batch_metrics": self.batches, "window_batches": self.window}


def hide_older(conn: sa.Connection, attempt: Attempt, reports: Sequence[MetricReport]) -> dict[str, int]:
    """Archive what the attempt's first report supersedes: by group, the first step that was hidden."""
    first = next((report for report in reports if report.steps_completed is not None), None)
    if first is None or attempt.attempt <= 1:
        return {}
    of_trial = metrics.c.trial_id == attempt.trial_id
    if _has_reported(conn, attempt):
        return {}
    groups = conn.scalars(sa.select(metrics.c.metric_group).where(of_trial).distinct()).all()
    hidden = {}
    for group in groups:
        start = (first.steps_completed or 0) + (group != first.group)
        older = sa.and_(
            of_trial,
            metrics.c.metric_group == group,
            metrics.c.archived == sa.false(),
            metrics.c.steps >= start,
            metrics.c.attempt < attempt.attempt,
        )
        if conn.execute(metrics.update().where(older).values(archived=True)).rowcount:
            hidden[group] = start
    return hidden


def _has_reported(conn: sa.Connection, attempt: Attempt) -> bool:
    """Return whether the attempt has reported a step. Groups that have steps are asked first: samples may be many."""
    known = sa.select(metric_series.c.metric_group).where(
        metric_series.c.trial_id == attempt.trial_id, metric_series.c.last_steps.is_not(None)
    )
    groups = conn.scalars(known.distinct()).all()
    query = sa.select(metrics.c.id).where(
        metrics.c.trial_id == attempt.trial_id, metrics.c.attempt == attempt.attempt, metrics.c.steps >= 0
    )
    return any(
        conn.scalar(asked.limit(1)) is not None for asked in (query.where(metrics.c.metric_group.in_(groups)), query)
    )


def sort(kept: Iterable[Checked]) -> tuple[dict[Place, ReportRow], list[Checked]]:
    """Return reports by group and step, merged; and those that belong to no step."""
    rows: dict[Place, ReportRow] = {}
    samples = []
    for report, body in kept:
        if report.steps_completed is None:
            samples.append((report, body))
            continue
        place = (report.group, report.steps_completed)
        packed = batches.pack(report.batch_metrics)
        if place in rows:
            rows[place].merge(place, body, packed, report.window)
        else:
            rows[place] = ReportRow(report.time, body, body, packed, window=report.window)
    return rows, samples


def merge_stored(conn: sa.Connection, attempt: Attempt, rows: dict[Place, ReportRow], hidden: dict[str, int]) -> None:
    """Merge with rows of this attempt that are there; hide rows of older attempts in the same place."""
    for group in {group for group, _ in rows}:
        for there in _stored_at(conn, attempt.trial_id, group, [steps for of, steps in rows if of == group]):
            place = (group, there.steps)
            if there.attempt != attempt.attempt:
                conn.execute(metrics.update().where(metrics.c.id == there.id).values(archived=True))
                hidden[group] = min(hidden.get(group, there.steps), there.steps)
                continue
            known = (there.batch_metrics, there.id, there.window_batches)
            row = ReportRow(there.report_time, values.load(there.body), {}, *known)
            row.merge(place, rows[place].body, rows[place].batches, rows[place].window)
            rows[place] = row


def _stored_at(conn: sa.Connection, trial_id: int, group: str, steps: list[int]) -> Iterator[sa.Row[Any]]:
    """Yield the visible rows of a group at these steps."""
    here = (metrics.c.trial_id == trial_id, metrics.c.metric_group == group, metrics.c.archived == sa.false())
    newest = conn.scalar(sa.select(sa.func.max(metrics.c.steps)).where(*here))
    met = [] if newest is None else [step for step in steps if step <= newest]
    for some in chunks(met):
        yield from conn.execute(sa.select(metrics).where(*here, metrics.c.steps.in_(some))).all()


def write(
    conn: sa.Connection,
    attempt: Attempt,
    rows: dict[Place, ReportRow],
    samples: Sequence[Checked],
) -> None:
    """Insert the new rows and samples, and update the rows that were there."""
    common = {"trial_id": attempt.trial_id, "attempt": attempt.attempt, "archived": False}
    new = [
        {**common, "metric_group": group, "steps": steps, "report_time": row.time, **row.columns()}
        for (group, steps), row in rows.items()
        if row.id is None
    ]
    for report, body in samples:
        row = ReportRow(report.time, body, body, batches.pack(report.batch_metrics), window=report.window)
        new.append({**common, "metric_group": report.group, "steps": None, "report_time": row.time, **row.columns()})
    if new:
        conn.execute(metrics.insert(), new)
    for row in rows.values():
        if row.id is not None:
            conn.execute(metrics.update().where(metrics.c.id == row.id).values(**row.columns()))


def fresh(rows: dict[Place, ReportRow], samples: Iterable[Checked]) -> dict[str, list[Fresh]]:
    """Return what is new, by group, in order of steps."""
    fresh: dict[str, list[Fresh]] = {}
    for (group, steps), row in sorted(rows.items(), key=lambda item: item[0]):
        when = (row.time.timestamp(), epochs_of(row.body))
        fresh.setdefault(group, []).append((steps, row.fresh, row.window, when))
    for report, body in samples:
        fresh.setdefault(report.group, []).append((None, body, None, UNKNOWN))
    return fresh


def _same(one: Json, other: Json) -> bool:
    return one == other or values.dump(one) == values.dump(other)  # NaN is the same as NaN here
