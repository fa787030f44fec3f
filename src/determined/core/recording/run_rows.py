"""One run as rows of the store: begin it, deliver its reports, continue an older trial, look at the past.

Every function works inside one transaction of its caller. This module loads SQL, so it is imported in the background.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from determined import errors
from determined.core.recording.link import Attached, History, Run, Unlike
from determined.core.recording.run_description import RunDescription
from determined.core.recording.values import differences
from determined.store import attempts, checkpoints, experiments, logs, processes, runs, trials, workspaces
from determined.store.attempts import Attempt
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
class Standing:
    """Where the records of a run are, and how far they go."""

    attempt: Attempt
    is_managed: bool = False
    """States, and the lines it prints, are kept by whoever started it."""
    steps: int = -1
    """The furthest that was reported."""
    lives: int = 1
    """How many attempts this process has been: a second fit() from the beginning is one more."""


def begin(conn: Connection, run: Run, description: RunDescription, heard: datetime.datetime | None = None) -> Standing:
    """The run's attempt, made now unless it is there. The trial is the told one, the named one, or a new one.

    Args:
        conn: Where it is recorded.
        run: The run's name and places.
        description: What is recorded about it, also when it started: the store may have been out of reach till now.
        heard: When it was last known to live; None is now.
    """
    trials.settle(conn)
    if (known := attempts.of_run(conn, run.name)) is not None:
        return Standing(known, _is_managed(conn, known))
    if description.is_managed and (told := _told(conn, run, description)) is not None:
        return Standing(told, is_managed=True)
    trial_id = _named_trial(conn, description) if description.is_detached else None
    if trial_id is None:
        trial_id = _new_trial(conn, description, _new_experiment(conn, description))
    attempt = _begin_attempt(conn, trial_id, run.name, run, description, _started(description))
    attempts.beat(conn, attempt, heard)
    return Standing(attempt)


def find(conn: Connection, run: Run, description: RunDescription) -> Standing | None:
    """The attempt that the chief has begun; for the other ranks, who begin nothing."""
    if (known := attempts.of_run(conn, run.name)) is not None:
        return Standing(known, _is_managed(conn, known))
    if description.is_managed and (told := _told_attempt(conn, description)) is not None:
        return Standing(told, is_managed=True)
    return None


def follow(conn: Connection, run: Run, standing: Standing) -> Standing:
    """Where a run stands by now: the thread that writes the chief's reports may have taken it over to the trial that it
    continues, or begun again, which other threads and other ranks are not told.
    """
    newest = None if standing.is_managed else runs.last_life(conn, run.name)
    return standing if newest is None else dataclasses.replace(standing, attempt=newest)


def attached(conn: Connection, standing: Standing) -> Attached:
    """What a process wants to know about the trial that it is."""
    attempt = standing.attempt
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
        process_started=processes.started(description.pid),
        environment=description.environment(),
        slots=description.slots,
        tensorboard=str(run.tensorboard),
        time=time,
    )


def _started(description: RunDescription) -> datetime.datetime | None:
    return datetime.datetime.fromisoformat(description.started) if description.started else None


def _is_managed(conn: Connection, attempt: Attempt) -> bool:
    return not experiments.get(conn, attempt.experiment_id, deleted=True).unmanaged


def _told(conn: Connection, run: Run, description: RunDescription) -> Attempt | None:
    """The attempt that this process was told it is, if the store knows the trial. Another store's ids mean nothing."""
    if (known := _told_attempt(conn, description)) is not None:
        runs.set_run_name(conn, known.allocation_id, run.name)
        return dataclasses.replace(known, run_name=run.name)
    trial = _told_trial(conn, description)
    return None if trial is None else _begin_attempt(conn, trial.id, run.name, run, description)


def _told_trial(conn: Connection, description: RunDescription) -> trials.TrialRow | None:
    try:
        trial = trials.get(conn, description.told_trial_id or 0)
        experiment = experiments.get(conn, trial.experiment_id)
    except errors.NotFound:
        return None
    return None if experiment.unmanaged or experiment.id != description.told_experiment_id else trial


def _told_attempt(conn: Connection, description: RunDescription) -> Attempt | None:
    trial = _told_trial(conn, description)
    if trial is None:
        return None
    for row in reversed(attempts.of_trial(conn, trial.id)):
        told = description.told_allocation_id
        if row.allocation_id == told or (not told and row.attempt == description.told_attempt):
            return _as_attempt(row)
    return None


def _as_attempt(row: attempts.AttemptRow) -> Attempt:
    return Attempt(row.allocation_id, row.task_id, row.trial_id, row.experiment_id, row.attempt, row.run_name)


def _named_trial(conn: Connection, description: RunDescription) -> int | None:
    """The trial with these names of the outside, or a new one in the experiment that has them."""
    outside = description.config.get("external_experiment_id")
    if outside is None:
        return None
    experiment_id = experiments.find_external(conn, outside)
    if experiment_id is None:
        return None
    inside = description.config.get("external_trial_id")
    known = None if inside is None else trials.find_external(conn, experiment_id, inside)
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
    """The project that the config names, made if need be."""
    workspace, name = str(config.get("workspace") or "Uncategorized"), config.get("project")
    if not name or name == workspace == "Uncategorized":
        return 1
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
    conn: Connection, run: Run, description: RunDescription, standing: Standing, reports: Sequence[Report]
) -> Standing:
    """Write reports, in the order they were made. Returns where the run stands then; it counts once all is kept."""
    for fit, part in _by_fit(reports):
        if fit is not None:
            standing = _begin_fit(conn, run, description, standing, fit)
            if fit.retention and not standing.is_managed:
                _note_retention(conn, standing.attempt.experiment_id, fit.retention)
        measured = [report for report in part if isinstance(report, MetricReport)]
        metric_reports.append(conn, standing.attempt, measured)
        steps = max(
            (report.steps_completed or 0 for report in measured if report.steps_completed is not None), default=-1
        )
        standing = dataclasses.replace(standing, steps=max(standing.steps, steps))
        if not standing.is_managed:
            logs.append(conn, standing.attempt, [report for report in part if isinstance(report, LogLine)])
        for report in _last_words(part):
            _note(conn, description, standing, report)
    return standing


def _by_fit(reports: Sequence[Report]) -> Iterator[tuple[FitReport | None, list[Report]]]:
    """The reports, cut where a fit begins."""
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


def _last_words(reports: Sequence[Report]) -> list[Report]:
    """Without metrics, lines, and all but the last word on progress and status."""
    last: dict[type[Report], Report] = {
        type(report): report for report in reports if isinstance(report, (ProgressReport, StatusReport))
    }
    return [
        report
        for report in reports
        if not isinstance(report, (MetricReport, LogLine)) and last.get(type(report), report) is report
    ]


def _note(conn: Connection, description: RunDescription, standing: Standing, report: Report) -> None:
    attempt = standing.attempt
    if isinstance(report, CheckpointReport):
        checkpoints.record(conn, attempt, _with_steps(report, standing), description.storage)
    elif isinstance(report, ProgressReport):
        trials.update(conn, attempt.trial_id, progress=report.progress)
        if not standing.is_managed:
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
        runs.set_environment(conn, attempt.allocation_id, report.environment)
    elif isinstance(report, RunStateReport) and report.state != "RUNNING" and not standing.is_managed:
        attempts.check_current(conn, attempt)
        code = 1 if report.state == "ERROR" else 0
        attempts.end(conn, attempt.allocation_id, exit_code=code, reason=report.reason or None, time=report.time)
        trials.set_state(conn, attempt.trial_id, report.state, report.reason, time=report.time)


def _with_steps(report: CheckpointReport, standing: Standing) -> CheckpointReport:
    """A plain run may save without saying at which step; then it is the last one it has reported."""
    if standing.is_managed or report.state != "COMPLETED" or "steps_completed" in report.metadata:
        return report
    return dataclasses.replace(report, metadata={**report.metadata, "steps_completed": max(standing.steps, 0)})


def _begin_fit(conn: Connection, run: Run, description: RunDescription, standing: Standing, fit: FitReport) -> Standing:
    """Have the run be the next attempt of the trial that it goes on with; or note where its weights come from."""
    if standing.is_managed:
        return standing
    attempt = standing.attempt
    owner = None if fit.storage_id is None else runs.owner_of(conn, fit.storage_id)
    if fit.storage_id is not None and owner != attempt.trial_id:
        joins = fit.joins and fit.continues and standing.steps < 0
        if owner is not None and joins and _may_continue(conn, description, owner):
            try:
                return dataclasses.replace(standing, attempt=attempts.move(conn, attempt.run_name or run.name, owner))
            except errors.Refused:
                pass  # it has saved something of its own already
        trials.update(conn, attempt.trial_id, warm_start_checkpoint_uuid=fit.storage_id[:64])
        if owner is not None:
            parent = trials.get(conn, owner, deleted=True).experiment_id
            experiments.update(conn, attempt.experiment_id, parent_id=parent)
    if standing.steps > fit.steps:
        lives = standing.lives + 1
        again = _begin_attempt(conn, attempt.trial_id, f"{run.name}+{lives}", run, description)
        return dataclasses.replace(standing, attempt=again, steps=-1, lives=lives)
    return standing


def _note_retention(conn: Connection, experiment_id: int, retention: dict[str, int]) -> None:
    """Have the experiment's config say how many checkpoints to keep, for whoever clears up."""
    config = experiments.get(conn, experiment_id).config or {}
    storage = {**(config.get("checkpoint_storage") or {}), **retention}
    experiments.update(conn, experiment_id, config={**config, "checkpoint_storage": storage})


def _may_continue(conn: Connection, description: RunDescription, trial_id: int) -> bool:
    """Whether the run is the same training as that trial: same script, same hyperparameters, nobody else's now."""
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


# What dead runs have left.


def adopt(
    conn: Connection,
    run: Run,
    description: RunDescription,
    reports: Sequence[Report],
    stored: dict[str, CheckpointReport],
    fit: FitReport | None = None,
) -> None:
    """Deliver what a run could not deliver itself before it died.

    Args:
        conn: Where to.
        run: The dead run.
        description: What it had said about itself.
        reports: What it had wanted to say.
        stored: Of the checkpoints in doubt: what is the case now.
        fit: How its training began, which it may not have delivered either.
    """
    came = [report for report in stored.values() if report.state == "COMPLETED" and not _is_known(conn, report)]
    _note_gone(conn, stored)
    known = runs.last_life(conn, run.name)
    if known is None and not reports and not came:
        return
    if known is None:
        last = max(report.time for report in [*reports, *came])
        standing = begin(conn, run, description, last)
    else:
        standing = Standing(known, _is_managed(conn, known))
    trials.settle(conn)  # the dead are no longer running, so they can be continued
    try:
        attempts.check_current(conn, standing.attempt)
    except errors.StaleAttempt:  # its trial was continued meanwhile, and what it had to say is out of date
        newest = attempts.of_trial(conn, standing.attempt.trial_id)[-1]
        standing = dataclasses.replace(standing, attempt=_as_attempt(newest))
    else:
        begun = [] if fit is None or any(isinstance(report, FitReport) for report in reports) else [fit]
        standing = deliver(conn, run, description, standing, [*begun, *_unknown(conn, standing.attempt, reports)])
    for report in came:
        checkpoints.record(conn, standing.attempt, _with_steps(report, standing), description.storage)
    _note_gone(conn, stored)  # some may have been reported only now
    trials.settle(conn)


def _unknown(conn: Connection, attempt: Attempt, reports: Sequence[Report]) -> list[Report]:
    """Without lines and samples that the store has: a process that dies as it delivers them has them on disk, too."""
    lines = [report for report in reports if isinstance(report, LogLine)]
    samples = [report for report in reports if isinstance(report, MetricReport) and report.steps_completed is None]
    kept = {id(report) for report in logs.unknown(conn, attempt, lines)}
    kept |= {id(report) for report in metric_reports.unknown_samples(conn, attempt, samples)}
    known = {id(report) for report in (*lines, *samples)} - kept
    return [report for report in reports if id(report) not in known]


def _note_gone(conn: Connection, stored: dict[str, CheckpointReport]) -> None:
    """Those that went unseen, whoever's they were."""
    for report in stored.values():
        if report.state != "COMPLETED" and _is_known(conn, report):
            checkpoints.set_state(conn, report.storage_id, report.state)


def _is_known(conn: Connection, report: CheckpointReport) -> bool:
    return runs.owner_of(conn, report.storage_id) is not None


# The past.


def history(
    conn: Connection,
    description: RunDescription,
    which: Literal["latest", "best"],
    trial_class: str,
    smaller_is_better: bool,
    own_trial: int | None = None,
) -> History | None:
    """The checkpoints of this script, trial class and hyperparameters in this storage, the newest or best first."""
    if description.script is None:
        return None
    found: list[tuple[float, str]] = []
    unlike: Unlike | None = None
    for row in reversed(runs.saved_by(conn, description.script, description.storage, own_trial)):
        spec, value = str(row.metadata.get("trial_class", "")), row.metadata.get("searcher_metric")
        if trial_class not in (spec, spec.rpartition(":")[2]) or row.metadata.get("test_mode"):
            continue
        if differences(description.hparams, row.hparams):
            unlike = unlike or Unlike(f"experiment {row.experiment_id}", row.hparams)
        elif which == "latest":
            found.append((0, row.uuid))
        elif isinstance(value, (int, float)) and not math.isnan(value):
            found.append((value if smaller_is_better else -value, row.uuid))
    found.sort(key=lambda one: one[0])  # of equals the newest stays first
    fitting = [uuid for _, uuid in found]
    return History(fitting, runs.recorded_uuids(conn).difference(fitting), unlike)


def best_before(conn: Connection, description: RunDescription, storage_id: str) -> float | None:
    """The best searcher metric of a checkpoint's trial up to the step it was saved at."""
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
