"""Experiments: look at one, edit it, act on one or on many."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from determined._redact import redacted
from determined.client import Determined, Experiment
from determined.client.following.header import Header
from determined.errors import DeterminedError, InvalidValue
from determined.server.answers.common import Done, Outcome, Outcomes
from determined.server.answers.experiments import (
    BulkAction,
    ConfigAnswer,
    EventAnswer,
    Events,
    ExperimentAnswer,
    ExperimentEdit,
)
from determined.server.depends import Client
from determined.server.paging import Limit
from determined.server.rules import CHANGES, READS
from determined.store.events import EventRow

router = APIRouter(tags=["experiments"])

DONE = {
    "activate": "Activated",
    "pause": "Paused",
    "cancel": "Canceled",
    "kill": "Killed",
    "archive": "Archived",
    "unarchive": "Unarchived",
    "delete": "Deleted",
    "move": "Moved",
}
DRIVEN = ("activate", "pause", "cancel", "kill")  # by the controller, which is waited for
TOLD = ("STATE", "TRIAL_STATE", "REFUSED", "CONFIG", "DELETED", "UNDELETED")  # kinds of events that people understand
FROM_ROW = (
    *("id", "name", "state_reason", "owner", "project_id", "parent_id", "description", "notes", "start_time"),
    *("end_time", "progress", "archived", "unmanaged", "external_experiment_id", "script", "searcher_metric"),
    *("smaller_is_better", "best_metric", "best_trial_id", "trial_count", "checkpoint_count", "checkpoint_size"),
)
FROM_HEADER = (
    *("state", "project", "workspace", "seconds", "seconds_left", "counts", "restarts", "slots", "single_trial_id"),
    *("best_checkpoint_uuid", "metric_names", "has_rungs", "searcher"),
)


@router.get("/experiments/{experiment_id}", **READS)
def experiment(client: Client, experiment_id: int) -> ExperimentAnswer:
    """Return an experiment."""
    found = client.get_experiment(experiment_id)
    return described(found.header(), found.actions())


def described(header: Header, actions: dict[str, str]) -> ExperimentAnswer:
    """Return what the page says of an experiment."""
    row, resources = header.row, header.section("resources")
    pool = resources.get("resource_pool")
    own: dict[str, Any] = {name: getattr(row, name) for name in FROM_ROW}
    own |= {name: getattr(header, name) for name in FROM_HEADER}
    return ExperimentAnswer(
        **own,
        labels=list(row.labels),
        slots_per_trial=_count(resources.get("slots_per_trial")),
        resource_pool=str(pool) if pool else None,
        warnings=[str(sentence) for sentence in row.warnings or ()],
        has_code=row.code_snapshot_id is not None,
        actions=actions,
    )


def _count(said: Any) -> int:
    return said if isinstance(said, int) and said > 0 else 1


@router.patch("/experiments/{experiment_id}", **CHANGES)
def edit(client: Client, experiment_id: int, change: ExperimentEdit) -> Done:
    """Change its name, description, notes or labels."""
    given = change.model_dump(exclude_none=True)
    client.get_experiment(experiment_id).edit(**given)
    return Done(said=f"Changed {', '.join(given) or 'nothing'} of experiment {experiment_id}.")


@router.post("/experiments/actions", **CHANGES)
def act(client: Client, asked: BulkAction) -> Outcomes:
    """Pause, activate, cancel, kill, archive, unarchive, delete or move experiments."""
    ids = list(dict.fromkeys(asked.ids))
    if asked.action in DRIVEN:
        refused = client.act_on(asked.action, ids)
    else:
        if asked.action == "move":
            if asked.project_id is None:
                raise InvalidValue("Nothing says where to move them. Choose a project.")
            client.get_project(asked.project_id)  # says that there is none
        refused = {ident: _refusal(client, ident, asked) for ident in ids}
    return Outcomes(outcomes=[_outcome(asked.action, ident, refused[ident]) for ident in ids])


def _refusal(client: Determined, experiment_id: int, asked: BulkAction) -> DeterminedError | None:
    """Change one experiment; return why that was refused, or None."""
    try:
        found: Experiment = client.get_experiment(experiment_id)
        if asked.action == "move":
            found.move_to(asked.project_id or 0)
        else:
            {"archive": found.archive, "unarchive": found.unarchive, "delete": found.delete}[asked.action]()
    except DeterminedError as refusal:
        return refusal
    return None


def _outcome(action: str, experiment_id: int, refused: DeterminedError | None) -> Outcome:
    said = f"{DONE[action]} experiment {experiment_id}."
    if action == "delete":
        said += f" Bring it back with: det experiment undelete {experiment_id}"
    return Outcome(id=experiment_id, is_done=refused is None, said=said if refused is None else str(refused))


@router.get("/experiments/{experiment_id}/events", **READS)
def events(client: Client, experiment_id: int, before: int | None = None, limit: Limit = 100) -> Events:
    """Return what happened to it, the newest first."""
    found = client.get_experiment(experiment_id).newest_events(limit + 1, before=before, kinds=TOLD)
    shown = [
        EventAnswer(id=row.id, time=row.time, kind=row.kind, trial_id=row.trial_id, said=_said(row))
        for row in found[:limit]
    ]
    return Events(events=shown, next_before=shown[-1].id if len(found) > limit else None)


def _said(event: EventRow) -> str:
    """Return what happened, as a sentence."""
    body, whose = event.body, "The experiment" if event.trial_id is None else f"Trial {event.trial_id}"
    if event.kind in ("STATE", "TRIAL_STATE"):
        reason = str(body.get("reason") or "")
        return f"{whose} became {body.get('to')}, after {body.get('from')}.{' ' if reason else ''}{reason}"
    plain = {
        "CONFIG": "The experiment was continued with a changed configuration.",
        "DELETED": "The experiment was deleted.",
        "UNDELETED": "The experiment was brought back.",
    }
    return plain.get(event.kind) or str(body.get("reason") or event.kind)


@router.get("/experiments/{experiment_id}/config", **READS)
def config(client: Client, experiment_id: int) -> ConfigAnswer:
    """Return its configuration, as submitted and with all defaults."""
    from determined.experiment.submission.submit import written  # the page starts sooner without it

    found = client.get_experiment(experiment_id)
    return ConfigAnswer(submitted=found.submitted_config, effective=written(redacted(found.config)))
