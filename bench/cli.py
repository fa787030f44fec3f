"""What starting costs, as whole processes: imports, help, version, and lists over a store of 10,000 runs.

    python bench/cli.py [RUNS]

Prints seconds from start to exit, the best of several, and beside them a bare `python -c pass`.
"""

from __future__ import annotations

import datetime
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROUNDS = 5
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


def fill(path: Path, runs: int) -> None:
    """A store with so many finished runs of one trial each."""
    from determined.store.database.connection import open_store
    from determined.store.schema import experiments, trials

    store = open_store(path)
    owner = _owner()
    with store.write() as conn:
        conn.execute(experiments.insert(), [_experiment(i, owner) for i in range(1, runs + 1)])
        conn.execute(trials.insert(), [_trial(i) for i in range(1, runs + 1)])
    store.close()


def _owner() -> str:
    return os.environ.get("USER") or "root"


def _experiment(i: int, owner: str) -> dict[str, object]:
    started = START + datetime.timedelta(minutes=i)
    return {
        "id": i, "owner": owner, "state": "COMPLETED", "name": f"digits-{i % 97}", "config": {"name": "digits"},
        "start_time": started, "end_time": started + datetime.timedelta(minutes=30), "progress": 1.0,
        "searcher_metric": "validation_loss", "unmanaged": True, "project_id": 1,
    }  # fmt: skip


def _trial(i: int) -> dict[str, object]:
    started = START + datetime.timedelta(minutes=i)
    return {
        "id": i, "experiment_id": i, "request_id": str(i), "state": "COMPLETED", "hparams": {"lr": i / 1e4},
        "start_time": started, "end_time": started + datetime.timedelta(minutes=30), "total_batches": 1000,
        "searcher_metric_value": 1.0 / i,
    }  # fmt: skip


def seconds(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """The fastest of several whole processes: on the clock, and of the processor alone."""
    taken, worked = [], []
    for _ in range(ROUNDS):
        begin, used = time.perf_counter(), _processor()
        subprocess.run(command, env=environment, check=True, capture_output=True)
        taken.append(time.perf_counter() - begin)
        worked.append(_processor() - used)
    return min(taken), min(worked)


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    det = [sys.executable, "-m", "determined.cli"]
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "determined.db"
        fill(store, runs)
        environment = {**os.environ, "DET_STORE": str(store), "DET_HOME": directory}
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "import determined": [sys.executable, "-c", "import determined"],
            "import torch": [sys.executable, "-c", "import torch"],
            "import torch, determined.pytorch": [sys.executable, "-c", "import torch, determined.pytorch"],
            "the same, and use what training uses": [
                *(sys.executable, "-c"),
                "import torch, determined.pytorch as p; p.PyTorchTrial, p.DataLoader, p.init, p.Trainer",
            ],
            "det --version": [*det, "--version"],
            "det --help": [*det, "--help"],
            f"det experiment list  ({runs:,} runs)": [*det, "-u", _owner(), "e", "ls"],
            f"det experiment list --csv  ({runs:,} runs)": [*det, "e", "ls", "-a", "--csv"],
            "det experiment list --last 10": [*det, "e", "ls", "-a", "--last", "10"],
            "det compare --last 10": [*det, "-u", _owner(), "compare", "--last", "10"],
            "det trial describe": [*det, "t", "describe", str(runs)],
        }
        table = Table("command", "seconds", "processor seconds", title="whole processes, best of five")
        for name, command in commands.items():
            clock, processor = seconds(command, environment)
            table.add_row(name, f"{clock:.3f}", f"{processor:.3f}")
        Console().print(table)


if __name__ == "__main__":
    main()
