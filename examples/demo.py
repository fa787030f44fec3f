"""Train, interrupt, resume, and prove that nothing changed: `make demo` runs this.

python examples/demo.py
python examples/demo.py --epochs 40
"""

from __future__ import annotations

import argparse
import json
import os
import signal
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
        self._known = set(self._reports())
        environment = {**os.environ, "DET_HOME": str(directory), "OMP_NUM_THREADS": "1"}  # quickest for a small model
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
            for path in set(self._reports()) - self._known:
                for line in path.read_text().splitlines():
                    if line.endswith("}") and json.loads(line).get("steps_completed", 0) >= batches:
                        return
            time.sleep(0.01)

    def interrupt(self) -> None:
        """What a cluster does before it takes a machine away, and what Ctrl-C does."""
        self._process.send_signal(signal.SIGTERM)

    def _reports(self) -> list[Path]:
        return list(self.directory.glob("runs/*/reports.jsonl"))


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


def verdict(first: Any, second: Any) -> str:
    """Whether all tensors of two states are the same, bit for bit."""
    ours, theirs = tensors(first), tensors(second)
    numbers = sum(tensor.numel() for tensor in ours)
    same = len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))
    return f"[green]identical[/]: {numbers:,} numbers" if same and numbers else "[bold red]DIFFERENT[/]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20, help="how long to train (default: %(default)s)")
    args = parser.parse_args()
    console = Console()
    length = ("--epochs", str(args.epochs))
    half = args.epochs * BATCHES_PER_EPOCH // 2
    straight, pieces = home() / "uninterrupted", home() / "interrupted"

    console.print("\n[bold]1[/]  Train a network on handwritten digits, straight through.")
    with Run(straight, *length) as run:
        run.wait()
    console.print("\n[bold]2[/]  Train it again, and interrupt it half-way.")
    with Run(pieces, *length) as run:
        run.wait_for(half)
        time.sleep(0.05)  # into the middle of an epoch
        run.interrupt()
        run.wait()
    stopped = newest_checkpoint(pieces)
    stopped_at = metadata(stopped)["steps_completed"]
    console.print(f"\n[bold]3[/]  Resume it after batch {stopped_at}, in a new process.")
    with Run(pieces, *length, "--latest-checkpoint", "latest") as run:
        run.wait()

    one, two = newest_checkpoint(straight), newest_checkpoint(pieces)
    first, second = state(one), state(two)
    table = Table(title="\nStopped and resumed, and the same bit for bit", title_style="bold")
    table.add_column("")
    table.add_column("uninterrupted")
    table.add_column("interrupted, resumed")
    batches = [metadata(checkpoint)["steps_completed"] for checkpoint in (one, two)]
    table.add_row("batches trained", f"{batches[0]}", f"{stopped_at} + {batches[1] - stopped_at}")
    table.add_row(
        "validation accuracy", *(f"{metadata(checkpoint)['searcher_metric']:.2%}" for checkpoint in (one, two))
    )
    table.add_section()
    results = []
    for name, key in (("weights", "models"), ("optimizer", "optimizers")):
        results.append(verdict(first[f"{key}_state_dict"], second[f"{key}_state_dict"]))
        table.add_row(name, "", results[-1])
    results.append(verdict(first["rng_state"], second["rng_state"]))
    table.add_row("random streams", "", results[-1])
    console.print(table)

    show = Path(os.path.relpath(two))
    python = (
        Path(os.path.relpath(sys.executable)) if Path(sys.executable).is_relative_to(Path.cwd()) else sys.executable
    )
    script = Path(os.path.relpath(EXAMPLE / "train.py"))
    console.print("\nThe checkpoint lies in")
    console.print(f"    {show}", soft_wrap=True, highlight=False)
    console.print("Train on from it:")
    console.print(
        f"    DET_HOME={os.path.relpath(pieces)} {python} {script} --latest-checkpoint {show} --epochs {2 * args.epochs}",
        soft_wrap=True,
        highlight=False,
    )
    console.print("Load its model:")
    console.print(f'    trial = pytorch.load_trial_from_checkpoint_path("{show}", DigitsTrial)', soft_wrap=True)
    if any("DIFFERENT" in result for result in results):
        raise SystemExit("The resumed training is not what the uninterrupted one is. Please report this.")
    if not 0 < stopped_at < batches[0]:
        raise SystemExit("Training was over before it could be interrupted. Try again with more --epochs.")


if __name__ == "__main__":
    main()
