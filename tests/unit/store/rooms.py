"""Rows that many tests of the store begin with."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import sqlalchemy as sa

from determined.store import attempts, checkpoints, experiments, trials
from determined.store.attempts import Attempt
from determined.store.messages import CheckpointReport, MetricReport
from determined.store.metrics import metric_reports

START = datetime.datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=datetime.timezone.utc)
_names = itertools.count(1)


def minutes(number: float) -> datetime.datetime:
    """So many minutes after the start of everything."""
    return START + datetime.timedelta(minutes=number)


def add_run(conn: sa.Connection, *, managed: bool = False, **fields: Any) -> Attempt:
    """An experiment of one trial, whose first attempt runs."""
    given = {"name": "run", "config": {"searcher": {"name": "single"}}, "owner": "ada", "searcher_metric": "loss"}
    given |= {"state": "ACTIVE" if managed else "RUNNING", "unmanaged": not managed, "start_time": START}
    experiment_id = experiments.create(conn, **(given | fields))
    trial_id = trials.create(conn, experiment_id, hparams={"lr": 0.1}, state="RUNNING", start_time=START)
    return attempts.begin(conn, trial_id, run_name=f"run-{next(_names)}", time=START)


def validate(conn: sa.Connection, attempt: Attempt, steps: int, loss: Any) -> None:
    metric_reports.append(conn, attempt, [MetricReport("validation", {"loss": loss}, steps)])


def save(conn: sa.Connection, attempt: Attempt, uuid: str, steps: int, **fields: Any) -> None:
    given: dict[str, Any] = {
        "storage_id": uuid,
        "metadata": {"steps_completed": steps},
        "resources": {"a/": 0, "a/b": 10},
    }
    storage = fields.pop("storage", None)
    checkpoints.record(conn, attempt, CheckpointReport(**(given | fields)), storage)


def finish(conn: sa.Connection, attempt: Attempt, state: str = "COMPLETED") -> None:
    trials.set_state(conn, attempt.trial_id, state)
