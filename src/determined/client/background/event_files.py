"""Which trials TensorBoard shows, and a directory in which it finds their event files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from determined.errors import NotFound

if TYPE_CHECKING:
    from determined.client import Determined, Trial

MOST_TRIALS = 100


def find_trials(client: Determined, experiments: Sequence[int], trials: Sequence[int]) -> tuple[list[Trial], list[str]]:
    """Return the trials to show, and what their user should know: at most a hundred, the best of larger experiments."""
    chosen = [client.get_trial(number) for number in trials]
    said = []
    for number in experiments:
        room = MOST_TRIALS - len(chosen)
        found = client.get_experiment(number).best_trials(room + 1)
        if len(found) > room:
            said.append(
                f"Experiment {number} has more trials than TensorBoard can show well: these are its best {room}."
            )
        chosen += found[:room]
    return chosen[:MOST_TRIALS], said


def link(trials: Sequence[Trial], directory: Path) -> None:
    """Fill a directory so that each trial's event files have the trial's name in it."""
    linked = 0
    for trial in trials:
        sources = [Path(path).absolute() for path in trial.tensorboard_paths() if Path(path).is_dir()]
        place = directory / f"exp-{trial.experiment_id}-trial-{trial.id}"
        if len(sources) > 1:
            place.mkdir()
        for attempt, source in enumerate(sources, start=1):
            name = place / f"attempt-{attempt}" if len(sources) > 1 else place
            name.symlink_to(source, target_is_directory=True)
        linked += len(sources)
    if not linked:
        raise NotFound(
            f"Of the {len(trials)} trials named, none has event files on this machine. "
            "They are written while a run reports metrics, unless it was started with tensorboard_mode=None."
        )
