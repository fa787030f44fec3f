"""A search whose method lives in another process decides what it would decide inside, whatever crashes in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from determined import errors
from determined.experiment.engine import Engine
from determined.experiment.events import (
    Action,
    AddTrial,
    Answered,
    AttemptEnded,
    AttemptStarted,
    Preempt,
    Progressed,
    Queue,
    Request,
    SetExperiment,
    Started,
    Tell,
    Validated,
    Warn,
)
from determined.experiment.lifecycle import Exit, State
from determined.experiment.search import base, runner
from determined.experiment.search.base import Answer
from determined.experiment.search.outside import OutsideMethod, is_outside
from determined.experiment.search.searcher import Searcher
from tests.searches import asha, config, space

OUTSIDE = config("custom", runner="a1")
HALVING = asha(num_rungs=3, max_time=9, divisor=3, max_trials=9, max_concurrent_trials=2)


class World:
    """Trials that train one unit at a time, in turns, each as good as its learning rate."""

    def __init__(self, searcher: Searcher) -> None:
        self.engine = Engine(searcher, max_restarts=0)
        self.told: list[base.Event] = []
        self.warned: list[str] = []
        self.trials: dict[str, float] = {}
        self.times: dict[str, int] = {}
        self.running: list[str] = []
        self.stopping: set[str] = set()
        self.do(Started())
        self.do(Request.ACTIVATE)

    def do(self, event: Any) -> None:
        self.perform(self.engine.handle(event))

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Tell):
                assert action.number == len(self.told) + 1
                self.told.append(base.event_from_json(json.loads(json.dumps(action.event, allow_nan=False))))
            elif isinstance(action, AddTrial):
                self.trials[action.request_id] = float(action.hparams["lr"])  # type: ignore[arg-type]
                self.times[action.request_id] = 0
            elif isinstance(action, Queue):
                self.running.append(action.request_id)
                self.do(AttemptStarted(action.request_id))
            elif isinstance(action, Preempt):
                self.stopping.add(action.request_id)
            elif isinstance(action, Warn):
                self.warned.append(action.text)

    def step(self) -> None:
        """Let the trial whose turn it is train one unit, or leave if it was asked to."""
        assert self.running, "nothing runs, and nobody is asked"
        trial = self.running.pop(0)
        if trial in self.stopping or self.times[trial] == 9:
            self.do(AttemptEnded(trial, Exit(0, acknowledged=trial in self.stopping)))
            return
        self.times[trial] += 1
        self.running.append(trial)
        self.do(Progressed(trial, self.times[trial] / 9))
        self.do(Validated(trial, {"loss": self.trials[trial], "batches": self.times[trial]}, self.times[trial]))


class WorldExchange:
    """An exchange with a world; raises where it is told to, and hands the answers through JSON."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.crash_before: int | None = None
        self.crash_after: int | None = None

    def apply(self, answer: Answer) -> None:
        if answer.event == self.crash_before:
            raise ConnectionError
        self.world.do(Answered(json.loads(json.dumps(answer.to_json(), allow_nan=False))))
        if answer.event == self.crash_after:
            raise ConnectionError

    def next_event(self, after: int) -> base.Event | None:
        while len(self.world.told) <= after:
            if self.world.engine.state.is_terminal:
                return None
            self.world.step()
        return self.world.told[after]


def make(snapshot: Any) -> Searcher:
    return Searcher(HALVING, space(), 7) if snapshot is None else Searcher.restore(snapshot, HALVING, space())


def inside() -> World:
    world = World(make(None))
    while not world.engine.state.is_terminal:
        world.step()
    return world


def outside() -> World:
    return World(Searcher(OUTSIDE, space(), 0, OutsideMethod()))


def play_to_the_end(world: World) -> None:
    while not world.engine.state.is_terminal:
        world.step()


def test_a_method_outside_decides_as_inside() -> None:
    """3.7: the same trials are created and stopped at the same time, whichever process the method lives in."""
    expected, world = inside(), outside()
    runner.drive(make, WorldExchange(world), None)
    play_to_the_end(world)
    assert len(expected.trials) == 9
    assert len(set(expected.times.values())) > 1, "nobody was stopped early"
    assert (world.trials, world.times, world.engine.state) == (expected.trials, expected.times, State.COMPLETED)


@pytest.mark.parametrize("moment", ["crash_before", "crash_after"])
def test_a_crash_at_any_event_changes_nothing(tmp_path: Path, moment: str) -> None:
    """3.7: saved before applied, and never applied twice: a runner that crashes at each event in turn."""
    expected, world = inside(), outside()
    exchange = WorldExchange(world)
    for number in range(1, 400):
        setattr(exchange, moment, number)
        try:
            runner.drive(make, exchange, tmp_path)
            break
        except ConnectionError:
            pass
    play_to_the_end(world)
    assert number > 50, "it hardly ever crashed"
    assert (world.trials, world.times, world.engine.state) == (expected.trials, expected.times, State.COMPLETED)


def test_it_waits_for_its_first_answer() -> None:
    """A search that is decided outside does not end because it has no trials yet."""
    world = outside()
    assert world.told == [base.Initial()]
    assert world.engine.state is State.ACTIVE
    assert not world.engine.searcher.is_over


def test_an_answer_comes_once() -> None:
    """An answer that was applied before creates nothing; a later one does."""
    world = outside()
    create = base.Create("a1", {"lr": 0.1}, 3)
    for _ in range(2):
        world.do(Answered(Answer(1, (create,), 0.25, ("Careful.",)).to_json()))
    assert list(world.trials) == ["a1"]
    assert world.warned == ["Careful."]
    assert world.engine.progress() == 0.25
    world.do(Answered(Answer(2, (base.Create("a2", {"lr": 0.1}, 3),)).to_json()))
    assert list(world.trials) == ["a1", "a2"]


def test_it_comes_back_from_its_snapshot_and_from_its_events() -> None:
    """P-45: what was answered is part of the search's state."""
    world = outside()
    answer = Answer(1, (base.Create("a1", {"lr": 0.1}, 3),), 0.5)
    world.do(Answered(answer.to_json()))
    snapshot = json.loads(json.dumps(world.engine.searcher.snapshot(), allow_nan=False))
    again = Searcher.restore(snapshot, OUTSIDE, space(), OutsideMethod())
    assert again.answer(answer) == []
    assert again.progress() == 0.5
    assert again.events == world.engine.searcher.events == 2


def test_an_answer_about_an_unknown_trial_fails_the_search() -> None:
    """3.7: an error in what a method wants ends its experiment, with the reason."""
    world = outside()
    actions = world.engine.handle(Answered(Answer(1, (base.Stop("nobody"),)).to_json()))
    reasons = [action.reason for action in actions if isinstance(action, SetExperiment)]
    assert "no trial 'nobody'" in reasons[0]
    assert world.engine.state is State.ERROR


def test_what_is_no_answer_fails_the_search() -> None:
    """A row that nobody can read ends this experiment, and not the process that reads it."""
    world = outside()
    world.do(Answered({"event": 1, "actions": [{"type": "dance"}]}))
    assert world.engine.state is State.ERROR


def test_a_stop_that_comes_too_late_changes_nothing() -> None:
    """The method outside may decide about a trial that has ended meanwhile."""
    world = outside()
    world.do(Answered(Answer(1, (base.Create("a1", {"lr": 0.1}, 3), base.Create("a2", {"lr": 0.1}, 3))).to_json()))
    world.do(AttemptEnded("a1", Exit(0)))
    world.do(Answered(Answer(2, (base.Stop("a1"),)).to_json()))
    assert world.engine.state is State.ACTIVE
    world.do(Answered(Answer(3, (base.Shutdown(),)).to_json()))
    play_to_the_end(world)
    assert world.engine.state is State.COMPLETED


def test_a_search_that_decides_for_itself_takes_no_answers() -> None:
    """An answer to any other search is an error, not a decision."""
    with pytest.raises(errors.SearchError, match="decided by"):
        make(None).answer(Answer(1))


def test_only_a_custom_search_with_a_runner_is_outside() -> None:
    """The mark is a key of the section."""
    assert is_outside(OUTSIDE)
    assert not is_outside(config("custom", method="a:B"))
    assert not is_outside(config("random", runner="a1"))
