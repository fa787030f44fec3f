"""What is typed after `det tensorboard`: start, list, open, logs, kill."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from determined.cli import options
from determined.cli.connection import connect
from determined.cli.groups import Group
from determined.cli.options import Ids
from determined.cli.output import terminal
from determined.cli.output.table import Column
from determined.cli.running.background import add_verbs, browse
from determined.cli.tensorboard import foreground
from determined.client.background import board_process, boards, event_files
from determined.client.background.records import EndedEarly

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

LAST_LINES = 20


class StartsUnlessTold(Group):
    """`det tensorboard 1 2` and `det tensorboard -t 3` mean `start`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the word in where it was left out."""
        if args and args[0] not in ("-h", "--help") and (args[0][:1] == "-" or args[0][:1].isdecimal()):
            args = ["start", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, and what may be started."""
        verbs = super().shell_complete(ctx, incomplete)
        return verbs + options.experiment_ids(ctx, click.Argument(["ids"]), incomplete)


class Start(click.Command):
    """A command whose -t takes several ids in a row: `-t 1 2 3` are three trials."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Write -t in front of each of them."""
        spelled: list[str] = []
        is_trial = False
        for word in args:
            if is_trial and word[:1].isdecimal() and spelled[-1] not in ("-t", "--trial"):
                spelled.append("-t")
            is_trial = word in ("-t", "--trial") or (is_trial and not word.startswith("-"))
            spelled.append(word)
        return super().parse_args(ctx, spelled)


@click.group(cls=StartsUnlessTold, default="start")
def tensorboard() -> None:
    """TensorBoard on the event files of runs.

    `det tensorboard 1 2` is short for `det tensorboard start 1 2`.
    """


@tensorboard.verb("start", cls=Start)
@click.argument("ids", metavar="[ID]...", type=Ids(), nargs=-1, shell_complete=options.experiment_ids)
@click.option(
    "-t", "--trial", "trials", type=Ids(), multiple=True, metavar="ID...", help="Trials, rather than experiments.",
    shell_complete=options.trial_ids,
)  # fmt: skip
@click.option(
    "--port", type=click.IntRange(1, 65535), help=f"Default: the first free one from {board_process.FIRST_PORT}."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0 lets other machines look.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("-d", "--detach", is_flag=True, help="Leave it running, and return as soon as it answers.")
def start(
    ids: tuple[list[int], ...], trials: tuple[list[int], ...], port: int | None, host: str, no_browser: bool,
    detach: bool,
) -> None:  # fmt: skip
    """Start TensorBoard on experiments ID... or on trials (-t ID...). Ctrl-C ends it, unless it is detached (-d)."""
    boards.check_installed()
    experiments, named = [i for part in ids for i in part], [i for part in trials for i in part]
    if not experiments and not named:
        raise click.UsageError("Name an experiment, or a trial with -t.", click.get_current_context())
    chosen, said = event_files.find_trials(connect(), experiments, named)
    for sentence in said:
        terminal.say(sentence)
    if not detach:
        with tempfile.TemporaryDirectory(prefix="det-tensorboard-") as name:
            event_files.link(chosen, Path(name))
            chosen_port = port or board_process.free_port(host)
            foreground.serve(Path(name), host, chosen_port, open_browser=not no_browser)
        return
    try:
        number, record = boards.start(chosen, host, port, experiments=experiments, named=named)
    except EndedEarly as failed:
        terminal.say("".join(failed.lines[-LAST_LINES:]).rstrip(), lines=True)
        raise click.ClickException(f"{failed}; its last lines are above.") from None
    terminal.write(f"{record.address}\n")
    terminal.say(f"TensorBoard {number} runs on its own. End it with: det tensorboard kill {number}")
    if not no_browser and terminal.is_terminal():
        browse(record.address)


add_verbs(
    tensorboard,
    boards.REGISTER,
    {"experiments": Column("Experiments"), "trials": Column("Trials")},
    stays="The runs' event files stay.",
)
