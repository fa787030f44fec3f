"""`det experiment fork` and `det experiment continue`: more of an experiment that is there."""

from __future__ import annotations

import click

from determined.cli import options
from determined.cli.connection import connect
from determined.cli.groups import HELP_NAMES
from determined.cli.output.terminal import flush, write
from determined.cli.submission.create import conclude, config_settings, follows


@click.command(context_settings=HELP_NAMES)
@options.experiment_id
@config_settings
@click.option("--config-file", metavar="FILE", help="Use this configuration instead of the experiment's own.")
@follows
@click.option("--paused", is_flag=True, help="Leave it PAUSED, until: det experiment activate ID")
def fork(
    experiment_id: int, given: tuple[str, ...], config_file: str | None, follow_first_trial: bool, paused: bool
) -> None:
    """Submit the code of an experiment again, as a new experiment, with its configuration or another."""
    client = connect()
    made = client.get_experiment(experiment_id).fork(config_file, given, paused=paused)
    write(f"Created experiment {made.id}\n")
    flush()
    conclude(client, made.id, made.warnings, is_followed=follow_first_trial, is_paused=paused)


@click.command("continue", context_settings=HELP_NAMES)
@options.experiment_id
@config_settings
@click.option("--config-file", metavar="FILE", help="Values to change; only of a single trial.")
@follows
def continue_experiment(
    experiment_id: int, given: tuple[str, ...], config_file: str | None, follow_first_trial: bool
) -> None:
    """Let an experiment that has ended go on.

    A single trial goes on from its newest checkpoint, with other values if you like. Of a random or grid search the
    trials that are not COMPLETED run again. Other searches cannot be continued; fork them.
    """
    client = connect()
    client.get_experiment(experiment_id).continue_(config_file, given)
    write(f"Continued experiment {experiment_id}\n")
    flush()
    conclude(client, experiment_id, [], is_followed=follow_first_trial)
