"""An experiment in a few figures, for the head of its page: no trial is looked at by itself, so many cost little."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Any

from determined import store
from determined.client._listing import section
from determined.client.following.progress import TimeLeft, in_order
from determined.client.following.replay import has_rungs
from determined.experiment.lifecycle import State, shown_state
from determined.store.messages import now

if TYPE_CHECKING:
    import sqlalchemy as sa

    from determined.store.experiments import ExperimentRow


@dataclasses.dataclass(frozen=True)
class Header:
    """What the head of an experiment's page says besides its fields.

    Args:
        row: Its fields, the bulky ones included.
        state: As it is shown: QUEUED, STARTING or RUNNING by its most advanced trial.
        project: The name of its project.
        workspace: The name of the workspace of that.
        seconds: For how long it has been there.
        seconds_left: How long it may still take, if that can be told.
        counts: How many trials are in each state, those that work first.
        restarts: How often its trials were started again after a failure.
        slots: How many slots its processes hold now.
        single_trial_id: Its trial, if it cannot have more than one.
        best_checkpoint_uuid: Its best checkpoint, if one was validated by the searcher metric.
        metric_names: What its trials reported, by group.
        has_rungs: Its search has rungs.
    """

    row: ExperimentRow
    state: str
    project: str
    workspace: str
    seconds: float
    seconds_left: float | None
    counts: dict[str, int]
    restarts: int
    slots: int
    single_trial_id: int | None
    best_checkpoint_uuid: str | None
    metric_names: dict[str, list[str]]
    has_rungs: bool

    @property
    def searcher(self) -> str:
        """The name of its search method; empty if nothing says."""
        return str(self.section("searcher").get("name") or "")

    def section(self, name: str) -> dict[str, Any]:
        """Return a section of its configuration; empty if it has none."""
        return section(self.row.config, name)


def read(conn: sa.Connection, experiment_id: int) -> Header:
    """Read the figures of an experiment.

    Raises:
        NotFound: There is no such experiment.
    """
    row, time = store.experiments.get(conn, experiment_id), now()
    going = store.overview.running.going(conn, row.id)
    state = _state(conn, row, store.overview.running.states(going))
    project = store.workspaces.get_project(conn, row.project_id)
    is_running = state in ("RUNNING", "STARTING")
    best = None if row.best_trial_id is None else store.checkpoints.best(conn, experiment_id=row.id)
    config = row.config or {}
    return Header(
        row=row,
        state=state,
        project=project.name,
        workspace=store.workspaces.find_workspace(conn, project.workspace_id).name,
        seconds=((row.end_time or time) - row.start_time).total_seconds(),
        seconds_left=TimeLeft().estimate(row.progress, time, is_running=is_running, since=row.start_time),
        counts=_counts(conn, row.id, going),
        restarts=store.trials.total_restarts(conn, row.id, None if row.unmanaged else config.get("max_restarts")),
        slots=sum(launch.slots for launch in going),
        single_trial_id=_single_trial(conn, row),
        best_checkpoint_uuid=None if best is None else best.uuid,
        metric_names=store.metrics.metric_reports.names(conn, experiment_id=row.id),
        has_rungs=not row.unmanaged and has_rungs(config),
    )


def _state(conn: sa.Connection, row: ExperimentRow, live: list[str]) -> str:
    from determined.store.control import pending

    # What was submitted and is not taken up yet looks as if it were paused.
    is_submitted = row.state == "PAUSED" and bool(pending.read(conn, 1, experiment_id=row.id))
    return shown_state(State.ACTIVE if is_submitted else State(row.state), live)


def _counts(conn: sa.Connection, experiment_id: int, going: list[store.overview.running.Launch]) -> dict[str, int]:
    """Return how many trials are in each state, ACTIVE ones by their processes."""
    found = collections.Counter(store.experiments.trial_counts(conn, [experiment_id])[experiment_id])
    live: dict[int, list[str]] = {}
    for launch in going:
        live.setdefault(launch.trial_id, []).append(launch.state)
    active = found.pop("ACTIVE", 0)
    for trial_id in store.trials.in_state(conn, list(live), "ACTIVE") if active else ():
        found[shown_state(State.ACTIVE, live[trial_id])] += 1
        active -= 1
    found[shown_state(State.ACTIVE, ())] += active
    return in_order(found)


def _single_trial(conn: sa.Connection, row: ExperimentRow) -> int | None:
    if section(row.config, "searcher").get("name") != "single" and not (row.unmanaged and row.trial_count == 1):
        return None
    first = store.trials.of_experiment(conn, row.id, limit=1)
    return first[0].id if first else None
