"""`det compare`: runs side by side, only what differs, and which of them was best."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from determined.cli import finding, options
from determined.cli.connection import connect, owners
from determined.cli.groups import HELP_NAMES
from determined.cli.output import side_by_side, terminal
from determined.cli.output.table import Column, Table
from determined.cli.output.values import number, show_json

if TYPE_CHECKING:
    from determined.client import Experiment, Trial

EXTREMES = (".min", ".max")  # of every metric: too many to show by default


@dataclasses.dataclass(frozen=True)
class Run:
    """One column: an experiment seen through its best trial, or a trial."""

    name: str
    trial: Trial
    experiment: Experiment


@click.command(context_settings=HELP_NAMES)
@click.argument("ids", metavar="[ID]...", type=options.Ids(), nargs=-1, shell_complete=options.experiment_ids)
@click.option("-t", "--trial", "trial_ids", type=options.Ids(), multiple=True, metavar="ID", help="Trials instead.",
              shell_complete=options.trial_ids)  # fmt: skip
@click.option("--last", type=click.IntRange(min=2), metavar="N", help="The newest N of your experiments.")
@click.option("--all", "show_all", is_flag=True, help="Also what is the same everywhere, and every figure.")
@options.forms
def compare(
    ids: tuple[list[int], ...], trial_ids: tuple[list[int], ...], last: int | None, show_all: bool, form: str
) -> None:
    """Show what differs between experiments ID..., each seen through its best trial.

    Of the metrics, the last values are shown, and the best of the one that is searched for.
    """
    runs = _runs([i for part in ids for i in part], [i for part in trial_ids for i in part], last)
    if last and len(runs) < 2:
        raise click.ClickException(_too_few(runs))
    if len(runs) < 2:
        raise click.UsageError(
            "Name two experiments or more, or trials with -t, or --last N.", click.get_current_context()
        )
    rows = _rows(runs, show_all=show_all)
    if form == "json":
        show_json(_document(rows, runs))
        return
    names = [run.name for run in runs]
    if form == "table":
        rows = [_for_people(row) for row in rows]
    if form == "table" and terminal.is_terminal():
        for i, table in enumerate(side_by_side.tables([row[1:] for row in rows], names, terminal.width())):
            terminal.write("\n" if i else "")
            table.show()
    else:
        Table([Column("Section"), Column("Key"), *(Column(name, name) for name in names)], rows).show(form)
    if best := best_of(runs):
        terminal.say(best)


def _runs(ids: Sequence[int], trial_ids: Sequence[int], last: int | None) -> list[Run]:
    client = connect()
    runs = []
    for trial in (client.get_trial(ident) for ident in trial_ids):
        runs.append(Run(f"trial {trial.id}", trial, trial.get_experiment()))
    mine = finding.newest_experiments(client, last, owners=owners(client)) if last else []
    newest = [experiment.id for experiment in mine]
    for experiment in (client.get_experiment(ident) for ident in dict.fromkeys([*newest, *ids])):
        if best := experiment.best_trials(1):
            runs.append(Run(str(experiment.id), best[0], experiment))
        else:
            terminal.say(f"Experiment {experiment.id} has no trial, so it is left out.")
    return runs


def _too_few(runs: Sequence[Run]) -> str:
    """Explain why the newest runs are not compared."""
    if not runs:
        return "You have no run yet. Start some with: python train.py. Or compare other people's: det compare ID ID"
    [run] = runs
    about = f"experiment {run.experiment.id} ({run.experiment.name})"
    return f"There is only one run: {about}. Look at it with: det experiment describe {run.experiment.id}"


def _rows(runs: Sequence[Run], *, show_all: bool) -> list[list[Any]]:
    """Section, key, and the value of each run."""
    from determined.client import _compare

    described = {run.trial.id: _compare.description(run.trial) for run in runs}
    if show_all:
        keys = sorted({(section, key) for parts in described.values() for section in parts for key in parts[section]})
    else:
        found = _compare.differences(described).differences
        keys = [(d.section, d.key) for d in found if d.section != "metrics" or not d.key.endswith(EXTREMES)]
    rows: list[list[Any]] = [
        [section, key, *(described[run.trial.id].get(section, {}).get(key) for run in runs)] for section, key in keys
    ]
    metrics = {run.experiment.searcher_metric for run in runs if run.trial.best_metric is not None}
    if metrics:
        title = f"validation.{metrics.pop()}.best" if len(metrics) == 1 else "best"
        rows.append(["metrics", title, *(run.trial.best_metric for run in runs)])
    return rows


def _for_people(row: list[Any]) -> list[Any]:
    """Reword a row for people: its key as words, arguments as they were typed, and short commits."""
    section, key, *values = row
    if section == "metrics":
        group, _, rest = key.partition(".")
        name, _, figure = rest.rpartition(".")
        return [section, f"{group} {name}, {figure}" if name else key, *values]
    if key == "arguments":
        return [section, key, *(" ".join(value) if isinstance(value, list) else value for value in values)]
    if key == "git.commit":
        return [section, key, *(str(value)[:10] if value else value for value in values)]
    return row


def _document(rows: list[list[Any]], runs: Sequence[Run]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for section, key, *values in rows:
        document.setdefault(section, {})[key] = {run.name: value for run, value in zip(runs, values, strict=True)}
    return document


def best_of(runs: Sequence[Run]) -> str:
    """Return a sentence on which run was best, or nothing if their metrics cannot be compared."""
    from determined.client._compare import best

    trial = best([run.trial for run in runs])
    if trial is None:
        return ""
    run = next(run for run in runs if run.trial is trial)
    what = run.name if run.name.startswith("trial") else f"experiment {run.name}"
    value = number(trial.best_metric or 0.0)
    return f"Best: {what}, {trial.searcher_metric} {value}. Fetch its weights: det trial download {trial.id} --best"
