"""`det trial plot`: which curves are meant, and where they are drawn: in the terminal, or into a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from determined._wording import instead
from determined.cli import options
from determined.cli.connection import connect
from determined.cli.groups import HELP_NAMES
from determined.cli.output import terminal
from determined.cli.output.values import cell, number
from determined.cli.plot import target
from determined.cli.plot.figure import Curve, Figure

if TYPE_CHECKING:
    from determined import client

GROUPS = ("validation", "training")  # where a metric is looked for first
FILE_BUCKETS = 800
MOST_HPARAMS = 3


@click.command(context_settings=HELP_NAMES)
@click.argument(
    "ids", metavar="ID[,ID]...", type=options.Ids(), nargs=-1, required=True, shell_complete=options.trial_ids
)
@click.option("-m", "--metric", "names", multiple=True, metavar="NAME",
              help="Such as loss or validation.loss. Repeatable.", shell_complete=options.metrics())  # fmt: skip
@target.option
@click.option("--log", "log_y", is_flag=True, help="Logarithmic heights.")
@click.option("--from", "first", type=int, metavar="STEPS", help="Begin at this step.")
@click.option("--to", "last", type=int, metavar="STEPS", help="End at this step.")
def plot(
    ids: tuple[list[int], ...],
    names: tuple[str, ...],
    file: Path | None,
    log_y: bool,
    first: int | None,
    last: int | None,
) -> None:
    """Draw the curves of trials ID... over each other.

    Without -m it is the searcher metric, or else the loss. A metric that was reported in training and in
    validation is drawn twice.
    """
    store = connect()
    trials = [store.get_trial(number) for part in ids for number in part]
    buckets = FILE_BUCKETS if file else 2 * terminal.width()
    figures = [
        figure_of(trials, name, buckets=buckets, log_y=log_y, first=first, last=last)
        for name in names or (usual_metric(trials),)
    ]
    if file is None:
        target.show(figures)
    else:
        target.write_figures(figures, file)
        terminal.say(f"Wrote {file}")


def usual_metric(trials: Sequence[client.Trial]) -> str:
    """Return the metric to draw by default: the searcher's, or the loss, or the first one."""
    known = [f"{group}.{name}" for trial in trials for group, names in reported(trial).items() for name in names]
    if not known:
        raise click.ClickException(f"{_of(trials)} reported nothing to draw yet.")
    for trial in trials:
        if trial.searcher_metric and f"validation.{trial.searcher_metric}" in known:
            return trial.searcher_metric
    for group in GROUPS:
        losses = sorted(name for name in known if name.startswith(f"{group}.") and "loss" in name)
        if losses:
            return losses[0].partition(".")[2]
    return known[0]


def reported(trial: client.Trial) -> dict[str, list[str]]:
    """Return the names of numbers that a trial reported, by group, those of the machine last."""
    known = trial.metric_names()
    return {group: known[group] for group in [*GROUPS, *sorted(known.keys() - set(GROUPS))] if group in known}


def figure_of(
    trials: Sequence[client.Trial], wanted: str, *, buckets: int, log_y: bool, first: int | None, last: int | None
) -> Figure:
    """Make a figure of one metric of several trials."""
    from determined.client._compare import summary

    chosen = [(trial, group, name) for trial in trials for group, name in _matching(trial, wanted)]
    if not chosen:
        known = sorted({f"{g}.{n}" for trial in trials for g, names in reported(trial).items() for n in names})
        raise click.ClickException(f"{_of(trials)} reported no {wanted!r}.{instead(wanted, known)}")
    groups = {group for _, group, _ in chosen}
    curves: list[Curve] = []
    for trial, group, name in chosen:
        data = trial.curve(name, group, buckets=buckets, first=first, last=last)
        ended = summary(trial, group, name).get("last") if last is None else None
        words = [f"trial {trial.id}", group if len(groups) > 1 else "", told_apart_by(trial, trials)]
        label = " ".join(word for word in words if word)
        is_dashed = len(trials) > 1 and group == "training"
        curves.append(curve_of(data, label, _note(data, ended), colour=len(curves), is_dashed=is_dashed))
    if not any(curve.x for curve in curves):
        where = "" if first is None and last is None else " in these steps"
        raise click.ClickException(
            f"{_of(trials)} reported no number of {wanted!r}{where}, so there is nothing to draw."
        )
    name = chosen[0][2]
    return Figure(f"{groups.pop()} {name}" if len(groups) == 1 else name, curves, log_y=log_y)


def told_apart_by(trial: client.Trial, trials: Sequence[client.Trial]) -> str:
    """Return the hyperparameters that differ between the trials drawn, at most three, for the legend."""
    from determined.client._compare import differing

    mine = differing([trial.hparams, *(each.hparams for each in trials)])[0]
    return " ".join(f"{name}={cell(mine[name])}" for name in sorted(mine)[:MOST_HPARAMS])


def _matching(trial: client.Trial, wanted: str) -> list[tuple[str, str]]:
    """(group, name) of what is meant by `loss`, or by `validation.loss`."""
    known = reported(trial)
    group, _, name = wanted.replace("/", ".", 1).partition(".")
    if name and name in known.get(group, ()):
        return [(group, name)]
    return [(group, wanted) for group, names in known.items() if wanted in names]


def curve_of(data: client.Curve, label: str, note: str, *, colour: int, is_dashed: bool) -> Curve:
    """Make a curve of a metric; a bucket without a finite value is a gap."""
    nothing = math.nan
    values = [nothing if y is None else y for y in data.mean]
    many = any(count > 1 for count in data.count)
    return Curve(
        label,
        data.steps,
        values,
        [nothing if y is None else y for y in data.min] if many else None,
        [nothing if y is None else y for y in data.max] if many else None,
        [step for step, odd in zip(data.steps, data.odd, strict=True) if odd],
        note,
        colour,
        is_dashed,
    )


def _note(data: client.Curve, ended: Any = None) -> str:
    """Describe a curve: last value and extremes; `~` marks the step of a bucket of several values."""
    spots = [
        (low, high, f"{'~' if count > 1 else ''}{step}")
        for low, high, step, count in zip(data.min, data.max, data.steps, data.count, strict=True)
        if low is not None and high is not None
    ]
    odd = f"   {sum(data.odd)} NaN or infinite" if any(data.odd) else ""
    if not spots:
        return odd.strip()
    lowest, highest = min(spots, key=lambda spot: spot[0]), max(spots, key=lambda spot: spot[1])  # the first of equals
    is_drawn = isinstance(ended, (int, float)) and lowest[0] <= ended <= highest[1]  # a short window may be joined
    last = ended if is_drawn else next(y for y in reversed(data.mean) if y is not None)
    low, high = f"min {number(lowest[0])} at {lowest[2]}", f"max {number(highest[1])} at {highest[2]}"
    return f"last {number(last)}   {low}   {high}{odd}"


def _of(trials: Sequence[client.Trial]) -> str:
    return f"Trial {trials[0].id}" if len(trials) == 1 else f"Trials {', '.join(str(trial.id) for trial in trials)}"
