"""Search for the best of 16 networks on two slots, and stop the weak ones early: `make demo-search` runs this.

python examples/demo_search.py
python examples/demo_search.py --trials 8 --epochs 16
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from determined import client

EXAMPLE = Path(__file__).parent / "search"
CONFIG = EXAMPLE / "adaptive_asha.yaml"
HPARAMS = ("lr", "channels", "dropout")
BATCHES_PER_EPOCH = 45
TRIALS, EPOCHS = 16, 64  # of that file


def here(path: Path | str) -> str:
    """The path as one would type it."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else str(path)


def det(*arguments: str) -> None:
    """Run a command as if it were typed."""
    code = subprocess.run([sys.executable, "-m", "determined.cli", *arguments], check=False).returncode
    if code:
        raise SystemExit(f"det {' '.join(arguments)} failed with exit code {code}; see above.")


def search(console: Console, trials: int, epochs: int) -> client.Experiment:
    """Run the search, and show it while it runs."""
    command = ["experiment", "create", here(CONFIG), here(EXAMPLE), "--follow"]
    if (trials, epochs) != (TRIALS, EPOCHS):
        for setting in (f"searcher.max_trials={trials}", f"searcher.max_time={epochs}"):
            command += ["--config", setting]
        command += ["--config", f"entrypoint=python3 train.py --epochs {epochs}"]
    console.print(f"    det {shlex.join(command)}\n", soft_wrap=True, highlight=False)
    det(*command)
    return client.list_experiments(sort_by=client.ExperimentSortBy.ID, order_by=client.OrderBy.DESC)[0]


def show_trials(console: Console, trials: list[client.Trial], epochs: int) -> None:
    table = Table(title="\nThe trials, best first", title_style="bold")
    for title in ("trial", *HPARAMS, "best accuracy", "batches"):
        table.add_column(title, justify="right")
    table.add_column("trained")
    whole = epochs * BATCHES_PER_EPOCH
    for trial in trials:
        values = [f"{trial.hparams[name]:.3g}" for name in HPARAMS]
        best = "" if trial.best_metric is None else f"{trial.best_metric:.2%}"
        bar = "█" * max(1, round(20 * trial.total_batches / whole))
        style = None if trial.total_batches >= whole else "dim"
        table.add_row(str(trial.id), *values, best, f"{trial.total_batches:,}", bar, style=style)
    console.print(table)


def show_savings(console: Console, trials: list[client.Trial], epochs: int, seconds: float) -> None:
    trained, whole = sum(trial.total_batches for trial in trials), len(trials) * epochs * BATCHES_PER_EPOCH
    to_the_end = sum(trial.total_batches >= epochs * BATCHES_PER_EPOCH for trial in trials)
    console.print(
        f"\n{to_the_end} of {len(trials)} trials trained to the end: {trained:,} batches instead of {whole:,}. "
        f"Stopping early saved [bold green]{1 - trained / whole:.0%}[/]. It took {seconds:.0f} s on two slots.\n",
        highlight=False,
    )


def say_what_next(console: Console, experiment: client.Experiment, picture: Path) -> None:
    best = experiment.top_checkpoint()
    home = f"DET_HOME={here(os.environ['DET_HOME'])}"
    for title, command in (
        ("The best checkpoint lies in", here(Path(os.environ["DET_HOME"]) / "checkpoints" / best.uuid)),
        ("Its curves, and those of all others:", here(picture)),
        ("Look at the search:", f"{home} det experiment describe {experiment.id}"),
        ("Train the best one on:", f"{home} det experiment fork {experiment.id} --help"),
    ):
        console.print(title, style="bold")
        console.print(f"    {command}", soft_wrap=True, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=TRIALS, help="how many to try (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="the most that one trains (default: %(default)s)")
    args = parser.parse_args()
    console = Console()
    output = Path(os.environ.get("DET_HOME", "demo-output")).absolute()
    os.environ.update(DET_HOME=str(output / "search"), DET_STORE="", DET_SLOTS="2")
    console.print(f"\n[bold]1[/]  Draw {args.trials} networks at random, train two at a time, and stop the weak ones.")
    began = time.monotonic()
    experiment = search(console, args.trials, args.epochs)
    seconds = time.monotonic() - began

    console.print("\n[bold]2[/]  See what came of it.")
    trials = list(experiment.best_trials())
    show_trials(console, trials, args.epochs)
    show_savings(console, trials, args.epochs, seconds)
    picture = output / "search.svg"
    det("experiment", "plot", str(experiment.id), "--curves", "--output", str(picture))
    say_what_next(console, experiment, picture)


if __name__ == "__main__":
    main()
