"""The model registry."""

from __future__ import annotations

import datetime
from typing import Annotated

from pydantic import Field

from determined.server.answers.common import Answer, Json, Number, Question


class ModelAnswer(Answer):
    """A model."""

    id: int
    name: str
    description: str
    notes: str
    metadata: dict[str, Json]
    labels: list[str]
    owner: str
    archived: bool
    creation_time: datetime.datetime
    last_updated_time: datetime.datetime
    num_versions: int


class Models(Answer):
    """A page of models, the last changed first."""

    models: list[ModelAnswer]
    total: int


class VersionAnswer(Answer):
    """A version of a model."""

    version: int
    name: str
    comment: str
    notes: str
    metadata: dict[str, Json]
    labels: list[str]
    owner: str
    checkpoint_uuid: str
    trial_id: int
    experiment_id: int
    steps: int
    size: int
    searcher_metric: str | None
    value: Number | None
    creation_time: datetime.datetime


class ModelDetail(Answer):
    """A model with its versions, the newest first."""

    model: ModelAnswer
    versions: list[VersionAnswer]
    use_lines: str  # how to use the newest version from Python


class NewModel(Question):
    """A model to make."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    description: Annotated[str, Field(max_length=10_000)] = ""


class ModelEdit(Question):
    """New values; fields that are left out stay."""

    description: Annotated[str, Field(max_length=10_000)] | None = None
    notes: Annotated[str, Field(max_length=200_000)] | None = None
    labels: Annotated[list[str], Field(max_length=100)] | None = None
    metadata: dict[str, Json] | None = None
    archived: bool | None = None
