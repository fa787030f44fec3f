"""The model registry."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from determined import store
from determined.server.answers.common import Done
from determined.server.answers.registry import ModelAnswer, ModelDetail, ModelEdit, Models, NewModel, VersionAnswer
from determined.server.depends import Client, StoreSession
from determined.server.paging import Limit, Offset
from determined.server.reading.snippets import use_lines
from determined.server.rules import CHANGES, READS
from determined.store.checkpoints import CheckpointRow
from determined.store.models import ModelRow, ModelVersionRow

router = APIRouter(tags=["registry"])


@router.get("/models", **READS)
def models(
    session: StoreSession,
    name: Annotated[str, Query(max_length=200)] = "",
    archived: bool = False,
    offset: Offset = 0,
    limit: Limit = 100,
) -> Models:
    """Return models, the last changed first; archived ones only if asked for, beside the others."""
    with session.read() as conn:
        rows = store.models.find(
            conn,
            name=name or None,
            archived=None if archived else False,
            sort_by="last_updated_time",
            descending=True,
        )
    return Models(models=[_model(row) for row in rows[offset : offset + limit]], total=len(rows))


def _model(row: ModelRow) -> ModelAnswer:
    return ModelAnswer(**{name: getattr(row, name) for name in ModelAnswer.model_fields})


@router.post("/models", **CHANGES)
def create(client: Client, session: StoreSession, asked: NewModel) -> ModelAnswer:
    """Make a model."""
    made = client.create_model(asked.name, asked.description)
    with session.read() as conn:
        return _model(store.models.get(conn, made.model_id))


@router.get("/models/{model_id}", **READS)
def model(session: StoreSession, model_id: int) -> ModelDetail:
    """Return a model with its versions."""
    with session.read() as conn:
        row = store.models.get(conn, model_id)
        versions = store.models.versions(conn, model_id)
        saved = store.checkpoints.get_many(conn, [version.checkpoint_uuid for version in versions])
        metrics = {
            each.experiment_id: store.experiments.get(conn, each.experiment_id).searcher_metric
            for each in saved.values()
        }
    known = [(version, saved[version.checkpoint_uuid]) for version in versions if version.checkpoint_uuid in saved]
    return ModelDetail(
        model=_model(row),
        versions=[_version(version, found, metrics[found.experiment_id]) for version, found in known],
        use_lines=use_lines(row.name, known[0][1].resources) if known else "",
    )


def _version(row: ModelVersionRow, found: CheckpointRow, metric: str | None) -> VersionAnswer:
    return VersionAnswer(
        version=row.version,
        name=row.name,
        comment=row.comment,
        notes=row.notes,
        metadata=row.metadata,
        labels=row.labels,
        owner=row.owner,
        checkpoint_uuid=row.checkpoint_uuid,
        trial_id=found.trial_id,
        experiment_id=found.experiment_id,
        steps=found.steps,
        size=found.size,
        searcher_metric=metric,
        value=found.searcher_metric,
        creation_time=row.creation_time,
    )


@router.patch("/models/{model_id}", **CHANGES)
def edit(session: StoreSession, model_id: int, change: ModelEdit) -> Done:
    """Change its texts, labels or metadata, or archive it."""
    fields = change.model_dump(exclude_none=True)
    archived = fields.pop("archived", None)
    with session.write() as conn:
        name = store.models.get(conn, model_id).name
        if archived is False:  # first: what is archived cannot be edited
            store.models.update(conn, model_id, archived=False)
        if fields:
            store.models.update(conn, model_id, **fields)
        if archived:
            store.models.update(conn, model_id, archived=True)
    said = "changed" if archived is None else "archived" if archived else "unarchived"
    return Done(said=f"Model {name!r}: {said}.")


@router.delete("/models/{model_id}", **CHANGES)
def delete(client: Client, model_id: int) -> Done:
    """Delete a model; its checkpoints stay."""
    found = client.get_model(model_id)
    found.delete()
    return Done(said=f"Deleted model {found.name!r}. Its checkpoints stay.")


@router.delete("/models/{model_id}/versions/{version}", **CHANGES)
def delete_version(session: StoreSession, model_id: int, version: int) -> Done:
    """Delete a version; its checkpoint stays."""
    with session.write() as conn:
        name = store.models.get(conn, model_id).name
        store.models.delete_version(conn, model_id, version)
    return Done(said=f"Deleted version {version} of {name!r}. Its checkpoint stays.")
