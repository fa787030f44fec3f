"""Rows of one run in the store: begin it, write its reports, continue an older trial, find its checkpoints.

Every function works inside one transaction of its caller. This module loads SQL, so it is imported in the background.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from determined import _process, errors
from determined.core.recording.link import Attached, Candidate, History, choose_checkpoints
from determined.core.recording.run_description import Run, RunDescription
from determined.core.recording.values import differences
from determined.store import attempts, checkpoints, experiments, logs, rows, runs, trials, workspaces
from determined.store.attempts import Attempt
from determined.store.control import pending
from determined.store.messages import (
    CheckpointReport,
    CheckpointUseReport,
    EarlyExitReport,
    EnvironmentReport,
    FitReport,
    LogLine,
    MetadataReport,
    MetricReport,
    PreemptionAcknowledged,
    ProgressReport,
    Report,
    RunStateReport,
    StatusReport,
)
from determined.store.metrics import metric_reports

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclasses.dataclass(frozen=True)
class RecordedRun:
    """The attempt that a run is recorded as, and how far its reports go."""

    attempt: Attempt
    is_managed: bool = False
    """States, and the lines it prints, are kept by whoever started it."""
    steps: int = -1
    """The last step that was reported."""
    attempts: int = 1
    """How many attempts this process has been: a second fit() from the beginning is one more."""


def begin(
    conn: Connection, run: Run, description: RunDescription, last_seen: datetime.datetime | None = None
) -> RecordedRun:
    """Return the run's attempt, made now if need be: of its assigned trial, the one with its external id, or a new one.

    Args:
        conn: Where it is recorded.
        run: The run's name and directories.
        description: What is recorded about it, with its start: the store may have been unavailable till now.
        last_seen: When it was last known to be alive; None is now.
    """
    if (known := attempts.of_run(conn, run.name)) is not None:
        return RecordedRun(known, is_managed(conn, known))
    if description.is_managed and (assigned := _assigned_attempt(conn, run, description)) is not None:
        return RecordedRun(assigned, is_managed=True)
    trial_id = _external_trial(conn, description) if description.is_detached else None
    if trial_id is None:
        trial_id = _new_trial(conn, description, _new_experiment(conn, description))
    attempt = _begin_attempt(conn, trial_id, run.name, run, description, _started(description))
    attempts.beat(conn, attempt, last_seen)
    return RecordedRun(attempt)


def find(conn: Connection, run: Run, description: RunDescription) -> RecordedRun | None:
    """Return the attempt that the chief has begun; for the other ranks, which begin none."""
    if (known := attempts.of_run(conn, run.name)) is not None:
        return RecordedRun(known, is_managed(conn, known))
    if description.is_managed and (assigned := _find_assigned_attempt(conn, description)) is not None:
        return RecordedRun(assigned, is_managed=True)
    return None


def refresh(conn: Connection, run: Run, recorded: RecordedRun) -> RecordedRun:
    """Return the run with its newest attempt: the thread that writes the chief's reports may have moved it to the trial
    that it continues, or begun a new attempt, and other threads and ranks do not hear of that.
    """
    newest = None if recorded.is_managed else runs.last_life(conn, run.name)
    return recorded if newest is None else dataclasses.replace(recorded, attempt=newest)


def attached(conn: Connection, recorded: RecordedRun) -> Attached:
    """Return the run's trial, with its newest checkpoint."""
    attempt = recorded.attempt
    newest = checkpoints.newest(conn, attempt.trial_id)
    found = Attached(attempt.trial_id, attempt.experiment_id, attempt.attempt)
    if newest is None:
        return found
    return dataclasses.replace(found, latest_checkpoint=newest.uuid, steps_completed=newest.steps)


def _begin_attempt(
    conn: Connection,
    trial_id: int,
    name: str,
    run: Run,
    description: RunDescription,
    time: datetime.datetime | None = None,
) -> Attempt:
    return attempts.begin(
        conn,
        trial_id,
        run_name=name,
        node=description.host,
        pid=description.pid,
        process_started=_process.started(description.pid),
        environment=description.environment(),
        slots=description.slots,
        tensorboard=str(run.tensorboard),
        time=time,
    )


def _started(description: RunDescription) -> datetime.datetime | None:
    return datetime.datetime.fromisoformat(description.started) if description.started else None


def is_managed(conn: Connection, attempt: Attempt) -> bool:
    return not experiments.get(conn, attempt.experiment_id, deleted=True).unmanaged


def _assigned_attempt(conn: Connection, run: Run, description: RunDescription) -> Attempt | None:
    """Return the attempt that this process was started as, if the store knows the trial: ids may be another store's."""
    if (known := _find_assigned_attempt(conn, description)) is not None:
        runs.update_attempt(conn, known.allocation_id, run_name=run.name)
        attempts.contacted(conn, known.allocation_id)
        return dataclasses.replace(known, run_name=run.name)
    trial = _assigned_trial(conn, description)
    return None if trial is None else _begin_attempt(conn, trial.id, run.name, run, description)


def _assigned_trial(conn: Connection, description: RunDescription) -> trials.TrialRow | None:
    try:
        trial = trials.get(conn, description.told_trial_id or 0)
        experiment = experiments.get(conn, trial.experiment_id)
    except errors.NotFound:
        return None
    return None if experiment.unmanaged or experiment.id != description.told_experiment_id else trial


def _find_assigned_attempt(conn: Connection, description: RunDescription) -> Attempt | None:
    trial = _assigned_trial(conn, description)
    if trial is None:
        return None
    for row in reversed(attempts.of_trial(conn, trial.id)):
        told = description.told_allocation_id
        if row.allocation_id == told or (not told and row.attempt == description.told_attempt):
            return as_attempt(row)
    return None


def as_attempt(row: attempts.AttemptRow) -> Attempt:
    return Attempt(row.allocation_id, row.task_id, row.trial_id, row.experiment_id, row.attempt, row.run_name)


def _external_trial(conn: Connection, description: RunDescription) -> int | None:
    """Return the trial with these external ids, or a new one in the experiment that has one of them."""
    experiment_name = description.config.get("external_experiment_id")
    if experiment_name is None:
        return None
    rows.lock_name(conn, f"external experiment {experiment_name}")  # many workers begin at the same moment
    experiment_id = experiments.find_external(conn, experiment_name)
    if experiment_id is None:
        return None
    trial_name = description.config.get("external_trial_id")
    known = None if trial_name is None else trials.find_external(conn, experiment_id, trial_name)
    return known if known is not None else _new_trial(conn, description, experiment_id)


def _new_experiment(conn: Connection, description: RunDescription) -> int:
    config = description.config
    searcher = config.get("searcher") or {}
    return experiments.create(
        conn,
        name=description.name,
        config={**config, "hyperparameters": config.get("hyperparameters") or description.hparams},
        owner=description.owner,
        state="RUNNING",
        unmanaged=True,
        script=description.script,
        external_experiment_id=config.get("external_experiment_id") if description.is_detached else None,
        labels=[str(label)[:500] for label in config.get("labels") or [] if str(label).strip()],
        project_id=_project(conn, config),
        searcher_metric=searcher.get("metric"),
        smaller_is_better=bool(searcher.get("smaller_is_better", True)),
        description=str(config.get("description") or ""),
        start_time=_started(description),
    )


def _project(conn: Connection, config: dict[str, Any]) -> int:
    """Return the id of the project that the config names, made if need be."""
    workspace, name = str(config.get("workspace") or "Uncategorized"), config.get("project")
    if not name or name == workspace == "Uncategorized":
        return 1
    rows.lock_name(conn, "projects")
    try:
        workspaces.find_workspace(conn, workspace)
    except errors.NotFound:
        workspaces.create_workspace(conn, workspace)
    try:
        return workspaces.find_project(conn, workspace, str(name)).id
    except errors.NotFound:
        return workspaces.create_project(conn, workspace, str(name))


def _new_trial(conn: Connection, description: RunDescription, experiment_id: int) -> int:
    return trials.create(
        conn,
        experiment_id,
        hparams=description.hparams,
        state="RUNNING",
        seed=description.seed,
        external_trial_id=description.config.get("external_trial_id") if description.is_detached else None,
        start_time=_started(description),
    )


# Reports.


def deliver(
    conn: Connection, run: Run, description: RunDescription, recorded: RecordedRun, reports: Sequence[Report]
) -> RecordedRun:
    """Write reports, in the order they were made. Return the run as it is then, which counts once this is committed."""
    for fit, part in _by_fit(reports):
        if fit is not None:
            recorded = _begin_fit(conn, run, description, recorded, fit)
            if fit.retention and not recorded.is_managed:
                _set_retention(conn, recorded.attempt.experiment_id, fit.retention)
        measured = [report for report in part if isinstance(report, MetricReport)]
        metric_reports.append(conn, recorded.attempt, measured)
        steps = max(
            (report.steps_completed or 0 for report in measured if report.steps_completed is not None), default=-1
        )
        recorded = dataclasses.replace(recorded, steps=max(recorded.steps, steps))
        if recorded.is_managed:
            _tell_controller(conn, recorded.attempt, part)
        else:
            logs.append(conn, recorded.attempt, [report for report in part if isinstance(report, LogLine)])
        for report in _without_superseded(part):
            _record(conn, description, recorded, report)
    return recorded


def _tell_controller(conn: Connection, attempt: Attempt, reports: Sequence[Report]) -> None:
    """Hand on what the search decides by, in the transaction that stores it."""
    for report in reports:
        if isinstance(report, MetricReport) and report.group == "validation" and report.steps_completed is not None:
            told: dict[str, Any] = {"metrics": report.metrics, "steps_completed": report.steps_completed}
            kind = "VALIDATED"
        elif isinstance(report, EarlyExitReport) and "INVALID_HP" in report.reason:
            kind, told = "INVALID_HP", {}
        else:
            continue
        pending.append(conn, attempt.experiment_id, kind, told, trial_id=attempt.trial_id, attempt=attempt.attempt)


def _by_fit(reports: Sequence[Report]) -> Iterator[tuple[FitReport | None, list[Report]]]:
    """Split the reports where a fit begins."""
    fit: FitReport | None = None
    part: list[Report] = []
    for report in reports:
        if isinstance(report, FitReport):
            if part or fit is not None:
                yield fit, part
            fit, part = report, []
        else:
            part.append(report)
    yield fit, part


def _without_superseded(reports: Sequence[Report]) -> list[Report]:
    """Leave out metrics, lines, and all but the last report of progress and of status."""
    last: dict[type[Report], Report] = {
        type(report): report for report in reports if isinstance(report, (ProgressReport, StatusReport))
    }
    return [
        report
        for report in reports
        if not isinstance(report, (MetricReport, LogLine)) and last.get(type(report), report) is report
    ]


def _record(conn: Connection, description: RunDescription, recorded: RecordedRun, report: Report) -> None:
    attempt = recorded.attempt
    if isinstance(report, CheckpointReport):
        checkpoints.record(conn, attempt, with_steps(report, recorded), description.storage)
    elif isinstance(report, ProgressReport):
        trials.update(conn, attempt.trial_id, progress=report.progress)
        if not recorded.is_managed:
            experiments.update(conn, attempt.experiment_id, progress=report.progress)
    elif isinstance(report, StatusReport):
        trials.update(conn, attempt.trial_id, runner_state=report.status)
    elif isinstance(report, EarlyExitReport):
        trials.update(conn, attempt.trial_id, exit_reason=report.reason)
    elif isinstance(report, MetadataReport):
        trials.set_metadata(conn, attempt.trial_id, report.metadata)
    elif isinstance(report, PreemptionAcknowledged):
        attempts.acknowledge_preemption(conn, attempt.allocation_id)
    elif isinstance(report, CheckpointUseReport):
        runs.record_use(conn, attempt.trial_id, report.storage_id, report.model_id, report.model_version)
    elif isinstance(report, EnvironmentReport):
        runs.update_attempt(conn, attempt.allocation_id, environment=report.environment)
    elif isinstance(report, RunStateReport) and report.state != "RUNNING" and not recorded.is_managed:
        attempts.check_current(conn, attempt)
        code = 1 if report.state == "ERROR" else 0
        attempts.end(conn, attempt.allocation_id, exit_code=code, reason=report.reason or None, time=report.time)
        trials.set_state(conn, attempt.trial_id, report.state, report.reason, time=report.time)


def with_steps(report: CheckpointReport, recorded: RecordedRun) -> CheckpointReport:
    """Add the last reported step to a checkpoint of a plain run that says none."""
    if recorded.is_managed or report.state != "COMPLETED" or "steps_completed" in report.metadata:
        return report
    return dataclasses.replace(report, metadata={**report.metadata, "steps_completed": max(recorded.steps, 0)})


def _begin_fit(
    conn: Connection, run: Run, description: RunDescription, recorded: RecordedRun, fit: FitReport
) -> RecordedRun:
    """Make the run the next attempt of the trial that it continues; or record where its weights come from."""
    if recorded.is_managed:
        return recorded
    attempt = recorded.attempt
    owner = None if fit.storage_id is None else runs.owner_of(conn, fit.storage_id)
    if fit.storage_id is not None and owner != attempt.trial_id:
        joins = fit.joins and fit.continues and recorded.steps < 0
        if owner is not None and joins and _may_continue(conn, description, owner):
            try:
                return dataclasses.replace(recorded, attempt=attempts.move(conn, attempt.run_name or run.name, owner))
            except errors.Refused:
                pass  # it has saved something of its own already
        trials.update(conn, attempt.trial_id, warm_start_checkpoint_uuid=fit.storage_id[:64])
        if owner is not None:
            experiments.update(conn, attempt.experiment_id, parent_id=experiment_of(conn, fit.storage_id))
    if recorded.steps > fit.steps:
        number = recorded.attempts + 1
        again = _begin_attempt(conn, attempt.trial_id, f"{run.name}+{number}", run, description)
        return dataclasses.replace(recorded, attempt=again, steps=-1, attempts=number)
    return recorded


def _set_retention(conn: Connection, experiment_id: int, retention: dict[str, int]) -> None:
    """Write into the experiment's config how many checkpoints to keep."""
    config = experiments.get(conn, experiment_id).config or {}
    storage = {**(config.get("checkpoint_storage") or {}), **retention}
    experiments.update(conn, experiment_id, config={**config, "checkpoint_storage": storage})


def _may_continue(conn: Connection, description: RunDescription, trial_id: int) -> bool:
    """Whether the run is the same training as that trial: same script and hyperparameters, and no process trains it."""
    try:
        trial = trials.get(conn, trial_id)
        experiment = experiments.get(conn, trial.experiment_id)
    except errors.NotFound:
        return False  # deleted
    return (
        experiment.unmanaged
        and not description.is_detached
        and experiment.external_experiment_id is None
        and description.script is not None
        and experiment.script == description.script
        and not differences(description.hparams, trial.hparams)
        and trial.state != "RUNNING"
    )


# Earlier runs.


def metadata(conn: Connection, run: Run, recorded: RecordedRun) -> dict[str, Any]:
    """Return the metadata of the run's trial."""
    return trials.get(conn, refresh(conn, run, recorded).attempt.trial_id).metadata


def experiment_of(conn: Connection, storage_id: str) -> int | None:
    """Return the experiment that a checkpoint belongs to."""
    owner = runs.owner_of(conn, storage_id)
    return None if owner is None else trials.get(conn, owner, deleted=True).experiment_id


def find_checkpoints(
    conn: Connection,
    description: RunDescription,
    which: Literal["latest", "best"],
    trial_class: str,
    smaller_is_better: bool,
    own_trial: int | None = None,
) -> History | None:
    """Return the checkpoints of this script, trial class and hyperparameters in this storage, newest or best first."""
    if description.script is None:
        return None
    rows = reversed(runs.saved_by(conn, description.script, description.storage, own_trial))
    candidates = [Candidate(row.uuid, row.metadata, row.hparams, f"experiment {row.experiment_id}") for row in rows]
    history = choose_checkpoints(candidates, which, trial_class, smaller_is_better, description.hparams)
    return dataclasses.replace(history, others=runs.recorded_uuids(conn).difference(history.found))


def best_before(conn: Connection, description: RunDescription, storage_id: str) -> float | None:
    """Return the best searcher metric of a checkpoint's trial up to the step it was saved at."""
    searcher = description.config.get("searcher") or {}
    try:
        saved = checkpoints.get(conn, storage_id)
    except errors.NotFound:
        return None
    values = [
        row.metrics.get(str(searcher.get("metric")))
        for row in metric_reports.rows(conn, saved.trial_id, "validation", last=saved.steps)
    ]
    numbers = [
        float(value)
        for value in values
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
    ]
    better = min if searcher.get("smaller_is_better", True) else max
    return better(numbers) if numbers else None
