"""The table of experiments and the flat table of trials: their columns, rows, filters and order."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from determined.server.answers.common import Answer, Json, Question

Kind = Literal["experiments", "trials"]
Operator = Literal[
    "is", "is not", "<", "<=", ">", ">=", "contains", "does not contain", "is empty", "is not empty", "before", "after"
]


class Column(Answer):
    """A column that the table can show.

    `key` is `run.<name>` for what every run has, `hparams.<dotted name>`, `metadata.<dotted name>`, or
    `metrics.<group>.<name>.<last|min|max|mean>`. Of more than 2000 keys the commonest have columns.
    """

    key: str
    title: str
    section: Literal["run", "hparams", "metrics", "metadata"]
    type: Literal["number", "text", "time", "duration", "bytes", "state", "boolean", "labels"]
    operators: list[Operator]
    is_shown: bool  # at first, before the person chooses


class Columns(Answer):
    """All columns, those of every run first."""

    columns: list[Column]
    is_rough: bool  # the server is still reading: these are the columns of the newest runs. Ask again in a second


class Condition(Question):
    """One condition on one column, as `lr < 0.01`.

    Texts are compared exactly, parts of texts whatever their case. `is not` and `does not contain` also hold where
    there is no value. The state ACTIVE is QUEUED, STARTING or RUNNING. Times are ISO 8601; UTC by default.
    """

    column: Annotated[str, Field(max_length=300)]
    operator: Operator
    value: str | float | bool | None = None


class Group(Question):
    """Conditions and groups, of which all or any have to hold; at most three deep."""

    all_of: Annotated[list[Condition | Group], Field(max_length=50)] | None = None
    any_of: Annotated[list[Condition | Group], Field(max_length=50)] | None = None


class TableQuestion(Question):
    """Which rows and columns. Sent by POST because filters are trees; it changes nothing."""

    columns: Annotated[list[str], Field(max_length=400)]
    sort: Annotated[list[str], Field(max_length=8)] = Field(default=["-run.id"])  # keys; a leading minus is descending
    filter: Group | None = None
    search: Annotated[str, Field(max_length=200)] = ""  # in names, labels, descriptions, ids
    project_id: int | None = None
    experiment_id: int | None = None  # trials of this one only
    ids: Annotated[list[int], Field(max_length=500)] | None = None
    archived: bool = False  # also those that are archived
    group_by: str | None = None  # a column; rows of equal values stand together, in the order of their groups
    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class TableRow(Answer):
    """One run. `cells` are in the order of the asked columns; null where a run has no such value.

    NaN and infinities are words, times ISO 8601, labels lists of text.
    """

    id: int
    experiment_id: int
    trial_id: int | None  # of an experiment: its only trial, or its best
    state: str
    unmanaged: bool
    archived: bool
    cells: list[Json]


class Range(Answer):
    """The extremes of a numeric column among all rows that fit, not only those of the page."""

    low: float
    high: float


class GroupCount(Answer):
    """How many rows have one value of `group_by`. A list and not an object: a browser would put whole numbers first."""

    value: str  # as text, empty for none
    count: int


class Table(Answer):
    """A page of rows."""

    total: int
    rows: list[TableRow]
    ranges: dict[str, Range]  # of the asked columns that are numbers
    best: dict[str, int]  # column to the id of its best row, where it is known which way is better
    groups: list[GroupCount]  # in order; 1000 at most
    is_rough: bool  # the server is still reading: `ranges` and `best` of hyperparameters and metrics follow. Ask again


class Sparks(Answer):
    """Small curves of the searcher metric, at most 60 points each, by id of the row."""

    sparks: dict[int, list[float | None]]
