"""Connects `ray_tune.py` and `ray_train.py` to Ray."""

from __future__ import annotations

import os
from pathlib import Path

import ray


def connect(cpus: int) -> None:
    """Connect to the cluster at RAY_ADDRESS, or start a small one on this machine, which ends with this process."""
    if "RAY_ADDRESS" in os.environ:
        ray.init(log_to_driver=False)  # its workers have the environment of `ray start`
        return
    if "DET_HOME" in os.environ:  # workers have current directories of their own
        os.environ["DET_HOME"] = str(Path(os.environ["DET_HOME"]).expanduser().absolute())
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # What workers print is in our store.
    ray.init("local", num_cpus=cpus, include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False)
