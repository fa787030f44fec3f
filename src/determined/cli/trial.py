"""`det trial`: one training of one model. Its curves are in `plot/trial_curves.py`."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from determined._wording import instead
from determined.cli import finding, options
from determined.cli.checkpoint import fetch
from determined.cli.connection import connect
from determined.cli.groups import Group, Late
from determined.cli.output import lists, terminal
from determined.cli.output.description import Workload, workloads
from determined.cli.output.logs import show_logs
from determined.cli.output.table import Column, Table
from determined.cli.output.values import show_json

if TYPE_CHECKING:
    from determined.client import Trial, TrialMetrics

UNITS = {"batches", "epochs"}  # reported with everything, and known from the steps
LATE = {"plot": Late("determined.cli.plot.trial_curves:plot", "Draw curves in the terminal, or into a file.")}
RANKS = {"Type": 9, "Count": 8, "Checkpoint": 2, "Report Time": 1}
WORKLOAD = ["# of Batches", "Report Time", "Checkpoint", "Checkpoint UUID", "Checkpoint Metadata", "Validation Metrics"]


@click.group(cls=Group, default="list", late=LATE)
def trial() -> None:
    """Trials: one training of one model with one choice of hyperparameters."""


@trial.verb("list", "ls")
@click.option("-e", "--experiment", "experiment_id", type=int, metavar="ID", shell_complete=options.experiment_ids)
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@options.paging()
@options.forms
def list_trials(experiment_id: int | None, last: int | None, limit: int | None, offset: int, form: str) -> None:
    """List trials, the newest last."""
    found = finding.trials(connect(), experiment_id=experiment_id, last=last)
    lists.trials(found[offset:][:limit], with_experiment=True).show(form)


@trial.verb("describe")
@options.trial_id
@click.option("--metrics", is_flag=True, help="Also the training metrics of every step.")
@click.option("--metrics-summary", is_flag=True, help="Only the summary of its metrics.")
@options.paging(default=1000)
@options.forms
def describe(trial_id: int, metrics: bool, metrics_summary: bool, limit: int | None, offset: int, form: str) -> None:
    """Show a trial, and what it did at each step."""
    client = connect()
    found = client.get_trial(trial_id)
    summary = _summary(found.summary_metrics)
    if metrics_summary:
        summary.show(form)
        return
    reason = client.controller.waiting().get(trial_id) or found.state_reason or None
    header, body = _header(found, reason), _steps(workloads(found)[offset:][:limit], with_training=metrics)
    if form == "table":  # for people; what is left out is in CSV and JSON, the summary in a table of its own
        header, body = header.without("Summary Metrics"), body.without("Checkpoint Metadata")
    if form == "json":
        show_json({"trial": header.records()[0], "workloads": body.records()})
        return
    header.show(form)
    if form == "table":
        terminal.write("\n")
        summary.show(form)
    terminal.write("\n")
    body.show(form)


def _header(found: Trial, reason: str | None) -> Table:
    cells = {
        "Experiment ID": found.experiment_id,
        "State": found.state.value,
        "H-Params": found.hparams,
        "Summary Metrics": found.summary_metrics,
        "Started": found.start_time,
        "Ended": found.end_time,
        "Reason": reason,
    }
    return Table([Column(title) for title in cells], [list(cells.values())], f"Trial {found.id}", is_description=True)


def _steps(found: list[Workload], *, with_training: bool) -> Table:
    titles = [*WORKLOAD, *(["Workload Metrics"] if with_training else [])]
    rows = []
    for step in found:
        saved = step.checkpoint
        checkpoint = (saved.state.value, saved.uuid, saved.metadata) if saved else (None, None, None)
        training = [step.training or None] if with_training else []
        rows.append([step.steps, step.report_time, *checkpoint, step.validation or None, *training])
    return Table([Column(title, rank=RANKS.get(title, 0)) for title in titles], rows, "Workloads")


def _summary(summary: dict[str, Any]) -> Table:
    figures = ("count", "last", "min", "max", "mean", "type")
    from determined.client._compare import GROUPS

    rows = [
        [GROUPS.get(group, group), name, *(values.get(figure) for figure in figures)]
        for group, names in sorted(summary.items())
        for name, values in sorted(names.items())
    ]
    titles = ("Group", "Metric", *map(str.capitalize, figures))
    return Table([Column(title, rank=RANKS.get(title, 0)) for title in titles], rows, "Summary Metrics")


@trial.verb("logs")
@options.trial_id
@options.log_filters
def logs(trial_id: int, **filters: Any) -> None:
    """Print what the trial's processes printed."""
    show_logs(connect().get_trial(trial_id), **filters)


@trial.verb("metrics")
@options.trial_id
@click.option("-g", "--group", help="Only this group, such as validation. Default: all but the machine's own.",
              shell_complete=options.groups)  # fmt: skip
@click.option("-m", "--metric", "names", multiple=True, metavar="NAME", help="Only this metric. Repeat for several.",
              shell_complete=options.metrics(dotted=False))  # fmt: skip
@options.forms
def metrics(trial_id: int, group: str | None, names: tuple[str, ...], form: str) -> None:
    """Print what the trial reported, a row for each report. In JSON, the values are under `metrics`."""
    from determined.client._compare import SYSTEM_GROUPS

    found = connect().get_trial(trial_id)
    reported = found.metric_names()
    groups = [group] if group else [name for name in reported if name not in SYSTEM_GROUPS]
    if group and group not in reported:
        raise click.ClickException(f"Trial {trial_id} reported no group {group!r}.{instead(group, reported)}")
    known = list(dict.fromkeys(name for each in groups for name in reported[each]))
    wanted = [name for name in known if not names or name in names]
    if missing := [name for name in names if name not in known]:
        raise click.ClickException(f"Trial {trial_id} reported no {missing[0]!r}.{instead(missing[0], known)}")
    columns = [Column("# of Batches", "steps_completed"), Column("Group"), Column("Time", rank=2)]
    reports = _reports(found, groups, wanted)
    if form == "json":  # a metric may be called `time` too, so they have a place of their own
        rows = ([*_when(r), {name: r.metrics[name] for name in wanted if name in r.metrics}] for r in reports)
        Table([*columns, Column("Metrics")], rows).show(form)
    else:
        rows = ([*_when(r), *(r.metrics.get(name) for name in wanted)] for r in reports)
        Table([*columns, *_named(wanted)], rows).show(form)


def _named(names: list[str]) -> list[Column]:
    """Make a column for each metric; a narrow terminal shows the first."""
    first = next((name for name in names if name not in UNITS), None)
    ranks = [0 if name == first else 3 if name in UNITS else 1 for name in names]
    return [Column(name, name, rank=rank) for name, rank in zip(names, ranks, strict=True)]


def _reports(found: Trial, groups: list[str], names: list[str]) -> Iterator[TrialMetrics]:
    """Yield the reports of all groups in order of steps, each read as it is printed."""
    streams = [found.metrics(group) for group in groups]
    for report in heapq.merge(*streams, key=lambda report: report.steps_completed or 0):
        if any(name in report.metrics for name in names):
            yield report


def _when(report: TrialMetrics) -> list[Any]:
    return [report.steps_completed, report.group, report.end_time]


@trial.verb("download")
@options.trial_id
@click.option("--best", is_flag=True, help="The best one, by the searcher metric.")
@click.option("--latest", is_flag=True, help="The newest one.")
@click.option("--uuid", metavar="UUID", help="This one.")
@click.option("-o", "--output-dir", metavar="DIR", help="Default: checkpoints/<uuid>.")
@click.option("--sort-by", metavar="METRIC", help="With --best: by this validation metric.",
              shell_complete=options.metrics(dotted=False))  # fmt: skip
@click.option("--smaller-is-better", type=bool, metavar="true|false", help="Needed with --sort-by.")
@options.quiet
def download(trial_id: int, output_dir: str | None, quiet: bool, **which: Any) -> None:
    """Fetch one checkpoint of a trial; prints where it is."""
    if sum(bool(which[name]) for name in ("best", "latest", "uuid")) != 1:
        raise click.UsageError("Give exactly one of --best, --latest and --uuid.", click.get_current_context())
    if (which["sort_by"] is None) != (which["smaller_is_better"] is None) or (which["sort_by"] and not which["best"]):
        raise click.UsageError(
            "--sort-by and --smaller-is-better go together, and with --best.", click.get_current_context()
        )
    chosen = connect().get_trial(trial_id).select_checkpoint(**which)
    fetch(chosen, output_dir, quiet=quiet)


@trial.verb("kill")
@options.trial_id
def kill(trial_id: int) -> None:
    """End a trial now, without a last checkpoint. The other trials of its experiment go on."""
    connect().get_trial(trial_id).kill()
    terminal.say(f"Killed trial {trial_id}")


@trial.verb("stop")
@click.argument(
    "ids", metavar="ID[,ID]...", type=options.Ids(), nargs=-1, required=True, shell_complete=options.trial_ids
)
def stop(ids: tuple[list[int], ...]) -> None:
    """Ask running trials to save a checkpoint at the next safe point, and leave."""
    client = connect()
    for number in (number for part in ids for number in part):
        found = client.get_trial(number)
        found.stop()
        if found.state.is_terminal or found.state.value == "PAUSED":
            terminal.say(f"Trial {number} is {found.state.value}, so there is nothing to stop.")
        else:
            terminal.say(f"Trial {number}: asked to stop. Watch it end with: det trial logs -f {number}")
