"""One experiment as a machine: what it does about what happens, and what it never does whatever happens."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import errors
from determined.experiment import events, hparams, lifecycle
from determined.experiment.engine import Engine, Phase
from determined.experiment.lifecycle import Exit, State
from determined.experiment.search.base import SearchMethod, Stop
from determined.experiment.search.searcher import Searcher

SPACE, _ = hparams.parse({"lr": {"type": "double", "minval": 0, "maxval": 1, "count": 3}})
RANDOM = {"name": "random", "metric": "loss", "max_trials": 4, "max_concurrent_trials": 2}
ASHA = {
    **RANDOM, "name": "async_halving", "smaller_is_better": True, "time_metric": "batches", "max_time": 16,
    "num_rungs": 3, "divisor": 4, "max_trials": 8, "form": "stopping",
}  # fmt: skip
SEARCHES: list[dict[str, Any]] = [
    {"name": "single", "metric": "loss"},
    RANDOM,
    {"name": "grid", "metric": "loss", "max_concurrent_trials": 2},
    ASHA,
    {**ASHA, "form": "promotion"},
]


class Play:
    """An engine, and the processes that a controller would hold for it."""

    def __init__(self, search: dict[str, Any] = RANDOM, *, max_restarts: int = 0, custom: SearchMethod | None = None):
        self.search, self.max_restarts, self.custom = search, max_restarts, custom
        self.engine = Engine(Searcher(search, SPACE, 0, custom), max_restarts=max_restarts, name="Experiment 1")
        self.queued: list[str] = []
        self.running: list[str] = []
        self.actions: list[events.Action] = []
        self.launches = Counter[str]()
        self.states: list[State] = []

    def tell(self, event: events.Event) -> list[events.Action]:
        actions = self.engine.handle(event)
        for action in actions:
            self.perform(action)
        self.actions += actions
        return actions

    def perform(self, action: events.Action) -> None:
        if isinstance(action, events.Queue):
            assert action.request_id not in self.queued + self.running, "one attempt at a time"
            assert self.trial(action.request_id).state is State.ACTIVE
            self.queued.append(action.request_id)
        elif isinstance(action, events.Dequeue):
            self.queued.remove(action.request_id)
        elif isinstance(action, events.Preempt | events.Kill):
            assert action.request_id in self.running
        elif isinstance(action, events.SetExperiment):
            self.states.append(action.state)

    def launch(self, request_id: str | None = None) -> str:
        chosen = request_id or self.queued[0]
        self.queued.remove(chosen)
        self.running.append(chosen)
        self.launches[chosen] += 1
        self.tell(events.AttemptStarted(chosen))
        return chosen

    def leave(self, request_id: str, exit: Exit) -> list[events.Action]:
        self.running.remove(request_id)
        return self.tell(events.AttemptEnded(request_id, exit))

    def trial(self, request_id: str) -> Any:
        return self.engine.trials[request_id]

    def begin(self) -> Play:
        self.tell(events.Started())
        self.tell(events.Request.ACTIVATE)
        return self


def kinds(actions: list[events.Action]) -> list[str]:
    return [type(action).__name__ for action in actions]


def test_a_paused_submission_has_its_trials_and_starts_nothing() -> None:
    """P-53: initial trials exist in PAUSED; cancelled, the experiment is CANCELED and nothing ever ran."""
    play = Play()
    created = play.tell(events.Started())
    assert [action.state for action in created if isinstance(action, events.AddTrial)] == [State.PAUSED] * 2
    assert play.queued == []
    play.tell(events.Request.CANCEL)
    assert play.states == [State.STOPPING_CANCELED, State.CANCELED]
    assert {trial.state for trial in play.engine.trials.values()} == {State.CANCELED}
    assert not play.launches


def test_random_never_has_more_than_its_limit_and_ends_complete() -> None:
    """P-34, P-46: two at a time, four in all, and a finished experiment's progress is exactly 1."""
    play = Play().begin()
    most = 0
    while play.queued:
        most = max(most, sum(not trial.state.is_terminal for trial in play.engine.trials.values()))
        play.leave(play.launch(), Exit(0))
    assert (most, len(play.engine.trials), play.engine.state) == (2, 4, State.COMPLETED)
    assert play.engine.progress() == 1.0


def test_failures_use_up_restarts_and_pauses_do_not() -> None:
    """P-47, 4.6: pre-emptions, losses and pauses are not charged; failures are, up to max_restarts."""
    play = Play({"name": "single", "metric": "loss"}, max_restarts=1).begin()
    only = play.launch()
    for exit in (Exit(None, lost=True), Exit(1, acknowledged=True)):
        play.leave(only, exit)
        play.launch()
    assert play.trial(only).restarts == 0
    play.leave(only, Exit(1))
    play.launch()
    play.leave(only, Exit(1))
    assert (play.launches[only], play.trial(only).state, play.engine.state) == (4, State.ERROR, State.ERROR)


def test_activating_before_the_process_is_gone_starts_one_attempt() -> None:
    """P-52: pause, activate, then the exit: exactly one new attempt."""
    play = Play({"name": "single", "metric": "loss"}).begin()
    only = play.launch()
    assert kinds(play.tell(events.Request.PAUSE)) == ["SetExperiment", "SetTrial", "Preempt"]
    assert "Queue" not in kinds(play.tell(events.Request.ACTIVATE))
    assert "Queue" in kinds(play.leave(only, Exit(0, acknowledged=True)))
    assert play.queued == [only]


def test_a_paused_trial_that_is_killed_after_its_time_waits() -> None:
    """P-50: a paused trial that had to be killed can still be resumed, and no restart is charged."""
    play = Play({"name": "single", "metric": "loss"}).begin()
    only = play.launch()
    play.tell(events.Request.PAUSE)
    play.leave(only, Exit(-9, killed=True))
    assert (play.trial(only).state, play.trial(only).restarts, play.queued) == (State.PAUSED, 0, [])
    play.tell(events.Request.ACTIVATE)
    assert play.queued == [only]


def test_killing_one_trial_leaves_the_others() -> None:
    """P-55: the other trials complete, and so does the experiment."""
    play = Play({**RANDOM, "max_trials": 2}).begin()
    first, second = play.launch(), play.launch()
    assert kinds(play.tell(events.TrialKillRequested(first))) == ["SetTrial", "Kill"]
    play.leave(first, Exit(-9, killed=True))
    play.leave(second, Exit(0))
    assert [play.trial(first).state, play.trial(second).state] == [State.CANCELED, State.COMPLETED]
    assert play.engine.state is State.COMPLETED
    with pytest.raises(errors.NotFound, match="'nobody'"):
        play.tell(events.TrialKillRequested("nobody"))


def test_a_kill_overtakes_a_cancel() -> None:
    """4.2: cancel asks, kill does not; both again do nothing."""
    play = Play({"name": "single", "metric": "loss"}).begin()
    only = play.launch()
    assert "Preempt" in kinds(play.tell(events.Request.CANCEL))
    assert play.tell(events.Request.CANCEL) == []
    assert "Kill" in kinds(play.tell(events.Request.KILL))
    assert play.tell(events.Request.KILL) == []
    play.leave(only, Exit(-9, killed=True))
    assert play.engine.state is State.CANCELED
    assert play.tell(events.Request.CANCEL) == play.tell(events.Request.KILL) == []
    with pytest.raises(errors.IllegalMove, match="Experiment 1 is CANCELED"):
        play.tell(events.Request.ACTIVATE)


def test_the_search_stops_a_running_trial_by_asking_it() -> None:
    """D1, P-41: the stop is a pre-emption; the trial ends COMPLETED and is never queued again."""
    play = Play(ASHA).begin()
    first, second = play.launch(), play.launch()
    play.tell(events.Validated(first, {"loss": 0.1, "batches": 1}, 1))
    actions = play.tell(events.Validated(second, {"loss": 0.9, "batches": 1}, 1))
    assert events.Preempt(second, "The search stopped this trial.") in actions
    play.leave(second, Exit(0, acknowledged=True))
    assert play.trial(second).state is State.COMPLETED
    assert second not in play.queued


def test_a_trial_that_the_search_paused_waits_for_the_search() -> None:
    """3.2, 4.7: pausing and activating the experiment does not start it; the search's Resume does, also in between."""
    play = Play({**ASHA, "form": "promotion"}).begin()
    paused = []
    for loss in (0.5, 0.6, 0.7):
        chosen = play.launch()
        assert "Preempt" in kinds(play.tell(events.Validated(chosen, {"loss": loss}, 1)))
        play.leave(chosen, Exit(0, acknowledged=True))
        paused.append(chosen)
    fourth, fifth = play.launch(), play.launch()
    play.tell(events.Request.PAUSE)
    play.tell(events.Request.ACTIVATE)
    assert [play.trial(each).state for each in paused] == [State.PAUSED] * 3
    assert play.queued == []

    play.tell(events.Request.PAUSE)
    play.tell(
        events.Validated(fourth, {"loss": 0.8}, 1)
    )  # its last word, while it leaves: the search lets the best go on
    assert (play.trial(paused[0]).state, play.trial(paused[0]).is_held) == (State.PAUSED, False)
    for leaving in (fourth, fifth):
        play.leave(leaving, Exit(0, acknowledged=True))
    assert play.queued == []
    play.tell(events.Request.ACTIVATE)
    assert sorted(play.queued) == sorted([paused[0], fifth])
    assert [play.trial(each).state for each in (*paused[1:], fourth)] == [State.PAUSED] * 3


def test_a_trial_may_be_let_go_on_before_it_has_left() -> None:
    """A Resume that comes while the pause is still being carried out leads to exactly one new attempt."""
    play = Play({**ASHA, "form": "promotion"}).begin()
    first, second = play.launch(), play.launch()
    play.tell(events.Validated(first, {"loss": 0.5}, 1))  # it is asked to leave, and does not yet
    play.tell(events.TrialKillRequested(second))
    play.leave(second, Exit(-9, killed=True))  # a place is free, and after four arrivals the first may go on
    for loss in (0.6, 0.7):
        chosen = play.launch()
        play.tell(events.Validated(chosen, {"loss": loss}, 1))
        play.leave(chosen, Exit(0, acknowledged=True))
    assert play.trial(first).state is State.ACTIVE
    assert first not in play.queued
    play.leave(first, Exit(0, acknowledged=True))
    assert play.queued.count(first) == 1


def test_invalid_hyperparameters_are_replaced() -> None:
    """P-37, D2: the first trial raises InvalidHP, so four trials exist and three trained."""
    play = Play({**RANDOM, "max_trials": 3}).begin()
    first = play.launch()
    assert play.tell(events.InvalidHPReported(first)) == [events.Kill(first, "The trial raised InvalidHP.", 10.0)]
    play.leave(first, Exit(0))
    while play.queued:
        play.leave(play.launch(), Exit(0))
    assert (len(play.engine.trials), play.engine.state) == (4, State.COMPLETED)


def test_a_search_that_only_ever_creates_what_cannot_be_trained_gives_up() -> None:
    """3.9: after 100 InvalidHP in a row the experiment is ERROR, not COMPLETED."""
    play = Play({**RANDOM, "max_trials": 3, "max_concurrent_trials": 1}).begin()
    while play.queued:
        chosen = play.launch()
        play.tell(events.InvalidHPReported(chosen))
        play.leave(chosen, Exit(0))
    assert (play.engine.state, len(play.engine.trials)) == (State.ERROR, 100)
    assert any(isinstance(action, events.Warn) and "InvalidHP" in action.text for action in play.actions)


@pytest.mark.parametrize(
    ("exits", "end"),
    [
        ([Exit(1), Exit(1)], State.ERROR),
        ([Exit(1), Exit(0)], State.COMPLETED),
        (["kill", "kill"], State.CANCELED),
        (["kill", Exit(1)], State.ERROR),
    ],
)
def test_how_trials_end_decides_how_the_experiment_does(exits: list[Any], end: State) -> None:
    """P-39, P-40, D10: an experiment is COMPLETED if one trial completed; else ERROR if any failed, else CANCELED."""
    play = Play({**RANDOM, "max_trials": 2}).begin()
    for chosen, exit in zip([play.launch(), play.launch()], exits, strict=True):
        if exit == "kill":
            play.tell(events.TrialKillRequested(chosen))
            exit = Exit(-9, killed=True)
        play.leave(chosen, exit)
    assert play.engine.state is end


def test_a_search_method_that_fails_ends_the_experiment_kindly() -> None:
    """A custom search may raise anything: the experiment is ERROR with the reason, and nothing is left running."""

    class Broken(SearchMethod):
        def initial_trials(self, ctx: Any) -> list[Any]:
            return [ctx.create(), ctx.create()]

        def validation_completed(self, ctx: Any, request_id: str, metrics: Any) -> list[Any]:
            raise KeyError("oops")

    play = Play({"name": "custom", "metric": "loss"}, custom=Broken()).begin()
    chosen = play.launch()
    actions = play.tell(events.Validated(chosen, {"loss": 1.0}, 1))
    assert events.Kill(chosen, "The search failed with KeyError: 'oops'") in actions
    play.leave(chosen, Exit(-9, killed=True))
    assert (play.engine.state, play.queued) == (State.ERROR, [])


class _Siblings(SearchMethod):
    """Stops its second trial when it hears that the first exists; answers a validation with a short-lived trial."""

    def initial_trials(self, ctx: Any) -> list[Any]:
        self.first = [ctx.create(), ctx.create()]
        return list(self.first)

    def trial_created(self, ctx: Any, request_id: str) -> list[Any]:
        return [Stop(self.first[1].request_id)] if request_id == self.first[0].request_id else []

    def validation_completed(self, ctx: Any, request_id: str, metrics: Any) -> list[Any]:
        new = ctx.create()
        return [new, Stop(new.request_id)]


def test_actions_are_all_applied_before_the_next_event() -> None:
    """3.2: actions are applied in order, and only then the next event comes, which may name any new trial."""
    play = Play({"name": "custom", "metric": "loss"}, custom=_Siblings())
    actions = play.tell(events.Started())
    assert kinds(actions)[:2] == ["AddTrial", "AddTrial"]
    assert [trial.state for trial in play.engine.trials.values()] == [State.PAUSED, State.COMPLETED]


def test_what_is_asked_of_a_trial_that_was_not_created_has_no_effect() -> None:
    """4.2: while an experiment stops no trial is created, and a search that goes on about one does no harm."""
    play = Play({"name": "custom", "metric": "loss"}, custom=_Siblings())
    play.begin()
    running = play.launch()
    play.tell(events.Request.CANCEL)
    assert play.tell(events.Validated(running, {"loss": 1.0}, 1)) == []
    play.leave(running, Exit(acknowledged=True))
    assert play.engine.state is State.CANCELED


def test_killing_what_already_ends_in_error_succeeds() -> None:
    """4.2: kill works from every state that is not terminal; here everything is already being killed."""

    class Broken(_Siblings):
        def validation_completed(self, ctx: Any, request_id: str, metrics: Any) -> list[Any]:
            raise RuntimeError("no")

    play = Play({"name": "custom", "metric": "loss"}, custom=Broken())
    play.begin()
    running = play.launch()
    assert "Kill" in kinds(play.tell(events.Validated(running, {"loss": 1.0}, 1)))
    assert play.tell(events.Request.KILL) == []
    assert play.engine.state is State.STOPPING_ERROR


REQUESTS: dict[str, list[str]] = {
    "calm": [],
    "busy": ["pause", "activate", "kill trial"],
    "wild": ["pause", "activate", "cancel", "kill"],
}


def step(play: Play, chance: random.Random, mood: str) -> None:
    """One thing that may happen next."""
    choices = ["launch"] * 6 * bool(play.queued) + ["report", "leave"] * 5 * bool(play.running)
    choices += REQUESTS[mood]
    if not choices:
        play.tell(events.Request.ACTIVATE)
        return
    choice = chance.choice(choices)
    if choice == "launch":
        play.launch(chance.choice(play.queued))
    elif choice == "report":
        chosen = chance.choice(play.running)
        value = chance.choice([chance.random(), float("nan"), float("inf")])
        play.tell(events.Validated(chosen, {"loss": value}, chance.choice([1, 4, 16])))
        play.tell(events.Progressed(chosen, chance.random()))
        if chance.random() < 0.1:
            play.tell(events.InvalidHPReported(chosen))
    elif choice == "leave":
        chosen = chance.choice(play.running)
        facts = {"acknowledged": chance.random() < 0.3, "killed": chance.random() < 0.2, "lost": chance.random() < 0.1}
        play.leave(chosen, Exit(chance.choice([0, 0, 0, 1, -9]), **facts))
    elif choice == "kill trial":
        play.tell(events.TrialKillRequested(chance.choice(list(play.engine.trials))))
    else:
        try:
            play.tell(events.Request(choice))
        except errors.IllegalMove:
            assert play.engine.state.is_stopping or play.engine.state.is_terminal


def check(play: Play, before: dict[str, State]) -> None:
    for request_id, trial in play.engine.trials.items():
        was = before.get(request_id)
        if was is not None and was is not trial.state:
            reachable = {was}
            for _ in range(3):  # one event may move a trial twice, as through STOPPING to its end
                reachable |= {to for state in reachable for to in lifecycle.TRIAL_MOVES[state]}
            assert trial.state in reachable
        assert (trial.phase is Phase.QUEUED) == (request_id in play.queued)
        assert (trial.phase is Phase.RUNNING) == (request_id in play.running)
        assert not (trial.state.is_terminal and trial.phase is not Phase.IDLE)
    live = [trial for trial in play.engine.trials.values() if not trial.state.is_terminal]
    assert bool(live) or play.engine.state.is_terminal
    assert len(live) <= 16


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SEARCHES), st.integers(0, 2**32), st.sampled_from(["calm", "busy", "wild"]), st.integers(0, 2))
def test_whatever_happens_it_ends_and_never_runs_anything_twice(
    search: dict[str, Any], seed: int, mood: str, max_restarts: int
) -> None:
    """Issue 7: random orders of events never get an experiment stuck, and at its end nothing is queued or runs.

    At every moment the engine can be written down and come back the same.
    """
    chance = random.Random(seed)
    play = Play(search, max_restarts=max_restarts).begin()
    for turn in range(3000):
        if play.engine.state.is_terminal:
            break
        before = {request_id: trial.state for request_id, trial in play.engine.trials.items()}
        step(play, chance, mood if turn < 300 else "calm")
        check(play, before)
        if turn % 7 == 0:
            snapshot = json.loads(json.dumps(play.engine.snapshot(), allow_nan=False))
            searcher = Searcher.restore(snapshot["searcher"], search, SPACE)
            again = Engine(searcher, max_restarts=max_restarts, name="Experiment 1")
            again.restore(snapshot)
            assert again.snapshot() == play.engine.snapshot()
            play.engine = again
    assert play.engine.state.is_terminal
    assert (play.queued, play.running) == ([], [])
    assert sum(state.is_terminal for state in play.states) == 1
    counted = [trial for trial in play.engine.trials.values() if not trial.is_invalid]
    assert len(counted) <= search.get("max_trials", 3)
