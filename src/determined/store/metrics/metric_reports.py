"""Metric reports: appended by attempts, read in order of steps. `curves` reads curves.

The newest attempt of a trial counts. What it repeats of older attempts is archived: kept, and shown nowhere.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from determined import errors
from determined._types import Json
from determined.store import rows as row_tools
from determined.store import values
from determined.store.messages import MetricReport
from determined.store.metrics import batches, report_rows, validations
from determined.store.metrics.report_rows import Rules
from determined.store.metrics.rollups import UNKNOWN, summary_key
from determined.store.metrics.series import PAGE, Fresh, TrialSeries, pages
from determined.store.metrics.validations import Goal
from determined.store.metrics.validations import best_validation as best_validation
from determined.store.schema import experiments, metric_series, metrics, trials

if TYPE_CHECKING:
    from determined.store.attempts import Attempt


@dataclasses.dataclass(frozen=True)
class MetricRow:
    """One report, as it is visible. `steps` is None for samples that belong to no step."""

    trial_id: int
    attempt: int
    group: str
    steps: int | None
    time: datetime.datetime
    metrics: dict[str, Json]
    batch_metrics: list[dict[str, Json]] | None = None
    window: int | None = None  # how many batches they are averages of; None: not said


@dataclasses.dataclass(frozen=True)
class SeriesRow:
    """One metric of a trial. `points` are those of its curve; samples that belong to no step are none."""

    trial_id: int
    group: str
    name: str
    type: str
    points: int
    last_steps: int | None  # None: only samples
    last: Json


def append(conn: sa.Connection, attempt: Attempt, reports: Sequence[MetricReport]) -> None:
    """Write reports of an attempt, in the order they were made: all of them, or none if one is refused.

    Reports for one step are merged. The first report of a newer attempt hides what older ones reported from that step
    on. Summaries, curves, the best and the latest validation and the count of batches are brought up to date.

    Args:
        conn: A connection from `store.write()`.
        attempt: Who reports.
        reports: What it reports; thousands at once are fine.

    Raises:
        StaleAttempt: A newer attempt of the trial has begun.
        MetricConflict: A metric has another value at that step already.
        InvalidValue: A group, step or value breaks a rule.
    """
    if not reports:
        return
    trial, goal = _lock(conn, attempt.trial_id)
    if trial.attempt > attempt.attempt:
        raise errors.StaleAttempt(
            f"Attempt {attempt.attempt} of trial {trial.id} can no longer report: attempt {trial.attempt} has begun. "
            "Stop this process; the newer one goes on."
        )
    rules = Rules(goal.metric)
    kept = [(report, rules.keep(report)) for report in reports]
    hidden = report_rows.hide_older(conn, attempt, reports)
    new, samples = report_rows.sort(kept)
    report_rows.merge_stored(conn, attempt, new, hidden)
    report_rows.write(conn, attempt, new, samples)
    fresh = report_rows.fresh(new, samples)
    series = TrialSeries(conn, trial.id, fresh.keys() | hidden.keys())
    for group in fresh.keys() | hidden.keys():
        series.absorb(group, fresh.get(group, []), hidden.get(group))
    _save(conn, trial, goal, series, fresh, hidden)


def unknown_samples(conn: sa.Connection, attempt: Attempt, samples: Sequence[MetricReport]) -> list[MetricReport]:
    """Return the samples that are not stored yet. Reports of a step need no such check: they are merged."""
    if not samples:
        return []
    of_trial = (metrics.c.trial_id == attempt.trial_id, metrics.c.steps.is_(None))
    since = metrics.c.report_time >= min(report.time for report in samples)
    there = {
        tuple(row)
        for row in conn.execute(sa.select(metrics.c.metric_group, metrics.c.report_time).where(*of_trial, since))
    }
    return [report for report in samples if (report.group, report.time) not in there]


def recount(conn: sa.Connection, trial_id: int) -> None:
    """Make curves, summary, best validation and count of batches again from the rows, whatever they were.

    For rows that came in some other way than `append`, such as an import.
    """
    conn.execute(trials.update().where(trials.c.id == trial_id).values(summary_metrics={}))
    trial, goal = _lock(conn, trial_id)
    conn.execute(metric_series.delete().where(metric_series.c.trial_id == trial_id))
    groups = conn.scalars(sa.select(metrics.c.metric_group).where(metrics.c.trial_id == trial_id).distinct()).all()
    series = TrialSeries(conn, trial_id, groups)
    for group in groups:
        for page in pages(conn, trial_id, group):
            series.absorb(group, page)
    _save(conn, trial, goal, series, {}, dict.fromkeys([*groups, validations.GROUP], 0))


def move_samples(conn: sa.Connection, from_trial_id: int, to: Attempt) -> None:
    """Give samples that belong to no step to an attempt of another trial that has reported nothing yet."""
    trial, goal = _lock(conn, to.trial_id)
    samples = sa.and_(metrics.c.trial_id == from_trial_id, metrics.c.steps.is_(None))
    fresh: dict[str, list[Fresh]] = {}
    for row in conn.execute(sa.select(metrics.c.metric_group, metrics.c.body).where(samples).order_by(metrics.c.id)):
        fresh.setdefault(row.metric_group, []).append((None, values.load(row.body), None, UNKNOWN))
    conn.execute(metrics.update().where(samples).values(trial_id=to.trial_id, attempt=to.attempt))
    series = TrialSeries(conn, to.trial_id, fresh.keys())
    for group, bodies in fresh.items():
        series.absorb(group, bodies)
    _save(conn, trial, goal, series, fresh, {})


def _lock(conn: sa.Connection, trial_id: int) -> tuple[sa.Row[Any], Goal]:
    """Return the trial, which nobody else changes until our transaction ends, and what its experiment looks for."""
    query = sa.select(trials).where(trials.c.id == trial_id).with_for_update(key_share=True)
    trial = row_tools.required(conn.execute(query).first(), "trial", trial_id, "det trial ls")
    goal = sa.select(experiments.c.searcher_metric, experiments.c.smaller_is_better)
    return trial, Goal(*conn.execute(goal.where(experiments.c.id == trial.experiment_id)).one())


def _save(
    conn: sa.Connection,
    trial: sa.Row[Any],
    goal: Goal,
    series: TrialSeries,
    fresh: dict[str, list[Fresh]],
    hidden: dict[str, int],
) -> None:
    """Write what follows from the rows that are new and those that were hidden."""
    changes: dict[str, Any] = {
        "summary_metrics": _summary(trial.summary_metrics, series.save()),
        "total_batches": _total_batches(conn, trial, fresh, again=bool(hidden)),
    }
    if validations.GROUP in fresh or validations.GROUP in hidden:
        again = validations.GROUP in hidden
        changes |= validations.changed_columns(conn, trial, goal, fresh.get(validations.GROUP, []), again=again)
    conn.execute(trials.update().where(trials.c.id == trial.id).values(**changes))
    if "searcher_metric_value" in changes:
        validations.update_best_trial(conn, trial, goal, changes["searcher_metric_value"])


def _summary(known: dict[str, Any], changes: dict[tuple[str, str], dict[str, Any] | None]) -> dict[str, Any]:
    whole = {key: dict(entries) for key, entries in (known or {}).items()}
    for (group, name), entry in changes.items():
        entries = whole.setdefault(summary_key(group), {})
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry
    return {key: entries for key, entries in whole.items() if entries}


def _total_batches(conn: sa.Connection, trial: sa.Row[Any], fresh: dict[str, list[Fresh]], *, again: bool) -> int:
    if not again:
        steps = (steps for bodies in fresh.values() for steps, *_ in bodies if steps is not None)
        return max([int(trial.total_batches), *steps])
    visible = (metrics.c.trial_id == trial.id, metrics.c.archived == sa.false())
    return int(conn.scalar(sa.select(sa.func.max(metrics.c.steps)).where(*visible)) or 0)


def rows(
    conn: sa.Connection,
    trial_ids: int | Sequence[int],
    group: str | None = None,
    *,
    first: int | None = None,
    last: int | None = None,
    with_batches: bool = False,
) -> Iterator[MetricRow]:
    """Yield the visible reports of trials, by trial and in order of steps; samples without steps come first.

    Args:
        conn: Where. Rows are fetched as they are asked for, so it must stay open meanwhile.
        trial_ids: Whose.
        group: Of this group only.
        first: From this step on.
        last: Up to and including this step.
        with_batches: Also the metrics of single batches, which take a while to unpack.
    """
    shown = ("trial_id", "attempt", "metric_group", "steps", "report_time", "body", "window_batches")
    columns = [metrics.c[name] for name in shown]
    if with_batches:
        columns.append(metrics.c.batch_metrics)
    ids = [trial_ids] if isinstance(trial_ids, int) else list(dict.fromkeys(trial_ids))
    for trial_id in ids:
        query = sa.select(*columns).where(metrics.c.trial_id == trial_id, metrics.c.archived == sa.false())
        if group is not None:
            query = query.where(metrics.c.metric_group == group)
        if first is not None:
            query = query.where(metrics.c.steps >= first)
        if last is not None:
            query = query.where(metrics.c.steps <= last)
        query = query.order_by(metrics.c.steps.nulls_first(), metrics.c.id)
        with conn.execute(query.execution_options(yield_per=PAGE)) as result:
            for row in result:
                single = batches.unpack(row.batch_metrics) if with_batches else None
                place = (row.trial_id, row.attempt, row.metric_group, row.steps, row.report_time)
                yield MetricRow(*place, values.load(row.body), single, row.window_batches)


def names(
    conn: sa.Connection, *, experiment_id: int | None = None, trial_ids: Sequence[int] | None = None
) -> dict[str, list[str]]:
    """Return the metrics that an experiment, or some trials, have reported: names by group, both sorted."""
    query = sa.select(metric_series.c.metric_group, metric_series.c.name).distinct()
    if experiment_id is not None:
        query = query.join(trials, trials.c.id == metric_series.c.trial_id)
        query = query.where(trials.c.experiment_id == experiment_id)
    if trial_ids is not None:
        query = query.where(metric_series.c.trial_id.in_(list(trial_ids)))
    found: dict[str, list[str]] = {}
    for group, name in sorted((row.metric_group, row.name) for row in conn.execute(query)):
        found.setdefault(group, []).append(name)
    return found


def series(conn: sa.Connection, trial_ids: Sequence[int]) -> list[SeriesRow]:
    """Return every metric of these trials, by trial, group and name; a few thousand at most are useful."""
    column = metric_series.c
    columns = (column.trial_id, column.metric_group, column.name, column.type, column.points, column.last_steps)
    query = sa.select(*columns, column.last).where(column.trial_id.in_(list(trial_ids)))
    ordered = query.order_by(column.trial_id, column.metric_group, column.name)
    return [SeriesRow(*row[:-1], values.load(row[-1])) for row in conn.execute(ordered)]
