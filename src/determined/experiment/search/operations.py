"""Search methods as releases before 0.38 knew them; users import these names from `determined.searcher`.

Here are the words only. older.py translates them to events and actions, runner.py is the loop that survives crashes.
"""

from __future__ import annotations

import abc
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from determined.experiment.search.base import ExitedReason as ExitedReason


class Operation:
    """Something a search method wants done."""


@dataclass
class Create(Operation):
    """A new trial; `checkpoint` is what it starts from, an object with a `uuid`, or the uuid."""

    request_id: uuid.UUID
    hparams: dict[str, Any]
    checkpoint: Any = None


@dataclass
class ValidateAfter(Operation):
    """Tell me about the first validation at or after this length. The trial does not wait for an answer."""

    request_id: uuid.UUID
    length: int


@dataclass
class Close(Operation):
    """The trial has trained enough."""

    request_id: uuid.UUID


@dataclass
class Progress(Operation):
    """How far the search has come, 0 to 1."""

    progress: float


@dataclass
class Shutdown(Operation):
    """The search is over."""

    cancel: bool = False
    failure: bool = False


@dataclass
class SearcherState:
    """What a method is told about its trials, with every event."""

    failures: set[uuid.UUID] = field(default_factory=set)
    trial_progress: dict[uuid.UUID, float] = field(default_factory=dict)
    trials_closed: set[uuid.UUID] = field(default_factory=set)
    trials_created: set[uuid.UUID] = field(default_factory=set)
    last_event_id: int = 0


class SearchMethod(abc.ABC):
    """A search in the words of releases before 0.38. New ones are better derived from `search.base.SearchMethod`.

    Example::

        class Once(SearchMethod):
            def initial_operations(self, searcher_state):
                request_id = uuid.uuid4()
                return [Create(request_id, {"lr": 0.1}, None), ValidateAfter(request_id, 100)]

            def on_validation_completed(self, searcher_state, request_id, metric, train_length):
                return [Close(request_id)]
            ...
    """

    @abc.abstractmethod
    def initial_operations(self, searcher_state: SearcherState) -> list[Operation]: ...

    @abc.abstractmethod
    def on_trial_created(self, searcher_state: SearcherState, request_id: uuid.UUID) -> list[Operation]: ...

    @abc.abstractmethod
    def on_validation_completed(
        self, searcher_state: SearcherState, request_id: uuid.UUID, metric: Any, train_length: int
    ) -> list[Operation]: ...

    @abc.abstractmethod
    def on_trial_closed(self, searcher_state: SearcherState, request_id: uuid.UUID) -> list[Operation]: ...

    @abc.abstractmethod
    def on_trial_exited_early(
        self, searcher_state: SearcherState, request_id: uuid.UUID, exited_reason: ExitedReason
    ) -> list[Operation]: ...

    @abc.abstractmethod
    def progress(self, searcher_state: SearcherState) -> float: ...

    def save_method_state(self, path: Path) -> None:  # noqa: B027 - a method without state has nothing to save
        """Write what must survive a restart into the directory `path`."""

    def load_method_state(self, path: Path) -> None:  # noqa: B027
        """Read what `save_method_state` wrote."""
