"""The picture of a simulated search: learning curves that end where trials were stopped, and what was found when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from determined.cli.output.values import cell
from determined.cli.plot.figure import Curve, Figure
from determined.cli.preview.report import short

if TYPE_CHECKING:
    from determined.cli.preview.report import Group, Report
    from determined.experiment.simulation.result import SimulatedTrial, Simulation

BEST, MISSED, FAILED = 1, 3, 6
RUNGS = (0, 2, 5, 4, 7)  # from the end of training down: the fewer trials, the stronger the colour


def figures(report: Report) -> list[Figure]:
    """Draw the curves of all trials; if some were stopped, also the best value against training spent."""
    has_both = report.played.saved() > 0 and bool(report.played.found)
    return [_curves(report), _found(report)] if has_both else [_curves(report)]


def _curves(report: Report) -> Figure:
    played = report.played
    curves: list[Curve] = []
    if (best := played.best()) is not None:
        note = f"{short(played.best_of(best))}   {cell(best.hparams)}"
        curves.append(
            Curve(f"best found: trial {best.number}", *_line(report, best, best.seen), note=note, colour=BEST)
        )
        possible = played.best_possible()
        if possible is not None and possible is not best:
            note = f"would have reached {short(played.potential_of(possible))}, saw {possible.reached} {report.unit}"
            whole = _line(report, possible, len(possible.values))
            curves.append(Curve(f"missed: trial {possible.number}", *whole, note=note, colour=MISSED, is_dashed=True))
    groups = [group for group in reversed(report.groups()) if any(trial.seen for trial in group.trials)]
    colours = iter(RUNGS)
    for group in groups:
        curves.append(_bundle(report, group, FAILED if group.units < 0 else next(colours, RUNGS[-1])))
    count = len(played.trained())
    title = f"{report.searcher['metric']} of {count:,} simulated trial{'s' * (count > 1)}"
    if played.saved() > 0:
        title += f", {played.saved() * 100:.0f} % of the training saved"
    return Figure(title, curves, report.unit, log_x=len(report.rungs()) > 1)


def _bundle(report: Report, group: Group, colour: int) -> Curve:
    """Join all curves that ended alike into one, with gaps between them and a mark at the end of each."""
    x: list[float] = []
    y: list[float] = []
    for trial in group.trials:
        steps, values = _line(report, trial, trial.seen)
        x += [*steps, math.nan, *steps[-1:], math.nan]
        y += [*values, math.nan, *values[-1:], math.nan]
    at_end = group.units == report.played.max_time
    label = "trained to the end" if at_end else group.label if group.units < 0 else f"stopped at {group.label}"
    values = [report.played.best_of(trial) for trial in group.trials if trial.seen]
    best = min(values) if report.played.smaller_is_better else max(values)
    count = f"{len(group.trials):,} trial{'s' * (len(group.trials) > 1)}"
    return Curve(label, x, y, note=f"{count}, best {short(best)}", colour=colour, is_bundle=True)


def _line(report: Report, trial: SimulatedTrial, count: int) -> tuple[Sequence[float], Sequence[float]]:
    return report.played.moments[:count], trial.values[:count]


def _found(report: Report) -> Figure:
    """This search against training all of its trials to the end, as many at a time."""
    played = report.played
    x, y = _stair([(step.units, step.value) for step in played.found], played.units)
    search = Curve(str(report.searcher["name"]), x, y, note=f"{played.units:,} {report.unit} in all", colour=BEST)
    x, y = _stair(_unstopped(played), played.all_units())
    whole = Curve(
        "the same trials, none stopped", x, y, note=f"{played.all_units():,} {report.unit} in all", is_dashed=True
    )
    is_log = played.smaller_is_better and min(whole.y) > 0  # near their floor, losses differ by little
    title = f"Best {report.searcher['metric']} against training spent"
    return Figure(title, [search, whole], f"{report.unit}, all trials together", log_y=is_log, log_x=True)


def _unstopped(played: Simulation) -> list[tuple[int, float]]:
    """Return what would have been found when, if no trial were stopped and as many ran at a time."""
    steps: list[tuple[int, float]] = []
    trials, choose = played.trained(), min if played.smaller_is_better else max
    for first in range(0, len(trials), played.places):
        group = trials[first : first + played.places]
        for i, moment in enumerate(played.moments):
            value = choose(trial.values[i] for trial in group)
            if not steps or choose(value, steps[-1][1]) != steps[-1][1]:
                steps.append((first * played.max_time + moment * len(group), value))
    return steps


def _stair(steps: Sequence[tuple[int, float]], end: int) -> tuple[list[float], list[float]]:
    x: list[float] = []
    y: list[float] = []
    for units, value in steps:
        x += [units, units] if y else [units]
        y += [y[-1], value] if y else [value]
    return [*x, end], [*y, y[-1]]
