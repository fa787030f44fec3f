"""Searches for tests: short ways to configure one, and a player that stands in for the engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from determined.experiment.hparams import Space, parse
from determined.experiment.search.base import (
    Action,
    Create,
    Event,
    ExitedReason,
    Initial,
    Pause,
    Resume,
    Shutdown,
    Stop,
    TrialExited,
    TrialExitedEarly,
    ValidationCompleted,
    action_from_json,
    event_from_json,
    to_json,
)
from determined.experiment.search.searcher import Searcher
from tests.history import History

LR = {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}}


def space(declared: dict[str, Any] | None = None) -> Space:
    """A space without mistakes."""
    made, problems = parse(LR if declared is None else declared)
    assert problems == []
    return made


def config(name: str, **fields: Any) -> dict[str, Any]:
    """A searcher section with what every test would say anyway."""
    return {"name": name, "metric": "loss", "smaller_is_better": True, "max_concurrent_trials": 16, **fields}


def asha(**fields: Any) -> dict[str, Any]:
    return config("async_halving", **{"time_metric": "batches", "divisor": 4, **fields})


def adaptive(max_trials: int, max_time: int, **fields: Any) -> dict[str, Any]:
    fields = {"time_metric": "batches", "max_trials": max_trials, "max_time": max_time, **fields}
    return config("adaptive_asha", **fields)


def report(request_id: str, loss: Any, batches: Any = 0, **metrics: Any) -> ValidationCompleted:
    return ValidationCompleted(request_id, {"loss": loss, "batches": batches, **metrics}, 0)


def reloaded(searcher: Searcher, section: dict[str, Any], where: Space, custom: Any = None) -> Searcher:
    """The searcher after a restart: through strict JSON text and back."""
    text = json.dumps(searcher.snapshot(), allow_nan=False)
    return Searcher.restore(json.loads(text), section, where, custom)


class Player:
    """Plays the engine: keeps the trials in the order they were created, and every event and action that was.

    Checks what holds for every search: actions and events survive JSON, no id comes twice, only trials that live are
    stopped or paused, nothing follows a Shutdown.
    """

    def __init__(self, section: dict[str, Any], where: Space | None = None, seed: int = 0, custom: Any = None) -> None:
        self.space = space() if where is None else where
        self.section = section
        self.searcher = Searcher(section, self.space, seed, custom)
        self.trials: list[Create] = []
        self.live: list[str] = []
        self.running: set[str] = set()
        self.stopped: set[str] = set()
        self.ended: set[str] = set()
        self.events: list[Event] = []
        self.actions: list[list[Action]] = []
        self.end: Shutdown | None = None

    def start(self) -> Player:
        self.do(Initial())
        return self

    def __getitem__(self, number: int) -> str:
        """The request id of trial 1, 2, 3..."""
        return self.trials[number - 1].request_id

    def do(self, event: Event) -> list[Action]:
        assert event_from_json(json.loads(json.dumps(to_json(event), allow_nan=False))).__class__ is event.__class__
        if isinstance(event, TrialExited) and event.request_id in self.live:
            self.live.remove(event.request_id)
            self.running.discard(event.request_id)
        if isinstance(event, TrialExitedEarly):
            self.ended.add(event.request_id)
        self.events.append(event)
        actions = self.searcher.handle(event)
        self.actions.append(actions)
        for action in actions:
            assert self.end is None, "nothing follows a Shutdown"
            assert action_from_json(json.loads(json.dumps(to_json(action), allow_nan=False))) == action
            self._note(action)
        return actions

    def _note(self, action: Action) -> None:
        if isinstance(action, Shutdown):
            self.end = action
        elif isinstance(action, Create):
            assert action.request_id not in {trial.request_id for trial in self.trials}
            self.trials.append(action)
            self.live.append(action.request_id)
            self.running.add(action.request_id)
        else:
            assert action.request_id in self.live
            assert action.request_id not in self.stopped
            if isinstance(action, Stop):
                self.stopped.add(action.request_id)
            assert not isinstance(action, Pause) or action.request_id in self.running
            assert not isinstance(action, Resume) or action.request_id not in self.running
            (self.running.add if isinstance(action, Resume) else self.running.discard)(action.request_id)

    def unpaused(self) -> list[str]:
        """Trials that will exit by themselves: all that live, except those that wait in a pause."""
        return [trial for trial in self.live if trial in self.running | self.stopped | self.ended]

    def exits(self, request_id: str, reason: ExitedReason | None = None) -> list[Action]:
        early = [] if reason is None else self.do(TrialExitedEarly(request_id, reason))
        return [*early, *self.do(TrialExited(request_id))]

    def one_by_one(self, loss: Callable[[int, int], float], times: Iterable[int]) -> dict[str, int]:
        """Run trials in order of creation, each until it is stopped; at what time each one ended."""
        ended: dict[str, int] = {}
        number = 0
        while number < len(self.trials):
            request_id = self.trials[number].request_id
            number += 1
            for time in times:
                ended[request_id] = time
                if Stop(request_id) in self.do(report(request_id, loss(number, time), time)):
                    break
            self.exits(request_id)
        return ended


def recorded(
    history: History,
    section: dict[str, Any],
    declared: dict[str, Any],
    loss: Callable[[dict[str, Any], int], float],
    times: Iterable[int],
    *,
    name: str = "a search",
    seed: int = 0,
) -> int:
    """Play a search, record it in a store as a controller would, and return the id of the experiment."""
    player = Player(section, space(declared), seed).start()

    def measure(number: int, time: int) -> float:
        return loss(player.trials[number - 1].hparams, time)

    moments = list(times)
    ended = player.one_by_one(measure, moments)
    config = {"searcher": section, "hyperparameters": declared}
    experiment = history.experiment(name, config=config, unmanaged=False, metric=section["metric"])
    for number, trial in enumerate(player.trials, 1):
        reached = [time for time in moments if time <= ended[trial.request_id]]
        values = {time: {"loss": measure(number, time), "epochs": time / 100} for time in reached}
        history.trial(experiment, hparams=trial.hparams, validation=values)
    return experiment


def shape(actions: Iterable[Action]) -> list[str]:
    """Actions by kind, in words."""
    return [type(action).__name__ for action in actions]
