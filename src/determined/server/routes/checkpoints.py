"""Checkpoints: list, look at, verify, register, delete."""

from __future__ import annotations

from fastapi import APIRouter

from determined import store
from determined.client import Checkpoint, Determined, Model
from determined.errors import DeterminedError, InvalidValue, NotFound
from determined.server.answers.checkpoints import (
    CheckpointAnswer,
    CheckpointRowAnswer,
    Checkpoints,
    FileAnswer,
    ModelVersionBrief,
    Registration,
    Verified,
)
from determined.server.answers.common import Done
from determined.server.depends import Client, StoreSession
from determined.server.paging import Limit, Offset
from determined.server.reading.snippets import download_command, load_line
from determined.server.rules import CHANGES, READS

router = APIRouter(tags=["checkpoints"])


@router.get("/checkpoints", **READS)
def checkpoints(
    session: StoreSession,
    trial_id: int | None = None,
    experiment_id: int | None = None,
    offset: Offset = 0,
    limit: Limit = 100,
) -> Checkpoints:
    """Return checkpoints of a trial or an experiment, the newest first."""
    if (trial_id is None) == (experiment_id is None):
        raise InvalidValue("Say whose checkpoints in exactly one way: trial_id or experiment_id.")
    with session.read() as conn:
        rows, total = store.checkpoints.page(
            conn, trial_id=trial_id, experiment_id=experiment_id, limit=limit, offset=offset
        )
        best = store.checkpoints.best(conn, trial_id=trial_id, experiment_id=experiment_id)
        registered = store.models.registered(conn, [row.uuid for row in rows])
    found = [
        CheckpointRowAnswer(
            uuid=row.uuid,
            trial_id=row.trial_id,
            experiment_id=row.experiment_id,
            steps=row.steps,
            value=row.searcher_metric,
            state=row.state,
            size=row.size,
            time=row.report_time,
            is_best=best is not None and row.uuid == best.uuid,
            is_registered=row.uuid in registered,
        )
        for row in rows
    ]
    return Checkpoints(checkpoints=found, total=total)


@router.get("/checkpoints/{uuid}", **READS)
def checkpoint(client: Client, session: StoreSession, uuid: str) -> CheckpointAnswer:
    """Return a checkpoint with its files."""
    found = client.get_checkpoint(uuid)
    with session.read() as conn:
        owner = store.experiments.get(conn, found.experiment_id)
        registered = store.models.registered(conn, [found.uuid]).get(found.uuid, [])
    versions = [ModelVersionBrief(model=model, version=version) for model, version in registered]
    resources = found.resources or {}
    return CheckpointAnswer(
        uuid=found.uuid,
        trial_id=found.trial_id,
        experiment_id=found.experiment_id,
        experiment=owner.name,
        steps=found.steps_completed,
        state=str(found.state),
        time=found.report_time,
        size=found.size,
        location=_location(found),
        searcher_metric=owner.searcher_metric,
        value=found.searcher_metric,
        validation_metrics=found.validation_metrics or {},
        metadata=found.metadata,
        files=[FileAnswer(path=path, size=size) for path, size in sorted(resources.items())],
        versions=versions,
        load_line=load_line(found.uuid, resources),
        download_command=download_command(found.uuid),
        actions=_actions(found, versions),
    )


def _location(found: Checkpoint) -> str:
    """Return where its files are; a storage that cannot be opened here is named by its config."""
    try:
        return found.location
    except (DeterminedError, ImportError, OSError) as unknown:
        return str(unknown)


def _actions(found: Checkpoint, versions: list[ModelVersionBrief]) -> dict[str, str]:
    gone = "" if found.resources else f"Checkpoint {found.uuid} is {found.state}: it has no files."
    register = "" if str(found.state) == "COMPLETED" else f"Only COMPLETED ones can be registered, it is {found.state}."
    named = ", ".join(f"{version.model} {version.version}" for version in versions)
    kept = f"It is in the model registry ({named}), so it stays. Delete that version first." if versions else ""
    return {"verify": gone, "register": register, "delete": gone or kept}


@router.post("/checkpoints/{uuid}/verify", **READS)
def verify(client: Client, uuid: str) -> Verified:
    """Compare the files with what was saved. Changes nothing."""
    found = client.get_checkpoint(uuid)
    problems = found.verify()
    files = sum(not path.endswith("/") for path in found.resources or {})
    said = f"All {files} files are as they were saved." if not problems else "It cannot be trusted."
    return Verified(is_whole=not problems, problems=problems, files=files, said=said)


@router.post("/checkpoints/{uuid}/register", **CHANGES)
def register(client: Client, uuid: str, asked: Registration) -> Done:
    """Make it a version of a model."""
    found = client.get_checkpoint(uuid)
    model = _model(client, asked)
    version = model.register_version(found.uuid, name=asked.name, comment=asked.comment)
    return Done(said=f"Checkpoint {found.uuid} is version {version.model_version} of {model.name!r}.")


def _model(client: Determined, asked: Registration) -> Model:
    try:
        return client.get_model(asked.model)
    except NotFound:
        if not asked.create:
            raise
    return client.create_model(asked.model)


@router.delete("/checkpoints/{uuid}", **CHANGES)
def delete(client: Client, uuid: str) -> Done:
    """Delete its files."""
    found = client.get_checkpoint(uuid)
    found.delete()
    return Done(said=f"Deleted checkpoint {found.uuid}.")
