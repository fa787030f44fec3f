"""How fast the page's server is, asked over HTTP as a browser asks: start, memory, tables, curves, size of the bundle.

    python bench/page.py [--runs 10000] [--columns 200] [--points 1000000] [--only start,tables,curves,bundle]

Starts `det ui` on stores in a temporary directory. Prints figures beside the goals that they were made for; what a
browser itself adds is not in them.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gzip
import http.client
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from determined.server.settings import WEBUI
from determined.store import attempts, experiments, schema, trials
from determined.store.database.connection import Store, open_store
from determined.store.messages import MetricReport
from determined.store.metrics import metric_reports

ROUNDS = 40
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
console = Console()


class Server:
    """A `det ui` that runs, and a connection to it that stays open."""

    def __init__(self, store: Path | str, home: Path) -> None:
        environment = {**os.environ, "DET_STORE": str(store), "DET_HOME": str(home)}
        began = time.perf_counter()
        command = [sys.executable, "-m", "determined.cli", "ui", "--no-open"]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        address, _, token = self.process.stdout.readline().strip().removeprefix("http://").partition("/?token=")
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection = http.client.HTTPConnection(address)
        self.get("/about")
        self.start_seconds = time.perf_counter() - began

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """The answer's bytes."""
        given = None if body is None else json.dumps(body)
        self._connection.request(method, f"/api/v1{path}", given, self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        return content

    def get(self, path: str) -> Any:
        return json.loads(self.ask("GET", path))

    def rows(self, columns: list[str], kind: str = "experiments", **question: Any) -> bytes:
        return self.ask("POST", f"/tables/{kind}/rows", {"columns": columns, **question})

    @property
    def megabytes(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / 2**20

    def stop(self) -> None:
        self._connection.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def served(store: Path | str, home: Path) -> Iterator[Server]:
    """A page over a store, which may be a file or a server."""
    server = Server(store, home)
    try:
        yield server
    finally:
        server.stop()


class Figures:
    """A table of what was measured."""

    def __init__(self, title: str) -> None:
        self._table = Table("what", "p50", "p95", "goal", title=title)

    def once(self, what: str, value: str, goal: str = "") -> None:
        self._table.add_row(what, value, "", goal)

    def times(self, what: str, work: Callable[[int], object], goal: str = "", rounds: int = ROUNDS) -> None:
        """Milliseconds of several rounds; `work` gets the number of the round."""
        took = []
        for number in range(rounds):
            began = time.perf_counter()
            work(number)
            took.append((time.perf_counter() - began) * 1e3)
        took.sort()
        last = took[min(math.ceil(0.95 * rounds), rounds) - 1]
        self._table.add_row(what, f"{took[rounds // 2]:.1f} ms", f"{last:.1f} ms", goal)

    def show(self) -> None:
        console.print(self._table)


# Stores.


def make_runs(place: Path | str, runs: int, columns: int) -> None:
    """Runs of one trial each, with so many columns of hyperparameters, metrics and metadata. Rows are written directly:
    reporting 10,000 runs one by one would take minutes."""
    chance = random.Random(1)
    store = open_store(place)
    for first in range(1, runs + 1, 1000):
        ids = range(first, min(first + 1000, runs + 1))
        with store.write() as conn:
            conn.execute(schema.experiments.insert(), [_experiment(ident) for ident in ids])
            conn.execute(schema.trials.insert(), [_trial(ident, columns, chance) for ident in ids])
    if not store.is_sqlite:  # a server counts only the ids that it gave itself
        with store.write() as conn:
            for name in ("experiments", "trials"):
                conn.exec_driver_sql(f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), {runs})")
    store.close()


def _experiment(ident: int) -> dict[str, Any]:
    started = START + datetime.timedelta(minutes=ident)
    config = {"searcher": {"name": "single", "metric": "loss"}, "resources": {"slots_per_trial": 1}, "max_restarts": 5}
    return {
        "id": ident, "owner": f"user {ident % 9}", "state": "COMPLETED", "name": f"digits-{ident % 977}-{ident}",
        "config": config, "description": f"try number {ident}", "start_time": started,
        "end_time": started + datetime.timedelta(minutes=30 + ident % 100), "progress": 1.0, "searcher_metric": "loss",
        "best_trial_id": ident, "unmanaged": True, "project_id": 1, "checkpoint_size": ident, "checkpoint_count": 3,
    }  # fmt: skip


def _trial(ident: int, columns: int, chance: random.Random) -> dict[str, Any]:
    """Half of the columns are figures of metrics; of the rest two thirds are numbers, the others words."""
    metrics, more = columns // 8, columns - columns // 8 * 4
    names = ["loss" if number < 2 else f"metric_{number}" for number in range(metrics)]
    summary: dict[str, dict[str, Any]] = {"validation_metrics": {}, "avg_metrics": {}}
    for number, name in enumerate(names):
        value = chance.random()
        figures = {"count": 9, "min": value / 2, "max": value * 2, "sum": value * 9, "mean": value, "last": value / 1.1}
        summary["avg_metrics" if number % 2 else "validation_metrics"][name] = {**figures, "type": "number"}
    return {
        "id": ident, "experiment_id": ident, "request_id": str(ident), "state": "COMPLETED", "attempt": 1,
        "hparams": {f"h{number:03}": _value(number, chance) for number in range(more * 3 // 4)},
        "metadata": {f"note{number:03}": _value(number, chance) for number in range(more - more * 3 // 4)},
        "start_time": START + datetime.timedelta(minutes=ident), "end_time": START + datetime.timedelta(days=30),
        "total_batches": ident, "searcher_metric_value": chance.random(), "summary_metrics": summary,
    }  # fmt: skip


def all_columns(columns: int) -> list[str]:
    """The keys of what `_trial` makes."""
    trial = _trial(1, columns, random.Random(1))
    groups = {"validation": "validation_metrics", "training": "avg_metrics"}
    return [
        *(f"hparams.{name}" for name in trial["hparams"]),
        *(
            f"metrics.{group}.{name}.{figure}"
            for group, key in groups.items()
            for name in trial["summary_metrics"][key]
            for figure in ("last", "min", "max", "mean")
        ),
        *(f"metadata.{name}" for name in trial["metadata"]),
    ]


def _value(number: int, chance: random.Random) -> Any:
    return chance.choice(("adam", "sgd", "rmsprop", "lion")) if number % 3 == 2 else chance.random()


def make_curve(store: Store, points: int, group: str) -> int:
    """A run with a noisy falling loss; returns its trial."""
    chance = random.Random(points)
    with store.write() as conn:
        made = experiments.create(
            conn, name="curve", config={}, owner="bench", state="COMPLETED", unmanaged=True, searcher_metric="loss"
        )
        attempt = attempts.begin(conn, trials.create(conn, made, hparams={"lr": 0.1}))
    for first in range(0, points, 5000):
        steps = range(first, min(first + 5000, points))
        reports = [
            MetricReport(group, {"loss": math.exp(-step / points) + 0.1 * chance.random()}, step) for step in steps
        ]
        with store.write() as conn:
            metric_reports.append(conn, attempt, reports)
    return attempt.trial_id


# What is measured.


def start(directory: Path, options: argparse.Namespace) -> None:
    """From the command to the first answer, and what the process then holds, without anybody looking."""
    place = directory / "empty.db"
    open_store(place).close()
    with served(place, directory):
        pass  # files are in the cache of the system now
    figures = Figures("server, empty store")
    took = []
    for _ in range(3):
        with served(place, directory) as server:
            took.append(server.start_seconds)
            used = psutil.Process(server.process.pid).cpu_times()
            time.sleep(2)
            memory = server.megabytes
    figures.once("start, to the first answer", f"{min(took):.2f} s", "1.5 s")
    figures.once("the same, of the processor", f"{used.user + used.system:.2f} s")
    figures.once("memory, idle", f"{memory:.0f} MiB", "120 MiB")
    figures.show()


def tables(directory: Path, options: argparse.Namespace) -> None:
    """First rows of a server that has just started; then sort, filter, search and pages with all columns shown."""
    ask_tables(directory / "runs.db", directory, options)


def ask_tables(place: Path | str, directory: Path, options: argparse.Namespace, where: str = "") -> None:
    """The same on a store of the caller's choice, which is made here."""
    make_runs(place, options.runs, options.columns)
    figures = Figures(f"{where}table of {options.runs:,} runs with {options.columns} columns, 100 rows in an answer")
    usual = ["run.id", "run.name", "run.state", "run.best_metric", "run.start_time", "run.duration"]
    everything = all_columns(options.columns)
    for title, columns in (("usual columns", usual), ("all columns", everything)):
        with served(place, directory) as server:
            began = time.perf_counter()
            server.rows(columns)
            took = (time.perf_counter() - began) * 1e3
        figures.once(f"first rows of a new server, {title}", f"{took:.0f} ms", "300 ms")
    with served(place, directory) as server:
        began = time.perf_counter()
        while server.get("/tables/experiments/columns")["is_rough"]:
            time.sleep(0.05)
        figures.once("until all documents are read", f"{(time.perf_counter() - began) * 1e3:.0f} ms")
        _ask_tables(server, figures, everything)
        figures.once("size of an answer", f"{len(server.rows(everything)) / 1024:.0f} KiB")
        figures.once("memory, with the table", f"{server.megabytes:.0f} MiB", "120 MiB")
        _edit(place, server, figures)
    figures.show()


def _ask_tables(server: Server, figures: Figures, everything: list[str]) -> None:
    numbers = [key for key in everything if key.startswith("metrics.")]
    words = [key for key in everything if key.startswith("hparams.") and int(key[-3:]) % 3 == 2]
    ways = ("", "-")
    figures.times("page", lambda n: server.rows(everything, offset=100 * n))
    figures.times("sort by a number", lambda n: server.rows(everything, sort=[ways[n % 2] + numbers[n]]), "200 ms")
    by_word = [[words[n % len(words)], "run.name"] for n in range(ROUNDS)]
    figures.times("sort by a word, then a name", lambda n: server.rows(everything, sort=by_word[n]), "200 ms")
    low = [{"column": numbers[n], "operator": "<", "value": 0.02 * n} for n in range(ROUNDS)]
    named = [{"column": "run.name", "operator": "contains", "value": f"-{n}"} for n in range(ROUNDS)]
    figures.times("filter a number", lambda n: server.rows(everything, filter={"all_of": [low[n]]}), "200 ms")
    either = [{"any_of": pair} for pair in zip(low, named, strict=True)]
    figures.times("filter two ways", lambda n: server.rows(everything, filter=either[n], sort=["run.name"]), "200 ms")
    figures.times("search", lambda n: server.rows(everything, search=f"{n}7"), "200 ms")
    figures.times("trials, sorted", lambda n: server.rows(everything, "trials", sort=[numbers[n]]), "200 ms")
    figures.times("columns", lambda n: server.get("/tables/experiments/columns"))
    figures.times("search box", lambda n: server.get(f"/search?q=digits-{n}"))
    figures.times("home", lambda n: server.get("/home"))


def _edit(place: Path | str, server: Server, figures: Figures) -> None:
    """Somebody renames a run in another process, now and then."""
    store = open_store(place)

    def rename(n: int) -> None:
        with store.write() as conn:
            experiments.update(conn, 7, name=f"renamed {n}")
        deadline = time.perf_counter() + 10
        while not json.loads(server.rows(["run.name"], search=f"renamed {n}"))["total"]:
            assert time.perf_counter() < deadline, "the edit was not seen"
            time.sleep(0.02)

    time.sleep(2.1)
    figures.times("until a rename elsewhere is seen", rename, "seconds", rounds=4)
    store.close()


def curves(directory: Path, options: argparse.Namespace) -> None:
    """A long curve as a whole and in parts, and many curves together."""
    ask_curves(directory / "curves.db", directory, options)


def ask_curves(place: Path | str, directory: Path, options: argparse.Namespace, where: str = "") -> None:
    """The same on a store of the caller's choice, to which the curves are added."""
    store = open_store(place)
    long = make_curve(store, options.points, "training")
    many = [make_curve(store, 2000, "validation") for _ in range(100)]
    store.close()
    figures = Figures(f"{where}curves, 1,000 buckets")
    chance = random.Random(2)
    with served(place, directory) as server:
        path = "/curves?series=training:loss&buckets=1000"

        def zoomed(share: float) -> Callable[[int], object]:
            def ask(_: int) -> object:
                first = chance.randrange(int(options.points * (1 - share)))
                return server.ask(
                    "GET", f"{path}&trials={long}&first={first}&last={first + int(options.points * share)}"
                )

            return ask

        figures.times(f"{options.points:,} points", lambda _: server.ask("GET", f"{path}&trials={long}"), "20 ms")
        for share in (0.5, 0.1, 0.01):
            figures.times(f"a part of it, {share:.0%}", zoomed(share), "20 ms")
        together = f"{path.replace('training', 'validation')}&trials={','.join(map(str, many))}"
        figures.times("100 runs of 2,000 points together", lambda _: server.ask("GET", together), rounds=10)
        sparks = f"/tables/trials/sparks?ids={','.join(map(str, many))}"
        figures.times("100 small curves of a table", lambda _: server.ask("GET", sparks), rounds=10)
        figures.once("memory then", f"{server.megabytes:.0f} MiB")
    figures.show()


def bundle(directory: Path, options: argparse.Namespace) -> None:
    """What a browser loads, as it is sent: packed."""
    figures = Figures("bundle, gzipped")
    files = [path for path in WEBUI.rglob("*") if path.suffix in (".js", ".css", ".html", ".svg")]
    sizes = {path: len(gzip.compress(path.read_bytes(), 9)) / 1024 for path in files}
    for path, size in sorted(sizes.items(), key=lambda item: -item[1])[:6]:
        figures.once(str(path.relative_to(WEBUI)), f"{size:.0f} KB")
    figures.once(f"all {len(files)} files", f"{sum(sizes.values()):.0f} KB", "500 KB")
    figures.show()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=200)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--only", default="start,tables,curves,bundle")
    options = parser.parse_args()
    parts = {"start": start, "tables": tables, "curves": curves, "bundle": bundle}
    with tempfile.TemporaryDirectory() as directory:
        for name in options.only.split(","):
            parts[name](Path(directory), options)


if __name__ == "__main__":
    main()
