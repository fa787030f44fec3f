"""What can be done with an experiment now, and why the rest cannot: the checks of the actions, asked beforehand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from determined import store
from determined.client import _actions
from determined.errors import Refused

if TYPE_CHECKING:
    import sqlalchemy as sa

    from determined.store.experiments import ExperimentRow
    from determined.store.trials import TrialRow


_WRITTEN = "They are written while a run reports metrics, unless it was started with tensorboard_mode=None."


def actions(conn: sa.Connection, row: ExperimentRow) -> dict[str, str]:
    """Return every action to an empty text, or to the sentence why it is not possible now.

    Args:
        conn: A connection.
        row: The experiment.

    Example::

        actions(conn, row)["pause"]  # "Experiment 7 was started with python train.py, so no controller can pause it..."
    """
    from determined.experiment.submission import continuation

    found = {action: _driven(conn, row, action) for action in ("activate", "pause", "cancel", "kill")}
    archive = f"Experiment {row.id} is archived already." if row.archived else ""
    unarchive = "" if row.archived else f"Experiment {row.id} is not archived."
    again = _refusal(lambda: continuation.check_can_continue(conn, row))
    ended_well = f"Experiment {row.id} is COMPLETED, so there is nothing to try again."
    fork = _refusal(lambda: continuation.check_can_fork(row))
    edit = _refusal(lambda: _actions.check_change(row))
    return found | {
        "archive": archive or _refusal(lambda: _actions.check_archive(row)),
        "unarchive": unarchive or _refusal(lambda: _actions.check_archive(row)),
        "delete": _refusal(lambda: store.experiments.check_deletable(conn, row)),
        "move": edit,
        "edit": edit,
        "fork": fork,
        "search": fork,
        "continue": again,
        "retry": again or (ended_well if row.state == "COMPLETED" else ""),
        "tensorboard": _tensorboard(conn, row),
    }


def trial_actions(conn: sa.Connection, trial: TrialRow) -> dict[str, str]:
    """Return what can be done with a trial, in the same way; fork and search are of its experiment.

    To continue a trial is to start a new experiment with its newest checkpoint, whatever the search that made it.

    Example::

        trial_actions(conn, row)["stop"]  # "Trial 12 is COMPLETED already."
    """
    owner = store.experiments.get(conn, trial.experiment_id)
    attempts = store.attempts.of_trial(conn, trial.id)
    ended = f"Trial {trial.id} is {trial.state} already."
    goes = any(each.state != store.overview.running.ENDED for each in attempts)
    stop = ended if trial.state in store.experiments.TERMINAL else "" if goes else f"Trial {trial.id} has no process."
    try:
        kill = "" if _actions.check_act(conn, owner, "kill", trial) else ended
    except Refused as reason:
        kill = str(reason)
    of_experiment = actions(conn, owner)
    files = "" if any(each.tensorboard for each in attempts) else f"Trial {trial.id} has no event files. {_WRITTEN}"
    saved = store.checkpoints.newest(conn, trial.id)
    nothing = "" if saved else f"Trial {trial.id} has no complete checkpoint to go on from."
    same = {action: of_experiment[action] for action in ("fork", "search")}
    return {"kill": kill, "stop": stop, "tensorboard": files, "continue": same["fork"] or nothing, **same}


def _driven(conn: sa.Connection, row: ExperimentRow, action: str) -> str:
    reached = f"Experiment {row.id} is {row.state} already."
    try:
        return "" if _actions.check_act(conn, row, action) else reached
    except Refused as reason:
        return str(reason)


def _refusal(check: Callable[[], None]) -> str:
    try:
        check()
    except Refused as reason:
        return str(reason)
    return ""


def _tensorboard(conn: sa.Connection, row: ExperimentRow) -> str:
    if store.overview.running.has_event_files(conn, row.id):
        return ""
    return f"Experiment {row.id} has no event files. {_WRITTEN}"
