"""`det workspace`: rooms for projects."""

from __future__ import annotations

import click

from determined.cli import options, terminal
from determined.cli.connection import connect
from determined.cli.groups import Group
from determined.cli.render import Column, Table

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
