"""What Ray costs: the start of a trial, and a thousand short trials, against the local launcher on the same machine.

    python bench/cluster.py --only start,many [--trials 1000] [--starts 20]

Three Ray nodes with two slots each run on this machine, as in the tests; the local launcher has as many slots. Trials
sleep for a second, so that their own work needs no processor; what is left is the cost of starting and ending them.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from determined.client import Determined
from tests.ray_cluster import RayCluster

SLOTS = 6
PARTS = ("start", "many")
START = "import pathlib, sys, time; pathlib.Path(sys.argv[1], str(time.time())).touch()"
SLEEP = "import time; time.sleep(1)"
console = Console()


@contextlib.contextmanager
def nodes() -> Iterator[dict[str, str]]:
    """Three nodes with two slots each; yields what a process needs to find them."""
    cluster = RayCluster()
    try:
        for name in ("two", "three"):
            cluster.lasting(name, cpus=2)
        yield {**cluster.environment, "DET_LAUNCHER": "ray"}
    finally:
        cluster.close()


def run(environment: dict[str, str], script: str, trials: int, at_once: int) -> tuple[float, list[float]]:
    """Run a search of so many trials; return its seconds, and those from each trial's slots to its first line."""
    with tempfile.TemporaryDirectory(prefix="bench") as place:
        code, notes = Path(place, "code"), Path(place, "notes")
        code.mkdir()
        notes.mkdir()
        (code / "train.py").write_text(script)
        before = dict(os.environ)
        os.environ.update(environment, DET_HOME=str(Path(place, "home")))
        try:
            searcher = {"name": "random", "metric": "m", "max_trials": trials, "max_concurrent_trials": at_once}
            config = {"entrypoint": f"python3 train.py {notes}", "searcher": searcher, "checkpoint_policy": "none"}
            began = time.monotonic()
            client = Determined()
            experiment = client.create_experiment(config, code)
            state = experiment.wait(interval=0.2).value
            taken = time.monotonic() - began
            assert state == "COMPLETED", state
            given = sorted(row.start_time.timestamp() for trial in experiment.list_trials() for row in trial.attempts())
            first = sorted(float(file.name) for file in notes.iterdir())
            client.controller.stop()
            client.close()
        finally:
            os.environ.clear()
            os.environ.update(before)
    return taken, [there - then for then, there in zip(given, first, strict=False)]


def measure(parts: list[str], starts: int, trials: int) -> None:
    """Print the seconds of starts, and how much longer many short trials take than they sleep."""
    table = Table(title=f"Ray against local, {SLOTS} slots, load {os.getloadavg()[0]:.1f}")
    for title in ("", "local", "Ray", "ratio"):
        table.add_column(title, justify="right" if title else "left")
    local = {"DET_LAUNCHER": "local", "DET_SLOTS": str(SLOTS)}
    with nodes() as ray:
        if "start" in parts:
            found = [statistics.median(run(where, START, starts, 1)[1]) for where in (local, ray)]
            name = "slots to first line of the script, seconds, p50"
            table.add_row(name, *(f"{value:.2f}" for value in found), f"{found[1] / found[0]:.1f}")
        if "many" in parts:
            ideal = trials / SLOTS
            found = [run(where, SLEEP, trials, SLOTS)[0] / ideal for where in (local, ray)]
            name = f"{trials} trials of a second, times the {ideal:.0f} s that they sleep"
            table.add_row(name, *(f"{value:.2f}" for value in found), f"{found[1] / found[0]:.1f}")
    console.print(table)
