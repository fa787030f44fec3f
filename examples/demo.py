"""Train, interrupt, resume, and prove that nothing changed: `make demo` runs this.

python examples/demo.py
python examples/demo.py --epochs 40
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

EXAMPLE = Path(__file__).parent / "digits"
BATCHES_PER_EPOCH = 45


def home() -> Path:
    """Where the demo keeps its runs."""
    return Path(os.environ.get("DET_HOME", "demo-output")).absolute()


class Run:
    """A training in a process of its own, with a data directory of its own. Its progress bar shows on stderr."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self._before = self._newest_trial()[0]
        environment = {**os.environ, "DET_HOME": str(directory), "DET_STORE": ""}
        self._process = subprocess.Popen(
            [sys.executable, "train.py", *arguments], cwd=EXAMPLE, env=environment, stdout=subprocess.DEVNULL
        )

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # nothing happens if it has ended
        self._process.wait()

    def wait(self) -> None:
        if code := self._process.wait():
            raise SystemExit(f"The training in {self.directory} failed with exit code {code}; see above.")

    def wait_for(self, batches: int) -> None:
        """Wait until it has reported that many batches."""
        while self._process.poll() is None:
            trial, trained = self._newest_trial()
            if trial > self._before and trained >= batches:
                return
            time.sleep(0.01)

    def interrupt(self) -> None:
        """What a cluster does before it takes a machine away, and what Ctrl-C does."""
        self._process.send_signal(signal.SIGTERM)

    def _newest_trial(self) -> tuple[int, int]:
        """The id of the newest trial on record, and how many batches it has reported; zeros if there is none."""
        with contextlib.suppress(sqlite3.Error):
            record = sqlite3.connect(f"file:{self.directory / 'determined.db'}?mode=ro", uri=True)
            try:
                found = record.execute("SELECT id, total_batches FROM trials ORDER BY id DESC LIMIT 1").fetchone()
            finally:
                record.close()
            return found or (0, 0)
        return 0, 0


def newest_checkpoint(directory: Path) -> Path:
    found = directory.glob("checkpoints/*/metadata.json")
    return max(found, key=lambda path: json.loads(path.read_text())["saved_at"]).parent


def metadata(checkpoint: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((checkpoint / "metadata.json").read_text())
    return content


def state(checkpoint: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(checkpoint / "state_dict.pth", weights_only=True)
    return content


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors in a nest of dicts and lists, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for item in items for tensor in tensors(item)]


def are_identical(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return len(ours) == len(theirs) > 0 and all(map(torch.equal, ours, theirs))


def fingerprint(values: list[torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for value in values:
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:12]


def compare(console: Console, one: Path, two: Path, stopped_at: int) -> bool:
    """Show two checkpoints side by side; whether they hold the same state, bit for bit."""
    table = Table(title="\nTwo ways to the same place", title_style="bold")
    for title in ("", "uninterrupted", "resumed", "bit for bit"):
        table.add_column(title)
    batches = [metadata(checkpoint)["steps_completed"] for checkpoint in (one, two)]
    accuracies = [f"{metadata(checkpoint)['searcher_metric']:.2%}" for checkpoint in (one, two)]
    table.add_row("batches trained", f"{batches[0]}", f"{stopped_at} + {batches[1] - stopped_at}")
    table.add_row("accuracy", *accuracies)
    table.add_section()
    results = []
    first, second = state(one), state(two)
    for name, key in (
        ("weights", "models_state_dict"),
        ("optimizer", "optimizers_state_dict"),
        ("random streams", "rng_state"),
    ):
        ours, theirs = tensors(first[key]), tensors(second[key])
        results.append(are_identical(ours, theirs))
        numbers = sum(value.numel() for value in ours)
        verdict = f"[green]identical[/], {numbers:,} numbers" if results[-1] else "[bold red]DIFFERENT[/]"
        table.add_row(name, fingerprint(ours), fingerprint(theirs), verdict)
    console.print(table)
    return all(results)


def say_what_next(console: Console, checkpoint: Path, directory: Path, epochs: int) -> None:
    def here(path: Path | str) -> str:
        return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else str(path)

    resume = f"{here(sys.executable)} {here(EXAMPLE / 'train.py')} --latest-checkpoint latest --epochs {epochs}"
    for title, command in (
        ("Its checkpoint lies in", here(checkpoint)),
        ("Train on from it:", f"DET_HOME={here(directory)} {resume}"),
        (
            "Use its model, in Python, with DigitsTrial from that train.py:",
            f'trial = pytorch.load_trial_from_checkpoint_path("{here(checkpoint)}", trial_class=DigitsTrial)',
        ),
    ):
        console.print(title, style="bold")
        console.print(f"    {command}", soft_wrap=True, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20, help="how long to train (default: %(default)s)")
    args = parser.parse_args()
    console = Console()
    length = ("--epochs", str(args.epochs))
    half, whole = args.epochs * BATCHES_PER_EPOCH // 2, args.epochs * BATCHES_PER_EPOCH
    straight, pieces = home() / "uninterrupted", home() / "interrupted"

    console.print("\n[bold]1[/]  Train a network on handwritten digits, straight through.")
    with Run(straight, *length) as run:
        run.wait()
    console.print("\n[bold]2[/]  Train it again, and send SIGTERM half-way.")
    with Run(pieces, *length) as run:
        run.wait_for(half)
        time.sleep(0.05)  # into the middle of an epoch
        run.interrupt()
        run.wait()
    stopped_at = metadata(newest_checkpoint(pieces))["steps_completed"]
    if stopped_at >= whole:
        raise SystemExit("Training was over before it could be interrupted. Try again with more --epochs.")
    console.print(f"\n[bold]3[/]  Go on after batch {stopped_at}, in a new process.")
    with Run(pieces, *length, "--latest-checkpoint", "latest") as run:
        run.wait()

    result = newest_checkpoint(pieces)
    if not compare(console, newest_checkpoint(straight), result, stopped_at):
        raise SystemExit("The resumed training is not what the uninterrupted one is. Please report this.")
    say_what_next(console, result, pieces, 2 * args.epochs)


if __name__ == "__main__":
    main()
