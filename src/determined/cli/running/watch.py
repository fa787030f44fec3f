"""`det experiment watch`: follow an experiment to its end, in a live table; without a terminal, a line per change.

Leaving the view with Ctrl-C leaves the experiment running. The exit code is then 3, as for every command that was
interrupted: a script that waits for the end by `watch` must not take leaving for the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from determined._wording import visible
from determined.cli import options
from determined.cli.connection import connect
from determined.cli.groups import HELP_NAMES
from determined.cli.output import terminal
from determined.cli.output.values import clock, number
from determined.cli.running import live_table

if TYPE_CHECKING:
    from determined.client import Determined
    from determined.client.following.progress import TrialView, View

INTERVAL = 1.0
INTERRUPTED = 3
MOST_ROWS = 20
BY_HAND: dict[str, Any] = {"auto_refresh": False, "redirect_stdout": False, "redirect_stderr": False}
"""No thread draws, and what is asked of stdout (is it a terminal? UTF-8?) is answered by stdout itself."""


@click.command(context_settings=HELP_NAMES)
@options.experiment_id
@click.option("--interval", type=click.FloatRange(min=0.05), default=INTERVAL, show_default=True, metavar="SECONDS",
              help="Look so often.")  # fmt: skip
def watch(experiment_id: int, interval: float) -> None:
    """Follow an experiment: its trials in a live table, until it ends. Exit 0 only if it is COMPLETED.

    Ctrl-C leaves the view, and the experiment running. Without a terminal there is a line for each change of state.
    """
    state = follow(connect(), experiment_id, interval=interval)
    if state != "COMPLETED":
        raise click.ClickException(f"Experiment {experiment_id} ended as {state}.")


def follow(client: Determined, experiment_id: int, *, interval: float = INTERVAL) -> str:
    """Show an experiment until it ends, and return how it ended.

    Ctrl-C leaves the command with exit code 3, after saying how to come back.

    Args:
        client: The store.
        experiment_id: Which experiment.
        interval: Look so often, in seconds.
    """
    views = _views(client, experiment_id, interval)
    last: View | None = None
    try:
        show = _live if terminal.is_terminal() else _lines
        for view in show(views):
            last = view
    except KeyboardInterrupt:
        _leave(experiment_id, last)
    assert last is not None, "there is always a first look"
    _conclude(client, last)
    return last.state


def _views(client: Determined, experiment_id: int, interval: float) -> Iterator[View]:
    """Look at the experiment now, and then again and again until it has ended."""
    follower = client.get_experiment(experiment_id).follower()
    while True:
        view = follower.read()
        yield view
        if view.has_ended:
            return
        time.sleep(interval)


def _live(views: Iterator[View]) -> Iterator[View]:
    """Draw each view over the one before; what is left on the screen at the end is written by whoever called."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    live, size = None, (0, 0)
    try:
        for view in views:
            now = (terminal.width(), terminal.height())
            if live is None or now != size:  # another size breaks lines elsewhere, so begin on a clean screen
                if live is not None:
                    live.stop()
                    console.clear()
                size = now
                live = Live(console=console, transient=True, vertical_overflow="crop", **BY_HAND)
                live.start()
            lines = live_table.screen(view, now[0] - 1, now[1] - 1)
            live.update(Text.from_ansi("\n".join(lines), no_wrap=True), refresh=True)
            yield view
    finally:
        if live is not None:
            live.stop()


def _lines(views: Iterator[View]) -> Iterator[View]:
    """Write a line for each change of state."""
    shown: dict[int, str] = {}
    whole = ""
    for view in views:
        stamp = view.time.strftime("%H:%M:%S")
        if view.state != whole:
            whole = view.state
            terminal.write(f"{stamp} experiment {view.id}: {whole}{_because(view.reason)}\n")
        for ident in view.changed:
            trial = view.trials[ident]
            if shown.get(ident) != trial.state:
                shown[ident] = trial.state
                terminal.write(f"{stamp} trial {ident}: {_told(view, trial)}\n")
        terminal.flush()
        yield view


def _told(view: View, trial: TrialView) -> str:
    if not trial.has_ended:
        return trial.state
    parts = [f"{trial.batches} batches", clock(trial.seconds)]
    if trial.best is not None:
        best = view.best()
        parts.append(f"{visible(view.metric or 'best')} {number(trial.best)}")
        parts[-1] += ", the best" if best is not None and best.id == trial.id else ""
    return f"{trial.state}, {', '.join(parts)}{_because(trial.reason) if trial.state == 'ERROR' else ''}"


def _because(reason: str) -> str:
    return f". {visible(reason)}" if reason else ""


def _leave(experiment_id: int, last: View | None) -> None:
    """Say how to come back, and leave with the exit code of an interrupted command."""
    if last is not None and terminal.is_terminal():
        terminal.write(
            "\n".join(live_table.screen(last, terminal.width() - 1, terminal.height() - 1)[:-2]) + "\n", colours=True
        )
        terminal.flush()
    terminal.say(f"Experiment {experiment_id} goes on. Come back with: det experiment watch {experiment_id}")
    click.get_current_context().exit(INTERRUPTED)


def _conclude(client: Determined, view: View) -> None:
    """Write what came out: the trials, the rungs, the best one, and what to type next."""
    from determined.cli.running import results

    experiment = client.get_experiment(view.id)
    rows, left = live_table.choose(view, MOST_ROWS)
    width = terminal.width() - 1 if terminal.is_terminal() else 200
    lines = live_table.table(view, rows, width)
    terminal.write("\n".join(lines) + "\n", colours=True)
    if left:
        terminal.write(f"and {len(left)} more. See all: det e list-trials {view.id}\n")
    results.show_rungs(experiment)
    count = f"{len(view.trials)} {'trial' if len(view.trials) == 1 else 'trials'}"
    terminal.write(f"\nExperiment {view.id} is {view.state} after {clock(view.seconds)}, with {count}.\n")
    if view.state != "COMPLETED" and view.reason:
        terminal.write(f"{visible(view.reason)}\n")
    results.say_best(experiment)
    if failed := next((trial for trial in view.trials.values() if trial.state == "ERROR"), None):
        terminal.hint(f"See why trial {failed.id} failed: det trial logs {failed.id} --tail 30")
