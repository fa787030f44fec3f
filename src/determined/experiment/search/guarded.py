"""A search method of the user's own inside a process that must outlive it: whatever it does, its own search fails."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from determined import errors
from determined.experiment.search import methods
from determined.experiment.search.base import Action, ExitedReason, SearchContext, SearchMethod, SearchState

_Answer = TypeVar("_Answer")


def load(searcher: Mapping[str, Any], directory: os.PathLike[str] | str) -> Guarded:
    """Return the method of a `name: custom` section; one that cannot be loaded fails at its first event.

    Args:
        searcher: The `searcher` section.
        directory: The context directory, which holds the user's code. It is not needed afterwards.
    """
    try:
        return Guarded(methods.load(searcher, directory))
    except errors.SearchError as e:
        return Guarded(SearchMethod(), failure=str(e))
    except (Exception, SystemExit) as e:  # noqa: BLE001 - the module is the user's, and importing it runs it
        named = searcher.get("method") or searcher.get("class") or searcher.get("entrypoint")
        return Guarded(SearchMethod(), failure=f"Importing searcher.method {named!r} raised {_spelled(e)}.")


class Guarded(SearchMethod):
    """A method around one of the user's: all that it may raise, or return wrongly, ends as a `SearchError` of an event.

    Asking for its progress or its snapshot never raises: what went wrong there is raised by the next event.

    Args:
        method: The user's method.
        failure: What is wrong with it already.
    """

    def __init__(self, method: SearchMethod, failure: str | None = None) -> None:
        self._method = method
        self._failure = failure
        self._saved = "{}"  # as text: it may hold infinity, which strict JSON does not have

    @property
    def uses_metrics(self) -> bool:  # type: ignore[override]  # it is that of the method inside
        return self._method.uses_metrics

    def initial_trials(self, ctx: SearchContext) -> list[Action]:
        return self._asked("initial_trials", lambda: self._method.initial_trials(ctx))

    def trial_created(self, ctx: SearchContext, request_id: str) -> list[Action]:
        return self._asked("trial_created", lambda: self._method.trial_created(ctx, request_id))

    def validation_completed(self, ctx: SearchContext, request_id: str, metrics: dict[str, Any]) -> list[Action]:
        return self._asked("validation_completed", lambda: self._method.validation_completed(ctx, request_id, metrics))

    def trial_exited(self, ctx: SearchContext, request_id: str) -> list[Action]:
        return self._asked("trial_exited", lambda: self._method.trial_exited(ctx, request_id))

    def trial_exited_early(self, ctx: SearchContext, request_id: str, reason: ExitedReason) -> list[Action]:
        return self._asked("trial_exited_early", lambda: self._method.trial_exited_early(ctx, request_id, reason))

    def progress(self, state: SearchState) -> float:
        return float(self._tried("progress", lambda: float(self._method.progress(state)), 0.0))

    def snapshot(self) -> dict[str, Any]:
        self._saved = self._tried("snapshot", lambda: _as_text(self._method.snapshot()), self._saved)
        return {"method": self._saved, "failure": self._failure}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._saved = state["method"]
        self._failure = self._failure or state["failure"]
        self._tried("restore", lambda: self._method.restore(json.loads(self._saved)), None)

    def _asked(self, name: str, ask: Callable[[], _Answer]) -> _Answer:
        if self._failure is None:
            try:
                return ask()
            except errors.SearchError as e:
                self._failure = str(e)
            except (Exception, SystemExit) as e:  # noqa: BLE001 - user code may raise anything
                self._failure = f"{self._named(name)} raised {_spelled(e)}."
        raise errors.SearchError(self._failure)

    def _tried(self, name: str, ask: Callable[[], _Answer], otherwise: _Answer) -> _Answer:
        if self._failure is None:
            try:
                return ask()
            except (Exception, SystemExit) as e:  # noqa: BLE001 - user code may raise anything
                self._failure = f"{self._named(name)} raised {_spelled(e)}."
        return otherwise

    def _named(self, name: str) -> str:
        return f"{type(self._method).__name__}.{name}()"


def _as_text(state: Any) -> str:
    if not isinstance(state, Mapping):
        raise TypeError(f"a {type(state).__name__} is no snapshot; return a dict of JSON values")
    return json.dumps(state)


def _spelled(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ").removesuffix(".")
