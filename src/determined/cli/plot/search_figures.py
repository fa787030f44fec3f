"""The learning curves of a search, and one scatter plot per hyperparameter: figures that a terminal can show, too."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from determined.cli.plot.figure import Curve, Figure
from determined.cli.plot.scale import Categories
from determined.cli.plot.search_axes import Search, axis_of, heading, number_of, short, text_of
from determined.cli.plot.shapes import COLOURS, SOFT, Dot, Drawing, Shape, Words

if TYPE_CHECKING:
    from determined import client
    from determined.client._search.results import LearningCurve, Result

BUCKETS = 400
SINGLE = 16  # curves with a colour, or with a colour and dashes, of their own
GREY, BLUE, ORANGE = 7, 0, 1
FADED = 0.4
LOGARITHMIC_FROM = 10  # times the least value
TIME_UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
WIDTH, LEFT, RIGHT = 960, 24, 24


def curves_figure(experiment: client.Experiment, search: Search, *, top: int, over: str, log: bool | None) -> Figure:
    """Make a figure of the learning curves of the top trials; the first is the best."""
    from determined.client._search.results import learning_curves

    chosen = search.found.top(top)
    data = learning_curves(experiment, [result.trial_id for result in chosen], search.found.metric, buckets=BUCKETS)
    chosen = [result for result in chosen if result.trial_id in data]
    unit, places = _places(experiment, data, over)
    curves = [_curve(search, result, i, places, data) for i, result in enumerate(chosen[:SINGLE])]
    if len(chosen) > SINGLE:
        curves.append(_bundle(chosen[SINGLE:], places, data))
    is_log = is_best_in_logarithms(search, curves) if log is None else log
    count = len(search.found.results)
    what = f"of {len(chosen):,} of {count:,} trials" if len(chosen) < count else f"of {count:,} trials"
    order = ", longest trained first" if search.found.is_stopping and len(chosen) < count else ""
    label = f"{search.metric} {what}{order}{', logarithmic' * is_log}"
    return Figure(search.title, curves, unit, log_y=is_log, y_label=label)


def is_best_in_logarithms(search: Search, curves: Sequence[Curve]) -> bool:
    """Return whether the good ends of curves would be one flat line below the bad beginnings of others."""
    seen = [value for curve in curves for value in curve.y if math.isfinite(value)]
    return search.found.smaller_is_better and min(seen, default=0) > 0 and max(seen) > LOGARITHMIC_FROM * min(seen)


def _places(
    experiment: client.Experiment, data: dict[int, LearningCurve], over: str
) -> tuple[str, dict[int, list[float]]]:
    """Return the unit of the horizontal axis, and where the points of each trial lie on it."""
    if over == "batches":
        return over, {trial_id: [float(steps) for steps in curve.steps] for trial_id, curve in data.items()}
    if over == "epochs":
        found = {i: [math.nan if e is None else e for e in curve.epochs] for i, curve in data.items()}
        if not any(math.isfinite(epochs) for places in found.values() for epochs in places):
            raise click.ClickException(
                f"No trial of experiment {experiment.id} reported `epochs` with this metric. Use --x batches."
            )
        return over, found
    began = {trial.id: trial.start_time for trial in experiment.iter_trials()}
    seconds = {i: [_seconds(began[i], time) for time in curve.time] for i, curve in data.items()}
    longest = max((places[-1] for places in seconds.values() if places), default=0.0)
    size, unit = next(((size, unit) for size, unit in TIME_UNITS if longest >= 2 * size), TIME_UNITS[-1])
    return f"{unit} since each trial began", {i: [s / size for s in places] for i, places in seconds.items()}


def _seconds(began: datetime.datetime, time: datetime.datetime) -> float:
    return max((time - began).total_seconds(), 0.0)


def _curve(
    search: Search, result: Result, number: int, places: dict[int, list[float]], data: dict[int, LearningCurve]
) -> Curve:
    x, y = places[result.trial_id], data[result.trial_id].value
    is_best = number == 0
    state = "stopped early" if result.is_stopped else "" if result.state == "COMPLETED" else result.state.lower()
    names = [each.name for each in search.hyperparameters if each.name in result.hparams]
    words = "   ".join(f"{name.rpartition('.')[2]} {text_of(result.hparams[name])}" for name in names)
    return Curve(
        ", ".join(word for word in (f"trial {result.trial_id}", "best" if is_best else "", state) if word),
        x,
        y,
        odd=[at for at, value in zip(x, y, strict=True) if not math.isfinite(value) and math.isfinite(at)],
        note="   ".join(part for part in (short(result.value or 0.0), words) if part),
        colour=(ORANGE if is_best else _colour(number)),
        is_dashed=number >= len(COLOURS),
        width=3.2 if is_best else 1.8,
        opacity=FADED if result.is_stopped and not is_best else 1.0,
    )


def _colour(number: int) -> int:
    """Return a colour that the best curve has not, until all were used."""
    others = [i for i in range(len(COLOURS)) if i != ORANGE]
    return others[(number - 1) % len(others)] if number < len(COLOURS) else number


def _bundle(results: Sequence[Result], places: dict[int, list[float]], data: dict[int, LearningCurve]) -> Curve:
    """Join the other curves into one, with gaps between them."""
    x: list[float] = []
    y: list[float] = []
    for result in results:
        x += [*places[result.trial_id], math.nan]
        y += [*data[result.trial_id].value, math.nan]
    label = f"{len(results):,} other trials"
    return Curve(label, x, y, colour=GREY, is_bundle=True, opacity=FADED)


def scatter_figures(search: Search) -> list[Figure]:
    """Make a figure per hyperparameter: its values against the metric."""
    rows = search.measured()
    made = []
    for hyperparameter in search.hyperparameters:
        axis = axis_of(hyperparameter, [result for result, _ in rows])
        points = [(number_of(hyperparameter, result), result, value) for result, value in rows]
        there = [(x, result, value) for x, result, value in points if x is not None]
        if isinstance(axis, Categories):
            there = [(x + _jitter(i), result, value) for i, (x, result, value) in enumerate(there)]
        groups = [there[:1], [p for p in there[1:] if not p[1].is_stopped], [p for p in there[1:] if p[1].is_stopped]]
        others = "not stopped" if search.found.is_stopping else "trials"
        looks = [("best", ORANGE, 5.0, 1.0), (others, BLUE, 3.2, 0.75), ("stopped early", GREY, 2.6, 0.5)]
        curves = [
            Curve(
                label,
                [x for x, _, _ in group],
                [search.height(value) for _, _, value in group],
                colour=colour,
                is_points=True,
                width=radius,
                opacity=opacity,
                titles=[search.describe(result) for _, result, _ in group],
            )
            for group, (label, colour, radius, opacity) in zip(groups, looks, strict=True)
            if group
        ]
        name = f"{hyperparameter.name}{' (log)' * hyperparameter.is_log}"
        made.append(Figure(name, curves, "", x_scale=axis, y_scale=search.metric_axis, log_y=search.is_log))
    return made


def _jitter(number: int) -> float:
    """Return a small step aside, so that trials of one category do not hide each other; always the same one."""
    return ((number * 0.618034) % 1.0 - 0.5) * 0.35


def scatter_drawing(search: Search, figures: Sequence[Figure]) -> Drawing:
    """Lay the scatter plots out side by side."""
    from determined.cli.plot.drawing import small_panels

    shapes: list[Shape] = list(heading(search.title, search.note(), LEFT, WIDTH - LEFT - RIGHT))
    panels, height = small_panels(figures, LEFT - 12, 62, WIDTH - LEFT - RIGHT + 24)
    shapes += panels
    x, y = LEFT + 5.0, 62 + height + 14
    labels = {curve.label: curve for figure in figures for curve in figure.curves}
    for label, curve in labels.items():
        shapes += [Dot((x, y), curve.width, curve.rgb, curve.opacity), Words((x + 12, y + 4), label, 12, colour=SOFT)]
        x += 40 + 7 * len(label)
    return Drawing(search.title, WIDTH, round(y + 26), shapes)


def terminal_figures(search: Search, figures: Sequence[Figure]) -> list[Figure]:
    """Return the same figures with titles that stand alone."""
    return [dataclasses.replace(figure, title=f"{search.metric} against {figure.title}") for figure in figures]
