"""What the stored events of an experiment say: its rungs, how high each trial climbed, and whether the rows agree."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from determined import store
from determined._redact import redacted
from determined.client._session import Session
from determined.errors import Refused

if TYPE_CHECKING:
    import sqlalchemy as sa

    from determined.experiment.engine import Engine
    from determined.experiment.events import Action, AddTrial, Event
    from determined.experiment.search.base import SearchMethod
    from determined.experiment.search.rung_table import Place, RungRow, RungTrial

HALVING = {"async_halving", "asha", "adaptive_asha"}


@dataclasses.dataclass(frozen=True)
class Verification:
    """What replaying the events of an experiment showed.

    Args:
        events: How many there were.
        trials: How many trials are stored.
        differences: A sentence for each thing that is stored otherwise than the events say.
    """

    events: int
    trials: int
    differences: list[str]


class Replay:
    """A fresh engine that is handed the stored events of an experiment, as far as they have not been handed to it.

    Args:
        conn: A connection.
        experiment_id: Which experiment.

    Raises:
        Refused: A run of `python train.py` has no such events.
    """

    def __init__(self, conn: sa.Connection, experiment_id: int) -> None:
        from determined.experiment.controller import history

        self._id = experiment_id
        self._after = 0
        self.engine: Engine = history.fresh(conn, experiment_id, _custom(conn, experiment_id))
        self.events = 0

    def advance(self, conn: sa.Connection) -> Iterator[tuple[Event, list[Action]]]:
        """Hand over the events that have come since, and yield each with what the engine answered."""
        from determined.experiment.controller import history

        for ident, event in history.handled(conn, self._id, after_id=self._after):
            self._after = ident
            self.events += 1
            yield event, self.engine.handle(event)


def _custom(conn: sa.Connection, experiment_id: int) -> SearchMethod | None:
    """Return the method of a custom search that decides in another process; its answers are among the events."""
    from determined.experiment.search.outside import OutsideMethod, is_outside

    searcher = (store.experiments.get(conn, experiment_id).config or {}).get("searcher") or {}
    if searcher.get("name") != "custom":
        return None
    if not is_outside(searcher):
        raise Refused(
            f"The search of experiment {experiment_id} is code of its own ({searcher.get('entrypoint') or 'custom'}), "
            "which is not run again to replay it."
        )
    return OutsideMethod()


@dataclasses.dataclass(frozen=True)
class Ladder:
    """The rungs of a search, and who arrived at each bracket and rung, the best first."""

    rows: list[RungRow]
    trials: dict[tuple[int, int], list[RungTrial]]


class Climb:
    """How high each trial of a search with rungs has climbed; called again and again, it handles only new events.

    Example::

        climb = Climb(7)
        with session.read() as conn:
            climb(conn)  # {"3f2a...": Place(1, 2, 3)}
    """

    def __init__(self, experiment_id: int) -> None:
        self._id = experiment_id
        self._replay: Replay | None = None
        self._places: dict[str, Place] = {}

    def ladder(self, conn: sa.Connection) -> Ladder:
        """Return the rungs, and who arrived at each."""
        from determined.experiment.search.rung_table import rung_table, trials_at_rungs

        self(conn)
        method = self._opened(conn).engine.searcher.method
        return Ladder(rung_table(method), trials_at_rungs(method))

    def _opened(self, conn: sa.Connection) -> Replay:
        if self._replay is None:
            self._replay = Replay(conn, self._id)
        return self._replay

    def __call__(self, conn: sa.Connection) -> Mapping[str, Place]:
        """Return the places of all trials by request id, those that have exited included."""
        from determined.experiment.events import AddTrial
        from determined.experiment.search.rung_table import place_of

        replay = self._opened(conn)
        method = replay.engine.searcher.method
        for event, actions in replay.advance(conn):
            touched = [action.request_id for action in actions if isinstance(action, AddTrial)]
            if request_id := getattr(event, "request_id", None):
                touched.append(request_id)
            for each in touched:
                if (place := place_of(method, each)) is not None:
                    self._places[each] = place
        return self._places


def has_rungs(config: Mapping[str, Any]) -> bool:
    """Return whether an experiment with this configuration searches by rungs."""
    return (config.get("searcher") or {}).get("name") in HALVING


def ladder(session: Session, experiment_id: int, climb: Climb | None = None) -> Ladder:
    """Return the rungs of an experiment, and who arrived at each; empty if its search has no rungs.

    Args:
        session: The store.
        experiment_id: Which experiment.
        climb: What was used the last time, if it was kept: then only what is new is read.
    """
    with session.read() as conn:
        row = store.experiments.get(conn, experiment_id)
        if row.unmanaged or not has_rungs(row.config or {}):
            return Ladder([], {})
        return (climb or Climb(experiment_id)).ladder(conn)


def verify(session: Session, experiment_id: int) -> Verification:
    """Replay the events of an experiment, and compare what comes out with its rows and with its last snapshot.

    Raises:
        Refused: A run of `python train.py` has no such events.
    """
    from determined.experiment.controller import history
    from determined.experiment.events import AddTrial, SetHparams
    from determined.experiment.search.rung_table import rung_table

    with session.read() as conn:
        replay = Replay(conn, experiment_id)
        added: dict[str, AddTrial] = {}
        for _, actions in replay.advance(conn):
            for action in actions:
                if isinstance(action, AddTrial):
                    added[action.request_id] = action
                elif isinstance(action, SetHparams):
                    added[action.request_id] = dataclasses.replace(added[action.request_id], hparams=action.hparams)
        row = store.experiments.get(conn, experiment_id)
        trials = store.trials.of_experiment(conn, experiment_id)
        going_on = replay.engine
        if row.searcher_snapshot:
            going_on = history.restore(conn, experiment_id, _custom(conn, experiment_id))
    engine = replay.engine
    found = (
        [] if engine.state.value == row.state else [_differs("The experiment", "state", row.state, engine.state.value)]
    )
    stored = {trial.request_id: trial for trial in trials}
    found += [f"Trial {stored[each].id} is stored, and no event created it." for each in stored.keys() - added.keys()]
    found += [f"The events create a trial {each}, and none is stored." for each in added.keys() - stored.keys()]
    for request_id in sorted(stored.keys() & added.keys(), key=lambda each: stored[each].id):
        found += _differences(stored[request_id], added[request_id], engine)
    now, then = rung_table(going_on.searcher.method), rung_table(engine.searcher.method)
    found += [
        _differs(f"Rung {b.rung} of bracket {b.bracket}", "snapshot", a.to_dict(), b.to_dict())
        for a, b in zip(now, then, strict=True)
        if a != b
    ]
    return Verification(replay.events, len(trials), found)


def _differences(row: store.trials.TrialRow, added: AddTrial, engine: Engine) -> list[str]:
    """Return a sentence for each thing of a trial that is stored otherwise."""
    known = engine.trials[row.request_id]
    hparams = added.hparams if row.hparams == added.hparams else redacted(added.hparams)
    pairs = {
        "hyperparameters": (row.hparams, hparams),
        "seed": (row.seed, added.seed),
        "state": (row.state, known.state.value),
        "restarts": (row.restarts, known.restarts),
        "attempts": (row.attempt, known.attempts),
    }
    return [_differs(f"Trial {row.id}", name, *pair) for name, pair in pairs.items() if pair[0] != pair[1]]


def _differs(whose: str, what: str, stored: Any, replayed: Any) -> str:
    return f"{whose}: {what} is stored as {stored!r}, and the events give {replayed!r}."
