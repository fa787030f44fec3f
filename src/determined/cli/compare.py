"""`det compare`: runs side by side, only what differs, and which of them was best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from determined.cli import options, tables, terminal
from determined.cli.connection import connect
from determined.cli.groups import HELP_NAMES
from determined.cli.render import Column, Table, number, show_json

if TYPE_CHECKING:
    from determined.client import Comparison, Trial


@click.command(context_settings=HELP_NAMES)
@click.argument("ids", metavar="[ID]...", type=options.Ids(), nargs=-1, shell_complete=options.experiment_ids)
@click.option("-t", "--trial", "trial_ids", type=options.Ids(), multiple=True, metavar="ID", help="Trials instead.",
              shell_complete=options.trial_ids)  # fmt: skip
@click.option("--last", type=click.IntRange(min=2), metavar="N", help="The newest N experiments.")
@click.option("--all", "show_all", is_flag=True, help="Also what is the same everywhere.")
@options.forms
def compare(
    ids: tuple[list[int], ...], trial_ids: tuple[list[int], ...], last: int | None, show_all: bool, form: str
) -> None:
    """Show what differs between experiments ID..., each seen through its best trial.

    Of the metrics, the last value and the best are compared; --all shows everything.
    """
    runs = _runs([i for part in ids for i in part], [i for part in trial_ids for i in part], last)
    if len(runs) < 2:
        raise click.UsageError(
            "Name two experiments or more, or trials with -t, or --last N.", click.get_current_context()
        )
    found = comparison(list(runs.values()), show_all=show_all)
    if form == "json":
        show_json(_as_document(found, runs))
        return
    _table(found, runs, form).show(form)
    if best := best_run(runs):
        terminal.say(f"Best: {best}")


def _runs(ids: Sequence[int], trial_ids: Sequence[int], last: int | None) -> dict[str, Trial]:
    """What to call each run, and its trial."""
    client = connect()
    runs = {f"trial {number}": client.get_trial(number) for number in trial_ids}
    newest = [e.id for e in tables.newest_experiments(client, last)] if last else []
    for number in dict.fromkeys([*newest, *ids]):
        if trial := tables.best_trial(client.get_experiment(number)):
            runs[str(number)] = trial
        else:
            terminal.say(f"Experiment {number} has no trial, so it is left out.")
    return runs
