"""`det project`: folders for experiments."""

from __future__ import annotations

import click

from determined.cli import finding, options, tables, terminal
from determined.cli.connection import connect
from determined.cli.groups import Group
from determined.cli.render import Column, Table

workspace_argument = click.argument("workspace", metavar="WORKSPACE")
name_argument = click.argument("name", metavar="NAME")


@click.group(cls=Group, default="list")
def project() -> None:
    """Projects: folders for experiments. Move one there with: det experiment move ID WORKSPACE PROJECT."""


@project.verb("list", "ls")
@click.argument("workspace", metavar="[WORKSPACE]", required=False)
@options.forms
def list_projects(workspace: str | None, form: str) -> None:
    """List projects, of one workspace or of all."""
    client = connect()
    chosen = [client.get_workspace(workspace)] if workspace else client.list_workspaces()
    rows = [[w.name, p.id, p.name, p.description, p.archived] for w in chosen for p in w.list_projects()]
    columns = [Column("Workspace"), Column("ID"), Column("Name"), Column("Description"), Column("Archived")]
    Table(columns, rows).show(form)


@project.verb("create")
@workspace_argument
@name_argument
@click.option("--description", default="", metavar="TEXT")
def create(workspace: str, name: str, description: str) -> None:
    """Make a project in a workspace."""
    made = connect().get_workspace(workspace).create_project(name, description=description)
    terminal.say(f"Created project {made.name} ({made.id}) in {workspace}.")


@project.verb("list-experiments", "le")
@workspace_argument
@name_argument
@options.forms
def list_experiments(workspace: str, name: str, form: str) -> None:
    """List the experiments of a project, everybody's."""
    client = connect()
    chosen = client.get_workspace(workspace).get_project(name)
    found, _ = finding.experiments(client, owners=None, project_id=chosen.id)
    tables.experiments(client, found, form).show(form)


@project.verb("delete")
@workspace_argument
@name_argument
@options.yes
def delete(workspace: str, name: str, yes: bool) -> None:
    """Delete a project, if it is empty."""
    found = connect().get_workspace(workspace).get_project(name)
    terminal.ask(f"Delete project {workspace}/{name}?", yes=yes)
    found.delete()
    terminal.say(f"Deleted project {workspace}/{name}.")
