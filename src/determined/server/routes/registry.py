"""The model registry."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from determined.server.answers.common import Done
from determined.server.answers.registry import ModelAnswer, ModelDetail, ModelEdit, Models, NewModel
from determined.server.depends import Client
from determined.server.paging import Limit, Offset
from determined.server.rules import CHANGES, READS

router = APIRouter(tags=["registry"])


@router.get("/models", **READS)
def models(
    client: Client,
    name: Annotated[str, Query(max_length=200)] = "",
    archived: bool = False,
    offset: Offset = 0,
    limit: Limit = 100,
) -> Models:
    """Return models."""
    raise NotImplementedError


@router.post("/models", **CHANGES)
def create(client: Client, asked: NewModel) -> ModelAnswer:
    """Make a model."""
    raise NotImplementedError


@router.get("/models/{model_id}", **READS)
def model(client: Client, model_id: int) -> ModelDetail:
    """Return a model with its versions."""
    raise NotImplementedError


@router.patch("/models/{model_id}", **CHANGES)
def edit(client: Client, model_id: int, change: ModelEdit) -> Done:
    """Change its texts, labels or metadata, or archive it."""
    raise NotImplementedError


@router.delete("/models/{model_id}", **CHANGES)
def delete(client: Client, model_id: int) -> Done:
    """Delete a model; its checkpoints stay."""
    raise NotImplementedError


@router.delete("/models/{model_id}/versions/{version}", **CHANGES)
def delete_version(client: Client, model_id: int, version: int) -> Done:
    """Delete a version; its checkpoint stays."""
    raise NotImplementedError
