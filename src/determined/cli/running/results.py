"""`det experiment metrics, best, rungs, verify`: what trials reported, and what the search made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from determined._wording import instead, visible
from determined.cli import options
from determined.cli.connection import connect
from determined.cli.groups import HELP_NAMES
from determined.cli.output import terminal
from determined.cli.output.table import Column, Table
from determined.cli.output.values import cell, number, show_json

if TYPE_CHECKING:
    from determined.client import Checkpoint, Experiment, Trial

FIGURES = ("last", "min", "max", "mean", "count")
UNITS = {"batches", "epochs"}
RUNG = [
    Column("Bracket"),
    Column("Rung"),
    Column("At", "units"),
    Column("Arrived"),
    Column("Passed"),
    Column("Waiting", rank=1),
    Column("Ended here", "stopped"),
    Column("Best", "best"),
]

metric_option = click.option("-m", "--metric", metavar="NAME", help="By this metric. Default: the searcher's.",
                             shell_complete=options.metrics())  # fmt: skip


@click.command(context_settings=HELP_NAMES)
@options.experiment_id
@click.option(
    "-m",
    "--metric",
    "names",
    multiple=True,
    metavar="NAME",
    shell_complete=options.metrics(),
    help="`loss` of validation, or `training.loss`. Repeat for several. Default: all of validation.",
)
@click.option("--figure", type=click.Choice(FIGURES), default="last", show_default=True, help="Which value of each.")
@options.forms
def metrics(experiment_id: int, names: tuple[str, ...], figure: str, form: str) -> None:
    """Print the metrics of each trial, the best trial first."""
    from determined.client._compare import differing, summary

    experiment = connect().get_experiment(experiment_id)
    known = experiment.metric_names()
    wanted = [_parts(name, known, experiment_id) for name in names] or [
        ("validation", name) for name in known.get("validation", []) if name not in UNITS
    ]
    trials = experiment.best_trials()
    hparams = [trial.hparams for trial in trials]
    chosen = differing(hparams) if form == "table" else hparams
    rows = [
        [trial.id, trial.state.value, trial.total_batches, trial.best_metric,
         *(summary(trial, group, name).get(figure) for group, name in wanted), own]
        for trial, own in zip(trials, chosen, strict=True)
    ]  # fmt: skip
    titles = [name if group == "validation" else f"{group}.{name}" for group, name in wanted]
    columns = [
        Column("Trial ID"),
        Column("State"),
        Column("# of Batches", "total_batches", rank=3),
        Column(f"Best {experiment.searcher_metric}" if experiment.searcher_metric else "Best", "best_metric"),
        *(Column(title, title, rank=2 if i else 0) for i, title in enumerate(titles)),
        Column("H-Params", "hparams", rank=1),
    ]
    Table(columns, rows).show(form)


def _parts(metric: str, known: dict[str, list[str]], experiment_id: int) -> tuple[str, str]:
    """Return group and name of a metric as people type it; raise with the nearest ones if no trial reported it."""
    group, _, name = metric.partition(".")
    if metric in known.get("validation", []):
        return "validation", metric
    if name in known.get(group, []):
        return group, name
    named = [n if g == "validation" else f"{g}.{n}" for g, names in sorted(known.items()) for n in names]
    raise click.ClickException(f"Experiment {experiment_id} reported no {metric!r}.{instead(metric, named)}")


@click.command(context_settings=HELP_NAMES)
@options.experiment_id
@metric_option
@click.option("--smaller-is-better/--larger-is-better", default=None, help="With --metric. Default: smaller is better.")
@options.forms
def best(experiment_id: int, metric: str | None, smaller_is_better: bool | None, form: str) -> None:
    """Show the best trial: its hyperparameters, its checkpoint, and how to fetch that."""
    if smaller_is_better is not None and metric is None:
        raise click.UsageError("Name the metric that is meant with --metric.", click.get_current_context())
    experiment = connect().get_experiment(experiment_id)
    if metric is not None:
        _parts(metric, experiment.metric_names(), experiment_id)
    found = experiment.best_trial(metric, smaller_is_better)
    if found is None:
        what = metric or experiment.searcher_metric or "a searcher metric"
        listing = f"det e list-trials {experiment_id}"
        raise click.ClickException(
            f"No trial of experiment {experiment_id} has reported {what} yet. See them: {listing}"
        )
    trial, value = found
    checkpoint = _checkpoint(experiment, trial, metric, smaller_is_better)
    record = _record(experiment, trial, metric, value, checkpoint)
    if form == "json":
        show_json(record)
        return
    titles = {"trial_id": "Trial ID", "hparams": "H-Params", "uuid": "UUID"}
    columns = [Column(titles.get(key, key.replace("_", " ").capitalize()), key) for key in record]
    Table(columns, [list(record.values())], f"Best of experiment {experiment_id}", is_description=True).show(form)
    if checkpoint is not None and form == "table":
        terminal.hint(f"Fetch its weights: det checkpoint download {checkpoint.uuid}")


def _record(
    experiment: Experiment, trial: Trial, metric: str | None, value: float, checkpoint: Checkpoint | None
) -> dict[str, Any]:
    return {
        "trial_id": trial.id,
        "state": trial.state.value,
        "metric": metric or experiment.searcher_metric,
        "value": value,
        "batches": trial.total_batches,
        "hparams": trial.hparams,
        "checkpoint": checkpoint.uuid if checkpoint else None,
        "checkpoint_batches": checkpoint.steps_completed if checkpoint else None,
        "path": checkpoint.location if checkpoint else None,
    }


def _checkpoint(
    experiment: Experiment, trial: Trial, metric: str | None, smaller_is_better: bool | None
) -> Checkpoint | None:
    """Return the trial's best checkpoint by this metric, else its newest."""
    from determined.client import CheckpointSortBy, OrderBy
    from determined.errors import NotFound

    name = metric if metric is None or "." not in metric else metric.removeprefix("validation.")
    ascending = True if smaller_is_better is None else smaller_is_better
    if metric is not None and metric == experiment.searcher_metric:
        name = None
    try:
        return trial.top_checkpoint(name, None if name is None else ascending)
    except NotFound:
        newest = trial.list_checkpoints(CheckpointSortBy.BATCH_NUMBER, OrderBy.DESC)
        return newest[0] if newest else None


def say_best(experiment: Experiment) -> None:
    """Write the best trial of an experiment, its checkpoint, and what to type next; nothing if no trial has a value."""
    found = experiment.best_trial()
    if found is None:
        return
    trial, value = found
    chosen = ", ".join(f"{visible(name)}={cell(value)}" for name, value in sorted(trial.hparams.items()))
    terminal.write(f"Best: trial {trial.id}, {visible(experiment.searcher_metric or 'metric')} {number(value)}")
    terminal.write(f", with {chosen}\n" if chosen else "\n")
    checkpoint = _checkpoint(experiment, trial, None, None)
    if checkpoint is None:
        terminal.write(f"It has no checkpoint. Look at it with: det trial describe {trial.id}\n")
        return
    terminal.write(f"Checkpoint after {checkpoint.steps_completed} batches: {visible(checkpoint.location)}\n")
    terminal.write(f"Fetch it with: det trial download {trial.id} --best\n")


@click.command(context_settings=HELP_NAMES)
@options.experiment_id
@options.forms
def rungs(experiment_id: int, form: str) -> None:
    """Show the rungs of an ASHA search: who arrived at each, who went on, who ended there, and the best value."""
    experiment = connect().get_experiment(experiment_id)
    if not show_rungs(experiment, form, is_first=True) and form == "table":
        terminal.say(f"The search of experiment {experiment_id} ({_searcher(experiment)}) has no rungs.")


def show_rungs(experiment: Experiment, form: str = "table", *, is_first: bool = False) -> bool:
    """Write the rung table of an experiment, if its search has rungs; return whether it has."""
    found = experiment.rungs()
    if not found and form == "table":
        return False
    unit = found[0].time_metric if found else ""
    rows = [
        [row.bracket, row.rung, f"{row.units} {unit}" if form == "table" else row.units, row.arrived, row.passed,
         row.waiting or None, row.stopped, row.best]
        for row in found
    ]  # fmt: skip
    if not is_first:
        terminal.write("\n")
    Table(RUNG, rows, "Rungs" if form == "table" else "").show(form)
    return bool(found)


def _searcher(experiment: Experiment) -> str:
    return str(experiment.config.get("searcher", {}).get("name") or "none")


@click.command(context_settings=HELP_NAMES)
@options.experiment_id
def verify(experiment_id: int) -> None:
    """Replay the stored events through a fresh search, and compare every trial, state and rung with the store."""
    found = connect().get_experiment(experiment_id).verify()
    if not found.differences:
        terminal.say(
            f"Experiment {experiment_id}: {found.events} events give the {found.trials} trials, their states and rungs "
            "that are stored."
        )
        return
    for difference in found.differences:
        terminal.write(f"{visible(difference)}\n")
    count = len(found.differences)
    raise click.ClickException(
        f"Experiment {experiment_id}: {count} {'difference' if count == 1 else 'differences'} between its "
        f"{found.events} events and the store."
    )
