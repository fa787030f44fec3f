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
from pathlib import Path

from rich.console import Console

from determined import client

EXAMPLE = Path(__file__).parent / "search"
CONFIG = EXAMPLE / "adaptive_asha.yaml"
TRIALS, EPOCHS = 16, 64  # of that file


def here(path: Path | str) -> str:
    """The path as one would type it."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else str(path)


def det(console: Console, *arguments: str) -> None:
    """Run a command as if it were typed."""
    console.print(f"    det {shlex.join(arguments)}\n", soft_wrap=True, highlight=False)
    code = subprocess.run([sys.executable, "-m", "determined.cli", *arguments], check=False).returncode
    if code:
        raise SystemExit(code)  # it has said why


def submit(console: Console, trials: int, epochs: int) -> client.Experiment:
    settings = []
    if (trials, epochs) != (TRIALS, EPOCHS):
        lengths = (f"searcher.max_trials={trials}", f"searcher.max_time={epochs}")
        script = f"entrypoint=python3 train.py --epochs {epochs}"
        settings = [word for setting in (*lengths, script) for word in ("--config", setting)]
    det(console, "experiment", "create", here(CONFIG), here(EXAMPLE), *settings)
    return client.list_experiments(client.ExperimentSortBy.ID, client.OrderBy.DESC, limit=1)[0]


def say_what_it_saved(console: Console, experiment: client.Experiment) -> None:
    found = experiment.savings()
    console.print(
        f"{found.to_the_end} of {found.trials} trials trained to the end, the others were stopped: "
        f"{found.batches_trained:,} batches instead of {found.batches_full:,}.\n"
        f"Stopping early saved [bold green]{found.share:.0%}[/] of the training.\n",
        soft_wrap=True,
        highlight=False,
    )


def say_what_next(console: Console, experiment: client.Experiment, picture: Path) -> None:
    best = experiment.top_checkpoint()
    checkpoint = here(Path(os.environ["DET_HOME"]) / "checkpoints" / best.uuid)
    home = f"DET_HOME={here(os.environ['DET_HOME'])} {here(Path(sys.executable).parent)}/det"
    for title, text in (
        ("The best checkpoint lies in", checkpoint),
        ("The picture of the search:", here(picture)),
        ("Ask more about it:", f"{home} experiment describe {experiment.id}"),
        (
            "Use its model, in Python, with DigitsTrial from examples/search/model_def.py:",
            f'trial = pytorch.load_trial_from_checkpoint_path("{checkpoint}", trial_class=DigitsTrial)',
        ),
    ):
        console.print(title, style="bold")
        console.print(f"    {text}", soft_wrap=True, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=TRIALS, help="how many to try (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="the most that one trains (default: %(default)s)")
    args = parser.parse_args()
    console = Console()
    output = Path(os.environ.get("DET_HOME", "demo-output")).absolute()
    os.environ.update(DET_HOME=str(output / "search"), DET_STORE="", DET_SLOTS="2")

    console.print(
        f"\n[bold]1[/]  Submit a search: {args.trials} networks at random, two at a time, the weak ones stopped."
    )
    experiment = submit(console, args.trials, args.epochs)
    console.print("\n[bold]2[/]  Watch it. Ctrl-C leaves it running.")
    det(console, "experiment", "watch", str(experiment.id))
    console.print("\n[bold]3[/]  See what stopping early saved, and draw it.")
    picture = output / "search.svg"
    det(console, "experiment", "plot", str(experiment.id), "--curves", "--top", str(args.trials), "-o", here(picture))
    say_what_it_saved(console, experiment)
    say_what_next(console, experiment, picture)


if __name__ == "__main__":
    main()
