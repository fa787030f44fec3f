"""Lay out an experiment that goes on: a few lines about it, and a row per trial, within the width and height there are.

Everything here is a function of a `View` and of the size of the terminal; nothing is read and nothing is written.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from determined._wording import visible
from determined.cli.output import terminal
from determined.cli.output.table import STATE_COLOURS, text_width
from determined.cli.output.values import cell, clock
from determined.client._listing import flat
from determined.client.following.progress import TrialView, View

GAP = 2
BAR, LONGEST_BAR = 8, 60
BEST = 5  # of the best trials at least so many are shown, however many run
MOST_HPARAMS = 8
LONGEST_TEXT = 16


@dataclasses.dataclass(frozen=True)
class Field:
    """One column: its title, a text per row, and how soon a narrow terminal does without it (0: never)."""

    title: str
    texts: Sequence[str]
    rank: int = 0
    is_right: bool = True

    @property
    def width(self) -> int:
        """How many columns of the terminal it takes."""
        return max(text_width(text) for text in (self.title, *self.texts))


def screen(view: View, width: int, height: int) -> list[str]:
    """Return the lines of a live view, in colours where the terminal shows any; at most `height` of them."""
    top = [*_header(view, width), *([""] if view.trials else [])]
    foot = ["", terminal.paint(_cut(_way_out(view), width), "2")]
    rows, left = choose(view, max(height - len(top) - len(foot) - 3, 1))
    lines = [*top, *table(view, rows, width), *_rest(view, left, width), *foot]
    return lines[:height]


def choose(view: View, room: int) -> tuple[list[TrialView], list[TrialView]]:
    """Return the trials to show in `room` rows, and those left out: first what works, then the best, then the rest.

    Example::

        shown, left_out = choose(view, 12)
    """
    working = [trial for trial in view.trials.values() if trial.is_working]
    ranked = [trial for trial in view.ranked() if not trial.is_working]
    known = {trial.id for trial in (*working, *ranked)}
    others = [trial for trial in view.trials.values() if trial.id not in known]
    if len(view.trials) <= room:
        return [*working, *ranked, *others], []
    first = working[: max(room - min(BEST, len(ranked)), 1)]
    shown = [*first, *ranked, *working[len(first) :], *others]
    return shown[:room], shown[room:]


def table(view: View, rows: Sequence[TrialView], width: int) -> list[str]:
    """Return the rows of trials with their header; what does not fit in `width` is left out, and named below."""
    if not rows:
        return []
    fields, dropped = _fitted(_fields(view, rows, BAR), width)
    if dropped:  # a hyperparameter says more than a bar
        fields, dropped = _fitted(_fields(view, rows, 0), width)
    best = view.best()
    header = _line([field.title for field in fields], fields)
    lines = [terminal.paint(header, "1"), terminal.paint(("─" if terminal.has_unicode() else "-") * len(header), "2")]
    for index, trial in enumerate(rows):
        line = _line([field.texts[index] for field in fields], fields)
        state = _short(trial.state)
        if best is not None and trial.id == best.id:
            lines.append(terminal.paint(line, "1;32"))
        elif trial.state in ("QUEUED", "PAUSED"):
            lines.append(terminal.paint(line, "2"))
        else:
            painted = terminal.paint(state, STATE_COLOURS.get(trial.state, "33"))
            lines.append(line.replace(f" {state} ", f" {painted} ", 1))
    if dropped:
        lines.append(terminal.paint(_cut(f"Too narrow for: {', '.join(dropped)}.", width), "2"))
    return lines


def _fields(view: View, rows: Sequence[TrialView], bar_width: int) -> list[Field]:
    best = view.best()
    star = "★" if terminal.has_unicode() else "*"
    names = [f"{star if best and trial.id == best.id else ' '}{trial.id}" for trial in rows]
    fields = [
        Field("Trial", names),
        Field("State", [f"{_short(trial.state)} " for trial in rows], is_right=False),
        Field("Progress" if bar_width else "Done", [_progress(trial, bar_width) for trial in rows], 3),
        Field("Batches", [str(trial.batches) if trial.batches else "" for trial in rows], 2),
        Field("Rung", [trial.rung for trial in rows], 4),
        Field("Best", [_value(trial.best) for trial in rows]),
        Field("Last", [_value(trial.last) for trial in rows], 6),
        Field("Slots", [str(trial.slots or "") for trial in rows], 9),
        Field("Restarts", [str(trial.restarts or "") for trial in rows], 8),
        Field("Time", [clock(trial.seconds) if trial.seconds else "" for trial in rows], 1),
    ]
    always = {"Trial", "State", "Best"}
    shown = [field for field in fields if field.title in always or any(field.texts)]
    shown = [field for field in shown if field.title != "Slots" or any(text not in ("", "1") for text in field.texts)]
    return [*shown, *_hparams(view, rows)]


def _hparams(view: View, rows: Sequence[TrialView]) -> list[Field]:
    """Return a column for each hyperparameter that is not the same for all trials."""
    shown = [flat(trial.hparams) for trial in rows]
    return [
        Field(visible(name), [_hparam(one.get(name)) for one in shown], 5 + index)
        for index, name in enumerate(view.differing[:MOST_HPARAMS])
    ]


def _fitted(fields: list[Field], width: int) -> tuple[list[Field], list[str]]:
    dropped: list[str] = []
    while _total(fields) > width and any(field.rank for field in fields):
        least = max(fields, key=lambda field: (field.rank, fields.index(field)))
        dropped.append(least.title)
        fields = [field for field in fields if field is not least]
    return fields, dropped


def _total(fields: Sequence[Field]) -> int:
    return sum(field.width + GAP for field in fields) - GAP


def _line(texts: Sequence[str], fields: Sequence[Field]) -> str:
    cells = []
    for text, field in zip(texts, fields, strict=True):
        space = " " * (field.width - text_width(text))
        cells.append(space + text if field.is_right else text + space)
    return (" " * GAP).join(cells)


def _header(view: View, width: int) -> list[str]:
    state = terminal.paint(view.state, STATE_COLOURS.get(view.state, "33"))
    title = f"Experiment {view.id}"
    name = _cut(visible(view.name), max(width - len(title) - len(view.state) - 2 * GAP, 0))
    space = " " * max(width - len(title) - text_width(name) - len(view.state) - GAP, GAP)
    lines = [f"{terminal.paint(title, '1')}  {name}{space}{state}"]
    if view.progress is not None or view.seconds_left is not None:
        lines.append(_progress_line(view, width))
    lines.append(_cut(_trials_line(view), width))
    best = view.best()
    if best is not None:
        differing = {field.title: field.texts[0] for field in _hparams(view, [best])}
        chosen = ", ".join(f"{name}={text}" for name, text in differing.items())
        about = f"Best: trial {best.id}, {visible(view.metric or 'metric')} {_value(best.best)}"
        lines.append(_cut(f"{about}  {chosen}" if chosen else about, width))
    if view.state == "PAUSED" or (view.reason and view.has_ended):
        lines.append(terminal.paint(_cut(visible(view.reason) or "Paused.", width), "33"))
    return lines


def _progress_line(view: View, width: int) -> str:
    share = view.progress or 0.0
    times = f"{clock(view.seconds)} so far"
    if view.seconds_left is not None:
        times += f", about {clock(view.seconds_left)} left"
    percent = f"{share * 100:.1f}%"
    room = min(width - len(times) - len(percent) - 2 * GAP, LONGEST_BAR)
    if room < 4:
        return _cut(f"{percent}  {times}", width)
    return f"{terminal.paint(bar(share, room), '36')}  {percent}  {times}"


def _trials_line(view: View) -> str:
    counts = ", ".join(f"{count} {state}" for state, count in view.counts().items())
    noun = "trial" if len(view.trials) == 1 else "trials"
    parts = [f"{len(view.trials)} {noun}: {counts}" if counts else "No trial yet"]
    if view.searcher and view.searcher != "single" and counts:
        parts.insert(0, visible(view.searcher))
    if view.slots:
        parts.append(f"{view.slots} {'slot' if view.slots == 1 else 'slots'} in use")
    return "; ".join(parts)


def _rest(view: View, left: Sequence[TrialView], width: int) -> list[str]:
    if not left:
        return []
    counts = collections.Counter(_short(trial.state) for trial in left)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    return [terminal.paint(_cut(f"and {len(left)} more: {states}. See all: det e list-trials {view.id}", width), "2")]


def _way_out(view: View) -> str:
    if view.state == "PAUSED":
        again = "Start its script again to go on." if view.unmanaged else f"Let it go on with: det e activate {view.id}"
        return f"Ctrl-C leaves this view. {again}"
    return "Ctrl-C leaves this view; the experiment goes on."


def bar(share: float, room: int) -> str:
    """Return a bar that is filled to this share."""
    share = min(max(share, 0.0), 1.0)
    if not terminal.has_unicode():
        full = int(share * room)
        return "#" * full + "." * (room - full)
    eighths = int(share * room * 8)
    full, rest = divmod(eighths, 8)
    part = " ▏▎▍▌▋▊▉"[rest] if rest else ""
    return ("█" * full + part).ljust(room, "·")


def _progress(trial: TrialView, bar_width: int) -> str:
    if trial.progress is None:
        return ""
    return f"{bar(trial.progress, bar_width)} {trial.progress * 100:3.0f}%".lstrip()


def _short(state: str) -> str:
    return "STOPPING" if state.startswith("STOPPING_") else state


def _value(value: float | None) -> str:
    """Format a metric so that values under each other can be compared."""
    if value is None:
        return ""
    size = abs(value)
    return f"{value:.4f}" if size == 0 or 1e-3 <= size < 1e4 else f"{value:.3e}"


def _hparam(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else cell(value)
    return _cut(text, LONGEST_TEXT)


def _cut(text: str, width: int) -> str:
    if text_width(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, max(width - 1, 0)) + ("…" if terminal.has_unicode() else "~")
