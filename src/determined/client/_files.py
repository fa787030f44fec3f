"""Files that belong to an experiment beside its checkpoints: its code, and event files."""

from __future__ import annotations

import contextlib
from pathlib import Path

from determined.client._session import Session
from determined.errors import Refused

EVENT_FILES = "*tfevents*"


def download_code(session: Session, experiment_id: int, output_dir: str | None) -> str:
    """Refuse: only a submitted experiment has a copy of its code, and nothing submits yet."""
    from determined.store import attempts, experiments, trials

    del output_dir
    with session.read() as conn:
        experiment = experiments.get(conn, experiment_id)
        found = [
            row for trial in trials.of_experiment(conn, experiment_id) for row in attempts.of_trial(conn, trial.id)
        ]
    environment = found[-1].environment if found else {}
    git = environment.get("git") if isinstance(environment.get("git"), dict) else {}
    where = f" It ran {experiment.script}" if experiment.script else ""
    commit = f" at git commit {git['commit']}" if git and git.get("commit") else ""
    raise Refused(
        f"Experiment {experiment_id} has no copy of its code: only experiments that are submitted do.{where}{commit}."
    )


def remove_event_files(directory: str) -> None:
    """Remove the event files below a directory, and the directories that are empty then. Nothing else is touched."""
    root = Path(directory)
    for path in root.rglob(EVENT_FILES):
        if path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)
    for path in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
        with contextlib.suppress(OSError):  # something else is in it
            path.rmdir()
    with contextlib.suppress(OSError):
        root.rmdir()
