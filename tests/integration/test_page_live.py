"""The page in a real browser, on real trainings: curves grow, buttons reach processes, a resume is one curve."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.browsers import Server
from tests.lifecycles import Lab

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.slow

# One step each time the test says so; a checkpoint when it is asked to stop.
STEPS = """
with core.init() as context:
    begin = restored(context)
    note(start=begin)
    for step in range(begin + 1, 1000):
        while not is_told(f"step-{step}") and not context.preempt.should_preempt():
            time.sleep(0.02)
        if context.preempt.should_preempt():
            save(context, step - 1)
            note(saved=step - 1)
            sys.exit(0)
        context.train.report_validation_metrics(step, {"loss": 1.0 / step})
        print(f"step {step} is done", flush=True)
        if is_told("enough"):
            break
"""


def chart(page: Page, name: str) -> Locator:
    """The chart of a metric; its label says in words what it shows."""
    return page.get_by_role("img", name=re.compile(rf"^{name}, \d"))


def wait_for_label(found: Locator, pattern: str) -> None:
    """Wait until the label of a chart fits."""
    from playwright.sync_api import expect

    expect(found).to_have_attribute("aria-label", re.compile(pattern), timeout=30_000)


def test_a_curve_grows_without_reload(
    lab: Lab, page_server: Callable[..., Server], open_page: Callable[..., Page]
) -> None:
    """What a training reports is on the page in a moment: in the curve, in the log, in two tabs, without reload."""
    experiment = lab.submit(STEPS)
    lab.started(experiment)
    lab.tell("step-1")
    lab.tell("step-2")
    trial = lab.only_trial(experiment)
    server = page_server()
    page = open_page(server, f"/trials/{trial.id}/metrics")
    second = open_page(server, f"/trials/{trial.id}/logs", color_scheme="dark")
    wait_for_label(chart(page, "loss"), "up to 2 batches.*ends at 0.5")
    second.get_by_text("step 2 is done").wait_for()
    page.evaluate("window.isTheSamePage = true")
    lab.tell("step-3")
    lab.tell("step-4")
    wait_for_label(chart(page, "loss"), "up to 4 batches.*ends at 0.25")
    second.get_by_text("step 4 is done").wait_for()
    lab.tell("enough")
    lab.tell("step-5")
    page.get_by_text("COMPLETED").first.wait_for()
    assert page.evaluate("window.isTheSamePage") is True
    assert lab.end(experiment) == "COMPLETED"


def test_pause_and_activate_from_the_page_reach_the_process(
    lab: Lab, page_server: Callable[..., Server], open_page: Callable[..., Page]
) -> None:
    """Pause has the process save and leave; activate goes on from there, and the page shows one continuous curve."""
    experiment = lab.submit(STEPS)
    lab.started(experiment)
    for step in (1, 2, 3):
        lab.tell(f"step-{step}")
    page = open_page(page_server(), f"/experiments/{experiment.id}/metrics")
    wait_for_label(chart(page, "loss"), "up to 3 batches")
    page.get_by_role("button", name="Pause", exact=True).click()
    lab.noted(experiment, "saved")
    page.get_by_text("PAUSED").first.wait_for()
    page.get_by_role("button", name="Activate", exact=True).click()
    assert [note["start"] for note in lab.started(experiment, 2)] == [0, 3]
    for step in (4, 5):
        lab.tell(f"step-{step}")
    wait_for_label(chart(page, "loss"), r"^loss, 1 line up to 5 batches.*ends at 0.2$")
    lab.tell("enough")
    lab.tell("step-6")
    assert lab.end(experiment) == "COMPLETED"


def test_kill_from_the_page_asks_first_and_reaches_the_process(
    lab: Lab, page_server: Callable[..., Server], open_page: Callable[..., Page]
) -> None:
    """Kill says what is lost and waits for a yes; then the process is gone and the page says CANCELED."""
    experiment = lab.submit(STEPS)
    lab.started(experiment)
    page = open_page(page_server(), f"/experiments/{experiment.id}")
    page.get_by_role("button", name=re.compile("^Stop")).click()
    page.get_by_role("menuitem", name=re.compile("^Kill")).click()
    question: Any = page.get_by_role("dialog")
    question.wait_for()
    assert not lab.no_attempt_runs(experiment)
    question.get_by_role("button", name=re.compile("^Kill")).click()
    page.get_by_text("CANCELED").first.wait_for()
    assert lab.end(experiment) == "CANCELED"
    lab.until(lambda: lab.no_attempt_runs(experiment))


def test_pause_of_an_unmanaged_run_is_refused_with_a_reason(
    page_server: Callable[..., Server], open_page: Callable[..., Page], tmp_path: Any
) -> None:
    """P-98: of a run that was started by hand, the page shows Pause disabled, and says why."""
    from determined._home import data_directory
    from tests.history import History

    with History(tmp_path, data_directory() / "determined.db") as history:
        run = history.run("by hand", state="RUNNING", validation={1: 0.5})
    page = open_page(page_server(), f"/experiments/{run.experiment_id}")
    button = page.get_by_role("button", name="Pause", exact=True)
    button.wait_for()
    assert button.is_disabled() or button.get_attribute("aria-disabled") == "true"
    button.hover(force=True)
    assert "no controller can pause it" in page.get_by_role("tooltip").inner_text()
