"""What several answers share."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from determined.store import values


def spelled(value: Any) -> Any:
    """Return a value that JSON can hold: NaN and the infinities as words, half characters replaced, at any depth."""
    if isinstance(value, str):
        return values.clean(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = values.as_float(value)
        if math.isfinite(number):
            return value
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if isinstance(value, dict):
        return {spelled(str(key)): spelled(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [spelled(inner) for inner in value]
    return value


Odd = Literal["NaN", "Infinity", "-Infinity"]
Number = Annotated[float | Odd, BeforeValidator(spelled)]
"""A value that was reported. JSON has no NaN and no infinity: they are these words, as in the store."""
Json = Annotated[Any, BeforeValidator(spelled)]
"""Any value of a user's. Models that are built without validation spell it themselves."""
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
