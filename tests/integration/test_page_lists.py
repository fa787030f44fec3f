"""The tables of the page in a real browser: filter, order, columns, selection, comparison, and ten thousand rows."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from determined._home import data_directory
from determined.store import schema
from tests.browsers import Server
from tests.history import History

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.slow

CONFIG = {"max_restarts": 3, "description": "the same for all"}


def made(root: Path) -> None:
    """Six runs: two owners, six learning rates."""
    with History(root, data_directory() / "determined.db") as history:
        for place, lr in enumerate([0.1, 0.001, 0.02, 0.003, 0.3, 0.004], start=1):
            owner = "ada" if place % 2 else "bob"
            what: dict[str, Any] = {"hparams": {"lr": lr, "depth": 4}, "validation": {10: lr + 1}}
            history.run(f"run-{place}", owner=owner, config=CONFIG, **what)


def names(page: Page) -> list[str]:
    """The first column, from above."""
    return page.locator(".lines [role=row] .cell.first").all_inner_texts()


def wait_for_names(page: Page, *wanted: int) -> None:
    """Wait until the table shows these runs in this order."""
    from playwright.sync_api import expect

    expect(page.locator(".lines [role=row] .cell.first")).to_have_text([f"run-{place}" for place in wanted])


def popover(page: Page, name: str) -> Locator:
    """Open what a button of the toolbar hides."""
    page.get_by_role("button", name=re.compile(f"^{name}")).first.click()
    return page.get_by_role("dialog", name=name)


def query(page: Page) -> dict[str, list[str]]:
    """What the address holds."""
    return parse_qs(urlsplit(page.url).query)


def test_a_view_is_built_kept_in_the_address_and_undone(
    page_server: Callable[..., Server], open_page: Callable[..., Page], tmp_path: Path
) -> None:
    """A filter reads as a sentence, order goes by several columns; a reload keeps them, back undoes them."""
    from playwright.sync_api import expect

    made(tmp_path)
    page = open_page(page_server(), "/experiments")
    wait_for_names(page, 6, 5, 4, 3, 2, 1)

    builder = popover(page, "Filter")
    builder.get_by_label("Column").select_option(label="lr")
    builder.get_by_label("Operator").select_option("<")
    builder.get_by_label("Value").fill("0.01")
    wait_for_names(page, 6, 4, 2)
    page.keyboard.press("Escape")
    expect(page.get_by_role("group", name="What is shown")).to_have_text("lr < 0.01")

    picker = popover(page, "Columns")
    picker.get_by_label("Search columns").fill("lr")
    picker.get_by_label("lr", exact=True).check()
    page.keyboard.press("Escape")
    head = page.get_by_role("columnheader", name="lr")
    head.wait_for()
    expect(page.get_by_role("gridcell", name="0.004", exact=True)).to_be_visible()

    page.get_by_role("button", name="Remove lr < 0.01").click()
    page.get_by_role("columnheader", name="User").get_by_role("button").first.click()
    head.get_by_role("button").first.click(modifiers=["Shift"])
    wait_for_names(page, 3, 1, 5, 2, 4, 6)
    assert query(page)["sort"] == ["run.owner,hparams.lr"]

    page.reload()
    wait_for_names(page, 3, 1, 5, 2, 4, 6)
    head.wait_for()
    page.go_back()  # only by owner
    wait_for_names(page, 1, 3, 5, 2, 4, 6)
    page.go_back()
    wait_for_names(page, 6, 5, 4, 3, 2, 1)
    page.go_back()  # before the chip was taken away
    wait_for_names(page, 6, 4, 2)
    expect(page.get_by_role("group", name="What is shown")).to_have_text("lr < 0.01")


def test_rows_are_chosen_by_keys_and_only_what_differs_is_compared(
    page_server: Callable[..., Server], open_page: Callable[..., Page], tmp_path: Path
) -> None:
    """j, k and x choose rows, c compares them: what differs has a line, what is equal is only counted."""
    from playwright.sync_api import expect

    made(tmp_path)
    page = open_page(page_server(), "/experiments")
    wait_for_names(page, 6, 5, 4, 3, 2, 1)
    for key in ["j", "x", "j", "j", "k", "x"]:  # the first j shows where the cursor is
        page.keyboard.press(key)
    expect(page.locator(".lines [role=row][aria-selected=true]")).to_have_count(2)
    dock = page.get_by_role("region", name="Selected")
    is_open = dock.get_by_role("tablist").is_visible()
    page.keyboard.press("c")
    expect(dock.get_by_role("tablist")).to_be_visible(visible=not is_open)
    if is_open:
        page.keyboard.press("c")
    dock.get_by_role("tab", name="Differences").click()
    table = dock.get_by_role("region", name="Differences")
    lines = table.get_by_role("rowheader")
    expect(lines.filter(has_text=re.compile("^lr$"))).to_have_count(1)
    expect(lines.filter(has_text=re.compile("^(depth|max_restarts)$"))).to_have_count(0)
    expect(lines.filter(has_text=re.compile(r"^1 equal hyperparameter$"))).to_have_count(1)
    expect(lines.filter(has_text=re.compile(r"^\d+ equal settings$"))).to_have_count(1)
    expect(table.get_by_role("columnheader").filter(has_text="run-")).to_have_text(["#6 run-6", "#5 run-5"])


def test_archived_rows_vanish_in_every_tab(
    page_server: Callable[..., Server], open_page: Callable[..., Page], tmp_path: Path
) -> None:
    """Archiving what is selected takes the rows away, here and in a second tab, without reload."""
    made(tmp_path)
    server = page_server()
    page = open_page(server, "/experiments")
    second = open_page(server, "/experiments")
    wait_for_names(page, 6, 5, 4, 3, 2, 1)
    wait_for_names(second, 6, 5, 4, 3, 2, 1)
    for number in (2, 5):
        page.get_by_role("checkbox", name=f"Select experiment {number}").click()
    page.get_by_role("button", name="More", exact=True).click()
    page.get_by_role("menuitem", name="Archive", exact=True).click()
    wait_for_names(page, 6, 4, 3, 1)
    wait_for_names(second, 6, 4, 3, 1)


def many(root: Path, count: int) -> None:
    """Runs by the thousand: copies of one, written row by row without what watches over a real run."""
    with History(root, data_directory() / "determined.db") as history:
        run = history.run("run-1", hparams={"lr": 0.1}, validation={10: 0.5})
        with history.store.write() as conn:
            experiment = dict(conn.execute(schema.experiments.select()).mappings().one())
            trial = dict(conn.execute(schema.trials.select()).mappings().one())
            places = range(run.experiment_id + 1, count + 1)
            rows = [
                {**experiment, "id": n, "uuid": str(uuid.uuid4()), "name": f"run-{n}", "best_trial_id": None}
                for n in places
            ]
            conn.execute(schema.experiments.insert(), rows)
            of = [{**trial, "id": n, "experiment_id": n, "request_id": uuid.uuid4().hex[:16]} for n in places]
            conn.execute(schema.trials.insert(), of)


def test_ten_thousand_runs_scroll_to_the_last(
    page_server: Callable[..., Server], open_page: Callable[..., Page], tmp_path: Path
) -> None:
    """A table of 10,000 runs draws only the rows in sight, and its end shows the very last run."""
    many(tmp_path, 10_000)
    page = open_page(page_server(), "/experiments")
    page.get_by_role("link", name="run-10000", exact=True).wait_for()
    page.get_by_text("10,000 experiments", exact=True).wait_for()
    grid = page.get_by_role("grid")
    assert grid.get_attribute("aria-rowcount") == "10001"
    for share in (0.3, 0.7, 1):
        grid.evaluate("(element, share) => { element.scrollTop = element.scrollHeight * share }", share)
    page.get_by_role("link", name="run-1", exact=True).wait_for()
    assert len(names(page)) < 100
    grid.focus()
    page.keyboard.press("Home")
    page.get_by_role("link", name="run-10000", exact=True).wait_for()
