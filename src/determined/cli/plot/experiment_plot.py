"""`det experiment plot`: the pictures of a search, in the terminal or in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from determined.cli import options
from determined.cli.connection import connect
from determined.cli.groups import HELP_NAMES
from determined.cli.output import terminal
from determined.cli.plot import target
from determined.cli.plot.search_axes import Search, search_of

if TYPE_CHECKING:
    from determined import client
    from determined.cli.plot.shapes import Drawing
    from determined.client._search.results import SearchResults

KINDS = ("curves", "parallel", "scatter", "heatmap", "importance")
MOST = {"curves": 6, "parallel": 10, "scatter": 12, "heatmap": 6, "importance": 0}  # hyperparameters without --hparam
TERMINAL_LINES = 10  # of one scatter plot of several


@click.command(context_settings=HELP_NAMES)
@options.experiment_id
@click.option("--curves", is_flag=True, help="The metric over training, of the best trials. This is the default.")
@click.option("--parallel", is_flag=True, help="Parallel coordinates: a line per trial through its hyperparameters.")
@click.option("--scatter", is_flag=True, help="Each hyperparameter against the metric.")
@click.option("--heatmap", is_flag=True, help="Each pair of hyperparameters, coloured by the best value there.")
@click.option("--importance", is_flag=True, help="How much of the metric's variance each hyperparameter explains.")
@click.option("-m", "--metric", metavar="NAME", help="Such as loss or training.loss. Default: the searcher metric.",
              shell_complete=options.metrics())  # fmt: skip
@click.option("--smaller-is-better/--larger-is-better", default=None,
              help="With --metric. Default: as the experiment says, else smaller.")  # fmt: skip
@click.option("--hparam", "picked", multiple=True, metavar="NAME",
              help="Only this hyperparameter; nested ones with dots. Repeatable.")  # fmt: skip
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, metavar="N",
              help="With --curves: so many trials.")  # fmt: skip
@click.option("--x", "over", type=click.Choice(["batches", "epochs", "time"]), default="batches", show_default=True,
              help="With --curves: what training is measured in.")  # fmt: skip
@click.option("--log/--linear", default=None,
              help="The scale of the metric. Default: linear, but for curves that differ much.")  # fmt: skip
@target.option
def plot(
    experiment_id: int,
    metric: str | None,
    smaller_is_better: bool | None,
    picked: tuple[str, ...],
    top: int,
    over: str,
    log: bool | None,
    file: Path | None,
    **kinds: bool,
) -> None:
    """Draw experiment ID: the curves of its best trials, or what its hyperparameters did.

    Of a search that stops trials early the best trials are those that trained longest, then by metric; of others by
    metric alone.
    """
    named = [kind for kind in KINDS if kinds[kind]]
    if len(named) > 1:
        raise click.UsageError(f"--{named[0]} and --{named[1]} exclude each other.", click.get_current_context())
    kind = named[0] if named else "curves"
    if file is None and kind in ("parallel", "heatmap"):
        raise click.UsageError(
            f"--{kind} needs a file: add -o {kind}.svg, or .html, or .png.", click.get_current_context()
        )
    experiment = connect().get_experiment(experiment_id)
    found = experiment.search_results(metric, smaller_is_better=smaller_is_better)
    if kind != "curves":
        refuse(experiment, found, kind)
    search = search_of(experiment, found, picked, most=MOST[kind] or len(found.hyperparameters), log=bool(log))
    if kind == "heatmap" and len(search.hyperparameters) < 2:
        raise click.ClickException(
            f"A heat map needs two hyperparameters, and {search.hyperparameters[0].name} is only one. "
            f"Try: det experiment plot {experiment_id} --scatter"
        )
    if file is None:
        show(experiment, search, kind, top=top, over=over, log=log)
    else:
        target.write(draw(experiment, search, kind, top=top, over=over, log=log), file)
        terminal.say(f"Wrote {file}")


def refuse(experiment: client.Experiment, found: SearchResults, kind: str) -> None:
    """Raise for a search that has nothing to compare."""
    from determined.client._search.importance import FEWEST_TRIALS

    curves = f"Draw its curves: det experiment plot {experiment.id}"
    if len(found.results) == 1:
        raise click.ClickException(f"Experiment {experiment.id} has one trial, and --{kind} compares several. {curves}")
    if not found.hyperparameters:
        raise click.ClickException(
            f"All {len(found.results)} trials of experiment {experiment.id} have the same hyperparameters, "
            f"so --{kind} has nothing to compare. {curves}"
        )
    if kind == "importance" and len(found.measured) < FEWEST_TRIALS:
        raise click.ClickException(
            f"--importance needs {FEWEST_TRIALS} trials or more with a value of {found.metric}, and experiment "
            f"{experiment.id} has {len(found.measured)}. See them: det experiment plot {experiment.id} --scatter"
        )


def draw(experiment: client.Experiment, search: Search, kind: str, *, top: int, over: str, log: bool | None) -> Drawing:
    """Make the picture for a file."""
    from determined.cli.plot import bars, drawing, heatmap, parallel, search_figures
    from determined.client._search.importance import importance

    if kind == "parallel":
        return parallel.parallel_drawing(search)
    if kind == "scatter":
        return search_figures.scatter_drawing(search, search_figures.scatter_figures(search))
    if kind == "heatmap":
        return heatmap.heatmap_drawing(search)
    if kind == "importance":
        return bars.bars_drawing(importance(search.found), search.title)
    return drawing.lay_out([search_figures.curves_figure(experiment, search, top=top, over=over, log=log)])


def show(experiment: client.Experiment, search: Search, kind: str, *, top: int, over: str, log: bool | None) -> None:
    """Draw into the terminal."""
    from determined.cli.plot import bars, search_figures, text
    from determined.client._search.importance import importance

    if kind == "importance":
        picture = bars.bars_text(importance(search.found), search.title, target.look(0))
        terminal.write(picture, colours=True)
    elif kind == "scatter":
        figures = search_figures.terminal_figures(search, search_figures.scatter_figures(search))
        look = target.look(3, most=TERMINAL_LINES if len(figures) > 1 else None)
        terminal.write("\n".join(text.draw(figure, look) for figure in figures), colours=True)
    else:
        target.show([search_figures.curves_figure(experiment, search, top=top, over=over, log=log)])
