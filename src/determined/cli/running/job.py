"""`det job`: the queue of experiments, and the order in which they get slots."""

from __future__ import annotations

from typing import Any

import click

from determined.cli import options
from determined.cli.connection import connect
from determined.cli.groups import Group
from determined.cli.output import terminal
from determined.cli.output.table import Column, Table
from determined.cli.output.values import show_yaml

JOB = [
    Column("# ahead", "ahead"),
    Column("ID"),
    Column("Type", rank=5),
    Column("Job Name", "name"),
    Column("Priority"),
    Column("Submitted", rank=3),
    Column("Slots", "slots", is_whole=True),
    Column("Status", "status"),
    Column("User", "user", rank=4),
    Column("Waiting"),
]
WAITING = [Column("ID"), Column("Waiting", is_whole=True)]


class Limit(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    """A number of slots, or `null` for no limit."""

    name = "slots"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or `null` as it is: None would mean that nothing was typed."""
        text = str(value).strip().lower()
        if text in ("null", "none"):
            return "null"
        if not text.isdigit():
            self.fail(f"{value!r} is no number of slots. Write for example 2, or null for no limit.", param, ctx)
        return int(text)


@click.group(cls=Group, default="list")
def job() -> None:
    """Jobs: experiments that run or wait for slots. A smaller priority gets slots first; then the earlier one."""


@job.verb("list", "ls")
@click.option("--yaml", "as_yaml", is_flag=True, help="YAML.")
@click.option("--table", "as_table", is_flag=True, hidden=True, help="A table, which is the default.")
@options.forms
def list_jobs(form: str, as_yaml: bool, as_table: bool) -> None:
    """List the experiments that have not ended, in the order in which they get slots."""
    if as_yaml + as_table + (form != "table") > 1:
        raise click.UsageError("--yaml, --table, --csv and --json exclude each other.", click.get_current_context())
    found = connect().list_jobs()
    rows = [
        [j.ahead, j.id, "EXPERIMENT", j.name, j.priority, j.submitted, f"{j.slots_used}/{j.slots_asked}", j.state,
         j.owner, j.waiting or None]
        for j in found
    ]  # fmt: skip
    table = Table(JOB, rows)
    if as_yaml:
        show_yaml(table.records())
        return
    if form != "table":
        table.show(form)
        return
    table.without("Waiting").show()
    if waiting := [[j.id, j.waiting] for j in found if j.waiting]:  # sentences, too long for a column among others
        terminal.write("\n")
        Table(WAITING, waiting, wraps=True).show()
    if not found:
        terminal.say("No experiment runs or waits. Submit one with: det experiment create CONFIG DIRECTORY")


@job.verb("update")
@options.experiment_id
@click.option("-p", "--priority", type=click.IntRange(1, 99), metavar="N", help="1 (first) to 99.")
@click.option("-w", "--weight", type=click.FloatRange(min=0, min_open=True), metavar="W", help="Above 0.")
@click.option("--max-slots", type=Limit(), metavar="N", help="Most slots at once; null for no limit.")
def update(experiment_id: int, **changes: Any) -> None:
    """Change the place of an experiment in the queue, or how many slots it may use at once."""
    wanted = {name: value for name, value in changes.items() if value is not None}
    if not wanted:
        raise click.UsageError("Give --priority, --weight or --max-slots.", click.get_current_context())
    experiment = connect().get_experiment(experiment_id)
    for name, value in wanted.items():
        change(experiment, name, value)


def change(experiment: Any, name: str, value: Any) -> None:
    """Change one setting of an experiment's queueing, and say so."""
    experiment.set_resources(**{name: None if value == "null" else value})
    terminal.say(f"Set the {name} of experiment {experiment.id} to {value}")
