"""`det experiment validate` and `det experiment schema`: experiment files, before anything runs."""

from __future__ import annotations

import click

from determined.cli.output.terminal import say, write


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--config", "settings", multiple=True, metavar="KEY=VALUE", help="Change a value, as create does.")
@click.pass_context
def validate(ctx: click.Context, files: tuple[str, ...], settings: tuple[str, ...]) -> None:
    """Check experiment files, YAML or JSON, and say all that is wrong with them."""
    # A list and not any(): all files are checked, also after one that failed.
    results = [_is_valid(file, settings) for file in files]
    if not all(results):
        ctx.exit(1)


def _is_valid(file: str, settings: tuple[str, ...]) -> bool:
    from determined.errors import ConfigError
    from determined.experiment.config import experiment_file, layers
    from determined.experiment.config.experiment_config import ExperimentConfig
    from determined.experiment.config.positions import located

    read, typed = experiment_file.ConfigFile(file, "", {}), {}
    try:
        read = experiment_file.read(file)
        typed = layers.from_settings(settings, read.values)
        config = ExperimentConfig.parse(typed, read.values)
    except ConfigError as error:
        say(str(located(error, read.text, file, typed)), lines=True)
        return False
    for sentence in (*read.notes, *config.warnings):
        say(f"{file}: warning: {sentence}")
    write(f"{file}: ok\n")
    return True


@click.command()
def schema() -> None:
    """Print the JSON Schema of experiment files, so that editors complete and check them."""
    from determined.cli.output.values import show_json
    from determined.experiment.config.json_schema import schema as made

    show_json(made())
