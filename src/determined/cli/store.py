"""`det store`: the database of runs itself."""

from __future__ import annotations

import click

from determined.cli import options, terminal
from determined.cli.connection import connect
from determined.cli.groups import Group
from determined.cli.render import Column, Table, show_json, size


@click.group(cls=Group, default="info")
def store() -> None:
    """The store: where runs are remembered. It is a file of yours, or a PostgreSQL database."""
