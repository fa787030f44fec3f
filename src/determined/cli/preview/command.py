"""`det preview-search`: what a search would train, counted; with --simulate also played on synthetic curves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from determined.cli import options
from determined.cli.groups import HELP_NAMES
from determined.cli.output import terminal
from determined.cli.output.table import Column, Table
from determined.cli.output.values import show_json, show_yaml

if TYPE_CHECKING:
    from determined.cli.preview.report import Report
    from determined.experiment.config.experiment_config import ExperimentConfig

USED = ("searcher", "hyperparameters")
USED_BY_SIMULATION = ("resources", "reproducibility", "max_restarts")
KINDS = (".svg", ".html", ".png")
PREVIEW = [Column("Trials"), Column("Training Time")]

seed_range = click.IntRange(0, 2**32 - 1)


@click.command("preview-search", context_settings=HELP_NAMES)
@click.argument("config", metavar="CONFIG")
@click.option("--simulate", "is_simulated", is_flag=True, help="Play the search on synthetic learning curves.")
@click.option("--slots", type=click.IntRange(min=1), metavar="N", help="Slots there are. Default: enough.")
@click.option("--seed", type=seed_range, metavar="N", help="Of the search. Default: the file's, or 0.")
@click.option("--curves-seed", type=seed_range, metavar="N", help="Of the learning curves. Default: 0.")
@click.option("--failures", type=click.FloatRange(0, 1), metavar="RATE", help="How likely a whole training crashes.")
@click.option("--invalid", type=click.FloatRange(0, 1), metavar="RATE", help="How likely a trial raises InvalidHP.")
@click.option("--period", type=click.IntRange(min=1), metavar="N", help="Units between validations. Default: often.")
@click.option(
    "--max-time", type=click.IntRange(min=1), metavar="N", help="Units of a training, if the file has none. [100]"
)
@click.option("-o", "--output", metavar="FILE", help="Draw the simulation into FILE: .svg, .html or .png.")
@options.forms
@click.pass_context
def preview_search(
    ctx: click.Context, /, config: str, is_simulated: bool, form: str, output: str | None, **given: Any
) -> None:
    """Say how many trials the search in the experiment file CONFIG would train, and for how long.

    Nothing is trained, and nothing is recorded. Of the file only searcher and hyperparameters are used; a
    simulation also uses slots_per_trial, max_slots, max_restarts and the seed.
    """
    unused = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]
    unused += ["-o"] if output is not None else []
    if unused and not is_simulated:
        raise click.UsageError(f"Only a simulation takes {', '.join(unused)}. Add --simulate.", ctx)
    if output is not None and Path(output).suffix not in KINDS:
        raise click.UsageError(f"{output} should end in {', '.join(KINDS[:-1])} or {KINDS[-1]}.", ctx)
    checked, has_seed = _read(config, is_simulated=is_simulated)
    report = _simulated(ctx, config, checked, has_seed, given) if is_simulated else None
    _show(checked, report, form, has_file=output is not None)
    if report is not None and output is not None:
        from determined.cli.plot import target
        from determined.cli.preview.curves import figures

        target.write_figures(figures(report), Path(output))
        terminal.say(f"Wrote {output}")


def _read(config: str, *, is_simulated: bool) -> tuple[ExperimentConfig, bool]:
    """Read and check the parts of the file that matter here; also return whether it has a seed."""
    from determined.errors import ConfigError
    from determined.experiment.config import experiment_file
    from determined.experiment.config.experiment_config import ExperimentConfig

    values = experiment_file.read(config).values
    used = (*USED, *USED_BY_SIMULATION) if is_simulated else USED
    try:
        checked = ExperimentConfig.parse({key: values[key] for key in used if key in values}, managed=False)
    except ConfigError as error:
        raise ConfigError(f"{config}: {error}") from None
    for sentence in checked.warnings:
        terminal.say(f"{config}: warning: {sentence}")
    seeds = values.get("reproducibility")
    return checked, isinstance(seeds, dict) and seeds.get("experiment_seed") is not None


def _show(checked: ExperimentConfig, report: Report | None, form: str, *, has_file: bool) -> None:
    from determined.experiment.simulation.preview import preview

    searcher = {key: value for key, value in checked.effective()["searcher"].items() if value is not None}
    counted = Table(PREVIEW, preview(searcher, checked.space))
    if searcher["name"] == "custom":
        terminal.say("A custom search decides as it goes, so nothing can be counted beforehand.")
    if form == "json":
        show_json(counted.records() if report is None else {"preview": counted.records(), **report.to_json()})
    elif form == "csv":
        (counted if report is None else report.table()).show("csv")
    else:
        terminal.write("Using search configuration:\n")
        show_yaml(searcher)
        terminal.write("\n")
        counted.show()
        if report is not None:
            _show_report(report, has_picture=not has_file)


def _show_report(report: Report, *, has_picture: bool) -> None:
    terminal.write("\n")
    report.table().show()
    terminal.write("\n" + "".join(f"{line}\n" for line in report.lines()))
    if has_picture:
        from determined.cli.plot import target
        from determined.cli.preview.curves import figures

        terminal.write("\n")
        target.show(figures(report)[:1])


def _simulated(
    ctx: click.Context, config: str, checked: ExperimentConfig, has_seed: bool, given: dict[str, Any]
) -> Report:
    """Play the search that the file describes."""
    from determined.cli.preview.report import Report
    from determined.experiment.search import methods
    from determined.experiment.simulation.play import MAX_TIME, World, simulate

    searcher = checked.effective()["searcher"]
    length, unit = _length(searcher)
    if given["max_time"] is not None and length is not None:
        raise click.UsageError(f"--max-time is of no use: the file says that trainings end at {length} {unit}.", ctx)
    seed = given["seed"] if given["seed"] is not None else checked.reproducibility.experiment_seed if has_seed else 0
    world = World(
        places=_places(checked, given["slots"]),
        max_time=length or given["max_time"] or MAX_TIME,
        period=given["period"],
        failures=given["failures"] or 0.0,
        invalid=given["invalid"] or 0.0,
        max_restarts=checked.max_restarts,
        curves_seed=given["curves_seed"] or 0,
    )
    # The user's own search method comes from the directory of the file.
    custom = methods.load(searcher, Path(config).parent) if searcher["name"] == "custom" else None
    played = simulate(searcher, checked.space, seed, world, custom)
    for warning in played.warnings:
        terminal.say(f"warning: {warning}")
    return Report(played, searcher, checked.space, unit, seed, world)


def _length(searcher: dict[str, Any]) -> tuple[int | None, str]:
    """Return how long a training is and its unit: as the searcher says, or as older files do."""
    if searcher.get("max_time") is not None:
        return int(searcher["max_time"]), str(searcher["time_metric"])
    length = searcher.get("max_length")
    if isinstance(length, dict):
        ((unit, count),) = ((unit, count) for unit, count in length.items() if count is not None)
        return int(count), str(unit)
    return (None, "units") if length is None else (int(length), "batches")


def _places(checked: ExperimentConfig, slots: int | None) -> int | None:
    """Return how many trials fit at a time."""
    slots, each = slots or checked.resources.max_slots or None, checked.resources.slots_per_trial
    if slots is None or not each:
        return slots
    if slots < each:
        raise click.ClickException(
            f"resources.slots_per_trial is {each}, and there are {slots} slots, so no trial would ever start."
        )
    return slots // each
