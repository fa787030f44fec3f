"""`det experiment`: looking at experiments. Changing them is in `experiment_edit.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from determined._redact import redacted
from determined.cli import finding, options
from determined.cli.checkpoint import fetch_all
from determined.cli.connection import connect, owners
from determined.cli.groups import Group, Late
from determined.cli.output import description as descriptions
from determined.cli.output import lists, terminal
from determined.cli.output.logs import show_logs
from determined.cli.output.values import show_yaml

EDIT = "determined.cli.experiment_edit"
SUBMISSION = "determined.cli.submission"
LATE = {
    "create": Late(f"{SUBMISSION}.create:create", "Submit an experiment: check it, copy its code, run it."),
    "fork": Late(f"{SUBMISSION}.again:fork", "Submit the code of an experiment again, with changes."),
    "continue": Late(f"{SUBMISSION}.again:continue_experiment", "Let an experiment that has ended go on."),
    "watch": Late("determined.cli.running.watch:watch", "Follow an experiment in a live table."),
    "best": Late("determined.cli.running.results:best", "The best trial, and its checkpoint."),
    "metrics": Late("determined.cli.running.results:metrics", "The metrics of each trial."),
    "rungs": Late("determined.cli.running.results:rungs", "What an ASHA search decided at each rung."),
    "verify": Late("determined.cli.running.results:verify", "Compare the stored events with what came of them."),
    "activate": Late(f"{EDIT}:activate", "Let experiments run."),
    "pause": Late(f"{EDIT}:pause", "Have trials checkpoint and wait."),
    "cancel": Late(f"{EDIT}:cancel", "Have trials checkpoint and end."),
    "kill": Late(f"{EDIT}:kill", "End trials now."),
    "archive": Late(f"{EDIT}:archive", "Hide experiments from lists."),
    "unarchive": Late(f"{EDIT}:unarchive", "Show archived experiments again."),
    "delete": Late(f"{EDIT}:delete", "Delete experiments with their checkpoints."),
    "undelete": Late(f"{EDIT}:undelete", "Bring a deleted experiment back."),
    "set": Late(f"{EDIT}:set_group", "Change name, description, notes or what is kept."),
    "label": Late(f"{EDIT}:label", "Add and remove labels."),
    "move": Late(f"{EDIT}:move", "Move an experiment to another project."),
    "plot": Late("determined.cli.plot.experiment_plot:plot", "Draw a search: curves, hyperparameters, importance."),
    "validate": Late("determined.cli.config_file:validate", "Check an experiment file."),
    "schema": Late("determined.cli.config_file:schema", "The JSON Schema of experiment files."),
}


@click.group(cls=Group, default="list", late=LATE)
def experiment() -> None:
    """Experiments: a search with its trials, or a run of `python train.py`, which is an experiment of one trial."""


@experiment.verb("list", "ls")
@click.option("-a", "--all", "show_all", is_flag=True, help="Also archived ones and other people's.")
@click.option("--show_project", "--show-project", is_flag=True, help="Also workspace and project.")
@click.option("--state", "states", multiple=True, type=options.State(), help="Only in this state. Repeat for several.")
@click.option(
    "--label", "labels", multiple=True, metavar="LABEL", help="Only with this label. Repeat for all of several."
)
@click.option("--name", metavar="TEXT", help="Only those whose name contains this.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@click.option(
    "--sort-by", type=click.Choice(["best", *finding.SORTS]), help="Default: id; with --metric, best: the best first."
)
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option("-m", "--metric", metavar="NAME", help="Show and sort by the best value of this metric instead.",
              shell_complete=options.metrics())  # fmt: skip
@click.option(
    "--smaller-is-better/--larger-is-better",
    default=None,
    help="With --metric. Default: as its runs say, else smaller.",
)
@options.paging()
@options.forms
def list_experiments(show_project: bool, form: str, show_all: bool, **chosen: Any) -> None:
    """List experiments, the newest last."""
    if chosen["smaller_is_better"] is not None and chosen["metric"] is None:
        raise click.UsageError("Name the metric that is meant with --metric.", click.get_current_context())
    client = connect()
    found, scores = finding.experiments(
        client, owners=owners(client, everyone=show_all), archived=None if show_all else False, **chosen
    )
    lists.experiments(client, found, form, scores, show_project=show_project, show_archived=show_all).show(form)
    if not found and form == "table":
        terminal.say("No experiment. Start one with: python train.py. Or see other people's with: det experiment ls -a")


@experiment.verb("describe")
@click.argument("ids", metavar="ID[,ID]", type=options.Ids(), shell_complete=options.experiment_ids)
@click.option("--metrics", is_flag=True, help="Also the metrics of every step.")
@click.option("--outdir", metavar="DIR", help="Write experiments.csv, trials.csv and workloads.csv into DIR.")
@options.forms
def describe(ids: list[int], metrics: bool, outdir: str | None, form: str) -> None:
    """Show experiments, their trials, and what those did."""
    if outdir and form != "table":
        raise click.UsageError(
            "--outdir writes CSV by itself; leave out --csv and --json.", click.get_current_context()
        )
    client = connect()
    found = [client.get_experiment(number) for number in ids]
    descriptions.show(found, with_metrics=metrics, form=form, outdir=outdir)
    if form == "table" and not outdir:
        from determined.cli.running.results import show_rungs

        for one in found:
            show_rungs(one)


@experiment.verb("config")
@options.experiment_id
def config(experiment_id: int) -> None:
    """Print the effective configuration as YAML, secrets masked."""
    show_yaml(redacted(connect().get_experiment(experiment_id).config))


@experiment.verb("logs")
@options.experiment_id
@click.option("-t", "--trial", "trial_id", type=int, metavar="ID", help="Of this trial instead of the first.",
              shell_complete=options.trial_ids)  # fmt: skip
@options.log_filters
def logs(experiment_id: int, trial_id: int | None, **filters: Any) -> None:
    """Print the log of the experiment's first trial, or of another. -f also waits for a trial to be there."""
    client = connect()
    chosen = client.get_experiment(experiment_id)
    if trial_id is not None:
        found = client.get_trial(trial_id)
        if found.experiment_id != experiment_id:
            raise click.ClickException(
                f"Trial {trial_id} is one of experiment {found.experiment_id}, not {experiment_id}. "
                f"Read its log with: det trial logs {trial_id}"
            )
    elif filters["follow"]:
        found = chosen.await_first_trial()
    elif first := chosen.list_trials(limit=1):
        found = first[0]
    else:
        raise click.ClickException(f"Experiment {experiment_id} has no trial yet. Wait for it with -f.")
    show_logs(found, **filters)


@experiment.verb("list-trials", "lt")
@options.experiment_id
@options.paging()
@options.forms
def list_trials(experiment_id: int, limit: int | None, offset: int, form: str) -> None:
    """List the trials of an experiment."""
    found = connect().get_experiment(experiment_id).list_trials()
    lists.trials(found[offset:][:limit]).show(form)


@experiment.verb("list-checkpoints", "lc")
@options.experiment_id
@click.option("--best", type=click.IntRange(min=1), metavar="N", help="Only the best N of those validated, best first.")
@options.forms
def list_checkpoints(experiment_id: int, best: int | None, form: str) -> None:
    """List the checkpoints of an experiment, the newest last."""
    lists.checkpoints(finding.checkpoints(connect(), experiment_id=experiment_id, best=best)).show(form)


@experiment.verb("download")
@options.experiment_id
@click.option("-o", "--output-dir", default="checkpoints", show_default=True, metavar="DIR")
@click.option(
    "--top-n", type=click.IntRange(min=1), default=1, show_default=True, help="Of how many trials, the best first."
)
@click.option("--sort-by", metavar="METRIC", help="By this validation metric. Default: the searcher's.",
              shell_complete=options.metrics(dotted=False))  # fmt: skip
@click.option("--smaller-is-better", type=bool, metavar="true|false", help="Needed with --sort-by.")
@options.quiet
def download(
    experiment_id: int, output_dir: str, top_n: int, sort_by: str | None, smaller_is_better: bool | None, quiet: bool
) -> None:
    """Fetch the best checkpoint of each of the best trials into DIR/<uuid>/."""
    if (sort_by is None) != (smaller_is_better is None):
        raise click.UsageError("Give both --sort-by and --smaller-is-better, or neither.", click.get_current_context())
    found = connect().get_experiment(experiment_id)
    best = found.top_n_checkpoints(top_n, sort_by, smaller_is_better) or [
        found.top_checkpoint(sort_by, smaller_is_better)  # says why there is none
    ]
    fetch_all(best, output_dir, quiet=quiet)


@experiment.verb("download-model-def")
@options.experiment_id
@click.option("--output-dir", default=".", show_default=True, metavar="DIR")
def download_model_def(experiment_id: int, output_dir: str) -> None:
    """Fetch the code that was submitted, as experiment_<id>_model_def.tgz."""
    fetched = Path(connect().get_experiment(experiment_id).download_code(output_dir))
    terminal.write(f"{fetched.replace(fetched.with_name(f'experiment_{experiment_id}_model_def.tgz'))}\n")


@experiment.verb("wait")
@options.experiment_id
@click.option("--polling-interval", type=click.FloatRange(min=0.01), default=5.0, show_default=True, metavar="SECONDS")
def wait(experiment_id: int, polling_interval: float) -> None:
    """Wait until the experiment has ended; exit 0 only if it is COMPLETED."""
    state = connect().get_experiment(experiment_id).wait(interval=polling_interval)
    if str(state) != "COMPLETED":
        raise click.ClickException(f"Experiment {experiment_id} ended as {state}.")
    terminal.say(f"Experiment {experiment_id} is COMPLETED.")
