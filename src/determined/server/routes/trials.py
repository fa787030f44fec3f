"""Trials: look at one, its reports and its life; stop or kill."""

from __future__ import annotations

import datetime
from typing import Any, Literal

from fastapi import APIRouter

from determined import store
from determined.client import Determined
from determined.client._compare import GROUPS
from determined.client.following.possible import trial_actions
from determined.errors import DeterminedError
from determined.server.answers.common import Outcome, Outcomes
from determined.server.answers.trials import (
    AttemptAnswer,
    CheckpointBrief,
    MetricSummary,
    Report,
    Reports,
    Timeline,
    TrialAnswer,
    TrialBulk,
)
from determined.server.depends import Client, StoreSession
from determined.server.paging import Limit, Offset
from determined.server.reading.snippets import load_line
from determined.server.reading.timeline import moments
from determined.server.rules import CHANGES, READS
from determined.store.attempts import AttemptRow
from determined.store.checkpoints import CheckpointRow

router = APIRouter(tags=["trials"])


@router.get("/trials/{trial_id}", **READS)
def trial(client: Client, session: StoreSession, trial_id: int) -> TrialAnswer:
    """Return a trial."""
    found = client.get_trial(trial_id)
    attempts = found.attempts()
    with session.read() as conn:
        owner = store.experiments.get(conn, found.experiment_id)
        project = store.workspaces.get_project(conn, owner.project_id)
        best = store.checkpoints.best(conn, trial_id=trial_id)
        latest = store.checkpoints.newest(conn, trial_id)
        series = store.metrics.metric_reports.series(conn, [trial_id])
        actions = trial_actions(conn, store.trials.get(conn, trial_id))
    now = datetime.datetime.now(datetime.timezone.utc)
    last = attempts[-1] if attempts else None
    return TrialAnswer(
        id=found.id,
        experiment_id=owner.id,
        experiment=owner.name,
        project_id=project.id,
        project=project.name,
        state=str(found.state),
        state_reason=found.state_reason,
        runner_state=found.runner_state,
        unmanaged=owner.unmanaged,
        hparams=found.hparams,
        metadata=found.metadata,
        seed=found.seed,
        attempt=found.attempt,
        restarts=found.restarts,
        start_time=found.start_time,
        end_time=found.end_time,
        seconds=((found.end_time or now) - found.start_time).total_seconds(),
        progress=found.progress,
        total_batches=found.total_batches,
        searcher_metric=owner.searcher_metric,
        smaller_is_better=owner.smaller_is_better,
        best_metric=found.best_metric,
        latest_metric=found.latest_metric_value,
        slots=last.slots if last else 0,
        checkpoint_count=found.checkpoint_count,
        checkpoint_size=found.checkpoint_size,
        best_checkpoint=_brief(best),
        latest_checkpoint=_brief(latest),
        load_line="" if best is None else load_line(best.uuid, best.resources),
        warm_start_checkpoint_uuid=found.warm_start_checkpoint_uuid,
        log_retention_days=found.log_retention_days,
        log_policy_matched=found.log_policy_matched,
        metrics=_summaries(found.summary_metrics, series),
        attempts=[_attempt(each) for each in attempts],
        environment=last.environment if last else {},
        tensorboard=[each.tensorboard for each in attempts if each.tensorboard],
        has_code=owner.code_snapshot_id is not None,
        actions=actions,
    )


def _brief(row: CheckpointRow | None) -> CheckpointBrief | None:
    if row is None:
        return None
    return CheckpointBrief(
        uuid=row.uuid, steps=row.steps, value=row.searcher_metric, time=row.report_time, size=row.size
    )


def _attempt(row: AttemptRow) -> AttemptAnswer:
    return AttemptAnswer(**{name: getattr(row, name) for name in AttemptAnswer.model_fields})


def _summaries(summary: dict[str, Any], series: list[store.metrics.metric_reports.SeriesRow]) -> list[MetricSummary]:
    """Return what is known of each metric: figures from the trial's summary, lengths from its curves."""
    found = {(GROUPS.get(key, key), name): entry for key, names in summary.items() for name, entry in names.items()}
    return [
        MetricSummary(
            group=row.group,
            name=row.name,
            type=entry["type"],
            points=row.points or entry.get("count", 0),
            last=entry.get("last"),
            min=entry.get("min"),
            max=entry.get("max"),
            mean=entry.get("mean"),
            last_steps=row.last_steps,
        )
        for row in series
        if (entry := found.get((row.group, row.name))) is not None
    ]


@router.post("/trials/actions", **CHANGES)
def act(client: Client, asked: TrialBulk) -> Outcomes:
    """Stop trials at their next checkpoint, or kill them."""
    return Outcomes(outcomes=[_act(client, asked.action, each) for each in dict.fromkeys(asked.ids)])


def _act(client: Determined, action: Literal["stop", "kill"], trial_id: int) -> Outcome:
    """Do what `det trial stop` and `det trial kill` do; one that is refused keeps the others from nothing."""
    try:
        found = client.get_trial(trial_id)
        if action == "kill":
            found.kill()
            said = f"Trial {trial_id}: killed."
        elif found.state.is_terminal:
            said = f"Trial {trial_id} has ended ({found.state}) already."
        else:
            found.stop()
            said = f"Trial {trial_id}: asked to save a checkpoint and leave."
    except DeterminedError as refused:
        return Outcome(id=trial_id, is_done=False, said=str(refused))
    return Outcome(id=trial_id, is_done=True, said=said)


@router.get("/trials/{trial_id}/reports", **READS)
def reports(
    session: StoreSession,
    trial_id: int,
    which: Literal["all", "validation", "checkpoint"] = "all",
    offset: Offset = 0,
    limit: Limit = 100,
) -> Reports:
    """Return what it reported, step by step, the newest first."""
    with session.read() as conn:
        begin = store.trials.get(conn, trial_id).start_time
        found, total = store.metrics.steps.page(conn, trial_id, which, limit=limit, offset=offset)
    rows = [
        Report(
            steps=row.steps,
            time=row.time or begin,
            attempt=row.attempt,
            values=row.values,
            checkpoint_uuid=row.checkpoint_uuid,
            has_validation=row.has_validation,
        )
        for row in found
    ]
    return Reports(reports=rows, total=total)


@router.get("/trials/{trial_id}/timeline", **READS)
def timeline(session: StoreSession, trial_id: int) -> Timeline:
    """Return the moments of its life: attempts, checkpoints, validations, changes of state."""
    with session.read() as conn:
        return Timeline(moments=moments(conn, trial_id))
