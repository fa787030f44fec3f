"""`det checkpoint`: saved weights. Their ids may be typed in part, as long as only one begins so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from determined.cli import finding, options
from determined.cli.connection import connect
from determined.cli.groups import Group
from determined.cli.output import lists, terminal
from determined.cli.output.table import Column, Table
from determined.cli.output.values import Bytes, show_json, size

if TYPE_CHECKING:
    from determined.client import Checkpoint

FETCHED = ["Experiment ID", "Trial ID", "Steps Completed", "Report Time", "Checkpoint UUID", "Validation Metrics",
           "Metadata"]  # fmt: skip
uuid = click.argument("uuid", metavar="UUID")
uuids = click.argument("uuids", metavar="UUID[,UUID]...", nargs=-1, required=True)


@click.group(cls=Group, default="list")
def checkpoint() -> None:
    """Checkpoints: saved weights, and all that is needed to go on training."""


@checkpoint.verb("list", "ls")
@click.argument(
    "experiment_id", metavar="[EXPERIMENT]", type=int, required=False, shell_complete=options.experiment_ids
)
@click.option(
    "-t", "--trial", "trial_id", type=int, metavar="ID", help="Of this trial.", shell_complete=options.trial_ids
)
@click.option("--best", type=click.IntRange(min=1), metavar="N", help="Only the best N of those validated, best first.")
@options.paging()
@options.forms
def list_checkpoints(
    experiment_id: int | None, trial_id: int | None, best: int | None, limit: int | None, offset: int, form: str
) -> None:
    """List checkpoints, of an experiment, of a trial, or all; the newest last."""
    if best is not None and experiment_id is None and trial_id is None:
        raise click.UsageError("--best needs an experiment, or a trial with -t.", click.get_current_context())
    client = connect()
    found = finding.checkpoints(client, experiment_id=experiment_id, trial_id=trial_id, best=best)
    lists.checkpoints(found[offset:][:limit]).show(form)


@checkpoint.verb("describe")
@uuid
@options.forms
def describe(uuid: str, form: str) -> None:
    """Show where a checkpoint comes from, how good it is, and its files."""
    found = connect().get_checkpoint(uuid)
    if form == "json":
        show_json(found.to_dict())
        return
    columns = ["Experiment ID", "Trial ID", "# of Batches", "State", "Report Time", "UUID", "Validation Metrics",
               "Metadata", "Size"]  # fmt: skip
    row = [found.experiment_id, found.trial_id, found.steps_completed, str(found.state), found.report_time, found.uuid,
           found.validation_metrics, found.metadata, Bytes(found.size)]  # fmt: skip
    Table([Column(title) for title in columns], [row], "Checkpoint", is_description=True).show(form)
    terminal.write("\n")
    files = sorted((found.resources or {}).items())
    Table([Column("File"), Column("Size")], [(name, Bytes(count)) for name, count in files], "Files").show(form)


@checkpoint.verb("download")
@uuid
@click.option("-o", "--output-dir", metavar="DIR", help="Default: checkpoints/<uuid>.")
@click.option("--mode", type=click.Choice(["direct", "master", "auto"]), default="auto", help="All read the storage.")
@options.quiet
def download(uuid: str, output_dir: str | None, mode: str, quiet: bool) -> None:
    """Fetch a checkpoint's files; each is verified."""
    del mode  # there is no server in between
    fetch(connect().get_checkpoint(uuid), output_dir, quiet=quiet)


@checkpoint.verb("verify")
@uuids
def verify(uuids: tuple[str, ...]) -> None:
    """Read every byte and compare it with what was saved; exit 1 if anything differs."""
    client, bad = connect(), 0
    for uuid in split(uuids):
        found = client.get_checkpoint(uuid)
        problems = " ".join(found.verify())
        bad += bool(problems)
        terminal.write(f"{found.uuid}  {'damaged: ' + problems if problems else 'ok'}\n")
    if bad:
        raise click.ClickException(f"{bad} of {len(split(uuids))} checkpoints cannot be trusted.")


@checkpoint.verb("rm")
@uuids
@click.option("--glob", "globs", multiple=True, metavar="PATTERN", help="Remove only files that match. Repeatable.")
@options.yes
def remove(uuids: tuple[str, ...], globs: tuple[str, ...], yes: bool) -> None:
    """Remove files of checkpoints; without --glob, only look again which files there are."""
    client = connect()
    found = [client.get_checkpoint(uuid) for uuid in split(uuids)]
    if globs:
        terminal.ask(f"Remove files that match {', '.join(globs)} from {len(found)} checkpoints?", yes=yes)
    for each in found:
        each.remove_files(list(globs))
        each.reload()
        terminal.say(f"Checkpoint {each.uuid} is {each.state}, {len(each.resources or {})} files, {size(each.size)}")


@checkpoint.verb("delete")
@uuids
@options.yes
def delete(uuids: tuple[str, ...], yes: bool) -> None:
    """Delete checkpoints with all their files. Registered ones are refused."""
    client = connect()
    found = [client.get_checkpoint(uuid) for uuid in split(uuids)]
    total = size(sum(each.size for each in found))
    terminal.ask(f"Delete {len(found)} checkpoints ({total})? This cannot be undone.", yes=yes)
    for each in found:
        each.delete()
        terminal.say(f"Deleted checkpoint {each.uuid}")


def split(words: tuple[str, ...]) -> list[str]:
    """`a,b c` is a, b and c."""
    return [part for word in words for part in word.split(",") if part]


def fetch_all(found: Sequence[Checkpoint], directory: str | Path, *, quiet: bool) -> None:
    """Fetch several checkpoints, each into a directory of its own."""
    for checkpoint in found:
        fetch(checkpoint, Path(directory) / checkpoint.uuid, quiet=quiet)


def fetch(checkpoint: Checkpoint, directory: str | Path | None, *, quiet: bool) -> None:
    """Fetch one checkpoint and say where it is."""
    target = Path(directory) if directory else Path("checkpoints") / checkpoint.uuid
    with terminal.bar(f"Downloading {checkpoint.uuid[:8]}", quiet=quiet) as progress:
        path = checkpoint.download(target, progress=progress)
    terminal.write(f"{path}\n")
    if not quiet:
        row = [checkpoint.experiment_id, checkpoint.trial_id, checkpoint.steps_completed, checkpoint.report_time,
               checkpoint.uuid, checkpoint.validation_metrics, checkpoint.metadata]  # fmt: skip
        Table([Column(title) for title in FETCHED], [row], is_description=True).show()
