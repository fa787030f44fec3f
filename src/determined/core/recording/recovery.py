"""Delivers what dead runs left in their directories: reports, and checkpoints stored or deleted without a report.

This module loads SQL, so it is imported in the background.
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined import artifacts, errors
from determined.core.recording import run_rows
from determined.core.recording.journal import UnfinishedRun, find_unfinished
from determined.core.recording.run_description import Run, RunDescription
from determined.core.recording.run_rows import RecordedRun
from determined.store import attempts, checkpoints, logs, runs, trials
from determined.store.attempts import Attempt
from determined.store.messages import CheckpointReport, FitReport, LogLine, MetricReport, Report
from determined.store.metrics import metric_reports

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from determined.store.database.connection import Store

logger = logging.getLogger("determined.core")

METADATA = "metadata.json"


def recover_runs(store: Store, home: Path, store_hash: str) -> None:
    """Deliver what dead runs in this data directory have left for this store. One that fails stays for the next run.

    Raises:
        StoreUnavailable: The store cannot be written to now; nothing is lost.
    """
    for unfinished in find_unfinished(home / "runs"):
        if unfinished.description.store != store_hash:
            continue
        try:
            _recover_run(store, Run(unfinished.name.partition(".")[0], home), unfinished)
        except errors.StoreUnavailable:
            raise
        except Exception as failed:  # noqa: BLE001 - no reason not to record this run
            logger.debug("Run %s is not recovered: %s", unfinished.name, failed)


def _recover_run(store: Store, run: Run, unfinished: UnfinishedRun) -> None:
    reports = unfinished.reports()
    found = _look_at(unfinished.description, unfinished.pending_checkpoints())
    with store.write() as conn:
        _write(conn, run, unfinished, reports, found)
    unfinished.remove()
    lines = sum(isinstance(report, LogLine) for report in reports)
    logger.info("Run %s: %d reports and %d lines are delivered late.", run.name, len(reports) - lines, lines)


def _look_at(description: RunDescription, pending: Mapping[str, datetime.datetime]) -> list[CheckpointReport]:
    """Report pending checkpoints as they are in the storage now."""
    if not pending or description.storage is None:
        return []
    storage = artifacts.open_storage(description.storage)
    found = []
    for storage_id, when in pending.items():
        if not storage.exists(storage_id):
            found.append(CheckpointReport(storage_id, {}, {}, "DELETED", time=when))
            continue
        manifest = storage.manifest(storage_id)
        metadata: dict[str, Any] = {}
        if METADATA in manifest.files:
            metadata = artifacts.documents.parse(storage.read_bytes(storage_id, METADATA), METADATA)
        found.append(CheckpointReport(storage_id, metadata, dict(manifest.resources), time=when))
    return found


def _write(
    conn: Connection,
    run: Run,
    unfinished: UnfinishedRun,
    reports: Sequence[Report],
    found: Sequence[CheckpointReport],
) -> None:
    """Write what a run left: its reports, and its pending checkpoints as they were found."""
    description, fit = unfinished.description, unfinished.fit
    stored = [report for report in found if report.state == "COMPLETED" and not _is_known(conn, report)]
    _mark_deleted(conn, found)
    known = runs.last_life(conn, run.name)
    if known is None and not reports and not stored:
        return
    if known is None:
        last_seen = max(report.time for report in [*reports, *stored])
        recorded = run_rows.begin(conn, run, description, last_seen)
    else:
        recorded = RecordedRun(known, run_rows.is_managed(conn, known))
    trials.settle(conn)  # dead runs are no longer running, so they can be continued
    try:
        attempts.check_current(conn, recorded.attempt)
    except errors.StaleAttempt:  # its trial was continued meanwhile, so its reports are out of date
        newest = attempts.of_trial(conn, recorded.attempt.trial_id)[-1]
        recorded = dataclasses.replace(recorded, attempt=run_rows.as_attempt(newest))
    else:
        begun = [] if fit is None or any(isinstance(report, FitReport) for report in reports) else [fit]
        missing = [*begun, *_without_stored(conn, recorded.attempt, reports)]
        recorded = run_rows.deliver(conn, run, description, recorded, missing)
    for report in stored:
        checkpoints.record(conn, recorded.attempt, run_rows.with_steps(report, recorded), description.storage)
    _mark_deleted(conn, found)  # some may have been reported only now
    trials.settle(conn)


def _without_stored(conn: Connection, attempt: Attempt, reports: Sequence[Report]) -> list[Report]:
    """Leave out lines and samples that the store has: a process that dies as it delivers them has them on disk, too."""
    lines = [report for report in reports if isinstance(report, LogLine)]
    samples = [report for report in reports if isinstance(report, MetricReport) and report.steps_completed is None]
    missing = {id(report) for report in logs.unknown(conn, attempt, lines)}
    missing |= {id(report) for report in metric_reports.unknown_samples(conn, attempt, samples)}
    stored = {id(report) for report in (*lines, *samples)} - missing
    return [report for report in reports if id(report) not in stored]


def _mark_deleted(conn: Connection, found: Sequence[CheckpointReport]) -> None:
    """Record which checkpoints are gone, of whichever run they were."""
    for report in found:
        if report.state != "COMPLETED" and _is_known(conn, report):
            checkpoints.set_state(conn, report.storage_id, report.state)


def _is_known(conn: Connection, report: CheckpointReport) -> bool:
    return runs.owner_of(conn, report.storage_id) is not None
