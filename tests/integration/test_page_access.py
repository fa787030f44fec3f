"""The page for everybody, in a real browser: axe finds nothing serious, keys are listed, focus is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from determined._home import data_directory
from determined.store import models, workspaces
from tests.asha import ASHA, drive
from tests.browsers import Server, settled
from tests.history import History
from tests.launchers import submit
from tests.running import Search

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

PAGES = [
    "/",
    "/experiments",
    "/trials",
    "/experiments/1",
    "/trials/1",
    "/trials/1/metrics",
    "/trials/1/logs",
    "/trials/1/checkpoints",
    "/compare?trials=1,2,3&compare=differences",
    "/models",
    "/models/1",
    "/queue",
    "/projects",
    "/settings",
]


def made(root: Path) -> None:
    """A search, runs that ended well and badly, one that runs, a model and a project."""
    with History(root, data_directory() / "determined.db") as history:
        assert submit(history.store, ASHA) == 1
        drive(history)
        lines = ["INFO: all is well", "WARNING: \x1b[33mslow\x1b[0m", "ERROR: it failed"]
        run = history.run("good", lines=lines, training={1: 2.0, 2: 1.0}, validation={1: 2.0, 2: 1.5}, checkpoints=[2])
        history.run("bad", state="ERROR", lines=lines, labels=["nlp", "old"])
        search = Search(history)
        search.start(search.queue(lr=0.1))
        search.queue(lr=0.2)
        with history.store.write() as conn:
            model = models.create(conn, "digits", owner="ada", description="Reads digits.", labels=["vision"])
            models.register(conn, model.id, run.uuids[0], owner="ada")
            workspaces.create_project(conn, workspaces.create_workspace(conn, "team"), "vision", "What we see.")


def serious(page: Page, **options: object) -> list[tuple[str, ...]]:
    """What axe-core finds in a page as it stands, without what it takes lightly."""
    from axe_playwright_python.sync_playwright import Axe

    found = []
    for one in Axe().run(page, options=options).response["violations"]:
        if one["impact"] in ("serious", "critical"):
            found += [(page.url, one["id"], node["html"][:200], node["failureSummary"]) for node in one["nodes"][:2]]
    return found


TURNED = """() => Promise.allSettled(
    document.getAnimations().filter(one => one instanceof CSSTransition).map(one => one.finished)
).then(() => null)"""


def turn(page: Page, theme: Literal["light", "dark"]) -> str:
    """Change the theme, wait until the colours have changed, and return that of the page."""
    page.emulate_media(color_scheme=theme)
    page.evaluate(TURNED)
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_axe_finds_nothing_serious(
    page_server: Callable[..., Server], open_page: Callable[..., Page], tmp_path: Path
) -> None:
    """No page has a serious or critical finding of axe-core, in the light theme and in the dark one."""
    made(tmp_path)
    server = page_server()
    page = open_page(server, "/", color_scheme="light", bypass_csp=True)
    found = []
    for path in PAGES:
        page.goto(f"{server.address}{path}")
        settled(page)
        light = turn(page, "light")
        found += serious(page)
        assert turn(page, "dark") != light
        found += serious(page, runOnly=["color-contrast"])  # all that a theme changes
        turn(page, "light")
    assert found == []


OUTLINE = """() => {
    if (document.activeElement === document.body) return true;  // past the end: the browser's own buttons
    const style = getComputedStyle(document.activeElement);
    return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1 || style.boxShadow !== 'none';
}"""


def test_keys_are_listed_and_focus_is_seen(
    page_server: Callable[..., Server], open_page: Callable[..., Page], tmp_path: Path
) -> None:
    """`?` lists the keys that work here, `/` leads to the search, and what tab reaches shows the focus."""
    made(tmp_path)
    page = open_page(page_server(), "/experiments")
    page.get_by_role("link", name="good", exact=True).wait_for()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    for what in ("Next row", "Previous row", "Select the row", "Compare what is selected", "Show this list"):
        keys.get_by_text(what, exact=True).wait_for()
    page.keyboard.press("Escape")
    keys.wait_for(state="hidden")
    hidden = []
    for _ in range(25):
        page.keyboard.press("Tab")
        if not page.evaluate(OUTLINE):
            hidden.append(page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))
    assert hidden == []
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.matches('input')")


def test_a_phone_needs_no_sideways_scroll(
    page_server: Callable[..., Server], open_page: Callable[..., Page], tmp_path: Path
) -> None:
    """At 390 pixels every page fits: what is wider (a table, a chart) scrolls within itself."""
    made(tmp_path)
    server = page_server()
    page = open_page(server, "/", width=390, height=844)
    wide = []
    for path in PAGES:
        page.goto(f"{server.address}{path}")
        settled(page)
        over = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if over > 0:
            wide.append((path, over))
    assert wide == []
