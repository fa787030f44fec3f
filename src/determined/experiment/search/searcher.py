"""The searcher: what all search methods share. It counts trials, reads metrics, and knows when a search is over."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from determined import errors
from determined.experiment.generator import Generator
from determined.experiment.hparams import Space
from determined.experiment.search import base
from determined.experiment.search.base import Action, Event, ExitedReason, SearchContext, SearchMethod, SearchState
from determined.experiment.search.methods import build
from determined.experiment.search.outside import OutsideMethod

VERSION = 2
LEAST_INVALID_IN_A_ROW = 100
INVALID_PER_TRIAL = 10


@dataclass
class _Trial:
    """One trial that has not exited."""

    has_reported: bool = False  # the searcher metric, usably, at least once
    is_warned: bool = False
    is_stopped: bool = False
    is_paused: bool = False
    is_again: bool = False  # it had exited, and runs again: the method has been told of its exit
    ended: ExitedReason | None = None


class Searcher:
    """One search: events in, actions out. `base` describes how to get it back after a crash.

    Args:
        searcher: The `searcher` section, checked, with defaults filled in.
        space: The hyperparameters.
        seed: The experiment's seed.
        custom: The method for `name: custom` (see `methods.load`).

    Example::

        space, _ = parse({"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}})
        searcher = Searcher({"name": "random", "metric": "loss", "max_trials": 8, "max_concurrent_trials": 2}, space, 0)
        first, second = searcher.handle(Initial())
        searcher.handle(TrialExited(first.request_id))  # [Create(...)]
    """

    def __init__(
        self, searcher: Mapping[str, Any], space: Space, seed: int, custom: SearchMethod | None = None
    ) -> None:
        self._ctx = SearchContext(Generator(seed), space, searcher)
        self._method = build(searcher, space, custom)
        self._state = SearchState()
        self._trials: dict[str, _Trial] = {}
        self._gone: set[str] = set()
        self._events = 0
        self._answered = 0
        self._invalid_in_a_row = 0
        self._is_started = False
        self._end: base.Shutdown | None = None

    @property
    def warnings(self) -> list[str]:
        """What the user should be told about the event that was handled last."""
        return list(self._ctx.warnings)

    @property
    def is_over(self) -> bool:
        """Whether there was a Shutdown. Later events change nothing."""
        return self._end is not None

    @property
    def events(self) -> int:
        """How many events there were: the number of the newest, counted from 1."""
        return self._events

    @property
    def method(self) -> SearchMethod:
        """The search method, to look at."""
        return self._method

    def handle(self, event: Event) -> list[Action]:
        """Return the actions for an event, to be applied in order; none comes twice, and none after a Shutdown.

        Raises:
            SearchError: The event names a trial that this search did not create, or the method of a custom search
                returned something that is no action.
        """
        self._events += 1
        self._ctx.warnings.clear()
        if self._end is not None:
            return []
        actions = self._checked(self._decide(event))
        is_idle = self._is_started and self._state.requested == self._state.exited
        if self._end is None and is_idle and not self._method.is_outside:
            actions.append(self._shut_down(_verdict(self._state)))
        return actions

    def answer(self, answer: base.Answer) -> list[Action]:
        """Return the actions that a method in another process decided; none if this answer came before.

        Raises:
            SearchError: The search decides for itself, or the answer names a trial that was never created.
        """
        self._ctx.warnings.clear()
        if not isinstance(self._method, OutsideMethod):
            raise errors.SearchError(
                f"This search is decided by {type(self._method).__name__}; it takes no answers from another process."
            )
        if self._end is not None or answer.event <= self._answered:
            return []
        self._answered = answer.event
        self._ctx.warnings.extend(answer.warnings)
        if answer.progress is not None:
            self._method.set_progress(answer.progress)
        return self._checked(answer.actions)

    def progress(self) -> float:
        """Return how far the search has come, 0 to 1; exactly 1 when it completed."""
        if self._end is not None and not (self._end.failure or self._end.cancel):
            return 1.0
        share = self._method.progress(self._state)
        return min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0

    def reopen(self, request_ids: Iterable[str]) -> None:
        """Go on after the end: these trials run again. For searches that do not look at metrics.

        The method has been told of their exits, and what it answered stands; so it is not told again.
        """
        self._end = None
        for request_id in request_ids:
            if request_id in self._gone:
                self._gone.remove(request_id)
                self._state.exited -= 1
            self._trials[request_id] = _Trial(is_again=True)
            self._state.live[request_id] = 0.0
        self._state.errored = self._state.canceled = 0

    def snapshot(self) -> dict[str, Any]:
        """Return everything that must survive a restart, as strict JSON; `events` counts the events handled so far."""
        return {
            "version": VERSION,
            "events": self._events,
            "generator": self._ctx.generator.snapshot(),
            "method": self._method.snapshot(),
            "state": dataclasses.asdict(self._state),
            "trials": {
                request_id: {**vars(trial), "ended": trial.ended.value if trial.ended else None}
                for request_id, trial in self._trials.items()
            },
            "gone": sorted(self._gone),
            "answered": self._answered,
            "invalid_in_a_row": self._invalid_in_a_row,
            "is_started": self._is_started,
            "end": dataclasses.asdict(self._end) if self._end else None,
        }

    @classmethod
    def restore(
        cls,
        snapshot: Mapping[str, Any],
        searcher: Mapping[str, Any],
        space: Space,
        custom: SearchMethod | None = None,
    ) -> Searcher:
        """Return the search that `snapshot` describes, under the same configuration."""
        if snapshot.get("version") != VERSION:
            raise errors.SearchError(
                f"This search was saved in layout {snapshot.get('version')!r}; this release reads {VERSION}. "
                "Rebuild it from its events, or use the release that wrote it."
            )
        restored = cls(searcher, space, 0, custom)
        restored._ctx.generator = Generator.restore(snapshot["generator"])
        restored._method.restore(snapshot["method"])
        restored._state = SearchState(**snapshot["state"])
        for request_id, row in snapshot["trials"].items():
            ended = ExitedReason(row["ended"]) if row["ended"] else None
            restored._trials[request_id] = _Trial(**{**row, "ended": ended})
        restored._gone = set(snapshot["gone"])
        restored._events = snapshot["events"]
        restored._answered = snapshot["answered"]
        restored._invalid_in_a_row = snapshot["invalid_in_a_row"]
        restored._is_started = snapshot["is_started"]
        restored._end = base.Shutdown(**snapshot["end"]) if snapshot["end"] else None
        return restored

    @classmethod
    def rebuild(
        cls,
        searcher: Mapping[str, Any],
        space: Space,
        seed: int,
        events: Iterable[Event],
        custom: SearchMethod | None = None,
    ) -> Searcher:
        """Return the search that has handled these events; their actions are discarded."""
        rebuilt = cls(searcher, space, seed, custom)
        for event in events:
            rebuilt.handle(event)
        rebuilt._ctx.warnings.clear()
        return rebuilt

    def _decide(self, event: Event) -> Sequence[Action]:
        if isinstance(event, base.Initial):
            if self._is_started:
                return []
            self._is_started = True
            return self._method.initial_trials(self._ctx)
        trial = self._find(event.request_id)
        if trial is None:
            return []
        if isinstance(event, base.TrialExited):
            return self._exited(event.request_id, trial)
        if trial.ended is not None:
            return []
        if isinstance(event, base.TrialExitedEarly):
            return self._exited_early(event, trial)
        if isinstance(event, base.ValidationCompleted):
            return self._validated(event, trial)
        if isinstance(event, base.TrialProgress):
            if math.isfinite(event.progress):
                self._state.live[event.request_id] = min(max(event.progress, 0.0), 1.0)
            return []
        return self._method.trial_created(self._ctx, event.request_id)

    def _find(self, request_id: str) -> _Trial | None:
        """Return the trial if it lives, None if it has exited."""
        trial = self._trials.get(request_id)
        if trial is None and request_id not in self._gone:
            raise errors.SearchError(f"This search has no trial {request_id!r}. Hand it events of its own trials only.")
        return trial

    def _validated(self, event: base.ValidationCompleted, trial: _Trial) -> Sequence[Action]:
        metrics = _numbers(event.metrics)
        missing = self._read(event, metrics)
        if missing is not None:
            if not trial.is_warned and self._method.uses_metrics:
                trial.is_warned = True
                self._ctx.warn(f"Trial {event.request_id}: {missing} The search ignores such validations.")
            return []
        trial.has_reported = True
        self._invalid_in_a_row = 0
        return self._method.validation_completed(self._ctx, event.request_id, metrics)

    def _read(self, event: base.ValidationCompleted, metrics: dict[str, Any]) -> str | None:
        """Turn the searcher's metric and time into numbers; return what is wrong with the report if that fails."""
        name = self._ctx.metric
        value = base.read_number(metrics.get(name))
        if value is None:
            return _no_such_metric("metric", name, event.metrics)
        metrics[name] = value
        if metrics.get("batches") is None:
            metrics["batches"] = event.steps_completed  # batches are the steps of PyTorch training
        clock = self._ctx.searcher.get("time_metric")
        if clock is None:
            return None
        time = base.read_number(metrics.get(clock))
        if time is None or not math.isfinite(time):
            return _no_such_metric("time_metric", clock, event.metrics)
        metrics[clock] = time
        return None

    def _exited_early(self, event: base.TrialExitedEarly, trial: _Trial) -> Sequence[Action]:
        trial.ended = event.reason
        if trial.is_again:
            return []
        if event.reason is not ExitedReason.INVALID_HP:
            self._invalid_in_a_row = 0
        else:
            self._state.live[event.request_id] = 0.0
            self._invalid_in_a_row += 1
            if self._invalid_in_a_row >= self._most_invalid_in_a_row():
                self._ctx.warn(
                    f"{self._invalid_in_a_row} trials in a row raised InvalidHP, so the search gives up. "
                    "Narrow the hyperparameters to values that can be trained."
                )
                return [base.Shutdown(failure=True)]
        return self._method.trial_exited_early(self._ctx, event.request_id, event.reason)

    def _most_invalid_in_a_row(self) -> int:
        return max(INVALID_PER_TRIAL * int(self._ctx.searcher.get("max_trials") or 0), LEAST_INVALID_IN_A_ROW)

    def _exited(self, request_id: str, trial: _Trial) -> Sequence[Action]:
        del self._trials[request_id], self._state.live[request_id]
        self._gone.add(request_id)
        self._state.exited += 1
        self._state.invalid += trial.ended is ExitedReason.INVALID_HP
        self._state.errored += trial.ended is ExitedReason.ERRORED
        self._state.canceled += trial.ended is ExitedReason.USER_CANCELED
        actions: list[Action] = []
        if trial.is_again:
            self._state.completed += trial.ended is None
            return []
        if trial.ended is not None:
            return self._method.trial_exited(self._ctx, request_id)
        self._state.completed += 1
        self._invalid_in_a_row = 0
        if self._method.uses_metrics and not trial.has_reported and not trial.is_stopped:
            self._ctx.warn(
                f"Trial {request_id} ended without ever reporting {self._ctx.metric!r}, the searcher metric; "
                "the search counts it as failed."
            )
            actions += self._listed(self._method.trial_exited_early(self._ctx, request_id, ExitedReason.ERRORED))
        return [*actions, *self._listed(self._method.trial_exited(self._ctx, request_id))]

    def _listed(self, answer: Sequence[Action]) -> Sequence[Action]:
        """Return the answer if it is a list; a user's own method may have forgotten to return one."""
        if isinstance(answer, list | tuple):
            return answer
        raise errors.SearchError(
            f"{type(self._method).__name__} returned {answer!r} instead of a list of actions. Return [] for none."
        )

    def _checked(self, actions: Sequence[Action]) -> list[Action]:
        """Record the actions, and drop those that would have no effect."""
        kept: list[Action] = []
        for action in self._listed(actions):
            if isinstance(action, base.Shutdown):
                kept.append(self._shut_down(action))
                break
            if isinstance(action, base.Create):
                self._add(action.request_id)
                kept.append(action)
            elif isinstance(action, base.Stop | base.Pause | base.Resume):
                if self._takes_effect(action):
                    kept.append(action)
            else:
                raise errors.SearchError(
                    f"{type(self._method).__name__} returned {action!r}, which is no action. "
                    "Return a list of Create (from ctx.create()), Stop, Pause, Resume and Shutdown."
                )
        return kept

    def _add(self, request_id: str) -> None:
        if request_id in self._trials or request_id in self._gone:
            raise errors.SearchError(f"The request id {request_id!r} is used twice. Make trials with ctx.create().")
        self._trials[request_id] = _Trial()
        self._state.live[request_id] = 0.0
        self._state.requested += 1

    def _takes_effect(self, action: base.Stop | base.Pause | base.Resume) -> bool:
        trial = self._find(action.request_id)
        if trial is None or trial.is_stopped or trial.ended is not None:
            return False
        if isinstance(action, base.Stop):
            trial.is_stopped = True
            return True
        wanted = isinstance(action, base.Pause)
        changes = trial.is_paused is not wanted
        trial.is_paused = wanted
        return changes

    def _shut_down(self, end: base.Shutdown) -> base.Shutdown:
        self._end = end
        return end


def _verdict(state: SearchState) -> base.Shutdown:
    """Return how the search ends: completed if a trial did, else failed if one did, else canceled if one was killed."""
    if state.completed or state.invalid:
        return base.Shutdown()
    return base.Shutdown(failure=state.errored > 0, cancel=state.errored == 0 and state.canceled > 0)


def _numbers(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the metrics, with NaN and infinity, which are stored as text, as numbers."""
    return {
        name: float(value) if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity") else value
        for name, value in metrics.items()
    }


def _no_such_metric(field: str, name: str, metrics: Mapping[str, Any]) -> str:
    if metrics.get(name) is not None:
        return (
            f"searcher.{field} is {name!r}, but this validation reported {metrics[name]!r} for it; expected a number."
        )
    close = difflib.get_close_matches(name, map(str, metrics), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"searcher.{field} is {name!r}, but this validation reported {sorted(map(str, metrics))}.{hint}"
