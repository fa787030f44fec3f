"""Wait for an experiment: until it has ended, or until it has a trial."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from determined.client._enums import ExperimentState

if TYPE_CHECKING:
    from determined.client._experiment import Experiment
    from determined.client._session import Session
    from determined.client._trial import Trial

NOTE_SECONDS = 60.0


def requests(session: Session, experiment_id: int) -> set[str]:
    """Return the kinds of what the controller has not handled yet of it, such as a request to activate it."""
    from determined.store.control import pending

    with session.read() as conn:
        return {told.kind for told in pending.read(conn, experiment_id=experiment_id)}


def wait(session: Session, experiment: Experiment, interval: float) -> ExperimentState:
    """Wait until it has ended, and return how. See `Experiment.wait`."""
    noted = time.monotonic()
    while True:
        requested = requests(session, experiment.id)  # before its state: what was handled meanwhile is in that
        experiment.reload()
        if experiment.state is ExperimentState.PAUSED and not requested:
            activate = f"Activate it first: det experiment activate {experiment.id}"
            first = "Start its script again first." if experiment.unmanaged else activate
            raise ValueError(f"Experiment {experiment.id} is paused, so waiting for it may never end. {first}")
        if experiment.state.is_terminal and "CONTINUED" not in requested:
            return experiment.state
        if time.monotonic() - noted >= NOTE_SECONDS:
            noted = time.monotonic()
            sys.stderr.write(f"Waiting for experiment {experiment.id} ({experiment.state}) ...\n")
        time.sleep(interval)


def await_first_trial(experiment: Experiment, interval: float) -> Trial:
    """Wait until it has a trial, and return that. See `Experiment.await_first_trial`."""
    while True:
        experiment.reload()  # before looking: a trial that is made before the end is there at the end
        if found := experiment.list_trials(limit=1):
            return found[0]
        if experiment.state.is_terminal:
            raise RuntimeError(f"Experiment {experiment.id} ended ({experiment.state}) before it had a trial.")
        time.sleep(interval)
