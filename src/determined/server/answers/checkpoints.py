"""Checkpoints: list, look at, verify, register, delete."""

from __future__ import annotations

import datetime
from typing import Annotated

from pydantic import Field

from determined.server.answers.common import Answer, Json, Number, Question


class CheckpointRowAnswer(Answer):
    """A checkpoint in a table."""

    uuid: str
    trial_id: int
    experiment_id: int
    steps: int
    value: Number | None  # of the searcher metric
    state: str
    size: int
    time: datetime.datetime
    is_best: bool
    is_registered: bool


class Checkpoints(Answer):
    """A page of checkpoints."""

    checkpoints: list[CheckpointRowAnswer]
    total: int


class FileAnswer(Answer):
    """A file of a checkpoint or of a code snapshot."""

    path: str
    size: int


class ModelVersionBrief(Answer):
    """A version of a model."""

    model: str
    version: int


class CheckpointAnswer(Answer):
    """A checkpoint with all that is known of it."""

    uuid: str
    trial_id: int
    experiment_id: int
    experiment: str
    steps: int
    state: str
    time: datetime.datetime
    size: int
    location: str
    searcher_metric: str | None
    value: Number | None
    validation_metrics: dict[str, Json]
    metadata: dict[str, Json]
    files: list[FileAnswer]
    versions: list[ModelVersionBrief]
    load_line: str
    download_command: str
    actions: dict[str, str]  # verify, register, delete: empty, or the reason why not


class Verified(Answer):
    """Whether the files are as they were saved."""

    is_whole: bool
    problems: list[str]
    files: int
    said: str


class Registration(Question):
    """Make a checkpoint a version of a model; a model that is not there is made if asked."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    create: bool = False
    name: Annotated[str, Field(max_length=200)] = ""
    comment: Annotated[str, Field(max_length=2000)] = ""
