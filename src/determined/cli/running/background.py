"""What `det tensorboard` and `det ui` do with processes that were started with -d: list, open, logs, kill."""

from __future__ import annotations

import click

from determined.cli import options
from determined.cli.groups import Group
from determined.cli.options import Ids
from determined.cli.output import terminal
from determined.cli.output.table import Column, Table
from determined.client.background.records import Register
from determined.errors import Refused


def add_verbs(group: Group, register: Register, columns: dict[str, Column], *, stays: str) -> None:
    """Add the commands to a noun.

    Args:
        group: The noun.
        register: Where its processes have their records.
        columns: What a record is about, and the column of each part.
        stays: What is not lost by ending one.
    """
    number = click.argument("number", metavar="ID", type=int)

    @group.verb("list", "ls")
    @options.forms
    def list_detached(form: str) -> None:
        """List those that were started with -d. What is left of ended ones is cleared away."""
        rows = []
        for each, record in register.found().items():
            if record.is_alive:
                about = [record.about.get(key) for key in columns]
                rows.append([each, record.address or None, *about, record.began, record.pid])
            else:
                register.end(each, record)
                terminal.say(f"{register.named(each)} had ended, and is cleared away.")
        usual = [Column("ID"), Column("Address", is_whole=True), Column("Started", rank=1), Column("PID", rank=2)]
        Table([*usual[:2], *columns.values(), *usual[2:]], rows).show(form)

    @group.verb("open")
    @number
    def open_detached(number: int) -> None:
        """Show one in the browser; prints its address."""
        record = register.get(number)
        if not record.is_alive:
            raise Refused(f"{register.named(number)} has ended. See what it said: {register.command} logs {number}")
        if not record.address:
            raise Refused(f"{register.named(number)} is just starting. Try again in a moment.")
        terminal.write(f"{record.address}\n")
        browse(record.address)

    @group.verb("logs")
    @number
    def logs(number: int) -> None:
        """Print what one has printed."""
        register.get(number)
        for line in register.log_lines(number):
            terminal.write(line, colours=True)

    @group.verb("kill", help=f"End some of them, and remove what is kept of them. {stays}")
    @click.argument("numbers", metavar="[ID[,ID]...]", type=Ids(), nargs=-1)
    @click.option("--all", "everything", is_flag=True, help="All that there are.")
    def kill(numbers: tuple[list[int], ...], everything: bool) -> None:
        if everything == bool(numbers):
            raise click.UsageError("Name them, or give --all; not both.", click.get_current_context())
        named = [number for part in numbers for number in part]
        chosen = register.found() if everything else {each: register.get(each) for each in named}
        for each, record in chosen.items():
            was_alive = register.end(each, record)
            terminal.say(f"{register.named(each)} {'is ended' if was_alive else 'had ended already'}.")
        if not chosen:
            terminal.say(f"No {register.noun} was started with -d.")


def browse(address: str) -> None:
    """Show an address in the browser."""
    import webbrowser

    if not webbrowser.open(address):
        terminal.say("There is no browser here. Open the address where there is one.")
