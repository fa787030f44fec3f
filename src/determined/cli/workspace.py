"""`det workspace` and `det project`: where experiments and models are filed."""

from __future__ import annotations

import click

from determined.cli import finding, options
from determined.cli.connection import connect
from determined.cli.groups import Group
from determined.cli.output import lists, terminal
from determined.cli.output.table import Column, Table

workspace_argument = click.argument("workspace", metavar="WORKSPACE")
name_argument = click.argument("name", metavar="NAME")


@click.group(cls=Group, default="list")
def workspace() -> None:
    """Workspaces: rooms for projects and models."""


@workspace.verb("list", "ls")
@options.forms
def list_workspaces(form: str) -> None:
    """List the workspaces."""
    rows = [[w.id, w.name, len(w.list_projects()), w.archived] for w in connect().list_workspaces()]
    Table([Column("ID"), Column("Name"), Column("# Projects", "projects"), Column("Archived")], rows).show(form)


@workspace.verb("create")
@name_argument
def create(name: str) -> None:
    """Make a workspace."""
    made = connect().create_workspace(name)
    terminal.say(f"Created workspace {made.name} ({made.id}).")


@workspace.verb("list-projects", "lp")
@name_argument
@options.forms
def list_projects(name: str, form: str) -> None:
    """List the projects of a workspace."""
    rows = [[p.id, p.name, p.description, p.archived] for p in connect().get_workspace(name).list_projects()]
    Table([Column("ID"), Column("Name"), Column("Description"), Column("Archived")], rows).show(form)


@workspace.verb("delete")
@name_argument
@options.yes
def delete(name: str, yes: bool) -> None:
    """Delete a workspace, if it is empty."""
    terminal.ask(f"Delete workspace {name}?", yes=yes)
    connect().delete_workspace(name)
    terminal.say(f"Deleted workspace {name}.")


@click.group(cls=Group, default="list")
def project() -> None:
    """Projects: folders for experiments. Move one there with: det experiment move ID WORKSPACE PROJECT."""


@project.verb("list", "ls")
@click.argument("workspace", metavar="[WORKSPACE]", required=False)
@options.forms
def list_all_projects(workspace: str | None, form: str) -> None:
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
def create_project(workspace: str, name: str, description: str) -> None:
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
    lists.experiments(client, found, form).show(form)


@project.verb("delete")
@workspace_argument
@name_argument
@options.yes
def delete_project(workspace: str, name: str, yes: bool) -> None:
    """Delete a project, if it is empty."""
    found = connect().get_workspace(workspace).get_project(name)
    terminal.ask(f"Delete project {workspace}/{name}?", yes=yes)
    found.delete()
    terminal.say(f"Deleted project {workspace}/{name}.")
