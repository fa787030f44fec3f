"""`det experiment create --test-mode`: one batch of an experiment, managed or in a process of this terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import click

from determined.cli.output.terminal import complain, flush, say, write

if TYPE_CHECKING:
    from determined.client import Determined, Experiment
    from determined.experiment.submission.submit import SubmitRequest

INTERVAL_SECONDS = 0.2
STAGES = ("scheduling", "training", "validation", "checkpointing")


def managed(client: Determined, request: SubmitRequest) -> int:
    """Submit a copy that trains one batch, and say how far it comes. Return the exit code."""
    from determined.experiment.submission.one_batch import one_batch
    from determined.experiment.submission.submit import checked_config

    experiment_id, _ = client.submit(one_batch(request))
    write(f"Created experiment {experiment_id} (test mode)\n")
    flush()
    for sentence in checked_config(request).warnings:  # not those about the copy's own values
        say(f"warning: {sentence}")
    experiment = client.get_experiment(experiment_id)
    passed = 0
    while True:
        experiment.reload()
        reached = _reached(experiment)
        for stage in STAGES[passed:reached]:
            say(f"{stage}: ok")
        passed = max(passed, reached)
        if experiment.state.is_terminal:
            break
        time.sleep(INTERVAL_SECONDS)
    if str(experiment.state) == "COMPLETED":
        for stage in STAGES[passed:]:
            say(f"{stage}: not seen")
        say(f"The test of this experiment is COMPLETED. Its log: det experiment logs {experiment_id}")
        return 0
    failed = f" while {STAGES[passed]}" if passed < len(STAGES) else ""
    complain(f"The test ended as {experiment.state}{failed}. Look at its log: det experiment logs {experiment_id}")
    return 1


def _reached(experiment: Experiment) -> int:
    """Return how many stages are behind it."""
    trials = experiment.list_trials(limit=1)
    if not trials:
        return 0
    trial = trials[0]
    done = [trial.attempt > 0, trial.total_batches > 0, "validation_metrics" in trial.summary_metrics]
    done.append(bool(experiment.all_checkpoints()))
    return next((i for i, is_done in enumerate(done) if not is_done), len(done))


def locally(request: SubmitRequest) -> int:
    """Train one batch of a trial class in a process of this terminal; nothing is recorded. Return the exit code."""
    from determined.experiment.config.legacy import TRIAL_CLASS
    from determined.experiment.submission import entry_point, one_batch, submit
    from determined.experiment.submission.code_archive import pack

    config = submit.checked_config(request)
    entrypoint = config.entrypoint
    if not isinstance(entrypoint, str) or not TRIAL_CLASS.fullmatch(entrypoint):
        raise click.ClickException(
            f"--local --test takes an entrypoint of the form module:Class, and this one is {entrypoint!r}. "
            "Leave out --local, or run the script itself with fit(test_mode=True)."
        )
    packed = pack(request.directory, request.includes)
    entry_point.check(entrypoint, packed.paths, where=str(request.directory), withheld=packed.withheld)
    say("--local --test is deprecated: write a script, and try it with fit(test_mode=True).")
    values = one_batch.values_of(config)
    values["hyperparameters"] = {name: declared["val"] for name, declared in values["hyperparameters"].items()}
    ran = subprocess.run(
        [sys.executable, "-m", "determined.pytorch._harness", "--test", entrypoint],
        input=json.dumps(values),
        text=True,
        cwd=request.directory or ".",
        env={**os.environ, "DET_TRACKING": "off"},
        check=False,
    )
    if ran.returncode:
        complain(f"The test of {entrypoint} failed with exit code {ran.returncode}.")
    return 1 if ran.returncode else 0
