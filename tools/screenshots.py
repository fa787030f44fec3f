"""Take the pictures of the page for docs/pictures: home, a search, a comparison and a trial, light and dark.

    DET_HOME=demo-output/search python tools/screenshots.py EXPERIMENT TRIAL [TRIAL...]

The store is yours: `make demo-search` leaves a good one. The first trial is shown alone, all of them are compared.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
SIZE = {"width": 1280, "height": 800}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


def take(link: str, experiment: str, trials: list[str]) -> None:
    """Open each page in both themes and save what is seen."""
    from playwright.sync_api import sync_playwright

    address, token = link.split("?")[0].rstrip("/"), link.split("token=")[1]
    places = {
        "home": "/",
        "experiment": f"/experiments/{experiment}",
        "compare": f"/compare?trials={','.join(trials)}",
        "trial": f"/trials/{trials[0]}/metrics",
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for theme in ("light", "dark"):
            page = browser.new_page(viewport=SIZE, color_scheme=theme)
            page.goto(f"{address}/?token={token}")
            for name, path in places.items():
                page.goto(f"{address}{path}")
                page.wait_for_timeout(3000)  # charts are drawn when their data is there
                page.screenshot(path=str(PICTURES / f"page-{name}-{theme}.png"))
        browser.close()


def main() -> int:
    """Start a page on the store, take the pictures, and end it."""
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "determined.cli", "ui", "--no-open", "--read-only"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        take(server.stdout.readline().strip(), sys.argv[1], sys.argv[2:])
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(10)
    return 0


if __name__ == "__main__":
    sys.exit(main())
