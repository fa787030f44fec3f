"""Search methods side by side: the best loss found against the training spent, on fixed synthetic curves.

    python bench/search_quality.py            # prints a table, writes docs/pictures/search-quality.svg

Every method gets the same budget on the same 12 landscapes (experiment/search/curves.py); the lines are medians, the
bands run from the first to the third quarter. The same picture comes out every time.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from determined.experiment.hparams import parse
from determined.experiment.search.base import Action, Create, Initial, Stop, TrialExited, ValidationCompleted
from determined.experiment.search.searcher import Searcher
from determined.experiment.simulation.curves import Curve, Landscape

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "search-quality.svg"
MAX_TIME = 64
TRAININGS = 36  # the budget, in trainings of full length
LANDSCAPES = range(12)
SPACE, PROBLEMS = parse(
    {
        "dropout": {"type": "double", "minval": 0.0, "maxval": 0.6, "count": 3},
        "layers": {"type": "int", "minval": 1, "maxval": 8, "count": 3},
        "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1, "count": 4},
        "momentum": {"type": "double", "minval": 0.5, "maxval": 0.99},
    }
)
GRID_SPACE, GRID_PROBLEMS = parse(
    {**SPACE.effective(), "momentum": {"type": "const", "val": 0.9}}, needs_count=True
)  # 36 points
COMMON = {"metric": "loss", "smaller_is_better": True, "max_concurrent_trials": 4}
HALVING = {"time_metric": "batches", "max_time": MAX_TIME, "divisor": 4}
METHODS: dict[str, tuple[dict[str, Any], str, str]] = {
    "adaptive_asha": ({"name": "adaptive_asha", "max_trials": 300, **HALVING}, "#0072b2", ""),
    "optuna TPE + ASHA": (
        {"name": "optuna", "max_trials": 300, "num_rungs": 3, **HALVING}, "#cc79a7", "7 3"
    ),
    "optuna TPE": ({"name": "optuna", "max_trials": TRAININGS}, "#d55e00", "2 3"),
    "random": ({"name": "random", "max_trials": TRAININGS}, "#009e73", "10 3 2 3"),
    "grid": ({"name": "grid"}, "#8a8a8a", "4 4"),
}  # fmt: skip


class Band(NamedTuple):
    """Best losses over landscapes: the middle, and the quarters around it."""

    low: float
    middle: float
    high: float


class Run:
    """One search on one landscape: trials train one batch at a time, in turn, until the budget is spent."""

    def __init__(self, section: dict[str, Any], landscape: int) -> None:
        self._space = GRID_SPACE if section["name"] == "grid" else SPACE
        self._landscape = Landscape(SPACE, landscape)
        self._searcher = Searcher({**COMMON, **section}, self._space, landscape)
        self._running: dict[str, tuple[Curve, int]] = {}
        self.trials = 0
        self.best: list[float] = []  # after each batch of training spent

    def play(self) -> Run:
        self._apply(self._searcher.handle(Initial()))
        while self._running and len(self.best) < TRAININGS * MAX_TIME:
            for request_id in list(self._running):
                self._train(request_id)
        # A search that ends early keeps what it found.
        self.best += [self.best[-1]] * (TRAININGS * MAX_TIME - len(self.best))
        del self.best[TRAININGS * MAX_TIME :]
        return self

    def _train(self, request_id: str) -> None:
        curve, time = self._running[request_id]
        time += 1
        self._running[request_id] = (curve, time)
        loss = curve.at(time / MAX_TIME)
        self.best.append(min(loss, self.best[-1]) if self.best else loss)
        metrics: dict[str, Any] = {"loss": loss, "batches": time}
        actions = self._searcher.handle(ValidationCompleted(request_id, metrics, time))
        self._apply(actions)
        if time == MAX_TIME or Stop(request_id) in actions:
            del self._running[request_id]
            self._apply(self._searcher.handle(TrialExited(request_id)))

    def _apply(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Create):
                self.trials += 1
                hparams = {"momentum": 0.9, **action.hparams}
                self._running[action.request_id] = (self._landscape.curve(hparams, action.seed), 0)


def compare() -> dict[str, tuple[list[Band], float]]:
    """For each method: the band after each batch of training, and how many trials it started."""
    results = {}
    for name, (section, *_) in METHODS.items():
        runs = [Run(section, landscape).play() for landscape in LANDSCAPES]
        bands = [Band(*statistics.quantiles(column, n=4)) for column in zip(*(run.best for run in runs), strict=True)]
        results[name] = (bands, statistics.mean(run.trials for run in runs))
    return results


# --- The picture, by hand.

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 60, 60
TOP_LOSS, LOW_LOSS = 0.4, 0.04
TICKS = (0.05, 0.1, 0.2, 0.4)
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #777 }
  .title { font-size: 16px; font-weight: 600 }
  .axis { stroke: #888; fill: none }
  .rule { stroke: #888; stroke-opacity: .25 }
  @media (prefers-color-scheme: dark) { text { fill: #bbb } }
"""


def x_of(trainings: float) -> float:
    return LEFT + trainings / TRAININGS * (WIDTH - LEFT - RIGHT)


def y_of(loss: float) -> float:
    share = math.log(TOP_LOSS / min(max(loss, LOW_LOSS), TOP_LOSS)) / math.log(TOP_LOSS / LOW_LOSS)
    return TOP + share * (HEIGHT - TOP - BOTTOM)


def points(values: list[float]) -> list[str]:
    """A stair of the values, one corner where it changes."""
    corners, last = [], None
    for batch, value in enumerate(values, 1):
        rounded = round(y_of(value), 1)
        if rounded != last or batch == len(values):
            x = x_of(batch / MAX_TIME)
            corners += [f"{x:.1f},{last}"] if last is not None else []
            corners.append(f"{x:.1f},{rounded}")
            last = rounded
    return corners


def axes() -> list[str]:
    parts = []
    for loss in TICKS:
        y = y_of(loss)
        parts.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{loss:g}</text>')
    for trainings in range(0, TRAININGS + 1, 6):
        x = x_of(trainings)
        parts.append(
            f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 5}"/>'
        )
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{trainings}</text>')
    parts.append(f'<path class="axis" d="M{LEFT},{TOP} V{HEIGHT - BOTTOM} H{WIDTH - RIGHT}"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 16}" text-anchor="middle">training spent, in full trainings</text>')
    y = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text transform="translate(20,{y}) rotate(-90)" text-anchor="middle">best loss so far (logarithmic)</text>'
    )
    return parts


def legend() -> list[str]:
    parts = []
    for row, (name, (_, colour, dash)) in enumerate(METHODS.items()):
        y = TOP + 14 + 21 * row
        x = WIDTH - RIGHT - 190
        line = f'<line x1="{x}" x2="{x + 36}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2.5"'
        parts.append(f'{line} stroke-dasharray="{dash}"/>' if dash else f"{line}/>")
        parts.append(f'<text x="{x + 44}" y="{y + 4}">{name}</text>')
    return parts


def picture(results: dict[str, tuple[list[Band], float]]) -> str:
    """The SVG: no background of its own, so that it fits a light and a dark page."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img">',
        "<title>Best loss found against training spent, by search method</title>",
        f"<style>{STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="24">Best loss found against training spent</text>',
        f'<text x="{LEFT}" y="43">median of {len(LANDSCAPES)} synthetic landscapes; bands are the middle half</text>',
        *axes(),
    ]
    for name, (bands, _) in results.items():
        _, colour, dash = METHODS[name]
        area = points([band.low for band in bands]) + points([band.high for band in bands])[::-1]
        parts.append(f'<polygon points="{" ".join(area)}" fill="{colour}" fill-opacity=".08"/>')
    for name, (bands, _) in results.items():
        _, colour, dash = METHODS[name]
        line = " ".join(points([band.middle for band in bands]))
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.5"{dashes}/>')
    return "\n".join([*parts, *legend(), "</svg>", ""])


def main() -> None:
    assert not PROBLEMS
    assert not GRID_PROBLEMS
    results = compare()
    marks = (4, 12, 36)
    table = Table(title=f"Best loss found, median of {len(LANDSCAPES)} landscapes")
    table.add_column("search")
    table.add_column("trials", justify="right")
    for mark in marks:
        table.add_column(f"after {mark} trainings", justify="right")
    for name, (bands, trials) in results.items():
        losses = [f"{bands[mark * MAX_TIME - 1].middle:.3f}" for mark in marks]
        table.add_row(name, f"{trials:.0f}", *losses)
    Console(width=100).print(table)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture(results))


if __name__ == "__main__":
    main()
