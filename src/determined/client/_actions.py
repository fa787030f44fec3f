"""Change experiments and trials: stop what runs, edit names, notes, labels and place, archive and delete."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined.client import _store
from determined.client._session import Session
from determined.errors import DeterminedError, IllegalMove, InvalidValue, NoController, NotFound, Refused

if TYPE_CHECKING:
    import sqlalchemy as sa

    from determined.store.experiments import ExperimentRow
    from determined.store.trials import TrialRow

# What has been reached already is a success without doing anything; a cancelled or killed one has ended.
_REACHED = {
    "activate": {"ACTIVE", "QUEUED", "STARTING", "RUNNING"},
    "pause": {"PAUSED"},
    "cancel": {"STOPPING_CANCELED", "STOPPING_KILLED", "COMPLETED", "CANCELED", "ERROR"},
    "kill": {"STOPPING_KILLED", "COMPLETED", "CANCELED", "ERROR"},
}


_GOING = ("RUNNING", "ACTIVE")  # states of trials that have processes

HANDLED_SECONDS = 30.0
"""How long an action waits for the controller to have taken it up; it stays in the store if that takes longer."""


def act(session: Session, action: str, *, experiment_id: int | None = None, trial_id: int | None = None) -> None:
    """Have the controller `activate`, `pause`, `cancel` or `kill` an experiment, or `kill` a trial; wait until it has.

    What has been reached already is a success. A controller is started if none is alive.

    Raises:
        NoController: It was started by hand, so no controller acts on it.
        IllegalMove: Its state does not allow it.
    """
    if asked := _ask(session, action, experiment_id, trial_id):
        wait_handled(session, *asked)


def act_on_all(session: Session, action: str, experiment_ids: Sequence[int]) -> dict[int, DeterminedError | None]:
    """Do the same with several experiments, and wait for all of them together.

    Returns:
        Each experiment to None, or to why it was refused.
    """
    found: dict[int, DeterminedError | None] = {}
    asked: list[tuple[int, int]] = []
    for ident in dict.fromkeys(experiment_ids):
        found[ident] = None
        try:
            asked += filter(None, [_ask(session, action, ident)])
        except (Refused, NotFound) as refusal:
            found[ident] = refusal
    until = time.monotonic() + HANDLED_SECONDS
    for ident, pending_id in asked:
        try:
            wait_handled(session, ident, pending_id, until=until)
        except Refused as refusal:
            found[ident] = refusal
    return found


def _ask(
    session: Session, action: str, experiment_id: int | None, trial_id: int | None = None
) -> tuple[int, int] | None:
    """Write down for the controller what is wanted; return the experiment and the pending event, if there is any."""
    from determined.store import experiments, trials
    from determined.store.control import pending

    with session.write() as conn:
        trial = None if trial_id is None else trials.get(conn, trial_id)
        experiment = experiments.get(conn, trial.experiment_id if trial else experiment_id or 0)
        if not check_act(conn, experiment, action, trial):
            return None
        if trial is not None:
            return experiment.id, pending.append(conn, experiment.id, "KILL_TRIAL", trial_id=trial.id)
        return experiment.id, pending.append(conn, experiment.id, "REQUEST", {"action": action})


def check_act(conn: sa.Connection, experiment: ExperimentRow, action: str, trial: TrialRow | None = None) -> bool:
    """Return whether there is anything to do; what has been reached already is a success.

    Raises:
        NoController: It was started by hand, so no controller acts on it.
        IllegalMove: Its state does not allow it.
    """
    from determined.experiment import lifecycle

    if experiment.unmanaged:
        raise NoController(_unmanaged(conn, experiment, action, trial))
    if (trial or experiment).state in _REACHED[action]:
        return False
    if action in ("activate", "pause"):
        to = lifecycle.State.ACTIVE if action == "activate" else lifecycle.State.PAUSED
        lifecycle.move(f"Experiment {experiment.id}", lifecycle.State(experiment.state), to)
    return True


def wait_handled(session: Session, experiment_id: int, pending_id: int, *, until: float | None = None) -> None:
    """Start a controller if none is alive, and wait until it has handled a pending event, at most to `until`.

    Raises:
        IllegalMove: The controller refused it.
    """
    from determined.experiment.controller import start
    from determined.store import events
    from determined.store.control import pending

    start.ensure(session.store)
    if start.is_off():
        return
    end, pause = until or time.monotonic() + HANDLED_SECONDS, 0.01
    while True:
        with session.read() as conn:
            if not pending.waits(conn, pending_id):
                for row in reversed(events.of_experiment(conn, experiment_id, kinds=("REFUSED",))):
                    if row.body.get("pending_id") == pending_id:
                        raise IllegalMove(row.body["reason"])
                return
        if time.monotonic() >= end:
            break
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
    raise NoController(
        f"No controller has taken this up for {HANDLED_SECONDS:.0f} s; it is stored and will be. "
        "See what the controller does with: det controller status; det controller logs"
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


def _unmanaged(conn: sa.Connection, experiment: ExperimentRow, action: str, trial: TrialRow | None) -> str:
    """Explain why nobody can perform the action, and what the user can do instead."""
    from determined.store import attempts, experiments, trials

    what = f"Trial {trial.id}" if trial else f"Experiment {experiment.id}"
    command = f"with python {Path(experiment.script).name}" if experiment.script else "by hand"
    said = f"{what} was started {command}, so no controller can {action} it"
    newest = [trial] if trial else trials.of_experiment(conn, experiment.id, descending=True, states=_GOING, limit=1)
    going = [each.id for each in newest if each.state not in experiments.TERMINAL]
    launches = [last for ident in going for last in attempts.of_trial(conn, ident)[-1:]]
    if not launches:
        again = "Start it again by hand." if action == "activate" else "It has ended."
        return f"{said}. {again}"
    last = launches[-1]
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
        check_change(row)
        if fields:
            experiments.update(conn, experiment_id, **fields)
        if labels is not None:
            experiments.set_labels(conn, experiment_id, labels(set(row.labels)) if callable(labels) else labels)


def check_change(row: ExperimentRow) -> None:
    """Refuse to edit an experiment that is archived."""
    if row.archived:
        raise Refused(f"Experiment {row.id} is archived, so it is not edited. Unarchive it first.")


def set_archived(session: Session, experiment_id: int, archived: bool) -> None:
    """Hide an experiment that has ended from lists, or show it again."""
    from determined.store import experiments

    with session.write() as conn:
        check_archive(experiments.get(conn, experiment_id))
        experiments.update(conn, experiment_id, archived=archived)


def check_archive(row: ExperimentRow) -> None:
    """Refuse to archive, or to unarchive, an experiment that has not ended."""
    from determined.store import experiments

    if row.state not in experiments.TERMINAL:
        raise Refused(f"Experiment {row.id} is {row.state}; only one that has ended can be archived.")


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
