"""The columns that every run has: their keys, titles and types, and which are shown at first."""

from __future__ import annotations

import dataclasses
from typing import Literal

from determined.server.answers.tables import Kind, Operator

Type = Literal["number", "text", "time", "duration", "bytes", "state", "boolean", "labels"]

_EMPTY: tuple[Operator, ...] = ("is empty", "is not empty")
_COMPARE: tuple[Operator, ...] = ("is", "is not", "<", "<=", ">", ">=")
_TEXT: tuple[Operator, ...] = ("is", "is not", "contains", "does not contain")
OPERATORS: dict[Type, tuple[Operator, ...]] = {
    "number": (*_COMPARE, *_EMPTY),
    "duration": (*_COMPARE, *_EMPTY),
    "bytes": (*_COMPARE, *_EMPTY),
    "text": (*_TEXT, *_EMPTY),
    "time": ("before", "after", *_EMPTY),
    "state": ("is", "is not"),
    "boolean": ("is", "is not", *_EMPTY),
    "labels": (*_TEXT, *_EMPTY),
}
MIXED: tuple[Operator, ...] = (*_COMPARE, "contains", "does not contain", *_EMPTY)
"""Operators of a column that holds numbers in some runs and texts in others."""
NUMERIC = ("number", "duration", "bytes")


@dataclasses.dataclass(frozen=True)
class Field:
    """A column that every run has."""

    name: str
    title: str
    type: Type
    is_shown: bool = False
    is_whole: bool = False  # counts and ids

    @property
    def key(self) -> str:
        """What a question calls it."""
        return f"run.{self.name}"


_SHARED = (
    Field("searcher", "Searcher", "text"),
    Field("searcher_metric", "Searcher metric", "text"),
    Field("description", "Description", "text"),
    Field("labels", "Tags", "labels"),
    Field("parent_id", "Forked from", "number", is_whole=True),
    Field("resource_pool", "Resource pool", "text"),
    Field("checkpoint_count", "Checkpoints", "number", is_whole=True),
    Field("checkpoint_size", "Checkpoint size", "bytes", is_whole=True),
    Field("external_id", "External ID", "text"),
    Field("project", "Project", "text"),
    Field("end_time", "Ended", "time"),
    Field("archived", "Archived", "boolean"),
)
FIELDS: dict[Kind, tuple[Field, ...]] = {
    "experiments": (
        Field("id", "ID", "number", True, True),
        Field("name", "Name", "text", True),
        Field("state", "State", "state", True),
        Field("progress", "Progress", "number", True),
        Field("best_metric", "Best value", "number", True),
        Field("trials", "Trials", "number", True, True),
        Field("start_time", "Started", "time", True),
        Field("duration", "Duration", "duration", True),
        Field("owner", "User", "text", True),
        *_SHARED,
    ),
    "trials": (
        Field("id", "Trial", "number", True, True),
        Field("name", "Experiment", "text", True),
        Field("experiment_id", "Experiment ID", "number", False, True),
        Field("state", "State", "state", True),
        Field("progress", "Progress", "number"),
        Field("batches", "Batches", "number", True, True),
        Field("best_metric", "Best value", "number", True),
        Field("latest_metric", "Latest value", "number", True),
        Field("start_time", "Started", "time", True),
        Field("duration", "Duration", "duration", True),
        Field("restarts", "Restarts", "number", False, True),
        Field("seed", "Seed", "number", False, True),
        Field("owner", "User", "text"),
        *_SHARED,
    ),
}
