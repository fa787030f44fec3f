"""The queue of experiments: who runs, who waits, why, and in which order."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from determined import store
from determined.client._session import Session
from determined.errors import InvalidValue, Refused
from determined.experiment.lifecycle import State, shown_state
from determined.store.control import controllers

PRIORITY = 42
GOING = ("PAUSED", "ACTIVE", "STOPPING_COMPLETED", "STOPPING_CANCELED", "STOPPING_KILLED", "STOPPING_ERROR")


@dataclasses.dataclass(frozen=True)
class Job:
    """An experiment in the queue.

    Args:
        ahead: How many experiments get slots before it; None if it waits for nobody, because it is paused or ending.
        id: The experiment.
        name: What it is called.
        priority: Smaller ones get slots first; of equal ones, the earlier.
        weight: Its share, for schedulers that share.
        submitted: When it was submitted.
        slots_used: How many slots its trials hold.
        slots_asked: How many they would hold if there were enough.
        max_slots: How many it may hold at once; None is as many as there are.
        state: As it is shown: QUEUED, RUNNING, ...
        owner: Who submitted it.
        waiting: Why trials of it that have been given slots wait for nodes of the cluster; empty if none does.
    """

    ahead: int | None
    id: int
    name: str
    priority: int
    weight: float
    submitted: datetime.datetime
    slots_used: int
    slots_asked: int
    max_slots: int | None
    state: str
    owner: str
    waiting: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)


def jobs(session: Session) -> list[Job]:
    """Return the experiments that have not ended, in the order in which they get slots."""
    with session.read() as conn:
        which = store.experiments.ExperimentFilter(states=GOING, unmanaged=False)
        found = [store.experiments.get(conn, row.id) for row in store.experiments.find(conn, which)]
        counts = store.experiments.trial_counts(conn, [row.id for row in found])
        holding = store.overview.running.holding_slots(conn)
        controller = controllers.current(conn)
    reasons = controller.waiting if controller else {}
    of: dict[int, list[store.overview.running.Launch]] = {}
    for launch in holding:
        of.setdefault(launch.experiment_id, []).append(launch)
    made = [_job(row, of.get(row.id, []), counts[row.id], reasons) for row in found]
    queued = sorted((job for job in made if job.ahead is not None), key=lambda job: (job.priority, job.id))
    ordered = [dataclasses.replace(job, ahead=place) for place, job in enumerate(queued)]
    return [*ordered, *(job for job in made if job.ahead is None)]


def _job(
    row: store.experiments.ExperimentRow,
    launches: Iterable[store.overview.running.Launch],
    counts: Mapping[str, int],
    reasons: Mapping[int, str],
) -> Job:
    resources = resources_of(row)
    live = list(launches)
    most = resources.get("max_slots")
    asked = int(resources.get("slots_per_trial", 1)) * sum(counts.get(state, 0) for state in GOING if state != "PAUSED")
    return Job(
        ahead=0 if row.state == "ACTIVE" else None,
        id=row.id,
        name=row.name,
        priority=int(resources.get("priority") or PRIORITY),
        weight=float(resources.get("weight") or 1.0),
        submitted=row.start_time,
        slots_used=sum(launch.slots for launch in live),
        slots_asked=asked if most is None else min(asked, int(most)),
        max_slots=most,
        state=shown_state(State(row.state), store.overview.running.states(live)),
        owner=row.owner,
        waiting=_waiting({launch.trial_id: reasons[launch.trial_id] for launch in live if launch.trial_id in reasons}),
    )


def _waiting(reasons: Mapping[int, str]) -> str:
    if not reasons:
        return ""
    first, more = min(reasons), len(reasons) - 1
    others = f" {more} more {'trial waits' if more == 1 else 'trials wait'}." if more else ""
    return f"Trial {first}: {reasons[first]}{others}"


def resources_of(row: store.experiments.ExperimentRow) -> dict[str, Any]:
    """Return the `resources` section that an experiment runs with."""
    return dict((row.config or {}).get("resources") or {})


def set_resources(session: Session, experiment_id: int, changes: Mapping[str, float | None]) -> None:
    """Change `priority`, `weight` or `max_slots` of an experiment that has not ended. The controller reads it soon.

    Raises:
        InvalidValue: There is no such setting, or the value is outside its range.
        Refused: It has ended, is archived, or nobody schedules it.
    """
    for name, value in changes.items():
        _check(name, value)
    with session.write() as conn:
        row = store.experiments.get(conn, experiment_id)
        if row.unmanaged:
            raise Refused(f"Experiment {experiment_id} was started by hand, so it waits in no queue.")
        if row.archived or row.state in store.experiments.TERMINAL:
            raise Refused(f"Experiment {experiment_id} is {row.state}, so its place in the queue no longer matters.")
        config = {**(row.config or {}), "resources": {**resources_of(row), **changes}}
        store.experiments.update(conn, experiment_id, config=config)


def _check(name: str, value: float | None) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if name not in ("priority", "weight", "max_slots"):
        raise InvalidValue(f"{name!r} cannot be changed any more. Change priority, weight or max_slots.")
    if name == "priority" and not (is_whole and 1 <= (value or 0) <= 99):
        raise InvalidValue(f"priority is {value!r}; expected a whole number from 1 (first) to 99.")
    if name == "weight" and not (isinstance(value, (int, float)) and value > 0):
        raise InvalidValue(f"weight is {value!r}; expected a number above 0.")
    if name == "max_slots" and value is not None and not (is_whole and value >= 0):
        raise InvalidValue(f"max_slots is {value!r}; expected a number of slots, or None for no limit.")
