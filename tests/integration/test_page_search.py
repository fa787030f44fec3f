"""A search on the page, in a real browser: its axes, brushes and rungs, and how much of a long curve is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from determined._home import data_directory
from tests.asha import ASHA, drive
from tests.browsers import Server
from tests.history import History
from tests.launchers import submit

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Locator, Page, Response

pytestmark = pytest.mark.slow

SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": 0},
    "dropout": {"type": "double", "minval": 0, "maxval": 1},
    "optimizer": {"type": "categorical", "vals": ["sgd", "adam"]},
}


def searched(root: Path) -> int:
    """Eight trials, with learning rates spread over four decades, from 1e-4 to 1."""
    with History(root, data_directory() / "determined.db") as history:
        config = {"searcher": {"name": "random", "metric": "loss", "max_trials": 8}, "hyperparameters": SPACE}
        experiment = history.experiment("search", config=config, unmanaged=False, state="COMPLETED")
        for place in range(8):
            lr = 10 ** (-3.75 + place / 2)
            hparams = {"lr": lr, "dropout": (place * 3 % 8) / 8, "optimizer": ["sgd", "adam"][place % 2]}
            history.trial(experiment, hparams=hparams, validation={10: 2 + lr, 20: 1 + lr})
    return experiment


def left_out(page: Page) -> list[int]:
    """The trials that the table under the curves shows as brushed away."""
    found: list[int] = page.eval_on_selector_all("tr[data-trial].out", "rows => rows.map(row => +row.dataset.trial)")
    return sorted(found)


def resting_box(chart: Locator) -> FloatRect:
    """Where a chart is once it is drawn and what is above it has its height."""
    chart.scroll_into_view_if_needed()  # it is drawn when it is seen
    chart.locator("canvas").first.wait_for()
    before = None
    for _ in range(100):
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        if box is not None and box == before:
            return box
        before = box
        chart.page.wait_for_timeout(300)
    raise AssertionError("the chart does not come to rest")


def test_log_parameters_have_a_log_axis_and_brushes_leave_what_passes(
    page_server: Callable[..., Server], open_page: Callable[..., Page], tmp_path: Path
) -> None:
    """P-97: parallel coordinates of a search use a log axis for log parameters; a brush keeps only what passes it.

    Table, curves and address follow the brush, and a reload brings it back.
    """
    from playwright.sync_api import expect

    experiment = searched(tmp_path)
    page = open_page(page_server(), f"/experiments/{experiment}")
    chart = page.get_by_role("img", name=re.compile("^Parallel coordinates of 8 trials"))
    chart.wait_for()
    axes = json.loads(chart.get_attribute("data-axes") or "[]")
    kinds = {axis["name"]: axis["kind"] for axis in axes}
    assert kinds == {"lr": "log", "dropout": "linear", "optimizer": "category", "validation.loss": "linear"}
    assert left_out(page) == []

    box = resting_box(chart)
    place = [axis["name"] for axis in axes].index("lr")
    x = box["x"] + 56 + place * (box["width"] - 56 - 72) / (len(axes) - 1)
    top, bottom = box["y"] + 36, box["y"] + box["height"] - 16
    page.mouse.move(x, (top + bottom) / 2)
    page.mouse.down()
    page.mouse.move(x, bottom - 30, steps=4)
    page.mouse.move(x, bottom - 1, steps=4)
    page.mouse.up()

    # The lower half of a log axis from 1e-4 to 1 ends at 1e-2: the first four of eight.
    expect(page.get_by_text("4 trials of 8 pass the brushes")).to_be_visible()
    expect(page.locator("tr[data-trial].out")).to_have_count(4)
    assert left_out(page) == [5, 6, 7, 8]
    expect(page.get_by_role("img", name=re.compile("^validation.loss, 4 lines"))).to_be_visible()
    expect(page).to_have_url(re.compile(r"\?.*lr"))

    page.reload()
    expect(page.get_by_text("4 trials of 8 pass the brushes")).to_be_visible()
    page.get_by_role("button", name="Clear brushes").click()
    expect(page.locator("tr[data-trial].out")).to_have_count(0)


def test_rungs_of_asha_are_told_in_words(
    page_server: Callable[..., Server], open_page: Callable[..., Page], tmp_path: Path
) -> None:
    """Beside the curves of an ASHA search stands each rung, who stopped there, and what that saved in one sentence."""
    with History(tmp_path, data_directory() / "determined.db") as history:
        experiment = submit(history.store, ASHA)
        drive(history)
    page = open_page(page_server(), f"/experiments/{experiment}")
    ladder = page.get_by_role("group", name=re.compile("^Rungs of the search"))
    ladder.wait_for()
    label = ladder.get_attribute("aria-label") or ""
    assert re.search(r"[Ss]topping early saved \d+ ?% of [\d,]+ batches", label), label
    page.get_by_text(re.compile(r"[Ss]topping early saved")).first.wait_for()
    assert ladder.locator("circle.rung-dot").count() >= 8


def long_search(root: Path, rows: int) -> int:
    """A search whose first trial has as many validations; the second has one."""
    with History(root, data_directory() / "determined.db") as history:
        config = {"searcher": {"name": "random", "metric": "loss", "max_trials": 2}, "hyperparameters": SPACE}
        experiment = history.experiment("long", config=config, unmanaged=False, state="COMPLETED")
        run = history.trial(experiment, hparams={"lr": 0.1}, state="RUNNING")
        for start in range(1, rows + 1, 5000):
            history.report(run, "validation", {n: 1 / n for n in range(start, start + 5000)})
        history.end(run)
        history.trial(experiment, hparams={"lr": 0.2}, validation={1: 2.0})
    return experiment


def test_a_long_curve_is_sent_as_few_points(
    page_server: Callable[..., Server], open_page: Callable[..., Page], tmp_path: Path
) -> None:
    """P-96: of 100,000 rows the experiment page asks for at most 200 points per curve, and draws them."""
    experiment = long_search(tmp_path, 100_000)
    answers: list[Any] = []

    def heard(response: Response) -> None:
        if response.ok and "/curves" in response.url:
            answers.append(response)

    page = open_page(page_server(), "/settings")
    page.on("response", heard)
    page.goto(page.url.replace("/settings", f"/experiments/{experiment}"))
    chart = page.get_by_role("img", name=re.compile(r"loss, 2 lines up to 100,000 batches"))
    chart.first.wait_for()
    page.get_by_text(re.compile(r"showing [\d,]+ of 100,001 points")).first.wait_for()
    sizes = [len(curve["steps"]) for answer in answers for curve in answer.json()["curves"]]
    assert sizes
    assert max(sizes) <= 200
