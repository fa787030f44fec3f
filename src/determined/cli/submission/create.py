"""`det experiment create`: submit an experiment. What follows it to its end is in `running`."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

import click

from determined.cli.connection import connect, settings
from determined.cli.groups import HELP_NAMES
from determined.cli.output.terminal import flush, is_terminal, say, write

if TYPE_CHECKING:
    from determined.client import Determined, Experiment
    from determined.experiment.submission.submit import SubmitRequest

config_settings = click.option(
    "--config", "given", multiple=True, metavar="KEY=VALUE", help="Change a value. Keys have dots. Repeat for several."
)
follows = click.option(
    "-f", "--follow-first-trial", "--follow", is_flag=True, help="Watch it until it ends; in a pipe, print its log."
)


@click.command(context_settings=HELP_NAMES)
@click.argument("config", metavar="CONFIG")
@click.argument("directory", metavar="[DIR]", required=False)
@click.option("-i", "--include", "includes", multiple=True, metavar="PATH", help="Also this file or directory. Repeat.")
@config_settings
@follows
@click.option("--paused", is_flag=True, help="Leave it PAUSED, until: det experiment activate ID")
@click.option("-t", "--test-mode", "--test", "is_test", is_flag=True, help="Try it: one batch, then it is archived.")
@click.option("--local", is_flag=True, help="With --test: in a process of this terminal, recorded nowhere.")
@click.option("--template", metavar="NAME|FILE", help="Values for what the file leaves out. See: det template -h")
@click.option("--project_id", "--project-id", type=int, metavar="ID", help="List it in this project.")
@click.pass_context
def create(
    ctx: click.Context,
    config: str,
    directory: str | None,
    includes: tuple[str, ...],
    given: tuple[str, ...],
    follow_first_trial: bool,
    paused: bool,
    is_test: bool,
    local: bool,
    template: str | None,
    project_id: int | None,
) -> None:
    """Submit the experiment that the file CONFIG describes, with a copy of the code in DIR.

    Files that .detignore names are not copied. The experiment runs in the background; it survives this terminal.
    """
    chosen = [
        name
        for name, is_on in (("--follow", follow_first_trial), ("--paused", paused), ("--test-mode", is_test))
        if is_on
    ]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other. Give one of them.", ctx)
    if local and not is_test:
        raise click.UsageError("--local goes with --test: it tries one batch. To train here: python train.py", ctx)
    from determined.experiment.config import experiment_file
    from determined.experiment.submission.submit import SubmitRequest

    request = SubmitRequest(
        experiment_file.read(config),
        settings().user or getpass.getuser(),
        given,
        directory,
        includes,
        template,
        project_id,
        paused=paused,
    )
    if is_test:
        from determined.cli.submission import trying

        ctx.exit(trying.locally(request) if local else trying.managed(connect(), request))
    client = connect()
    created(client, request, is_followed=follow_first_trial)


def created(client: Determined, request: SubmitRequest, *, is_followed: bool = False) -> int:
    """Submit, say the id at once, then the warnings and what to type next. Return the id."""
    experiment_id, warnings = client.submit(request)
    write(f"Created experiment {experiment_id}\n")
    flush()
    conclude(client, experiment_id, warnings, is_followed=is_followed, is_paused=request.paused)
    return experiment_id


def conclude(
    client: Determined, experiment_id: int, warnings: list[str], *, is_followed: bool, is_paused: bool = False
) -> None:
    """Say what the user should know and what to type next; follow the experiment, if that was asked for."""
    for sentence in warnings:
        say(f"warning: {sentence}")
    if is_followed:
        follow(client, experiment_id)
    elif is_paused:
        say(f"It is paused. Start it with: det experiment activate {experiment_id}")
    else:
        say(f"Follow it with: det experiment watch {experiment_id}")


def follow(client: Determined, experiment_id: int) -> None:
    """Show the experiment until it ends; fail unless it is COMPLETED then."""
    if is_terminal():
        from determined.cli.running.watch import follow as show

        state = show(client, experiment_id)
    else:
        state = _print_log(client.get_experiment(experiment_id))
    if state != "COMPLETED":
        raise click.ClickException(f"Experiment {experiment_id} ended as {state}.")


def _print_log(experiment: Experiment) -> str:
    """Print the log of the first trial until it ends, and return how the experiment ended."""
    try:
        for line in experiment.await_first_trial().iter_logs(follow=True):
            write(f"{line}\n")
            flush()
        return str(experiment.wait(interval=0.5))
    except KeyboardInterrupt:
        say(f"Experiment {experiment.id} goes on. Come back with: det experiment watch {experiment.id}")
        raise
