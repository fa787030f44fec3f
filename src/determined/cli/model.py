"""`det model`: the model registry, names and numbers for checkpoints that matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from determined.cli import options
from determined.cli.connection import connect
from determined.cli.groups import Group
from determined.cli.output import terminal
from determined.cli.output.table import Column, Table
from determined.cli.output.values import show_json

if TYPE_CHECKING:
    from determined.client import Model, ModelVersion

MODEL = ["ID", "Name", "Creation Time", "Last Updated Time", "Metadata", "Labels", "Archived", "Description"]
VERSION = ["Version #", "Trial ID", "Batch #", "Checkpoint UUID", "Validation Metrics", "Metadata", "Name", "Notes"]
RANKS = {"Metadata": 3, "Labels": 2, "Last Updated Time": 4, "Archived": 5, "Description": 1, "Notes": 2}
SORTS = ["name", "description", "creation_time", "last_updated_time", "num_versions", "workspace"]
name_argument = click.argument("name", metavar="NAME")


@click.group(cls=Group, default="list")
def model() -> None:
    """Models: names for checkpoints that matter, with numbered versions."""


@model.verb("list", "ls")
@click.option("--sort-by", type=click.Choice(SORTS), default="name", show_default=True)
@click.option("--order-by", type=click.Choice(["asc", "desc"]), default="asc", show_default=True)
@options.forms
def list_models(sort_by: str, order_by: str, form: str) -> None:
    """List the models."""
    from determined.client import ModelSortBy, OrderBy

    order = OrderBy.ASC if order_by == "asc" else OrderBy.DESC
    _models(connect().list_models(ModelSortBy(sort_by.upper()), order)).show(form)


@model.verb("create")
@name_argument
@click.option("--description", default="", metavar="TEXT")
@click.option("--workspace", metavar="NAME", help="Default: Uncategorized.")
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def create(name: str, description: str, workspace: str | None, as_json: bool) -> None:
    """Make a model without versions."""
    made = connect().create_model(name, description=description, workspace_name=workspace)
    _models([made]).show("json" if as_json else "table")


@model.verb("describe")
@name_argument
@click.option("--version", type=int, metavar="N", help="This version. Default: the newest.")
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def describe(name: str, version: int | None, as_json: bool) -> None:
    """Show a model and one of its versions."""
    found = connect().get_model(name)
    chosen = found.get_version(-1 if version is None else version)
    versions = [chosen] if chosen else []
    if as_json:
        show_json({"model": _models([found]).records()[0], "versions": _versions(versions).records()})
        return
    _models([found], is_description=True).show()
    terminal.write("\n")
    _versions(versions).show()


@model.verb("list-versions", "lv")
@name_argument
@options.forms
def list_versions(name: str, form: str) -> None:
    """List the versions of a model, the newest first."""
    _versions(connect().get_model(name).list_versions()).show(form)


@model.verb("register-version")
@name_argument
@click.argument("uuid", metavar="UUID")
def register_version(name: str, uuid: str) -> None:
    """Make a checkpoint the next version of a model; it can no longer be deleted."""
    client = connect()
    made = client.get_model(name).register_version(client.get_checkpoint(uuid).uuid)
    terminal.say(f"Registered version {made.model_version} of {name}.")


@model.verb("delete")
@name_argument
@options.yes
def delete(name: str, yes: bool) -> None:
    """Delete a model. Its checkpoints stay."""
    found = connect().get_model(name)
    terminal.ask(f"Delete model {name} and its versions? Its checkpoints stay.", yes=yes)
    found.delete()
    terminal.say(f"Deleted model {name}.")


@model.verb("move")
@name_argument
@click.argument("workspace")
def move(name: str, workspace: str) -> None:
    """Move a model to another workspace."""
    connect().get_model(name).move_to_workspace(workspace)
    terminal.say(f"Moved model {name} to {workspace}.")


def _models(found: Sequence[Model], *, is_description: bool = False) -> Table:
    rows = [
        [m.model_id, m.name, m.creation_time, m.last_updated_time, m.metadata, m.labels, m.archived, m.description]
        for m in found
    ]
    return Table([Column(title, rank=RANKS.get(title, 0)) for title in MODEL], rows, is_description=is_description)


def _versions(found: Sequence[ModelVersion]) -> Table:
    rows = []
    for version in found:
        checkpoint = version.checkpoint
        rows.append(
            [version.model_version, checkpoint.trial_id, checkpoint.steps_completed, checkpoint.uuid,
             checkpoint.validation_metrics, version.metadata, version.name, version.notes]
        )  # fmt: skip
    return Table([Column(title, rank=RANKS.get(title, 0)) for title in VERSION], rows)
