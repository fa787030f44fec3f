"""What a simulated search did: its trials, what they cost, and what they found. `play` makes it."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from determined._types import Json
from determined.experiment.lifecycle import State


class Ending(str, enum.Enum):
    """How a simulated trial ended."""

    FINISHED = "finished"  # trained to the end
    STOPPED = "stopped"  # the search had seen enough
    FAILED = "failed"  # crashed once too often
    INVALID = "invalid"  # raised InvalidHP


class Span(NamedTuple):
    """One attempt: from when to when it held a place, and from where to where it trained."""

    start: int
    end: int
    begin: int
    reached: int


@dataclass
class SimulatedTrial:
    """One trial of a simulated search.

    Attributes:
        number: 1 for the trial that was created first.
        request_id: What the search calls it.
        hparams: What it was to train with.
        seed: Its seed.
        values: What its validations would show if it trained to the end, one for each of the simulation's `moments`.
        created: When it was created, on the virtual clock.
        seen: How many of these validations there were.
        reached: How far it trained, in units of the time metric.
        units: What it cost. After a crash some of the way is trained twice, so this may be more than `reached`.
        restarts: How often it crashed.
        spans: When it ran.
        ending: How it ended.
        ended: When.
    """

    number: int
    request_id: str
    hparams: dict[str, Json]
    seed: int
    values: Sequence[float]
    created: int
    seen: int = 0
    reached: int = 0
    units: int = 0
    restarts: int = 0
    spans: list[Span] = field(default_factory=list)
    ending: Ending = Ending.STOPPED
    ended: int = 0


class Found(NamedTuple):
    """The best value so far, after so much training in all."""

    units: int
    value: float


@dataclass
class Simulation:
    """A search, played to its end.

    Attributes:
        state: How the experiment ended.
        reason: Why it did.
        max_time: The end of training, in units of the time metric.
        moments: At which units trials validated.
        smaller_is_better: What best means.
        trials: In the order in which they were created.
        units: What all of them cost.
        time: How long it took, when one unit takes a trial one tick.
        places: How many trials ran at once, at most.
        found: The best value found against training spent: a stair, one step for each improvement.
        warnings: What the search had to say.

    Example::

        played = simulate(searcher, space)
        f"{played.saved():.0%} saved"  # "92% saved"
    """

    state: State
    reason: str
    max_time: int
    moments: Sequence[int]
    smaller_is_better: bool
    trials: list[SimulatedTrial]
    units: int
    time: int
    places: int
    found: list[Found]
    warnings: list[str]

    def trained(self) -> list[SimulatedTrial]:
        """Return the trials that could be trained: not those with unusable hyperparameters."""
        return [trial for trial in self.trials if trial.ending is not Ending.INVALID]

    def all_units(self) -> int:
        """Return what it would cost to train all of them to the end."""
        return len(self.trained()) * self.max_time

    def all_time(self) -> int:
        """Return how long that would take, on as many places."""
        return math.ceil(len(self.trained()) / self.places) * self.max_time if self.places else 0

    def saved(self) -> float:
        """The share of all that training which was not needed. Negative if crashes cost more than stopping saved."""
        return 1 - self.units / self.all_units() if self.all_units() else 0.0

    def best(self) -> SimulatedTrial | None:
        """Return the trial that reported the best value."""
        seen = [trial for trial in self.trials if trial.seen]
        return min(seen, key=lambda trial: self._rank(self.best_of(trial)), default=None)

    def best_possible(self) -> SimulatedTrial | None:
        """Return the trial that would have reported the best value, had all been trained to the end."""
        return min(self.trained(), key=lambda trial: self._rank(self.potential_of(trial)), default=None)

    def best_of(self, trial: SimulatedTrial) -> float:
        """Return the best value that a trial reported; NaN if it reported none."""
        return self._better(trial.values[: trial.seen])

    def potential_of(self, trial: SimulatedTrial) -> float:
        """Return the best value that a trial would report on the way to the end."""
        return self._better(trial.values)

    def counts(self, ending: Ending | None = None) -> Mapping[int, int]:
        """Return how many trials trained to how many units, ascending; those with unusable hyperparameters are none.

        Args:
            ending: Only those that ended so.
        """
        ends = Counter(trial.reached for trial in self.trained() if ending is None or trial.ending is ending)
        return dict(sorted(ends.items()))

    def _better(self, values: Sequence[float]) -> float:
        return min(values, key=self._rank, default=math.nan)

    def _rank(self, value: float) -> float:
        return value if self.smaller_is_better else -value
