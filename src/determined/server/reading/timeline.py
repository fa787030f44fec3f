"""The life of a trial as moments: attempts, changes of state, checkpoints and validations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from determined import store
from determined.server.answers.trials import Moment
from determined.store.experiments import TERMINAL

if TYPE_CHECKING:
    import sqlalchemy as sa

MOST = 200
T = TypeVar("T")


def moments(conn: sa.Connection, trial_id: int) -> list[Moment]:
    """Return the moments of a trial, oldest first; of each kind 200 at most, however long it was trained."""
    store.trials.get(conn, trial_id)
    found = [
        *_attempts(conn, trial_id),
        *_states(conn, trial_id),
        *_checkpoints(conn, trial_id),
        *_validations(conn, trial_id),
    ]
    return sorted(found, key=lambda moment: moment.time)


def _attempts(conn: sa.Connection, trial_id: int) -> Iterator[Moment]:
    for row in store.attempts.of_trial(conn, trial_id)[-MOST:]:
        where = f" on {row.node}" if row.node else ""
        begun = "Started" if row.attempt == 1 else f"Attempt {row.attempt} started"
        yield Moment(time=row.start_time, kind="attempt", steps=None, said=f"{begun}{where}.")


def _states(conn: sa.Connection, trial_id: int) -> Iterator[Moment]:
    for event in store.events.of_trial(conn, trial_id, kinds=("TRIAL_STATE",), limit=MOST):
        state, reason = str(event.body.get("to", "")), str(event.body.get("reason") or "")
        said = f"{state}: {reason}" if reason else f"{state}."
        yield Moment(time=event.time, kind="end" if state in TERMINAL else "state", steps=None, said=said)


def _checkpoints(conn: sa.Connection, trial_id: int) -> Iterator[Moment]:
    for uuid, steps, time in spread(store.checkpoints.saved(conn, trial_id), MOST):
        yield Moment(time=time, kind="checkpoint", steps=steps, said=f"Checkpoint {uuid[:8]} after {steps:,} batches.")


def _validations(conn: sa.Connection, trial_id: int) -> Iterator[Moment]:
    for steps, time in store.metrics.steps.spread(conn, trial_id, "validation", most=MOST):
        yield Moment(time=time, kind="validation", steps=steps, said=f"Validation after {steps:,} batches.")


def spread(found: list[T], most: int) -> list[T]:
    """Return at most so many, evenly spread, the last one among them."""
    if len(found) <= most:
        return found
    return [found[(place + 1) * len(found) // most - 1] for place in range(most)]
