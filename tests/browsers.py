"""A real browser and a real `det ui` for tests of the page.

def test_something(page_server, open_page):
    page = open_page(page_server(), "/experiments")
    page.get_by_role("heading", name="Experiments").wait_for()
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REQUIRED = "DET_TEST_BROWSER"  # "required" in .ci/run: there, a missing browser is a failure
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ADVICE = "The page is tested in Chromium. Install it (Debian: apt install chromium), then run the tests again."
PATIENCE_MS = 60_000


def chromium() -> str:
    """Return the path of Chromium; skip the test where there is none and none is required."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        assert os.environ.get(REQUIRED) != "required", ADVICE
        pytest.skip(ADVICE)
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of a file."""
    path = chromium()
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@dataclasses.dataclass
class Server:
    """A `det ui` that runs."""

    process: subprocess.Popen[str]
    link: str  # with the token

    @property
    def address(self) -> str:
        """The address without the token."""
        return self.link.split("?")[0].rstrip("/")

    @property
    def token(self) -> str:
        """What opens it."""
        return self.link.split("token=")[1]

    def stop(self) -> int:
        """End it as Ctrl-C does, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def page_server(home: Any) -> Iterator[Callable[..., Server]]:
    """Starts `det ui` on the store of this test, and ends it after the test."""
    running: list[Server] = []

    def start(*words: str) -> Server:
        command = [sys.executable, "-m", "determined.cli", "ui", "--no-open", *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        link = process.stdout.readline().strip()
        if not link.startswith("http"):
            process.kill()
            pytest.fail(f"det ui did not start: {link} {process.communicate()[1]}")
        running.append(Server(process, link))
        return running[-1]

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages in a browser of their own; after the test, nothing may have failed in them."""
    with contextlib.ExitStack() as stack:
        problems: list[str] = []

        def opened(server: Server, path: str = "/", *, width: int = 1280, height: int = 800, **options: Any) -> Page:
            context = browser.new_context(viewport={"width": width, "height": height}, **options)
            stack.callback(context.close)
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            watch(page, problems)
            page.goto(f"{server.address}{path}{'&' if '?' in path else '?'}token={server.token}")
            return page

        yield opened
    assert problems == []


def watch(page: Page, problems: list[str]) -> None:
    """Note what goes wrong in a page: errors and dialogs of scripts, refusals of the security policy."""
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def said(message: Any) -> None:
        is_refused_request = message.text.startswith("Failed to load resource")  # the page shows those itself
        if message.type == "error" and not is_refused_request:
            problems.append(f"console: {message.text}")

    page.on("console", said)


def settled(page: Page) -> None:
    """Wait until a page shows content and nothing of it is on its way."""
    from playwright.sync_api import expect

    expect(page.locator("main")).to_have_text(re.compile(r"\S"))
    expect(page.locator("main :is(.skeleton, [aria-busy=true])")).to_have_count(0)
