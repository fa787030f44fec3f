"""`det store`: the database of runs itself."""

from __future__ import annotations

from pathlib import Path

import click

from determined.cli import options
from determined.cli.connection import connect
from determined.cli.groups import Group
from determined.cli.output import terminal
from determined.cli.output.table import Column, Table
from determined.cli.output.values import show_json, size


@click.group(cls=Group, default="info")
def store() -> None:
    """The store: where runs are remembered. It is a file of yours, or a PostgreSQL database."""


@store.verb("info")
@options.forms
def info(form: str) -> None:
    """Say where the store is, and how much is in it."""
    found = connect().store.info()
    if form == "json":
        show_json(found)
        return
    counts = found.pop("counts")
    rows = [*found.items(), *((name.replace("_", " "), count) for name, count in counts.items())]
    shown = [(name, size(value) if name == "size" and form == "table" else str(value)) for name, value in rows]
    Table([Column("Fact"), Column("Value")], shown).show(form)


@store.verb("check")
def check() -> None:
    """Look for damage; exit 1 if there is any."""
    problems = connect().store.check()
    for problem in problems:
        terminal.write(f"{problem}\n")
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise click.ClickException(f"{count}. A copy of what can be read is made with: det store export backup.det")
    terminal.say("The store is sound.")


@store.verb("vacuum")
def vacuum() -> None:
    """Give back the room of what was deleted."""
    before, after = connect().store.vacuum()
    terminal.say(f"The store takes {size(after)}; it took {size(before)}.")


@store.verb("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-e", "--experiment", "ids", type=options.Ids(), multiple=True, metavar="ID", help="Only these.",
              shell_complete=options.experiment_ids)  # fmt: skip
@options.yes
def export(file: Path, ids: tuple[list[int], ...], yes: bool) -> None:
    """Write runs into FILE, which any other store can import. Files of checkpoints stay where they are."""
    if file.exists():
        terminal.ask(f"{file} exists. Replace it?", yes=yes)
    chosen = [i for part in ids for i in part] or None
    with terminal.bar(f"Exporting to {file.name}") as progress:
        count = connect().store.export(file, experiment_ids=chosen, progress=progress)
    terminal.say(f"Wrote {count} experiments to {file} ({size(file.stat().st_size)}).")


@store.verb("import")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
def import_runs(file: Path) -> None:
    """Add the runs of FILE to this store, under new ids."""
    with terminal.bar(f"Importing {file.name}") as progress:
        ids = connect().store.import_(file, progress=progress)
    terminal.say(f"Imported {len(ids)} experiments. See them with: det experiment ls -a")
