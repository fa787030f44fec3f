"""What recording a run costs the thread that trains: per report, per printed line, and before the first batch.

    python bench/link.py

The store is in a temporary directory. "locked" is the same while another process holds the database.
"""

from __future__ import annotations

import contextlib
import io
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from determined import core

REPORTS = 2000
PAUSE = 0.0005  # between reports, so that the background thread has a chance, as it has in training
START = """
import sys, time
began = time.perf_counter()
from determined import core
with core.init(tracking={tracking}) as context:
    context.train.report_training_metrics(1, {{"loss": 1.0}})
    context.preempt.should_preempt()
    first = time.perf_counter() - began
print(first, time.perf_counter() - began)
"""


@contextlib.contextmanager
def recorded(how: str) -> Iterator[core.Context]:
    """A context that records nothing, or into a store, or into one that somebody else holds."""
    manual = core.TensorboardMode.MANUAL
    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
        os.environ["DET_HOME"] = home
        if how == "locked":
            with core.init(tensorboard_mode=manual):
                pass
            other = stack.enter_context(contextlib.closing(sqlite3.connect(Path(home, "determined.db"))))
            other.execute("BEGIN EXCLUSIVE")
        with core.init(tracking=how != "off", tensorboard_mode=manual) as context:
            time.sleep(1)  # the store is open
            yield context
            if how == "locked":
                other.rollback()


def microseconds(work: Callable[[int], object]) -> tuple[float, float]:
    """Median and 99th percentile of one call."""
    took = []
    for i in range(REPORTS):
        began = time.perf_counter()
        work(i)
        took.append((time.perf_counter() - began) * 1e6)
        time.sleep(PAUSE)
    return statistics.median(took), statistics.quantiles(took, n=100)[98]


def main() -> None:
    console = Console()
    table = Table("recording", "report() us", "p99", "print() us", "p99", title="in the thread that trains")
    for how in ("off", "on", "locked"):
        with recorded(how) as context, contextlib.redirect_stdout(io.StringIO()):
            metrics = {"loss": 0.5, "accuracy": 0.9, "lr": 0.1}
            report = microseconds(lambda i: context.train.report_training_metrics(i, metrics))  # noqa: B023 - now
            context._log_tee and context._log_tee.close()  # type: ignore[func-returns-value]  # hears what print goes to
            context._log_tee and context._log_tee.start()  # type: ignore[func-returns-value]
            line = microseconds(lambda i: print("epoch", i, "loss", 0.5))
        table.add_row(how, *(f"{value:.1f}" for value in (*report, *line)))
    console.print(table)
    table = Table("recording", "first batch after s", "whole process s", title="a process that reports once")
    for tracking in (False, True):
        runs = []
        for _ in range(5):
            with tempfile.TemporaryDirectory() as home:
                program = START.format(tracking=tracking)
                environment = {**os.environ, "DET_HOME": home}
                out = subprocess.run(
                    [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
                ).stdout
                runs.append([float(word) for word in out.split()])
        first, whole = (statistics.median(column) for column in zip(*runs, strict=True))
        table.add_row("on" if tracking else "off", f"{first:.3f}", f"{whole:.3f}")
    console.print(table)


if __name__ == "__main__":
    main()
