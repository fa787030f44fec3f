"""`det`: the entry point of the command line. Each noun has a module of its own, imported when that noun is typed."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from determined._left_out import ignored_master
from determined._version import __version__
from determined.cli import options
from determined.cli.connection import Settings, use_launcher
from determined.cli.groups import HELP_NAMES, Group, Late
from determined.cli.output.terminal import ReaderGone, complain, say

FAILED, MISUSED, INTERRUPTED = 1, 2, 3

NOUNS = {
    "experiment": Late("determined.cli.experiment:experiment", "Runs and searches: list, describe, label.", ("e",)),
    "trial": Late("determined.cli.trial:trial", "Single trainings: logs, metrics, curves.", ("t",)),
    "checkpoint": Late("determined.cli.checkpoint:checkpoint", "Saved weights: list, download, verify.", ("c",)),
    "compare": Late("determined.cli.compare:compare", "What differs between runs, and which was best."),
    "model": Late("determined.cli.model:model", "The model registry: names for checkpoints.", ("m",)),
    "tensorboard": Late("determined.cli.tensorboard.command:tensorboard", "TensorBoard on runs.", ("tb",)),
    "ui": Late("determined.cli.page.command:ui", "Every run in a browser, live."),
    "job": Late("determined.cli.running.job:job", "The queue: who runs, who waits, priorities.", ("j",)),
    "slot": Late("determined.cli.running.slot:slot", "The devices that trials are given.", ("s",)),
    "controller": Late("determined.cli.running.controller:controller", "The process that drives experiments."),
    "workspace": Late("determined.cli.workspace:workspace", "Rooms for projects.", ("w",)),
    "project": Late("determined.cli.workspace:project", "Folders for experiments.", ("p",)),
    "preview-search": Late(
        "determined.cli.preview.command:preview_search", "What a search would train, without training."
    ),
    "template": Late("determined.cli.submission.template:template", "Parts that experiment files share.", ("tpl",)),
    "store": Late("determined.cli.store:store", "The database of runs: check, export, import."),
    "completion": Late("determined.cli.completion:completion", "Completion for bash, zsh or fish."),
    "version": Late("determined.cli.version:version", "Which versions of what are installed."),
}

LEFT_OUT = {  # commands of a cluster, and what does their work here
    "agent": "there are no agents. The nodes that trials run on: det slot list",
    "auth": "there are no accounts: whoever can open the store can use it.",
    "cmd": "there is no cluster to run a command on: type the command itself.",
    "command": "there is no cluster to run a command on: type the command itself.",
    "deploy": "there is nothing to deploy: pip install brings everything.",
    "dev": "there is no server to ask: determined.client reads the store.",
    "master": "there is no master: runs are rows of a store. See: det store -h",
    "notebook": "there is no cluster to run one on: type jupyter lab, and use determined.pytorch in it.",
    "rbac": "there are no roles: whoever can open the store can use it.",
    "resource-pool": "pools are custom resources of Ray nodes. See them with: det --launcher ray slot list",
    "resources": "there are no shared machines to account for. What ran, and how long: det experiment list",
    "shell": "there is no cluster to open a shell on: you have one.",
    "token": "there are no accounts: whoever can open the store can use it.",
    "user": "there are no accounts: runs belong to users of this machine. Another's: det -u NAME experiment list",
    "user-group": "there are no accounts: whoever can open the store can use it.",
}


class Det(Group):
    """The outermost group: what went wrong becomes one line on stderr and an exit code."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *rest: Any, **extra: Any) -> Any:
        """Run one command and leave with 0 (done), 1 (failed), 2 (misused) or 3 (interrupted)."""
        stands_alone = extra.pop("standalone_mode", True)
        run = functools.partial(super().main, args, prog_name or "det", *rest, standalone_mode=False, **extra)
        if not stands_alone:
            return run()
        try:
            status: Any = run()
            sys.stdout.flush()
        except (ReaderGone, BrokenPipeError):
            _leave_quietly()
        except BaseException as error:
            if os.environ.get("DET_DEBUG", "") not in ("", "0") and not isinstance(error, (SystemExit, click.Abort)):
                raise
            sys.exit(_explain(error))
        sys.exit(status if isinstance(status, int) else 0)


def _explain(error: BaseException) -> int:
    """Say in one line what happened, and give the exit code for it."""
    from determined.errors import ConfigError, DeterminedError

    if isinstance(error, SystemExit):
        raise error
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        complain("Interrupted.")
        return INTERRUPTED
    if isinstance(error, click.UsageError):
        where = f" See: {error.ctx.command_path} -h" if error.ctx else ""
        complain(f"{_one_line(error.format_message())}{where}")
        return MISUSED
    if isinstance(error, click.ClickException):
        complain(_one_line(error.format_message()))
        return error.exit_code
    if isinstance(error, ConfigError):  # it lists all that is wrong with a file, a line for each
        complain(str(error), lines=True)
        return FAILED
    if isinstance(error, (DeterminedError, OSError, ValueError)):
        complain(_one_line(str(error)) or type(error).__name__)
        return FAILED
    complain(f"det has a bug here, {type(error).__name__}: {error}. See where with: DET_DEBUG=1 det ...")
    return FAILED


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _leave_quietly() -> NoReturn:
    """Whoever read our output (`| head`) has seen enough: that is no failure, and not worth a word."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered goes nowhere
    sys.exit(0)


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"det {__version__}")
        ctx.exit()


@click.group("det", cls=Det, late=NOUNS, left_out=LEFT_OUT, context_settings={**HELP_NAMES, "max_content_width": 100})
@click.option("-v", "-V", "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
              help="Say the version and leave.")  # fmt: skip
@click.option("-u", "--user", metavar="NAME", help="Whose runs to list. Default: yours.")
@click.option("-m", "--master", metavar="PLACE", help="The same as --store; an older name.")
@click.option(
    "--store",
    metavar="PLACE",
    envvar="DET_STORE",
    help="A file, postgresql://..., or file:FILE with such an address in it. [env DET_STORE; default: your own]",
)
@options.launcher
@click.pass_context
def main(ctx: click.Context, user: str | None, master: str | None, store: str | None, launcher: str | None) -> None:
    """Look at what was trained, compare it, and fetch its weights.

    Times are UTC. Lists take --csv and --json.
    """
    if said := ignored_master():
        say(said)
    use_launcher(launcher)
    ctx.obj = Settings(store, master, user)
