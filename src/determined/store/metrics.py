"""Metric reports as rows: written by the rules of the house, read in order of steps. Curves are read in `curves.py`.

The newest attempt of a trial is right. What it repeats of older attempts is archived: kept, and shown nowhere.
"""

from __future__ import annotations

import dataclasses
import datetime
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from determined import errors
from determined._types import Json
from determined.store import metric_rules, summary, validations, values
from determined.store.messages import MetricReport
from determined.store.schema import experiments, metric_series, metrics, trials
from determined.store.series import TrialSeries
from determined.store.validations import Goal
from determined.store.validations import best_validation as best_validation

if TYPE_CHECKING:
    from determined.store.attempts import Attempt

_AT_ONCE = 500  # values in one IN (...)


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


@dataclasses.dataclass
class _Row:
    """A row to be written, or one that is there and gets more values."""

    time: datetime.datetime
    body: dict[str, Json]
    fresh: dict[str, Json]  # what is new of the body
    batches: bytes | None = None
    id: int | None = None

    def merge(self, place: tuple[str, int], metrics: dict[str, Json], batches: bytes | None) -> None:
        for name, value in metrics.items():
            if name not in self.body:
                self.body[name] = self.fresh[name] = value
            elif not _same(self.body[name], value):
                raise errors.MetricConflict(
                    f"{name!r} in group {place[0]!r} at step {place[1]} is already {self.body[name]!r} and cannot "
                    f"become {value!r}. Report each metric once per step, or under another name."
                )
        self.batches = batches or self.batches


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
    trial = _lock_trial(conn, attempt)
    goal = Goal(*conn.execute(_GOAL, {"experiment": trial.experiment_id}).one())
    kept = [(report, metric_rules.checked_metrics(report, goal.metric)) for report in reports]
    hidden = _hide_older(conn, attempt, [report for report, _ in kept])
    rows, samples = _sort(kept)
    _meet(conn, attempt, rows, hidden)
    _write(conn, attempt, rows, samples)
    fresh = _fresh(rows, samples)
    series = TrialSeries(conn, trial.id, fresh.keys() | hidden.keys())
    for group in fresh.keys() | hidden.keys():
        series.absorb(group, fresh.get(group, []), hidden.get(group))
    changes: dict[str, Any] = {
        "summary_metrics": _summary(trial.summary_metrics, series.save()),
        "total_batches": _total_batches(conn, trial, rows, again=bool(hidden)),
    }
    if validations.GROUP in fresh or validations.GROUP in hidden:
        again = validations.GROUP in hidden
        changes |= validations.follow(conn, trial, goal, fresh.get(validations.GROUP, []), again=again)
    conn.execute(trials.update().where(trials.c.id == trial.id).values(**changes))
    if "searcher_metric_value" in changes:
        validations.follow_experiment(conn, trial, goal, changes["searcher_metric_value"])


_GOAL = sa.select(experiments.c.searcher_metric, experiments.c.smaller_is_better).where(
    experiments.c.id == sa.bindparam("experiment")
)


def _lock_trial(conn: sa.Connection, attempt: Attempt) -> sa.Row[Any]:
    trial = conn.execute(sa.select(trials).where(trials.c.id == attempt.trial_id).with_for_update()).first()
    if trial is None:
        raise errors.NotFound(f"There is no trial {attempt.trial_id} in this store. List them with: det trial ls")
    if trial.attempt > attempt.attempt:
        raise errors.StaleAttempt(
            f"Attempt {attempt.attempt} of trial {trial.id} can no longer report: attempt {trial.attempt} has begun. "
            "Stop this process; the newer one goes on."
        )
    return trial


def _hide_older(conn: sa.Connection, attempt: Attempt, reports: Sequence[MetricReport]) -> dict[str, int]:
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
    """Whether the attempt has reported a step. Samples may be many, so groups known to have steps are asked first."""
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


def _sort(
    kept: Iterable[tuple[MetricReport, dict[str, Json]]],
) -> tuple[dict[tuple[str, int], _Row], list[tuple[MetricReport, dict[str, Json]]]]:
    """Reports by group and step, merged; and those that belong to no step."""
    rows: dict[tuple[str, int], _Row] = {}
    samples = []
    for report, body in kept:
        if report.steps_completed is None:
            samples.append((report, body))
            continue
        place = (report.group, report.steps_completed)
        batches = _pack(report.batch_metrics)
        if place in rows:
            rows[place].merge(place, body, batches)
        else:
            rows[place] = _Row(report.time, body, body, batches)
    return rows, samples


def _meet(conn: sa.Connection, attempt: Attempt, rows: dict[tuple[str, int], _Row], hidden: dict[str, int]) -> None:
    """Merge with rows of this attempt that are there; hide rows of older attempts in the same place."""
    for group in {group for group, _ in rows}:
        for there in _standing(conn, attempt.trial_id, group, [steps for of, steps in rows if of == group]):
            place = (group, there.steps)
            if there.attempt != attempt.attempt:
                conn.execute(metrics.update().where(metrics.c.id == there.id).values(archived=True))
                hidden[group] = min(hidden.get(group, there.steps), there.steps)
                continue
            row = _Row(there.report_time, values.load(there.body), {}, there.batch_metrics, there.id)
            row.merge(place, rows[place].body, rows[place].batches)
            rows[place] = row


def _standing(conn: sa.Connection, trial_id: int, group: str, steps: list[int]) -> Iterator[sa.Row[Any]]:
    """Visible rows of a group at these steps."""
    here = (metrics.c.trial_id == trial_id, metrics.c.metric_group == group, metrics.c.archived == sa.false())
    newest = conn.scalar(sa.select(sa.func.max(metrics.c.steps)).where(*here))
    met = [] if newest is None else [step for step in steps if step <= newest]
    for start in range(0, len(met), _AT_ONCE):
        query = sa.select(metrics).where(*here, metrics.c.steps.in_(met[start : start + _AT_ONCE]))
        yield from conn.execute(query).all()


def _write(
    conn: sa.Connection,
    attempt: Attempt,
    rows: dict[tuple[str, int], _Row],
    samples: Sequence[tuple[MetricReport, dict[str, Json]]],
) -> None:
    common = {"trial_id": attempt.trial_id, "attempt": attempt.attempt, "archived": False}
    new = [
        {
            **common,
            "metric_group": group,
            "steps": steps,
            "report_time": row.time,
            "body": values.dump(row.body),
            "batch_metrics": row.batches,
        }
        for (group, steps), row in rows.items()
        if row.id is None
    ]
    new += [
        {
            **common,
            "metric_group": report.group,
            "steps": None,
            "report_time": report.time,
            "body": values.dump(body),
            "batch_metrics": _pack(report.batch_metrics),
        }
        for report, body in samples
    ]
    if new:
        conn.execute(metrics.insert(), new)
    for row in rows.values():
        if row.id is not None:
            changes = {"body": values.dump(row.body), "batch_metrics": row.batches}
            conn.execute(metrics.update().where(metrics.c.id == row.id).values(**changes))


def _fresh(
    rows: dict[tuple[str, int], _Row], samples: Iterable[tuple[MetricReport, dict[str, Json]]]
) -> dict[str, list[tuple[int | None, dict[str, Json]]]]:
    """What is new, by group, in order of steps."""
    fresh: dict[str, list[tuple[int | None, dict[str, Json]]]] = {}
    for (group, steps), row in sorted(rows.items(), key=lambda item: item[0]):
        fresh.setdefault(group, []).append((steps, row.fresh))
    for report, body in samples:
        fresh.setdefault(report.group, []).append((None, body))
    return fresh


def _summary(known: dict[str, Any], changes: dict[tuple[str, str], dict[str, Any] | None]) -> dict[str, Any]:
    whole = {key: dict(entries) for key, entries in (known or {}).items()}
    for (group, name), entry in changes.items():
        entries = whole.setdefault(summary.key(group), {})
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry
    return {key: entries for key, entries in whole.items() if entries}


def _total_batches(conn: sa.Connection, trial: sa.Row[Any], rows: dict[tuple[str, int], _Row], *, again: bool) -> int:
    if not again:
        return max([int(trial.total_batches), *(steps for _, steps in rows)])
    visible = (metrics.c.trial_id == trial.id, metrics.c.archived == sa.false())
    return int(conn.scalar(sa.select(sa.func.max(metrics.c.steps)).where(*visible)) or 0)


def _same(one: Json, other: Json) -> bool:
    return one == other or values.dump(one) == values.dump(other)  # NaN is the same as NaN here


def _pack(batches: list[dict[str, Json]] | dict[str, list[Json]] | None) -> bytes | None:
    return zlib.compress(values.dump(batches).encode(), 1) if batches else None


def _unpack(packed: bytes | None) -> list[dict[str, Json]] | None:
    if packed is None:
        return None
    return MetricReport("", {}, batch_metrics=values.load(zlib.decompress(packed))).batches()


def rows(
    conn: sa.Connection,
    trial_ids: int | Sequence[int],
    group: str | None = None,
    *,
    first: int | None = None,
    last: int | None = None,
    with_batches: bool = False,
) -> Iterator[MetricRow]:
    """The visible reports of trials, by trial and in order of steps; samples without steps come first.

    Args:
        conn: Where. Rows are fetched as they are asked for, so it must stay open meanwhile.
        trial_ids: Whose.
        group: Of this group only.
        first: From this step on.
        last: Up to and including this step.
        with_batches: Also the metrics of single batches, which take a while to unpack.
    """
    columns = [metrics.c[name] for name in ("trial_id", "attempt", "metric_group", "steps", "report_time", "body")]
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
        for row in conn.execute(query.execution_options(yield_per=2000)):
            batches = _unpack(row.batch_metrics) if with_batches else None
            body = values.load(row.body)
            yield MetricRow(row.trial_id, row.attempt, row.metric_group, row.steps, row.report_time, body, batches)


def names(
    conn: sa.Connection, *, experiment_id: int | None = None, trial_ids: Sequence[int] | None = None
) -> dict[str, list[str]]:
    """The metrics that an experiment, or some trials, have reported: names by group, both sorted."""
    query = sa.select(metric_series.c.metric_group, metric_series.c.name).distinct()
    if experiment_id is not None:
        query = query.join(trials, trials.c.id == metric_series.c.trial_id)
        query = query.where(trials.c.experiment_id == experiment_id)
    if trial_ids is not None:
        query = query.where(metric_series.c.trial_id.in_(list(trial_ids)))
    found: dict[str, list[str]] = {}
    for group, name in sorted(conn.execute(query).tuples()):
        found.setdefault(group, []).append(name)
    return found
