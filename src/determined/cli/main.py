"""`det`: the door of the command line. Each noun has a module of its own, imported when that noun is typed."""

from __future__ import annotations

import click

from determined._version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", "-V", prog_name="det", message="%(prog)s %(version)s")
def main() -> None:
    """Train PyTorch models, stop anywhere, resume bit for bit."""
