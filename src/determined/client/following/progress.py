"""An experiment as it goes on: one small read transaction per look, which reads only what may have changed."""

from __future__ import annotations

import collections
import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from determined import store
from determined.client._listing import flat
from determined.client._session import Session
from determined.client.following.replay import Climb, has_rungs
from determined.experiment.lifecycle import State, shown_restarts, shown_state
from determined.store.messages import now

WORKING = frozenset({"STARTING", "RUNNING", "STOPPING_COMPLETED", "STOPPING_CANCELED", "STOPPING_KILLED",
                     "STOPPING_ERROR"})  # fmt: skip
ENDED = frozenset({"COMPLETED", "CANCELED", "ERROR"})


@dataclasses.dataclass(frozen=True)
class TrialView:
    """A trial as it is shown."""

    id: int
    request_id: str
    state: str
    reason: str
    progress: float | None
    batches: int
    best: float | None
    last: float | None
    slots: int
    restarts: int
    hparams: dict[str, Any]
    seconds: float  # for which its processes ran
    rung: str = ""

    @property
    def is_working(self) -> bool:
        """Whether its processes run, or are about to."""
        return self.state in WORKING

    @property
    def has_ended(self) -> bool:
        """Whether it has ended for good."""
        return self.state in ENDED


@dataclasses.dataclass(frozen=True)
class View:
    """An experiment as it is shown, with its trials by id."""

    id: int
    name: str
    state: str
    reason: str
    progress: float | None
    searcher: str
    metric: str | None
    smaller_is_better: bool
    started: datetime.datetime
    ended: datetime.datetime | None
    unmanaged: bool
    time: datetime.datetime
    seconds_left: float | None
    trials: Mapping[int, TrialView]
    changed: Sequence[int]  # ids of the trials that may look different from the time before
    differing: Sequence[str]  # hyperparameters that are not the same for all trials; of nested ones with dots

    @property
    def has_ended(self) -> bool:
        """Whether the experiment has ended for good."""
        return self.state in ENDED

    @property
    def seconds(self) -> float:
        """For how long it has been there."""
        return ((self.ended or self.time) - self.started).total_seconds()

    @property
    def slots(self) -> int:
        """How many slots its trials hold."""
        return sum(trial.slots for trial in self.trials.values())

    def counts(self) -> dict[str, int]:
        """Return how many trials are in each state, those that work first."""
        return in_order(collections.Counter(trial.state for trial in self.trials.values()))

    def ranked(self) -> list[TrialView]:
        """Return the trials that have a value, the best first; of equal ones the earlier first."""
        valued = [trial for trial in self.trials.values() if trial.best is not None]
        sign = 1.0 if self.smaller_is_better else -1.0
        return sorted(valued, key=lambda trial: (sign * (trial.best or 0.0), trial.id))

    def best(self) -> TrialView | None:
        """Return the best trial, if one has a value."""
        return next(iter(self.ranked()), None)


def in_order(counts: Mapping[str, int]) -> dict[str, int]:
    """Return how many are in each state, those that work first; states that nobody is in are left out."""
    order = ["RUNNING", "STARTING", "QUEUED", "PAUSED", "COMPLETED", "CANCELED", "ERROR"]
    there = ((state, count) for state, count in counts.items() if count)
    return dict(sorted(there, key=lambda item: order.index(item[0]) if item[0] in order else 1))


class Follower:
    """Reads an experiment again and again.

    Args:
        session: The store.
        experiment_id: Which experiment.

    Example::

        follower = Follower(session, 7)
        while not (view := follower.read()).has_ended:
            time.sleep(1.0)
    """

    def __init__(self, session: Session, experiment_id: int) -> None:
        self._session = session
        self._id = experiment_id
        self._climb: Climb | None = None
        self._trials: dict[int, TrialView] = {}
        self._config: dict[str, Any] | None = None
        self._left = TimeLeft()
        self._first_values: dict[str, str] = {}
        self._differing: dict[str, None] = {}

    def read(self) -> View:
        """Look at the experiment, in one transaction.

        Raises:
            NotFound: There is no such experiment.
        """
        from determined.store.control import pending

        with self._session.read() as conn:
            if self._config is None:
                whole = store.experiments.get(conn, self._id)
                self._config = whole.config or {}
                if has_rungs(self._config) and not whole.unmanaged:
                    self._climb = Climb(self._id)
            [row] = store.experiments.find(conn, store.experiments.ExperimentFilter(ids=[self._id])) or [
                store.experiments.get(conn, self._id)  # says that it is gone
            ]
            going = [trial.id for trial in self._trials.values() if not trial.has_ended]
            found = store.overview.running.changed(conn, self._id, newest=max(self._trials, default=0), going=going)
            places = self._climb(conn) if self._climb else {}
            is_submitted = row.state == "PAUSED" and bool(pending.read(conn, 1, experiment_id=self._id))
        time = now()
        for trial in found:
            if trial.id not in self._trials:
                self._compare(trial.hparams)
            self._trials[trial.id] = self._view(trial, str(places.get(trial.request_id, "")), time)
        if is_submitted:  # the controller has not come to it yet
            row = dataclasses.replace(row, state="ACTIVE")
        launches = [launch for trial in found for launch in trial.launches]
        return self._whole(row, launches, [trial.id for trial in found], time)

    def _compare(self, hparams: Mapping[str, Any]) -> None:
        """Note which hyperparameters of a new trial are not as those before."""
        for name, value in flat(hparams).items():
            if self._first_values.setdefault(name, repr(value)) != repr(value):
                self._differing[name] = None

    def _whole(
        self,
        row: store.experiments.ExperimentRow,
        launches: Iterable[store.overview.running.Launch],
        changed: Sequence[int],
        time: datetime.datetime,
    ) -> View:
        state = shown_state(State(row.state), store.overview.running.states(launches))
        left = self._left.estimate(
            row.progress, time, is_running=state in ("RUNNING", "STARTING"), since=row.start_time
        )
        return View(
            id=row.id,
            name=row.name,
            state=state,
            reason=row.state_reason,
            progress=row.progress,
            searcher=str((self._config or {}).get("searcher", {}).get("name") or ""),
            metric=row.searcher_metric,
            smaller_is_better=row.smaller_is_better,
            started=row.start_time,
            ended=row.end_time,
            unmanaged=row.unmanaged,
            time=time,
            seconds_left=left,
            trials=dict(self._trials),
            changed=changed,
            differing=[name for name in self._first_values if name in self._differing],
        )

    def _view(self, trial: store.overview.running.TrialNow, rung: str, time: datetime.datetime) -> TrialView:
        live = store.overview.running.states(trial.launches)
        most = (self._config or {}).get("max_restarts")
        return TrialView(
            id=trial.id,
            request_id=trial.request_id,
            state=shown_state(State(trial.state), live),
            reason=trial.state_reason,
            progress=trial.progress,
            batches=trial.total_batches,
            best=trial.searcher_metric_value,
            last=trial.latest_metric_value,
            slots=trial.launches[-1].slots if live else 0,
            restarts=trial.restarts if most is None else shown_restarts(trial.restarts, int(most)),
            hparams=trial.hparams,
            seconds=sum(((each.end_time or time) - each.start_time).total_seconds() for each in trial.launches),
            rung=rung,
        )


class TimeLeft:
    """How long an experiment may still take, from how fast its progress grew lately."""

    WINDOW_SECONDS = 600.0
    LEAST_SECONDS, LEAST_STEPS = 60.0, 4  # progress comes in steps: fewer say little about its speed
    ENOUGH = 0.02  # progress before which a guess would only mislead

    def __init__(self) -> None:
        self._seen: collections.deque[tuple[datetime.datetime, float]] = collections.deque()

    def estimate(
        self, progress: float | None, time: datetime.datetime, *, is_running: bool, since: datetime.datetime
    ) -> float | None:
        """Return the seconds that are left, or None if that cannot be told yet.

        Args:
            progress: How far it is, 0 to 1.
            time: Now.
            is_running: Whether it trains; a pause is no slow training.
            since: When it began, for the first guess.
        """
        if not is_running or progress is None or progress >= 1.0:
            self._seen.clear()
            return None
        if not self._seen or self._seen[-1][1] != progress:
            self._seen.append((time, progress))
        while len(self._seen) > 2 and (time - self._seen[1][0]).total_seconds() > self.WINDOW_SECONDS:
            self._seen.popleft()
        first, before = self._seen[0]
        seconds = (time - first).total_seconds()
        if seconds >= self.LEAST_SECONDS and len(self._seen) > self.LEAST_STEPS and progress > before:
            rate = (progress - before) / seconds
        elif progress >= self.ENOUGH:
            rate = progress / max((time - since).total_seconds(), 1e-9)
        else:
            return None
        return (1.0 - progress) / rate
