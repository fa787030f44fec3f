"""Attempts on a real Ray cluster of several nodes on this machine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.launcher import LauncherContract
from tests.launching import Bench
from tests.ray_cluster import RayCluster, RemoteLauncher

pytestmark = pytest.mark.slow


@pytest.fixture
def launcher(ray_cluster: RayCluster, bench: Bench) -> RemoteLauncher:
    return RemoteLauncher(ray_cluster, bench.place, bench.home)


class TestRayLauncher(LauncherContract):
    def test_only_own_gpus_are_seen(self, launcher: Any, bench: Bench, ray_cluster: RayCluster) -> None:
        """A trial sees the GPUs that Ray gave it and no others; on CPU slots it sees none."""
        script = "import os; print(repr(os.environ['CUDA_VISIBLE_DEVICES']))"
        with ray_cluster.node("with-gpus", gpus=4):
            for kind, shown in (("cpu", "''"), ("cuda", "'0,1'")):
                task = bench.task({"train.py": script}, slots=2, slot_kind=kind)
                launcher.start(task)
                bench.end(task)
                assert bench.text(task, "trial") == shown
        assert bench.row(task).slot_ids == ["with-gpus/0", "with-gpus/1"]
