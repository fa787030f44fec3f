"""A method of the user's own cannot hurt the process that asks it: its own search fails, with a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from determined.experiment.engine import Engine
from determined.experiment.events import AttemptEnded, AttemptStarted, Request, SetExperiment, Started, Validated
from determined.experiment.lifecycle import Exit, State
from determined.experiment.search import base, guarded
from determined.experiment.search.searcher import Searcher
from tests.searches import config, reloaded, space


class Two(base.SearchMethod):
    """Two trials; counts validations, and knows the best value, which is infinite before the first."""

    def __init__(self) -> None:
        self.best = float("inf")

    def initial_trials(self, ctx: base.SearchContext) -> list[base.Action]:
        return [ctx.create(), ctx.create()]

    def validation_completed(self, ctx: base.SearchContext, request_id: str, metrics: Any) -> list[base.Action]:
        self.best = min(self.best, metrics[ctx.metric])
        return []

    def snapshot(self) -> dict[str, Any]:
        return {"best": self.best}

    def restore(self, state: Any) -> None:
        self.best = state["best"]


def engine(method: base.SearchMethod) -> Engine:
    return Engine(Searcher(config("custom"), space(), 0, method), max_restarts=0)


def ends(made: Engine) -> list[tuple[State, str]]:
    """Start it, and return what becomes of the experiment."""
    actions = [*made.handle(Started())]
    if not made.state.is_terminal:
        actions += made.handle(Request.ACTIVATE)
        for request_id in list(made.trials):
            actions += made.handle(AttemptStarted(request_id))
            actions += made.handle(Validated(request_id, {"loss": 1.0}, 1))
        for request_id in list(made.trials):
            actions += made.handle(AttemptEnded(request_id, Exit(0)))
    return [(action.state, action.reason) for action in actions if isinstance(action, SetExperiment)]


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("raise KeyError('gone')", "Importing searcher.method 'mine:X' raised KeyError: 'gone'."),
        ("import sys; sys.exit(3)", "Importing searcher.method 'mine:X' raised SystemExit: 3."),
        ("import no_such_module", "raised ModuleNotFoundError: No module named 'no_such_module'."),
        ("this is no python", "raised SyntaxError"),
        ("X = 1", "has no class 'X'"),
        ("class X: pass", "X is no search method"),
        ("class X:\n def __init__(self, a): pass", "X does not take searcher.args {}"),
    ],
)
def test_what_cannot_be_loaded_is_an_error_of_its_experiment(tmp_path: Path, code: str, sentence: str) -> None:
    """3.7: a class that cannot be loaded ends the experiment with ERROR and a sentence, before any trial."""
    (tmp_path / "mine.py").write_text(code)
    made = engine(guarded.load(config("custom", method="mine:X"), tmp_path))
    states = ends(made)
    assert states[-1][0] is State.ERROR
    assert sentence in states[0][1]
    assert sentence in states[-1][1], "what is shown in the end says why"
    assert made.trials == {}


def test_a_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    """3.7: the sentence says what to do."""
    made = engine(guarded.load(config("custom", method="mine:X"), tmp_path))
    assert "has no module 'mine'" in ends(made)[0][1]


@pytest.mark.parametrize("hook", ["initial_trials", "validation_completed", "trial_created", "trial_exited"])
@pytest.mark.parametrize("wrong", [SystemExit(4), ZeroDivisionError("by zero"), None])
def test_what_a_hook_does_wrong_fails_the_search_alone(hook: str, wrong: BaseException | None) -> None:
    """3.7: raising, leaving, and returning no list are failures of the search, which names the method."""

    def bad(*_: Any) -> Any:
        if wrong is not None:
            raise wrong
        return None

    method = Two()
    setattr(method, hook, bad)
    states = ends(engine(guarded.Guarded(method)))
    assert states[-1][0] is State.ERROR
    reason = next(reason for state, reason in states if state is State.STOPPING_ERROR)
    assert f"Two.{hook}() raised {type(wrong).__name__}" in reason or "instead of a list" in reason


@pytest.mark.parametrize("wrong", [lambda: {"a": object()}, lambda: 7, lambda: 1 / 0])
def test_a_snapshot_that_fails_fails_the_next_event(wrong: Callable[[], Any]) -> None:
    """A snapshot is taken while an event is stored, so that what is wrong with it comes up with the next event."""
    method = Two()
    made = engine(guarded.Guarded(method))
    made.handle(Started())
    method.snapshot = wrong  # type: ignore[method-assign]  # as if it had been written so
    json.dumps(made.snapshot(), allow_nan=False)
    assert made.state is State.PAUSED
    request_id = next(iter(made.trials))
    states = [a for a in made.handle(Validated(request_id, {"loss": 1.0}, 1)) if isinstance(a, SetExperiment)]
    assert "Two.snapshot() raised" in states[0].reason
    assert made.state is State.ERROR


def test_progress_that_fails_is_no_progress() -> None:
    """Showing a list of experiments never raises."""
    method = Two()
    method.progress = lambda state: 1 / 0  # type: ignore[method-assign]
    made = engine(guarded.Guarded(method))
    made.handle(Started())
    assert made.progress() == 0.0


def test_a_method_comes_back_with_its_infinity() -> None:
    """Its snapshot goes through strict JSON and back; what was wrong with it stays wrong."""
    section = config("custom")
    first = Searcher(section, space(), 0, guarded.Guarded(Two()))
    first.handle(base.Initial())
    method = Two()
    method.best = 0.0
    reloaded(first, section, space(), guarded.Guarded(method))
    assert method.best == float("inf")

    broken = Searcher(section, space(), 0, guarded.Guarded(Two(), failure="It broke."))
    again = reloaded(broken, section, space(), guarded.Guarded(Two()))
    with pytest.raises(Exception, match="It broke"):
        again.handle(base.Initial())


def test_a_restore_that_fails_fails_the_next_event() -> None:
    """After a restart of the process too, the search fails and nothing else."""
    section = config("custom")
    first = Searcher(section, space(), 0, guarded.Guarded(Two()))
    [one, _] = first.handle(base.Initial())
    assert isinstance(one, base.Create)
    method = Two()
    method.restore = lambda state: state["no such key"]  # type: ignore[method-assign]  # as if written so
    again = reloaded(first, section, space(), guarded.Guarded(method))
    with pytest.raises(Exception, match=r"Two.restore\(\) raised KeyError"):
        again.handle(base.TrialExited(one.request_id))
