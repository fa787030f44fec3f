"""How long a report takes to the pixel: 20 real trainings at 10 reports a second, one of them watched in Chromium.

    python bench/page_live.py [--trials 20] [--rate 10] [--seconds 20]

Each report notes its time, and the page notes when the first frame with that step, or a later one, was drawn.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

TRAINING = """
import json, pathlib, sys, time
from determined import core

rate, seconds, place = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
sent = {}
with core.init() as context:
    context.train.report_training_metrics(1, {"loss": 1.0})
    while not pathlib.Path("go").exists():
        time.sleep(0.05)
    began = time.time()
    step = 1
    while time.time() - began < seconds:
        step += 1
        sent[step] = time.time()
        context.train.report_training_metrics(step, {"loss": 1.0 / step})
        time.sleep(max(0.0, began + step / rate - time.time()))
with open(place, "w") as file:
    json.dump(sent, file)
"""
# The label of the chart says up to which batch it reaches; two frames later it has been painted.
WATCH = """
() => {
  window.seen = [];
  const note = () => {
    for (const chart of document.querySelectorAll('[role=img]')) {
      const found = /up to ([\\d,]+) batch/.exec(chart.getAttribute('aria-label') || '');
      if (!found) continue;
      const step = Number(found[1].replaceAll(',', ''));
      requestAnimationFrame(() => requestAnimationFrame(() => window.seen.push([step, Date.now() / 1000])));
    }
  };
  new MutationObserver(note).observe(document.body, {subtree: true, attributes: true, attributeFilter: ['aria-label']});
}
"""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


def measure(directory: Path, options: argparse.Namespace) -> tuple[list[float], int]:
    """Return the seconds from each report to its frame, and how many reports no frame showed."""
    from playwright.sync_api import sync_playwright

    environment = {**os.environ, "DET_HOME": str(directory / "home")}
    (directory / "train.py").write_text(TRAINING)
    started = []
    for number in range(options.trials):
        words = [str(options.rate), str(options.seconds), str(directory / f"{number}.json")]
        command = [sys.executable, "train.py", *words]
        started.append(subprocess.Popen(command, cwd=directory, env=environment, stderr=subprocess.DEVNULL))
        if number == 0:
            time.sleep(5)  # it is experiment 1
    command = [sys.executable, "-m", "determined.cli", "ui", "--no-open"]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address, _, token = server.stdout.readline().strip().partition("/?token=")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{address}/trials/1/metrics?token={token}")
        page.locator("[role=img][aria-label*='batch']").first.wait_for(timeout=60_000)
        page.evaluate(WATCH)
        (directory / "go").touch()
        for process in started:
            process.wait()
        page.wait_for_timeout(3000)
        seen: list[Any] = page.evaluate("window.seen")
        browser.close()
    server.send_signal(signal.SIGINT)
    server.wait(10)
    server.stdout.close()
    sent = {int(step): moment for step, moment in json.loads((directory / "0.json").read_text()).items()}
    frames = sorted((moment, step) for step, moment in seen)
    took, missed = [], 0
    for step, moment in sent.items():
        first = next((drawn for drawn, reached in frames if reached >= step), None)
        missed += first is None
        took += [] if first is None else [first - moment]
    return sorted(took), missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        took, missed = measure(Path(directory), options)
    table = Table("what", "p50", "p95", "goal", title=f"{options.trials} trainings at {options.rate:g} reports/s")
    last = took[math.ceil(0.95 * len(took)) - 1]
    table.add_row("from report() to the pixel", f"{took[len(took) // 2]:.2f} s", f"{last:.2f} s", "1 s p95")
    table.add_row("reports without a frame", str(missed), "", "0")
    Console().print(table)


if __name__ == "__main__":
    main()
