"""The page of a search in a real browser: the address holds what is shown, and charts can be taken away."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browsers import Server
from tests.history import History

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>"
LOG = {"type": "log", "base": 10, "minval": -4, "maxval": 0}
TRIALS = 12


@pytest.fixture
def search(home: Path) -> int:
    """A random search of twelve trials, of which those with a learning rate near 0.01 are the best."""
    space = {
        "lr": LOG,
        "width": {"type": "int", "minval": 1, "maxval": 9},
        HOSTILE: {"type": "categorical", "vals": ["a", HOSTILE]},
    }
    searcher = {"name": "random", "metric": "loss", "smaller_is_better": True, "max_trials": TRIALS}
    with History(home, home / "determined.db") as history:
        config = {"hyperparameters": space, "searcher": searcher}
        made = history.experiment(HOSTILE, config=config, unmanaged=False, state="COMPLETED")
        for place in range(TRIALS):
            rate = 10 ** (-4 + place / 3)
            floor = abs(math.log10(rate) + 2) / 4
            hparams = {"lr": rate, "width": 1 + place % 9, HOSTILE: "a" if place % 2 else HOSTILE}
            losses = {step: floor + 1 / step for step in range(1, 31)}
            history.trial(made, hparams=hparams, validation=losses)
    return made


def asked(page: Page, key: str) -> str | None:
    """What the address says under a key."""
    return parse_qs(urlsplit(page.url).query).get(key, [None])[0]


def chart(page: Page, name: str) -> Locator:
    return page.locator(f'[data-chart="{name}"]')


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*((one + other) / 2 for one, other in zip(start, end, strict=True)))
    page.mouse.move(*end)
    page.mouse.up()


def shown(page: Page) -> Any:
    """The parallel coordinates, once they are drawn."""
    found = chart(page, "parallel").locator("[data-axes]")
    found.scroll_into_view_if_needed()
    found.locator("canvas").first.wait_for()
    return found


def test_a_brush_filters_and_is_there_after_a_reload(
    search: int, page_server: Callable[..., Server], open_page: Callable[..., Page]
) -> None:
    """Dragging along an axis leaves only what passes, in curves and table too; the address restores it."""
    page = open_page(page_server(), f"/experiments/{search}", height=1600)
    box = shown(page).bounding_box()
    axis = box["x"] + 56  # the first axis: the hyperparameters are in the order of their names, and < is before l
    drag(page, (axis, box["y"] + 50), (axis, box["y"] + box["height"] * 0.5))
    note = chart(page, "parallel").get_by_text(re.compile(rf"^\d+ trials of {TRIALS} pass the brushes"))
    note.wait_for()
    before = note.inner_text()
    page.wait_for_url(re.compile("brush="))
    assert list(json.loads(asked(page, "brush") or "{}")) == [HOSTILE]
    page.reload()
    shown(page)
    assert note.inner_text() == before
    assert page.locator("tr.out").count() == TRIALS - int(before.split()[0])
    page.get_by_role("button", name="Clear brushes").click()
    page.wait_for_url(re.compile("^((?!brush=).)*$"))
    assert page.locator("tr.out").count() == 0


def test_a_row_lights_its_curve_and_a_selection_is_compared(
    search: int, page_server: Callable[..., Server], open_page: Callable[..., Page]
) -> None:
    """Hovering a curve lights its row; selected trials are in the address and go to the comparison."""
    page = open_page(page_server(), f"/experiments/{search}")
    plot = chart(page, "curves").locator(".u-over")
    plot.wait_for()
    box: Any = plot.bounding_box()
    # The worst trial is the highest line at the end.
    for top in range(4, 200, 4):
        page.mouse.move(box["x"] + box["width"] - 30, box["y"] + top)
        if page.locator("tr.lit").count():
            break
    assert page.locator("tr.lit").get_attribute("data-trial") == "1"
    for trial in (7, 8):
        page.get_by_role("checkbox", name=f"Select trial {trial}", exact=True).check()
    assert asked(page, "select") == "7,8"
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_url(re.compile(r"/compare\?trials=7(,|%2C)8"))


def test_a_zoom_is_undone_by_the_back_button_and_a_double_click(
    search: int, page_server: Callable[..., Server], open_page: Callable[..., Page]
) -> None:
    """Dragging zooms, and the address says where; back and a double click show everything again."""
    page = open_page(page_server(), f"/experiments/{search}")
    plot = chart(page, "curves").locator(".u-over")
    plot.wait_for()
    box: Any = plot.bounding_box()
    middle = box["y"] + box["height"] / 2
    whole = page.url
    drag(page, (box["x"] + box["width"] / 3, middle), (box["x"] + box["width"] * 2 / 3, middle))
    page.wait_for_url(re.compile("zoom="))
    first, last = (float(end) for end in (asked(page, "zoom") or "").split(","))
    assert 9 < first < 11
    assert 19 < last < 21
    page.go_back()
    assert page.url == whole
    page.go_forward()
    page.get_by_role("button", name="Reset zoom").wait_for()
    page.mouse.dblclick(box["x"] + 200, middle)
    page.wait_for_url(re.compile("^((?!zoom=).)*$"))


def test_choices_are_remembered_for_each_experiment(
    search: int, page_server: Callable[..., Server], open_page: Callable[..., Page]
) -> None:
    """What was chosen comes back at the next visit, unless the address chooses something itself."""
    server = page_server()
    page = open_page(server, f"/experiments/{search}")
    page.get_by_role("combobox", name=re.compile("^Trials")).select_option("10")
    page.get_by_role("button", name="Time", exact=True).click()
    page.goto(f"{server.address}/experiments")
    page.goto(f"{server.address}/experiments/{search}")
    page.wait_for_url(re.compile("top=10"))
    assert asked(page, "x") == "time"
    page.goto(f"{server.address}/experiments/{search}?top=20")
    chart(page, "curves").wait_for()
    assert (asked(page, "top"), asked(page, "x")) == ("20", None)


def test_every_chart_is_a_picture_and_a_table_too(
    search: int, page_server: Callable[..., Server], open_page: Callable[..., Page], tmp_path: Path
) -> None:
    """PNG and CSV of curves and of parallel coordinates; a chart in full screen has an address."""
    page = open_page(page_server(), f"/experiments/{search}")
    shown(page)
    for name in ("curves", "parallel"):
        for item, ending, start in (("picture", "png", b"\x89PNG"), ("numbers", "csv", b"trial,")):
            chart(page, name).hover()
            chart(page, name).get_by_role("button", name=re.compile("^Save or link")).click()
            with page.expect_download() as download:
                page.get_by_role("menuitem", name=re.compile(f"^Save {item}")).click()
            kept = tmp_path / f"{name}.{ending}"
            download.value.save_as(kept)
            assert kept.read_bytes().startswith(start)
    chart(page, "curves").hover()
    page.get_by_role("button", name="Show validation.loss in full screen").click()
    page.wait_for_url(re.compile("chart=curves"))
    box: Any = chart(page, "curves").bounding_box()
    assert (box["width"], box["height"]) == (1280, 800)
    page.keyboard.press("Escape")
    page.wait_for_url(re.compile("^((?!chart=).)*$"))
