"""Change experiments and trials: stop what runs, edit names, notes, labels and place, archive and delete."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined.client import _store
from determined.client._session import Session
from determined.errors import InvalidValue, NoController, Refused

if TYPE_CHECKING:
    import sqlalchemy as sa

    from determined.store.experiments import ExperimentRow

# What has been reached already is a success without doing anything; a cancelled or killed one has ended.
_REACHED = {
    "activate": {"ACTIVE", "QUEUED", "STARTING", "RUNNING"},
    "pause": {"PAUSED"},
    "cancel": {"STOPPING_CANCELED", "STOPPING_KILLED", "COMPLETED", "CANCELED", "ERROR"},
    "kill": {"STOPPING_KILLED", "COMPLETED", "CANCELED", "ERROR"},
}


def act(session: Session, action: str, *, experiment_id: int | None = None, trial_id: int | None = None) -> None:
    """Raise unless an experiment or trial has reached what `activate`, `pause`, `cancel` or `kill` asks for."""
    from determined.store import experiments, trials

    with session.read() as conn:
        trial = None if trial_id is None else trials.get(conn, trial_id)
        experiment = experiments.get(conn, trial.experiment_id if trial else experiment_id or 0)
        if experiment.unmanaged:
            raise NoController(_unmanaged(conn, experiment, action, trial_id))
    if (trial or experiment).state not in _REACHED[action]:
        what = f"Trial {trial_id}" if trial else f"Experiment {experiment_id}"
        raise NoController(
            f"{what} needs a controller to {action} it, and this release has none yet. Its record can be read as usual."
        )


def stop(session: Session, trial_id: int) -> None:
    """Ask the process of a trial to checkpoint and leave, if there is one."""
    from determined.store import attempts, experiments, trials

    with session.write() as conn:
        if trials.get(conn, trial_id).state in experiments.TERMINAL:
            return
        running = [attempt for attempt in attempts.of_trial(conn, trial_id) if attempt.state != "TERMINATED"]
        if running:
            attempts.request_preemption(conn, running[-1].allocation_id)


def _unmanaged(conn: sa.Connection, experiment: ExperimentRow, action: str, trial_id: int | None = None) -> str:
    """Explain why nobody can perform the action, and what the user can do instead."""
    from determined.store import attempts, experiments, trials

    what = f"Trial {trial_id}" if trial_id else f"Experiment {experiment.id}"
    command = f"with python {Path(experiment.script).name}" if experiment.script else "by hand"
    ids = [trial_id] if trial_id else [trial.id for trial in trials.of_experiment(conn, experiment.id)]
    going = [
        attempt
        for ident in ids
        if trials.get(conn, ident).state not in experiments.TERMINAL
        for attempt in attempts.of_trial(conn, ident)[-1:]
    ]
    said = f"{what} was started {command}, so no controller can {action} it"
    if not going:
        again = "Start it again by hand." if action == "activate" else "It has ended."
        return f"{said}. {again}"
    last = going[-1]
    place = f"pid {last.pid} on {last.node or 'an unknown host'}" if last.pid else "its pid is not known"
    return f"{said}; stop the process ({place}), or have it checkpoint and leave with: det trial stop {last.trial_id}"


def checked_text(what: str, given: object) -> str:
    """Return the text; raise if it is none, or a blank name."""
    if not isinstance(given, str):
        raise InvalidValue(f"An experiment's {what} is a text, not {given!r}.")
    if what == "name" and not given.strip():
        raise InvalidValue(f"An experiment is called something; {given!r} is no name. Give at least one character.")
    return given


def change(session: Session, experiment_id: int, *, labels: Any = None, **fields: Any) -> None:
    """Set fields of an experiment that is not archived.

    Args:
        session: Where.
        experiment_id: Which.
        labels: The new labels, or a function that makes them of the old ones.
        fields: Columns and their values.
    """
    from determined.store import experiments

    with session.write() as conn:
        row = experiments.get(conn, experiment_id)
        if row.archived:
            raise Refused(f"Experiment {experiment_id} is archived, so it is not edited. Unarchive it first.")
        if fields:
            experiments.update(conn, experiment_id, **fields)
        if labels is not None:
            experiments.set_labels(conn, experiment_id, labels(set(row.labels)) if callable(labels) else labels)


def set_archived(session: Session, experiment_id: int, archived: bool) -> None:
    """Hide an experiment that has ended from lists, or show it again."""
    from determined.store import experiments

    with session.write() as conn:
        row = experiments.get(conn, experiment_id)
        if row.state not in experiments.TERMINAL:
            raise Refused(f"Experiment {experiment_id} is {row.state}; only one that has ended can be archived.")
        experiments.update(conn, experiment_id, archived=archived)


def delete(session: Session, experiment_id: int) -> ExperimentRow:
    """Hide an experiment from everything, and return what is left of it; what was deleted long ago goes for good."""
    from determined.store import experiments

    with session.write() as conn:
        experiments.delete(conn, experiment_id)
        row = experiments.get(conn, experiment_id, deleted=True)
    _store.purge_quietly(session)
    return row


def undelete(session: Session, experiment_id: int) -> ExperimentRow:
    """Bring a deleted experiment back."""
    from determined.store import experiments

    with session.write() as conn:
        experiments.undelete(conn, experiment_id)
        return experiments.get(conn, experiment_id)
