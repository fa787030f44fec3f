"""What several answers share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Odd = Literal["NaN", "Infinity", "-Infinity"]
Number = float | Odd
"""A value that was reported. JSON has no NaN and no infinity: they are these words, as in the store."""
Json = Any
Ids = Annotated[list[int], Field(max_length=500)]


class Answer(BaseModel):
    """What the server says."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class Question(BaseModel):
    """What the page sends; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class Done(Answer):
    """A change was made; `said` is what a person reads."""

    said: str


class Outcome(Answer):
    """What came of an action on one of several things."""

    id: int
    is_done: bool
    said: str


class Outcomes(Answer):
    """What came of an action on several things, one by one."""

    outcomes: list[Outcome]
