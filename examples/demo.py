"""Train, interrupt, resume, and prove that nothing changed: `make demo` runs this.

python examples/demo.py
python examples/demo.py --epochs 40
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
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


def train(directory: Path, *arguments: str) -> None:
    """A training in a process of its own, with a data directory of its own. Its progress bar shows on stderr."""
    environment = {**os.environ, "DET_HOME": str(directory), "DET_STORE": ""}
    command = [sys.executable, "train.py", *arguments]
    code = subprocess.run(command, cwd=EXAMPLE, env=environment, stdout=subprocess.DEVNULL, check=False).returncode
    if code:
        raise SystemExit(f"The training in {directory} failed with exit code {code}; see above.")


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
    middle = (args.epochs // 2) * BATCHES_PER_EPOCH + BATCHES_PER_EPOCH // 2  # of an epoch half-way
    straight, pieces = home() / "uninterrupted", home() / "interrupted"

    console.print("\n[bold]1[/]  Train a network on handwritten digits, straight through.")
    train(straight, *length)
    console.print("\n[bold]2[/]  Train it again, with a SIGTERM half-way.")
    train(pieces, *length, "--interrupt-after", str(middle))
    stopped_at = metadata(newest_checkpoint(pieces))["steps_completed"]
    console.print(f"\n[bold]3[/]  Go on after batch {stopped_at}, in a new process.")
    train(pieces, *length, "--latest-checkpoint", "latest")

    result = newest_checkpoint(pieces)
    if not compare(console, newest_checkpoint(straight), result, stopped_at):
        raise SystemExit("The resumed training is not what the uninterrupted one is. Please report this.")
    say_what_next(console, result, pieces, 2 * args.epochs)


if __name__ == "__main__":
    main()
