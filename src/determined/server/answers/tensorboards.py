"""TensorBoards that run on their own."""

from __future__ import annotations

import datetime

from pydantic import Field

from determined.server.answers.common import Answer, Ids, Question


class TensorBoardAnswer(Answer):
    """One of them."""

    id: int
    address: str
    is_alive: bool
    experiments: list[int]
    trials: list[int]
    started: datetime.datetime
    pid: int


class TensorBoards(Answer):
    """All of them."""

    tensorboards: list[TensorBoardAnswer]
    said: str  # why none can be started, if so


class NewTensorBoard(Question):
    """What it shows."""

    experiments: Ids = Field(default=[])
    trials: Ids = Field(default=[])
