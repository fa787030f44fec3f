"""Bringing checkpoints to this machine, with a bar while it takes time; and checking that they are whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from determined.cli import terminal
from determined.cli.render import Column, Table

if TYPE_CHECKING:
    from determined.client import Checkpoint

COLUMNS = ["Experiment ID", "Trial ID", "Steps Completed", "Report Time", "Checkpoint UUID", "Validation Metrics",
           "Metadata"]  # fmt: skip


def download(found: Sequence[Checkpoint], directory: str | Path, *, quiet: bool) -> None:
    """Fetch several checkpoints, each into a directory of its own."""
    for checkpoint in found:
        download_one(checkpoint, Path(directory) / checkpoint.uuid, quiet=quiet)


def download_one(checkpoint: Checkpoint, directory: str | Path | None, *, quiet: bool) -> None:
    """Fetch one checkpoint and say where it is."""
    target = Path(directory) if directory else Path("checkpoints") / checkpoint.uuid
    with terminal.bar(f"Downloading {checkpoint.uuid[:8]}", quiet=quiet) as progress:
        path = checkpoint.download(target, progress=progress)
    terminal.write(f"{path}\n")
    if not quiet:
        row = [checkpoint.experiment_id, checkpoint.trial_id, checkpoint.steps_completed, checkpoint.report_time,
               checkpoint.uuid, checkpoint.validation_metrics, checkpoint.metadata]  # fmt: skip
        Table([Column(title) for title in COLUMNS], [row], is_description=True).show()
