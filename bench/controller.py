"""What the controller costs: its start, waiting, each of many trials, and short trials against a shell loop.

    python bench/controller.py [--quick] [--only start,create,idle,many,loop]

Prints seconds, rates and ratios. Each part works in a data directory of its own. The shell loop comes last: it is the
one that other work on the machine disturbs most, and the load is printed with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from determined.experiment.config.experiment_config import ExperimentConfig
from determined.experiment.controller import start
from determined.experiment.controller.loop import Controller
from determined.experiment.launchers.base import TaskSpec
from determined.experiment.slots import Slots
from determined.store import attempts, experiments
from determined.store.attempts import AttemptRow
from determined.store.control import controllers, pending
from determined.store.database.connection import Store, open_store

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
FIRST_BATCH = """import os, runpy, sys, time
from torch.optim.optimizer import register_optimizer_step_post_hook

def note(*_):
    first.remove()
    open(os.environ["BENCH_FILE"], "w").write(str(time.time()))

first = register_optimizer_step_post_hook(note)
sys.argv = ["train.py", "--epochs", "1"]
runpy.run_path("train.py", run_name="__main__")
"""
SECONDS_LIMIT = 300.0
console = Console()


@contextlib.contextmanager
def home() -> Iterator[Path]:
    """Yield a new data directory that this process and those it starts use."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="bench-controller-") as directory:
        os.environ.pop("DET_STORE", None)
        os.environ |= {"DET_HOME": directory, "DET_SLOTS": "2", "BENCH_FILE": f"{directory}/first-batch"}
        try:
            yield Path(directory)
        finally:
            _end_controller(Path(directory))
            os.environ.clear()
            os.environ |= before


def _end_controller(directory: Path) -> None:
    if (directory / "determined.db").exists():
        store = open_store()
        with store.read() as conn:
            holder = controllers.current(conn)
        store.close()
        if holder is not None and holder.is_alive:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(holder.pid)
                process.terminate()
                process.wait(10)


def wait_for(what: Any, seconds: float = SECONDS_LIMIT) -> Any:
    """Ask until the answer is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (answer := what()):
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {seconds:.0f} s in vain; the controller's log:\n{start.log_path().read_text()}")
        time.sleep(0.02)
    return answer


def det(*arguments: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, *python, "-m", "determined.cli", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True)


def write_code(directory: Path, entrypoint: str, searcher: dict[str, Any], files: dict[str, str]) -> list[str]:
    """Write a config and its code, and return the arguments that submit it."""
    code = directory / "code"
    code.mkdir()
    for name, text in files.items():
        (code / name).write_text(text)
    space = {"global_batch_size": 32, "lr": 0.05, "dropout": 0.25, "x": {"type": "double", "minval": 0, "maxval": 1}}
    config = {
        "name": "bench", "entrypoint": entrypoint, "hyperparameters": space, "max_restarts": 0,
        "searcher": {"metric": "accuracy", "smaller_is_better": False, **searcher},
    }  # fmt: skip
    (directory / "bench.json").write_text(json.dumps(config))
    return ["experiment", "create", str(directory / "bench.json"), str(code)]


# The parts.


def measure_start(quick: bool) -> None:
    """From starting a controller's process to its lease, beside a bare interpreter."""
    table = Table("", "seconds", "processor seconds", title="start, best of several")
    bare, took, used = [], [], []
    for _ in range(3 if quick else 7):
        with home():
            store = open_store()
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            bare.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            process = psutil.Process(start.spawn(store))
            wait_for(lambda: _holder(store))  # noqa: B023 - called before the next turn
            took.append(time.perf_counter() - begin)
            used.append(_processor(process))
            store.close()
    table.add_row("python -c pass", f"{min(bare):.3f}", "")
    table.add_row("the controller has the lease", f"{min(took):.3f}", f"{min(used):.2f}")
    console.print(table)


def _holder(store: Store) -> str | None:
    with store.read() as conn:
        row = controllers.current(conn)
    return None if row is None else row.holder


def measure_create(quick: bool) -> None:
    """From Enter to the experiment's id, and to the first trained batch, beside the same script without us."""
    ids, ours, theirs = [], [], []
    for _ in range(2 if quick else 5):
        with home() as directory:
            files = {"train.py": (DIGITS / "train.py").read_text(), "first_batch.py": FIRST_BATCH}
            submission = write_code(directory, "python3 first_batch.py", {"name": "single"}, files)
            script = [sys.executable, "first_batch.py"]
            begin = time.time()
            alone = {**os.environ, "DET_TRACKING": "off"}
            subprocess.run(script, check=True, cwd=directory / "code", env=alone, capture_output=True)
            theirs.append(_first_batch(directory) - begin)
            begin = time.time()
            det(*submission)
            ids.append(time.time() - begin)
            ours.append(wait_for(lambda: _first_batch(directory)) - begin)
            _wait_for_end(directory)
    table = Table("", "seconds", "ratio", title="det experiment create on a new store, medians")
    other = statistics.median(theirs)
    table.add_row("Enter to the id", f"{statistics.median(ids):.2f}", "")
    table.add_row("python train.py to its first batch", f"{other:.2f}", "1.00")
    table.add_row(
        "Enter to the first batch", f"{statistics.median(ours):.2f}", f"{statistics.median(ours) / other:.2f}"
    )
    console.print(table)
    with home() as directory:
        submission = write_code(directory, "sh job.sh", {"name": "single"}, {"job.sh": "exit 0\n"})
        imported = det(*submission, python=("-X", "importtime")).stderr
        names = {line.rpartition("|")[2].strip().partition(".")[0] for line in imported.splitlines()}
        heavy = sorted(names & {"torch", "numpy", "alembic", "requests", "sklearn"})
        console.print(f"det experiment create imports {len(imported.splitlines())} modules; of heavy ones: {heavy}")
        _wait_for_end(directory)


def _first_batch(directory: Path) -> float:
    file = directory / "first-batch"
    text = file.read_text() if file.exists() else ""
    if text:
        file.unlink()
    return float(text or 0.0)


def _wait_for_end(directory: Path) -> experiments.ExperimentRow:
    store = open_store(directory / "determined.db")

    def ended() -> experiments.ExperimentRow | None:
        with store.read() as conn:
            row = experiments.get(conn, 1)
        return row if row.state in experiments.TERMINAL else None

    try:
        row: experiments.ExperimentRow = wait_for(ended)
    finally:
        store.close()
    if row.state != "COMPLETED":
        raise SystemExit(f"the experiment is {row.state}: {row.state_reason}")
    return row


def measure_idle(quick: bool) -> None:
    """Processor time of a controller, and of an agent, that wait for a long trial."""
    seconds = 5 if quick else 20
    with home() as directory:
        det(*write_code(directory, "sh job.sh", {"name": "single"}, {"job.sh": "exec sleep 600\n"}))
        store = open_store()
        row = wait_for(lambda: _agent(store))
        time.sleep(2)
        with store.read() as conn:
            holder = controllers.current(conn)
        assert holder is not None
        table = Table("process", "processor time", "share of a core", "resident MB", title=f"idle for {seconds} s")
        watched = {"controller": psutil.Process(holder.pid), "agent": psutil.Process(row.pid)}
        before = {name: _processor(process) for name, process in watched.items()}
        time.sleep(seconds)
        for name, process in watched.items():
            used = _processor(process) - before[name]
            resident = process.memory_info().rss / 1e6
            table.add_row(name, f"{used * 1e3:.0f} ms", f"{used / seconds:.2%}", f"{resident:.0f}")
        console.print(table)
        os.kill(row.pid, signal.SIGQUIT)
        wait_for(lambda: _agent(store) is None)
        store.close()


def _agent(store: Store) -> AttemptRow | None:
    with store.read() as conn:
        found = attempts.of_controller(conn)
    return found[0] if found and found[0].pid is not None else None


def _processor(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measure_loop(quick: bool) -> None:
    """Short trials on two slots, from Enter to the experiment's end, beside a shell loop over the same script."""
    trials = 10 if quick else 50
    with home() as directory:
        searcher = {"name": "random", "max_trials": trials, "max_concurrent_trials": trials}
        submission = write_code(directory, "sh job.sh", searcher, {"job.sh": "sleep 1\n"})
        load = os.getloadavg()[0]
        begin = time.time()
        loop = f"seq {trials} | xargs -P 2 -n 1 sh job.sh"
        subprocess.run(["sh", "-c", loop], check=True, cwd=directory / "code")
        theirs = time.time() - begin
        begin = time.time()
        det(*submission)
        end = _wait_for_end(directory).end_time
        assert end is not None
        store = open_store()
        with store.read() as conn:
            first = min(attempts.of_trial(conn, trial)[0].start_time for trial in range(1, trials + 1))
        store.close()
        title = f"{trials} trials of one second on two slots; load {load:.1f} before, {os.getloadavg()[0]:.1f} after"
    table = Table("", "seconds", "ratio", title=title)
    table.add_row("xargs -P 2", f"{theirs:.2f}", "1.00")
    whole, trained = end.timestamp() - begin, (end - first).total_seconds()
    table.add_row("det experiment create, from Enter to the end", f"{whole:.2f}", f"{whole / theirs:.3f}")
    table.add_row("from the first attempt to the end", f"{trained:.2f}", f"{trained / theirs:.3f}")
    console.print(table)


# Many trials that end at once, in a process of their own, whose memory is what they needed.


@dataclass
class EndsAtOnce:
    """Its trials have ended when it is next asked to wait. What it takes itself is counted: it is not the controller.

    Attributes:
        seconds: What it took itself.
        processor: What of that the processor took.
    """

    store: Store
    name: str = "bench"
    seconds: float = 0.0
    processor: float = 0.0
    running: list[TaskSpec] = field(default_factory=list)

    def slots(self) -> Slots:
        return Slots("cpu", tuple(map(str, range(16))))

    def start(self, task: TaskSpec) -> None:
        with self._counted(), self.store.write() as conn:
            attempts.claim(conn, task.allocation_id, node="", pid=os.getpid(), process_started=None)
        self.running.append(task)

    def is_alive(self, attempt: AttemptRow) -> bool:
        return True

    def kill(self, attempt: AttemptRow) -> None:
        raise AssertionError("nothing is to be killed")

    def wait(self, seconds: float) -> None:
        for task in self.running:
            with self._counted(), self.store.write() as conn:
                attempts.end(conn, task.allocation_id, exit_code=0)
                told = {"trial_id": task.trial_id, "attempt": task.attempt}
                pending.append(conn, task.experiment_id, "ATTEMPT_ENDED", {"code": 0, "matched_policy": None}, **told)
        self.running.clear()

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        begin, used = time.perf_counter(), time.process_time()
        yield
        self.seconds += time.perf_counter() - begin
        self.processor += time.process_time() - used


def drive(trials: int, at_once: int) -> dict[str, float]:
    """Drive one experiment to its end in this process, and return what that took."""
    store = open_store()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    config = ExperimentConfig.parse(
        {
            "entrypoint": "true",
            "hyperparameters": {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}},
            "searcher": {"name": "random", "metric": "loss", "max_trials": trials, "max_concurrent_trials": at_once},
        }
    ).effective()
    with store.write() as conn:
        ident = experiments.create(conn, name="bench", config=config, owner="bench", searcher_metric="loss")
        pending.append(conn, ident, "STARTED")
        pending.append(conn, ident, "REQUEST", {"action": "activate"})
    launcher = EndsAtOnce(store)
    controller = Controller(store, launcher)
    assert controller.take_lease()
    begin = time.perf_counter()
    used = time.process_time()
    while controller.round():
        launcher.wait(0)
    took, processor = time.perf_counter() - begin, time.process_time() - used
    with store.read() as conn:
        assert experiments.get(conn, ident).state == "COMPLETED"
        events = conn.exec_driver_sql("SELECT count(*) FROM events WHERE kind = 'ENGINE'").scalar_one()
        conn.rollback()
    store.close()
    assert store.path is not None
    return {
        "events": events,
        "seconds": took - launcher.seconds,
        "processor": processor - launcher.processor,
        "before": before / 1e3,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "store": store.path.stat().st_size / 1e6,
    }


def measure_many(quick: bool) -> None:
    """Events per second, memory and the store's size of small and large searches."""
    table = Table(
        *(
            "trials",
            "at once",
            "events",
            "events per s",
            "ms per trial",
            "processor ms",
            "peak MB",
            "MB above start",
            "store MB",
        ),
        title="trials that end at once, on 16 slots; without what the launcher takes",
    )
    for trials, at_once in ((1000, 16), (1000, 1000), *(() if quick else ((10_000, 16), (10_000, 10_000)))):
        with home():
            command = [sys.executable, __file__, "--drive", str(trials), str(at_once)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        table.add_row(
            f"{trials:,}",
            f"{at_once:,}",
            f"{found['events']:,}",
            f"{found['events'] / found['seconds']:,.0f}",
            f"{found['seconds'] / trials * 1e3:.2f}",
            f"{found['processor'] / trials * 1e3:.2f}",
            f"{found['peak']:.0f}",
            f"{found['peak'] - found['before']:.0f}",
            f"{found['store']:.1f}",
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="about a minute: fewer trials and rounds")
    parser.add_argument("--only", default="start,create,idle,many,loop")
    parser.add_argument("--drive", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        print(json.dumps(drive(*options.drive)))
        return
    if shutil.which("xargs") is None:
        raise SystemExit("xargs is needed, and is not there")
    parts = {
        "start": measure_start,
        "create": measure_create,
        "idle": measure_idle,
        "many": measure_many,
        "loop": measure_loop,
    }
    for name in options.only.split(","):
        parts[name](options.quick)


if __name__ == "__main__":
    main()
