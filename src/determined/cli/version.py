"""`det version`: which versions of what are installed, for a report of a bug."""

from __future__ import annotations

import platform
from importlib import metadata

import click

from determined._version import __version__
from determined.cli.groups import HELP_NAMES
from determined.cli.options import forms
from determined.cli.output.table import Column, Table
from determined.cli.output.values import show_json

SHOWN = ("torch", "numpy", "SQLAlchemy", "click", "tensorboard", "psycopg", "Pillow", "pandas", "optuna")


@click.command(context_settings=HELP_NAMES)
@forms
def version(form: str) -> None:
    """Say which versions of what are installed."""
    found = {"determined": __version__, "Python": platform.python_version(), "system": platform.platform()}
    found |= {name: text for name in SHOWN if (text := _installed(name))}
    if form == "json":
        show_json(found)
    else:
        Table([Column("Package"), Column("Version")], list(found.items())).show(form)


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
