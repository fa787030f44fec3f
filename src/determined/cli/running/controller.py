"""`det controller`: the background process that drives experiments. Commands start it when it is needed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from determined.cli import options
from determined.cli.connection import connect, use_launcher
from determined.cli.groups import Group
from determined.cli.output import terminal
from determined.cli.output.table import Column, Table
from determined.cli.output.values import show_json

if TYPE_CHECKING:
    from pathlib import Path

TAIL_BYTES = 200_000


@click.group(cls=Group, default="status")
def controller() -> None:
    """The controller: the background process that drives experiments.

    It starts by itself when something is to be done, and leaves when nothing is. There is one per store.
    """


@controller.verb("status")
@options.forms
def status(form: str) -> None:
    """Show whether a controller is alive, and what it drives. Exit 0 either way."""
    found = connect().controller.status()
    record = found.to_dict()
    if form == "json":
        show_json(record)
        return
    titles = {"is_alive": "Alive", "pid": "PID"}
    columns = [Column(titles.get(key, key.replace("_", " ").capitalize()), key) for key in record]
    Table(columns, [list(record.values())], "Controller", is_description=True).show(form)
    if form != "table":
        return
    if not found.is_alive and (found.pending or found.experiments):
        terminal.say("No controller is alive, and there is work. Start one with: det controller start")
    elif not found.is_alive:
        terminal.say("No controller is alive; none is needed. The next experiment starts one.")


@controller.verb("start")
@options.launcher
def start(launcher: str | None) -> None:
    """Start a controller, unless one is alive. Rarely needed: commands that ask for something do it."""
    use_launcher(launcher)
    commands = connect().controller
    said = "Started a controller" if commands.start() else "A controller is alive already"
    found = commands.status()
    terminal.say(f"{said}: pid {found.pid} on {found.node}. See its log with: det controller logs -f")


@controller.verb("stop")
def stop() -> None:
    """Have the controller leave, and wait until it has. Trials that run go on training."""
    commands = connect().controller
    found = commands.status()
    if not commands.stop():
        terminal.say("No controller is alive, so there is nothing to stop.")
        return
    said = f"The controller (pid {found.pid}) has left."
    if found.trials:
        noun = "trial goes" if found.trials == 1 else "trials go"
        said += (
            f" {found.trials} {noun} on training; when one ends, or with the next command that asks for something, a "
            "controller takes over."
        )
    terminal.say(said)


@controller.verb("logs")
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
def logs(follow: bool, tail: int | None) -> None:
    """Print what controllers of this data directory wrote to their log."""
    path = connect().controller.log
    if not path.exists():
        if not follow:
            terminal.say(f"There is no log yet: no controller has run ({path}).")
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    _print(path, follow=follow, tail=tail)


def _print(path: Path, *, follow: bool, tail: int | None) -> None:
    with path.open("rb") as file:
        if tail is not None:
            lines = _last(file.read(), tail)
            terminal.write(lines)
        while True:
            if text := file.read(TAIL_BYTES).decode(errors="replace"):
                terminal.write(text)
                terminal.flush()
            elif not follow:
                return
            else:
                time.sleep(0.5)


def _last(content: bytes, count: int) -> str:
    lines = content.decode(errors="replace").splitlines(keepends=True)
    return "".join(lines[len(lines) - count :] if count else [])
