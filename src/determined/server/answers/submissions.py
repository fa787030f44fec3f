"""Fork, continue and search dialogs: what is typed is checked as `det experiment create` checks it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from determined.server.answers.common import Answer, Json, Question

Text = Annotated[str, Field(max_length=500_000)]


class Draft(Question):
    """A configuration that a person is typing, for a fork of an experiment or to continue it."""

    config: Text  # YAML
    purpose: Literal["fork", "continue", "search"] = "fork"


class ProblemAnswer(Answer):
    """One thing that is wrong."""

    line: int | None
    path: str  # <config>.a.b
    reason: str


class PreviewRow(Answer):
    """So many trials of this length."""

    trials: int
    units: str


class Checked(Answer):
    """What the checks say, and what a search would train."""

    is_fine: bool
    problems: list[ProblemAnswer]
    warnings: list[str]
    preview: list[PreviewRow]
    trials: int | None  # in all
    said: str


class Fork(Question):
    """Submit an experiment's code again with this configuration; empty text means its own."""

    config: Text = ""
    name: Annotated[str, Field(max_length=1000)] | None = None
    paused: bool = False


class Continue(Question):
    """Let an experiment go on; empty text means unchanged."""

    config: Text = ""


class SearchRange(Question):
    """How one hyperparameter is searched."""

    name: Annotated[str, Field(max_length=300)]
    type: Literal["const", "int", "double", "log", "categorical"]
    val: Json = None
    minval: float | None = None
    maxval: float | None = None
    base: float | None = None
    count: int | None = None
    vals: Annotated[list[Json], Field(max_length=200)] | None = None


class SearchForm(Question):
    """What the search dialog's form says; the answer is YAML."""

    searcher: Literal["random", "grid", "adaptive_asha", "async_halving"]
    metric: Annotated[str, Field(max_length=300)] | None = None
    smaller_is_better: bool | None = None
    max_trials: int | None = None
    max_time: int | None = None
    time_metric: Annotated[str, Field(max_length=100)] | None = None
    max_concurrent_trials: int | None = None
    name: Annotated[str, Field(max_length=1000)] | None = None
    ranges: Annotated[list[SearchRange], Field(max_length=200)]


class StartText(Answer):
    """The text that a dialog starts with."""

    config: str
    name: str
    form: SearchForm | None = None  # for a search: every hyperparameter as a range, and the searcher's settings


class Written(Answer):
    """A configuration as YAML."""

    config: str


class Submitted(Answer):
    """The experiment that was made or goes on."""

    experiment_id: int
    warnings: list[str]
    said: str
