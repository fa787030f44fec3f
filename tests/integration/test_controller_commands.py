"""det controller: a real controller process, started, looked at and stopped from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from determined import _process
from determined.store.database.connection import open_store
from tests.launchers import submit


@pytest.fixture
def det(tmp_path: Path) -> Any:
    """Run det with a data directory of its own."""

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "determined.cli", *map(str, words)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=240, env=environment(tmp_path), check=True
        )

    return run


def environment(home: Path) -> dict[str, str]:
    own = {"DET_HOME": str(home), "DET_SLOTS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return {k: v for k, v in os.environ.items() if k not in ("DET_STORE", "DET_CONTROLLER")} | own


def test_a_controller_is_started_and_stopped(det: Any, tmp_path: Path) -> None:
    """Issue 14: `start` waits until it is up, a second `start` finds it, `stop` waits until it has left."""
    store = open_store(tmp_path / "determined.db")
    waits = {"entrypoint": "sleep 300", "searcher": {"name": "single", "metric": "loss"}, "max_restarts": 0}
    ident = submit(store, waits)  # something to drive, or it would leave by itself
    store.close()
    assert "Started a controller: pid " in det("controller", "start").stderr
    status = json.loads(det("controller", "status", "--json").stdout)
    assert status["is_alive"]
    assert _process.is_alive(status["pid"])
    assert f"A controller is alive already: pid {status['pid']}" in det("controller", "start").stderr
    assert f"The controller (pid {status['pid']}) has left." in det("controller", "stop").stderr
    assert not _process.is_alive(status["pid"])
    assert not json.loads(det("controller", "status", "--json").stdout)["is_alive"]
    assert "The controller leaves." in det("controller", "logs", "--tail", 3).stdout
    assert "nothing to stop" in det("controller", "stop").stderr
    assert f"Killed experiment {ident}" in det("e", "kill", ident).stderr, "asking for something starts one again"
    waiting = [sys.executable, "-m", "determined.cli", "e", "wait", "--polling-interval", "0.2", str(ident)]
    assert subprocess.run(waiting, env=environment(tmp_path), timeout=240, check=False).returncode == 1
    det("controller", "stop")
