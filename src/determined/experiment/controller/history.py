"""An experiment's engine, brought back from what the store has: its last snapshot, and the events since.

Every event that the engine handled is a row in `events`, in order, stored in one transaction with what followed from
it. A snapshot grows with the search and an event does not, so a snapshot is stored only now and then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from determined import errors
from determined.experiment import events as engine_events
from determined.experiment.config.experiment_config import ExperimentConfig
from determined.experiment.engine import Engine
from determined.experiment.search.base import SearchMethod
from determined.experiment.search.searcher import Searcher
from determined.store import events, experiments
from determined.store.experiments import ExperimentRow

if TYPE_CHECKING:
    import sqlalchemy as sa

KIND = "ENGINE"
"""The kind of rows in `events` that hold what the engine was told."""
REPLACED = "CONFIG"
"""The kind of rows in `events` that hold the config which a continued experiment had until then."""


def record(conn: sa.Connection, experiment_id: int, event: engine_events.Event, trial_id: int | None = None) -> int:
    """Store an event that the engine has handled; return its id."""
    return events.append(conn, experiment_id, KIND, engine_events.to_json(event), trial_id=trial_id)


def restore(conn: sa.Connection, experiment_id: int, custom: SearchMethod | None = None) -> Engine:
    """Return the engine as it is now: from the last snapshot, and the events since then.

    Args:
        conn: Where.
        experiment_id: Which.
        custom: The method of a custom search.

    Example::

        with store.read() as conn:
            engine = restore(conn, 7)
    """
    row = experiments.get(conn, experiment_id, deleted=True)
    snapshot = row.searcher_snapshot
    if snapshot is None:
        return _handled(_engine(conn, row, custom), conn, experiment_id)
    config = ExperimentConfig.parse(row.config or {})
    searcher = Searcher.restore(snapshot["engine"]["searcher"], _section(config), config.space, custom)
    engine = Engine(searcher, max_restarts=config.max_restarts, name=f"Experiment {row.id}")
    engine.restore(snapshot["engine"])
    return _handled(engine, conn, experiment_id, after_id=snapshot["event_id"])


def fresh(conn: sa.Connection, experiment_id: int, custom: SearchMethod | None = None) -> Engine:
    """Return a new engine of an experiment that has handled nothing yet. See `handled` for what to hand it.

    Raises:
        Refused: The experiment was not started by a controller.
    """
    row = experiments.get(conn, experiment_id, deleted=True)
    if row.unmanaged:
        raise errors.Refused(
            f"Experiment {experiment_id} was not started by a controller, so there are no events of it to replay."
        )
    return _engine(conn, row, custom)


def replay(conn: sa.Connection, experiment_id: int, custom: SearchMethod | None = None) -> Engine:
    """Return a new engine that has handled all events of the experiment from the first on.

    Example::

        with store.read() as conn:
            assert replay(conn, 7).state is restore(conn, 7).state
    """
    return _handled(fresh(conn, experiment_id, custom), conn, experiment_id)


def handled(conn: sa.Connection, experiment_id: int, after_id: int = 0) -> Iterator[tuple[int, engine_events.Event]]:
    """Yield the events that the engine of an experiment has handled, each with its id; only those after `after_id`."""
    for row in events.of_experiment(conn, experiment_id, after_id=after_id, kinds=(KIND,)):
        yield row.id, engine_events.from_json(row.body)


def take_snapshot(conn: sa.Connection, experiment_id: int, engine: Engine, event_id: int) -> None:
    """Store the engine as it is after event `event_id`."""
    snapshot = {"event_id": event_id, "engine": engine.snapshot()}
    experiments.update(conn, experiment_id, searcher_snapshot=snapshot)


def _handled(engine: Engine, conn: sa.Connection, experiment_id: int, after_id: int = 0) -> Engine:
    for _, event in handled(conn, experiment_id, after_id):
        engine.handle(event)
    return engine


def replace_config(conn: sa.Connection, row: ExperimentRow, config: dict[str, Any]) -> None:
    """Set the config of an experiment that is continued; what it was before stays known to replays."""
    events.append(conn, row.id, REPLACED, {"before": row.config or {}})
    experiments.update(conn, row.id, config=config)


def _engine(conn: sa.Connection, row: ExperimentRow, custom: SearchMethod | None) -> Engine:
    first = events.of_experiment(conn, row.id, kinds=(REPLACED,), limit=1)
    config = ExperimentConfig.parse(first[0].body["before"] if first else row.config or {})
    seed = config.reproducibility.experiment_seed
    searcher = Searcher(_section(config), config.space, seed, custom)
    return Engine(searcher, max_restarts=config.max_restarts, name=f"Experiment {row.id}")


def _section(config: ExperimentConfig) -> dict[str, Any]:
    section: dict[str, Any] = config.effective()["searcher"]
    return {key: value for key, value in section.items() if value is not None}
