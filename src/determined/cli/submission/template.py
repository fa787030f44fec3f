"""`det template`: parts of experiment files, kept by name. `det experiment create --template NAME` uses one."""

from __future__ import annotations

import click

from determined.cli.groups import Group
from determined.cli.output.terminal import say, write


@click.group(cls=Group, default="list")
def template() -> None:
    """Templates: what several experiment files have in common, such as where checkpoints go."""


@template.verb("list", "ls")
def list_templates() -> None:
    """List the names of all templates."""
    from determined.experiment.submission import templates

    found = templates.names()
    write("".join(f"{name}\n" for name in found))
    if not found:
        say("No template. Keep one with: det template set NAME FILE")


@template.verb("set")
@click.argument("name")
@click.argument("file", metavar="FILE")
def set_template(name: str, file: str) -> None:
    """Keep FILE, a part of an experiment file, as the template NAME."""
    from determined.experiment.submission import templates

    templates.save(name, file)
    say(f"Set template {name}. Use it with: det experiment create CONFIG DIR --template {name}")


@template.verb("describe")
@click.argument("name")
def describe(name: str) -> None:
    """Print a template."""
    from determined.experiment.submission import templates

    text = templates.find(name).text
    write(text if text.endswith("\n") else f"{text}\n")


@template.verb("remove", "rm")
@click.argument("name")
def remove(name: str) -> None:
    """Remove a template."""
    from determined.experiment.submission import templates

    templates.remove(name)
    say(f"Removed template {name}")
