"""What the first page shows: what runs now, what ended since a moment, what failed and with which last line."""

from __future__ import annotations

import contextlib
import datetime
import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from determined import store
from determined.client import Determined
from determined.client.following.occupancy import Occupancy, occupancy
from determined.client.following.progress import TimeLeft, in_order
from determined.errors import DeterminedError
from determined.experiment.launchers import choice
from determined.experiment.slots import Slots, detect
from determined.server.answers.overview import EndedExperiment, Home, RecentProject, RunningExperiment
from determined.server.answers.tables import Condition, Group, TableQuestion
from determined.server.reading.log_lines import plain
from determined.server.recent import Recent
from determined.server.sparks import sparks
from determined.store.messages import now

if TYPE_CHECKING:
    import sqlalchemy as sa

    from determined.server.run_index.index import RunIndex
    from determined.store.experiments import ExperimentRow

MOST_RUNNING = 50
MOST_ENDED = 50
MOST_FAILED = 20
MOST_PROJECTS = 8
LAST_LINES = 10  # among which one that is not blank is looked for
ENDED = ("COMPLETED", "CANCELED", "ERROR")
_ORDER = ("RUNNING", "STARTING", "QUEUED")

times_left: Recent[TimeLeft] = Recent(200)
detected = functools.cache(detect)  # no slot comes or goes while the server runs, and looking may start a program


def home(client: Determined, index: RunIndex, since: datetime.datetime | None) -> Home:
    """Return what the first page shows."""
    time = now()
    moment = since or time - datetime.timedelta(days=1)
    going = _found(index, Group(all_of=[_state("is not", state) for state in ENDED]), "-run.id", MOST_RUNNING)
    ended = _found(index, _over(moment, "COMPLETED", "CANCELED"), "-run.end_time", MOST_ENDED)
    failed = _found(index, _over(moment, "ERROR"), "-run.end_time", MOST_FAILED)
    slots = occupied(client).slots
    with client._session.read() as conn:
        lines = _last_lines(conn, [row["id"] for row in failed])
        return Home(
            running=_running(conn, client, index, going, time),
            ended=[_ended(row) for row in _rows(conn, ended)],
            failed=[_ended(row, lines.get(row.id, "")) for row in _rows(conn, failed)],
            projects=_projects(conn),
            slots_used=sum(slot.trial_id is not None for slot in slots),
            slots_total=len(slots),
            time=time,
        )


def occupied(client: Determined) -> Occupancy:
    """Return the slots and nodes; none if those of this machine are set in a way that nobody understands.

    Of a cluster it knows what the controller has said: a page that is looked at asks no cluster.
    """
    known = Slots("cpu", ())
    with contextlib.suppress(DeterminedError):
        known = choice.shown_slots(client._session.store, here=detected, may_ask=False)
    return occupancy(client._session, known)


def _state(operator: Any, state: str) -> Condition:
    return Condition(column="run.state", operator=operator, value=state)


def _over(since: datetime.datetime, *states: str) -> Group:
    late = Condition(column="run.end_time", operator="after", value=since.isoformat())
    return Group(all_of=[late], any_of=[_state("is", state) for state in states])


def _found(index: RunIndex, fits: Group, sort: str, most: int) -> list[dict[str, Any]]:
    asked = TableQuestion(columns=["run.searcher"], filter=fits, sort=[sort], limit=most)
    rows: list[dict[str, Any]] = index.rows("experiments", asked)["rows"]
    return rows


def _rows(conn: sa.Connection, found: Iterable[dict[str, Any]]) -> list[ExperimentRow]:
    ids = [row["id"] for row in found]
    which = store.experiments.ExperimentFilter(ids=ids)
    known = {row.id: row for row in store.experiments.find(conn, which)}
    return [known[ident] for ident in ids if ident in known]


def _running(
    conn: sa.Connection, client: Determined, index: RunIndex, found: list[dict[str, Any]], time: datetime.datetime
) -> list[RunningExperiment]:
    rows, of = _rows(conn, found), {row["id"]: row for row in found}
    ids = [row.id for row in rows]
    counts = index.trial_states(ids)
    live = store.overview.running.live(conn, ids)
    searched = {row.id: (row.best_trial_id, row.searcher_metric) for row in rows}
    curves = sparks(conn, {ident: (trial, name) for ident, (trial, name) in searched.items() if trial and name})
    shown = [
        RunningExperiment(
            id=row.id,
            name=row.name,
            state=of[row.id]["state"],
            owner=row.owner,
            project_id=row.project_id,
            progress=row.progress,
            seconds_left=_seconds_left(client, row, of[row.id]["state"], time),
            slots=sum(launch.slots for launch in live.get(row.id, ())),
            start_time=row.start_time,
            trial_count=row.trial_count,
            counts=in_order(counts[row.id]),
            searcher_metric=row.searcher_metric,
            best_metric=row.best_metric,
            single_trial_id=_single_trial(row, of[row.id]),
            spark=curves.get(row.id, []),
        )
        for row in rows
    ]
    return sorted(shown, key=lambda each: _ORDER.index(each.state) if each.state in _ORDER else len(_ORDER))


def _single_trial(row: ExperimentRow, found: dict[str, Any]) -> int | None:
    """Return the trial of an experiment that cannot have more than one."""
    is_single = found["cells"][0] == "single" or (row.unmanaged and row.trial_count == 1)
    return found["trial_id"] if is_single else None


def _seconds_left(client: Determined, row: ExperimentRow, state: str, time: datetime.datetime) -> float | None:
    is_running = state in ("RUNNING", "STARTING")
    known = times_left.get(client, row.id, TimeLeft)
    return known.estimate(row.progress, time, is_running=is_running, since=row.start_time)


def _ended(row: ExperimentRow, last_line: str = "") -> EndedExperiment:
    return EndedExperiment(
        id=row.id,
        name=row.name,
        state=row.state,
        owner=row.owner,
        project_id=row.project_id,
        start_time=row.start_time,
        end_time=row.end_time,
        seconds=((row.end_time or row.start_time) - row.start_time).total_seconds(),
        trial_count=row.trial_count,
        searcher_metric=row.searcher_metric,
        best_metric=row.best_metric,
        reason=row.state_reason,
        last_line=last_line,
    )


def _last_lines(conn: sa.Connection, experiment_ids: Sequence[int]) -> dict[int, str]:
    """Return the last line that the newest failed trial of each experiment printed; if none, what was said of it."""
    trials = store.overview.run_rows.of_trials(conn, experiment_ids=experiment_ids, states=["ERROR"])
    newest = {row[2]: row[0] for row in sorted(trials, key=lambda row: row[0])}
    found = {}
    for experiment_id, trial_id in newest.items():
        found[experiment_id] = _last_line(conn, trial_id, "trial") or _last_line(conn, trial_id, "controller")
    return found


def _last_line(conn: sa.Connection, trial_id: int, source: str) -> str:
    which = store.logs.LogFilter(sources=[source])
    lines = (plain(entry.text) for entry in reversed(store.logs.tail(conn, trial_id, LAST_LINES, which)))
    return next((line for line in lines if line.strip()), "")


def _projects(conn: sa.Connection) -> list[RecentProject]:
    names = {workspace.id: workspace.name for workspace in store.workspaces.list_workspaces(conn)}
    activity = store.workspaces.activity(conn)
    found = [
        RecentProject(
            id=project.id,
            name=project.name,
            workspace=names[project.workspace_id],
            experiments=activity[project.id].experiments,
            last_start=activity[project.id].last_start,
        )
        for project in store.workspaces.list_projects(conn)
        if project.id in activity and not project.archived
    ]
    return sorted(found, key=lambda each: each.last_start or datetime.datetime.min, reverse=True)[:MOST_PROJECTS]
