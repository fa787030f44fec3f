"""The guard in a real browser: the link, and what a foreign page in the same browser can and cannot do."""

# ruff: noqa: F811  fixtures

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browsers import Server, browser, page_server  # noqa: F401  fixtures
from tests.history import History, Run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Start = Callable[..., Server]

ASK = """async ([address, options]) => {
  try {
    const answer = await fetch(address, options);
    return {status: answer.status, type: answer.type, text: await answer.text()};
  } catch (failed) { return {status: -1, type: "failed", text: String(failed)}; }
}"""
LISTEN = """(address) => new Promise((resolve) => {
  const source = new EventSource(address);
  const end = (said) => { source.close(); resolve(said); };
  source.addEventListener("hello", () => end("hello"));
  source.onerror = () => end("error");
})"""
LOAD = """([tag, name, address]) => new Promise((resolve) => {
  const element = document.createElement(tag);
  element.onload = () => resolve("loaded");
  element.onerror = () => resolve("refused");
  element[name] = address;
  document.body.append(element);
})"""

FRAME = """(address) => {
  const frame = document.createElement("iframe");
  frame.src = address;
  document.body.append(frame);
}"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    with History(tmp_path) as history:
        monkeypatch.setenv("DET_STORE", str(history.place))
        yield history.run("digits")


@pytest.fixture
def foreign() -> Iterator[str]:
    """The address of another server on this machine: a TensorBoard, or a notebook that somebody else wrote."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><p>foreign</p>")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


def ask(page: Page, address: str, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(ASK, [address, options])
    return found


def edit(page: Page, server: Server, run: Run, **options: Any) -> dict[str, Any]:
    settings = {"method": "PATCH", "body": '{"name": "stolen"}', "headers": {"Content-Type": "application/json"}}
    return ask(page, f"{server.address}/api/v1/experiments/{run.experiment_id}", **{**settings, **options})


def test_the_link_is_all_a_browser_needs(run: Run, page_server: Start, page: Page) -> None:
    """After the link the address holds no token, scripts see no cookie, and data, changes and streams work."""
    server = page_server()
    page.goto(server.link)
    assert page.url == f"{server.address}/"
    assert page.evaluate("document.cookie") == ""
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert ask(page, f"/api/v1/experiments/{run.experiment_id}")["status"] == 200
    assert edit(page, server, run)["status"] == 200
    assert page.evaluate(LISTEN, "/api/v1/events") == "hello"


def test_the_link_works_from_another_page(run: Run, page_server: Start, page: Page, foreign: str) -> None:
    """A link in a mail or a chat: strict cookies are not sent with the way there, and the page works all the same."""
    server = page_server()
    page.goto(foreign.replace("127.0.0.1", "localhost"))  # another site
    page.evaluate("(link) => { location.href = link; }", server.link)
    page.wait_for_url(f"{server.address}/")
    assert ask(page, f"/api/v1/experiments/{run.experiment_id}")["status"] == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_foreign_page_can_do_nothing(run: Run, page_server: Start, page: Page, foreign: str, host: str) -> None:
    """Another origin, of the same site or not, in a browser that has the cookie: it reads, changes, frames nothing."""
    server = page_server()
    page.goto(server.link)
    page.goto(foreign.replace("127.0.0.1", host))
    read = f"{server.address}/api/v1/experiments/{run.experiment_id}"
    for options in ({"credentials": "include"}, {"credentials": "include", "mode": "no-cors"}):
        assert "digits" not in ask(page, read, **options)["text"]
    assert edit(page, server, run, credentials="include")["type"] == "failed"
    simple = {"method": "POST", "mode": "no-cors", "credentials": "include", "body": '{"action": "kill", "ids": [1]}'}
    ask(page, f"{server.address}/api/v1/experiments/actions", **simple)
    assert page.evaluate(LISTEN, f"{server.address}/api/v1/events") == "error"
    for tag, name, path in (("img", "src", read), ("script", "src", f"{server.address}/"), ("script", "src", read)):
        assert page.evaluate(LOAD, [tag, name, path]) == "refused"
    with page.expect_console_message(lambda said: "frame-ancestors" in said.text):
        page.evaluate(FRAME, f"{server.address}/")
    page.goto(server.link)
    assert '"name":"digits"' in ask(page, f"/api/v1/experiments/{run.experiment_id}")["text"]


def test_nothing_in_the_page_can_run_or_leave(run: Run, page_server: Start, page: Page, foreign: str) -> None:
    """Markup that got into the page after all: no inline script, no attribute, no foreign script, no way out."""
    server = page_server()
    page.goto(server.link)
    page.evaluate("""() => {
      const script = document.createElement("script");
      script.textContent = "window.ran = 1";
      document.body.append(script);
      const image = document.createElement("div");
      image.innerHTML = "<img src=x onerror='window.ran = 2'>";
      document.body.append(image);
    }""")
    assert page.evaluate(LOAD, ["script", "src", foreign]) == "refused"
    assert page.evaluate(LOAD, ["img", "src", f"{foreign}?stolen"]) == "refused"
    assert ask(page, foreign, mode="no-cors")["type"] == "failed"
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None
