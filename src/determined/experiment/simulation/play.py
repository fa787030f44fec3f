"""Play an experiment without training: the real engine and search, synthetic learning curves, a virtual clock.

One unit of the searcher's time metric takes a trial one tick. Starting, validating, saving and leaving take no time.
Nothing here waits, and nothing depends on anything but the arguments. The result is described in `result`.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from determined import errors
from determined._types import Json
from determined.experiment import events
from determined.experiment.engine import Engine
from determined.experiment.hparams import Space
from determined.experiment.lifecycle import Exit, State
from determined.experiment.search.base import SearchMethod
from determined.experiment.search.rungs import brackets, divisor_of, rung_units
from determined.experiment.search.searcher import Searcher
from determined.experiment.simulation.curves import Landscape
from determined.experiment.simulation.preview import preview
from determined.experiment.simulation.result import Ending, Found, SimulatedTrial, Simulation, Span

MAX_TIME = 100
MOST_TRIALS = 100_000
MOST_VALIDATIONS = 100_000  # of one trial
VALIDATIONS = 100  # of a whole training, evenly spread, where no period is given ...
EARLY_VALIDATIONS = 60  # ... and spread by their logarithm, for the short trainings of a search that stops


@dataclass(frozen=True)
class World:
    """The conditions under which a search is simulated.

    Args:
        places: How many trials can run at once; None: as many as the search likes.
        max_time: The end of training, where the searcher does not say.
        period: Units between validations. None: as often as a picture needs, and at each rung exactly.
        failures: How likely it is that a whole training crashes on its way; also again, after a restart.
        invalid: How likely it is that hyperparameters turn out to be unusable.
        max_restarts: How often a trial may crash.
        curves_seed: Chooses the learning curves.
    """

    places: int | None = None
    max_time: int = MAX_TIME
    period: int | None = None
    failures: float = 0.0
    invalid: float = 0.0
    max_restarts: int = 5
    curves_seed: int = 0

    def __post_init__(self) -> None:
        for name in ("places", "max_time", "period"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise errors.InvalidValue(f"{name} is {value}; expected at least 1.")
        for name in ("failures", "invalid"):
            if not 0 <= (value := getattr(self, name)) <= 1:
                raise errors.InvalidValue(f"{name} is {value}; expected a likelihood from 0 to 1, such as 0.05.")


def simulate(
    searcher: Mapping[str, Any],
    space: Space,
    seed: int = 0,
    world: World | None = None,
    custom: SearchMethod | None = None,
) -> Simulation:
    """Simulate a search to its end. The same arguments give the same simulation.

    Args:
        searcher: The `searcher` section, checked, with defaults filled in.
        space: The hyperparameters.
        seed: The experiment's seed.
        world: Places, failures and curves; None: `World()`.
        custom: The method for `name: custom`.

    Raises:
        SearchError: The search never ends, is too large to play, or makes trials that no curve can be drawn for.

    Example::

        space, _ = parse({"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}})
        simulate({"name": "random", "metric": "loss", "max_trials": 8}, space).units  # 800
    """
    planned = sum(count for count, _ in preview(searcher, space))
    if planned > MOST_TRIALS:
        raise errors.SearchError(
            f"The search is for {planned:,} trials, and a simulation plays at most {MOST_TRIALS:,}. "
            "Lower max_trials, or the counts of a grid."
        )
    return _Play(searcher, space, seed, world or World(), custom).run()


def rungs_of(searcher: Mapping[str, Any]) -> list[int]:
    """Return the units at which a search compares trials, ascending; empty if it stops none.

    Example::

        rungs_of({"name": "asha", "max_trials": 9, "max_time": 9, "num_rungs": 2, "divisor": 3})  # [3, 9]
    """
    if searcher["name"] in ("single", "random", "grid", "custom") or searcher.get("max_time") is None:
        return []
    divisor, end = divisor_of(searcher), int(searcher["max_time"])
    return sorted({unit for bracket in brackets(searcher) for unit in rung_units(bracket.rungs, divisor, end)})


def moments(max_time: int, period: int | None, rungs: Sequence[int] = ()) -> list[int]:
    """Return the units at which a trial validates, ascending; the last is always `max_time`.

    Example::

        moments(10, 4)  # [4, 8, 10]
    """
    if period is not None:
        if max_time // period > MOST_VALIDATIONS:
            raise errors.InvalidValue(
                f"period={period} is {max_time // period:,} validations in a training of {max_time} units, and at most "
                f"{MOST_VALIDATIONS:,} are played. Use {math.ceil(max_time / MOST_VALIDATIONS)} or more."
            )
        return [*range(period, max_time, period), max_time]
    evenly = {math.ceil(max_time * i / VALIDATIONS) for i in range(1, VALIDATIONS + 1)}
    early = {math.floor(max_time ** (i / EARLY_VALIDATIONS)) for i in range(EARLY_VALIDATIONS)}
    return sorted(evenly | early | set(rungs))


@dataclass
class _Attempt:
    """A trial that runs: since when it is where it is, and where it will crash."""

    start: int
    begin: int
    since: int
    crash_at: float


class _Play:
    """One experiment, its virtual clock, and the places where its trials run."""

    def __init__(
        self, searcher: Mapping[str, Any], space: Space, seed: int, world: World, custom: SearchMethod | None
    ) -> None:
        self._world, self._seed = world, seed
        self._metric = str(searcher["metric"])
        self._time_metric = str(searcher.get("time_metric") or "batches")
        self._smaller_is_better = bool(searcher.get("smaller_is_better", True))
        self._max_time = int(searcher.get("max_time") or world.max_time)
        self._moments = moments(self._max_time, world.period, rungs_of(searcher))
        self._landscape = Landscape(space, world.curves_seed)
        self._engine = Engine(Searcher(searcher, space, seed, custom), max_restarts=world.max_restarts)
        self._now = 0
        self._units = 0
        self._places = 0
        self._trials: dict[str, SimulatedTrial] = {}
        self._saved: dict[str, int] = {}  # how far a trial's newest checkpoint is
        self._queue: dict[str, None] = {}  # in order, and quick to leave
        self._running: dict[str, _Attempt] = {}
        self._pending: deque[events.Event] = deque()
        self._clock: list[tuple[int, int, str, _Attempt]] = []
        self._order = itertools.count()
        self._found: list[Found] = []
        self._warnings: list[str] = []
        self._reason = ""  # why the experiment stopped

    def run(self) -> Simulation:
        self._handle(events.Started())
        if self._engine.state.is_terminal:
            raise errors.SearchError(f"The search ended before its first trial. {self._reason}")
        self._handle(events.Request.ACTIVATE)
        self._fill()
        while self._clock:
            self._now, _, request_id, attempt = heapq.heappop(self._clock)
            if self._running.get(request_id) is attempt:
                self._advance(self._trials[request_id], attempt)
                self._fill()
        if not self._engine.state.is_terminal:
            waiting = sum(not trial.state.is_terminal for trial in self._engine.trials.values())
            raise errors.SearchError(f"The search would never end: {waiting} trials wait, and none runs.")
        return Simulation(
            state=self._engine.state,
            reason=self._reason,
            max_time=self._max_time,
            moments=self._moments,
            smaller_is_better=self._smaller_is_better,
            trials=list(self._trials.values()),
            units=self._units,
            time=self._now,
            places=self._places,
            found=self._found,
            warnings=self._warnings,
        )

    # Trials run.

    def _fill(self) -> None:
        """Start queued trials, as far as there are places."""
        while self._queue and (self._world.places is None or len(self._running) < self._world.places):
            request_id = next(iter(self._queue))
            del self._queue[request_id]
            self._start(self._trials[request_id])

    def _start(self, trial: SimulatedTrial) -> None:
        begin = self._saved.get(trial.request_id, 0)
        chance = random.Random(f"{self._seed} {trial.seed} {len(trial.spans)}")
        attempt = _Attempt(self._now, begin, self._now, begin + self._distance(chance.random()))
        is_usable = trial.spans or chance.random() >= self._world.invalid
        self._running[trial.request_id] = attempt
        self._places = max(self._places, len(self._running))
        trial.reached = begin
        self._handle(events.AttemptStarted(trial.request_id))
        if not is_usable:
            self._leave(trial.request_id, Exit(0), events.InvalidHPReported(trial.request_id))
        elif begin >= self._max_time:
            self._leave(trial.request_id, Exit(0))
        else:
            self._plan(trial, attempt)

    def _distance(self, luck: float) -> float:
        """Return how many units away the next crash is. Crashes have no memory, as those of machines."""
        if self._world.failures in (0, 1):
            return math.inf if self._world.failures == 0 else 0
        return math.floor(math.log(1 - luck) / math.log(1 - self._world.failures) * self._max_time)

    def _plan(self, trial: SimulatedTrial, attempt: _Attempt) -> None:
        """Schedule this trial's next event: its next validation, or its crash if that comes first."""
        target = min(self._moments[trial.seen], attempt.crash_at)
        when = self._now + int(target) - trial.reached
        heapq.heappush(self._clock, (when, next(self._order), trial.request_id, attempt))

    def _advance(self, trial: SimulatedTrial, attempt: _Attempt) -> None:
        self._catch_up(trial, attempt)
        if trial.reached < self._moments[trial.seen]:
            self._leave(trial.request_id, Exit(1))
            return
        self._validate(trial)
        if self._running.get(trial.request_id) is not attempt:
            return
        if trial.reached >= self._max_time:
            self._leave(trial.request_id, Exit(0))
        else:
            self._plan(trial, attempt)

    def _catch_up(self, trial: SimulatedTrial, attempt: _Attempt) -> None:
        """Count what was trained since the trial was last looked at."""
        units = self._now - attempt.since
        attempt.since = self._now
        trial.reached += units
        trial.units += units
        self._units += units

    def _validate(self, trial: SimulatedTrial) -> None:
        value = trial.values[trial.seen]
        trial.seen += 1
        self._saved[trial.request_id] = trial.reached
        if not self._found or self._is_better(value, self._found[-1].value):
            self._found.append(Found(self._units, value))
        metrics: dict[str, Json] = {"batches": trial.reached, self._time_metric: trial.reached, self._metric: value}
        self._handle(events.Validated(trial.request_id, metrics, trial.reached))

    def _is_better(self, value: float, than: float) -> bool:
        return value < than if self._smaller_is_better else value > than

    def _leave(self, request_id: str, exit: Exit, *before: events.Event) -> None:
        """End the trial's attempt; one that was preempted has saved a checkpoint."""
        trial, attempt = self._trials[request_id], self._running.pop(request_id)
        self._catch_up(trial, attempt)
        trial.spans.append(Span(attempt.start, self._now, attempt.begin, trial.reached))
        trial.restarts += exit.code == 1
        if exit.acknowledged:
            self._saved[request_id] = trial.reached
        self._handle(*before, events.AttemptEnded(request_id, exit))

    # The engine decides.

    def _handle(self, *happened: events.Event) -> None:
        """Hand events to the engine and perform its actions; events caused by that are handled afterwards."""
        is_nested = bool(self._pending)
        self._pending += happened
        while self._pending and not is_nested:
            for action in self._engine.handle(self._pending[0]):
                self._perform(action)
            self._pending.popleft()

    def _perform(self, action: events.Action) -> None:
        if isinstance(action, events.AddTrial):
            self._add(action)
        elif isinstance(action, events.Queue):
            self._queue[action.request_id] = None
        elif isinstance(action, events.Dequeue):
            del self._queue[action.request_id]
        elif (
            isinstance(action, events.Preempt | events.Kill) and action.request_id in self._running
        ):  # it may be asked twice
            is_asked = isinstance(action, events.Preempt)
            self._leave(action.request_id, Exit(0, acknowledged=True) if is_asked else Exit(-9, killed=True))
        elif isinstance(action, events.SetTrial) and action.state.is_terminal:
            self._end(self._trials[action.request_id], action.state)
        elif isinstance(action, events.SetExperiment) and action.state.is_stopping:
            self._reason = action.reason
        elif isinstance(action, events.Warn):
            self._warnings.append(action.text)

    def _add(self, action: events.AddTrial) -> None:
        number = len(self._trials) + 1
        if number > MOST_TRIALS:
            raise errors.SearchError(f"The search has made {MOST_TRIALS} trials and goes on. Give it an end.")
        try:
            curve = self._landscape.curve(action.hparams, action.seed)
        except (KeyError, TypeError, ValueError):
            raise errors.SearchError(
                f"Trial {number} has hyperparameters {action.hparams!r}, which are not those of the experiment file, "
                "so that nobody knows how it would learn. Create trials with all of them."
            ) from None
        losses = [curve.at(moment / self._max_time) for moment in self._moments]
        values = losses if self._smaller_is_better else [1 - loss for loss in losses]
        self._trials[action.request_id] = SimulatedTrial(
            number, action.request_id, action.hparams, action.seed, values, self._now
        )

    def _end(self, trial: SimulatedTrial, state: State) -> None:
        trial.ended = self._now
        if self._engine.trials[trial.request_id].is_invalid:
            trial.ending = Ending.INVALID
        elif state is State.ERROR:
            trial.ending = Ending.FAILED
        elif trial.reached >= self._max_time:
            trial.ending = Ending.FINISHED
