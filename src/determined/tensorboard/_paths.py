"""Where event files lie on this machine, and under which name they are kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any


def get_base_path(checkpoint_config: Mapping[str, Any]) -> Path:
    """Return the directory on this machine that this process writes its event files to. Ranks do not share one."""
    rank = os.environ.get("RANK") or os.environ.get("HOROVOD_RANK") or "0"
    name = f"tensorboard-{os.environ.get('DET_ALLOCATION_ID', '')}-{rank}"
    return Path(checkpoint_config.get("base_path") or "/tmp") / name


def get_sync_path(cluster_id: str, experiment_id: str, trial_id: str) -> PurePosixPath:
    """Return where a trial's files are kept, relative to the checkpoint storage."""
    return get_experiment_sync_path(cluster_id, experiment_id) / "trial" / str(trial_id)


def get_experiment_sync_path(cluster_id: str, experiment_id: str) -> PurePosixPath:
    """Return where an experiment's files are kept, relative to the checkpoint storage."""
    return PurePosixPath(cluster_id) / "tensorboard" / "experiment" / str(experiment_id)
