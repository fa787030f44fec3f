"""det experiment watch: the live table as text, and the lines without a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.cli.output import terminal
from determined.cli.running import live_table
from determined.client import Determined
from determined.client.following.progress import View
from tests.history import History
from tests.running import Search
from tests.unit.cli.conftest import Det


@pytest.fixture
def plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "has_unicode", lambda stream=None: True)
    monkeypatch.setattr(terminal, "has_colour", lambda stream=None: False)


def look(history: History, search: Search) -> View:
    with Determined(store=history.place) as client:
        return client.get_experiment(search.id).follower().read()


def filled(history: History, count: int, running: int = 2) -> Search:
    """A search of so many trials: the first ones run, the last one waits, the others have ended."""
    search = Search(history, "adaptive_asha", name="digits")
    for number in range(count):
        run = search.queue(lr=0.5 / (number + 1), hidden=32 * (1 + number % 3), batch=32)
        if number == count - 1 and count > 1:
            break
        search.start(run)
        history.report(run, "validation", {100: 1.0 + number})
        search.set_progress(run, 0.25)
        if number >= running:
            search.end(run)
    search.set_progress(None, 0.4)
    return search


@pytest.mark.usefixtures("plainly")
def test_a_screen_has_the_experiment_and_a_row_per_trial(history: History) -> None:
    """Issue 14: state, progress, best, counts; then id, state, progress, batches, metrics, and what differs."""
    search = filled(history, 4)
    lines = live_table.screen(look(history, search), 100, 40)
    text = "\n".join(lines)
    assert lines[0].startswith(f"Experiment {search.id}  digits")
    assert lines[0].endswith("RUNNING")
    assert "40.0%" in lines[1]
    assert lines[2] == "adaptive_asha; 4 trials: 2 RUNNING, 1 QUEUED, 1 COMPLETED; 2 slots in use"
    assert lines[3] == "Best: trial 1, loss 1.0000  lr=0.5, hidden=32"
    header = next(line for line in lines if line.startswith("Trial"))
    assert header.split() == ["Trial", "State", "Progress", "Batches", "Best", "Last", "Time", "lr", "hidden"]
    assert "batch" not in text.replace("Batches", ""), "what is the same for all takes no room"
    [row] = [line for line in lines if "★" in line]
    assert row.split()[:5] == ["★1", "RUNNING", "██······", "25%", "100"]
    assert lines[-1] == "Ctrl-C leaves this view; the experiment goes on."


@pytest.mark.usefixtures("plainly")
@pytest.mark.parametrize("size", [(79, 23), (119, 39), (40, 12), (20, 6)])
def test_a_screen_fits_whatever_the_size(history: History, size: tuple[int, int]) -> None:
    """With many trials: those that run, the best ones, then a count of the rest, within width and height."""
    search = filled(history, 60, running=3)
    lines = live_table.screen(look(history, search), *size)
    assert len(lines) <= size[1]
    if size[0] >= 40:
        assert max(map(len, lines)) <= size[0]
    if size[1] >= 20:
        shown = [line.split()[:2] for line in lines if line.split()[1:2] in (["RUNNING"], ["COMPLETED"], ["QUEUED"])]
        assert [row[0] for row in shown[:5]] == ["★1", "2", "3", "4", "5"], "what runs, then the best"
        [rest] = [line for line in lines if line.startswith("and ")]
        assert int(rest.split()[1]) == 60 - len(shown)


@pytest.mark.usefixtures("plainly")
def test_the_best_are_shown_however_many_run(history: History) -> None:
    """Where more trials run than there are rows, some rows are kept for the best of those that ended."""
    search = Search(history)
    for number in range(30):
        run = search.start(search.queue(lr=number))
        if number < 4:
            history.report(run, "validation", {1: float(number)})
            search.end(run)
    shown, left = live_table.choose(look(history, search), 10)
    assert [trial.state for trial in shown] == ["RUNNING"] * 6 + ["COMPLETED"] * 4
    assert len(left) == 20


@pytest.mark.usefixtures("plainly")
def test_a_paused_experiment_says_how_it_goes_on(history: History) -> None:
    """Watching a paused experiment never ends by itself, so the view says what to type."""
    search = Search(history)
    search.set_state("PAUSED", "Somebody paused the experiment.")
    lines = live_table.screen(look(history, search), 80, 24)
    assert "Somebody paused the experiment." in lines
    assert lines[-1].endswith(f"det e activate {search.id}")
    assert "No trial yet" in lines


def test_names_cannot_reach_the_terminal(history: History) -> None:
    """A name or a hyperparameter with control characters is shown, not obeyed."""
    search = Search(history, name="\x1b]0;gotcha\x07")
    for value in ("\x1b[2Ja", "b"):
        search.start(search.queue(**{"l\x1b[2Jr": value}))
    assert "\x1b" not in "\n".join(live_table.screen(look(history, search), 200, 40))


def test_without_a_terminal_there_is_a_line_per_change(
    det: Det, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 14: no escape codes, one line per change of state; then the table, the best one and what to type next."""
    search = Search(history)
    good, bad = search.queue(lr=0.1), search.queue(lr=0.2)

    def steps() -> None:
        search.start(good)
        search.start(bad, "ASSIGNED")

    def more() -> None:
        history.report(good, "validation", {10: 0.5})
        history.save(good, 10)
        search.end(good)
        search.end(bad, "ERROR", "The trial failed with exit code 1.")

    rounds = iter([steps, more, lambda: search.set_state("COMPLETED", "All trials have ended.")])
    monkeypatch.setattr("determined.cli.running.watch.time.sleep", lambda seconds: next(rounds)())
    out = det("e", "watch", search.id).stdout
    told = [line.split(" ", 1)[1] for line in out.splitlines() if line[2:3] == ":"]
    assert [line for line in told if line.startswith("experiment")] == [
        f"experiment {search.id}: QUEUED",
        f"experiment {search.id}: RUNNING",
        f"experiment {search.id}: QUEUED",
        f"experiment {search.id}: COMPLETED. All trials have ended.",
    ]
    assert [line.partition(", ")[0] for line in told if line.startswith("trial")] == [
        f"trial {good.trial_id}: QUEUED",
        f"trial {bad.trial_id}: QUEUED",
        f"trial {good.trial_id}: RUNNING",
        f"trial {bad.trial_id}: STARTING",
        f"trial {good.trial_id}: COMPLETED",
        f"trial {bad.trial_id}: ERROR",
    ]
    assert f"trial {good.trial_id}: COMPLETED, 10 batches, 0:04, loss 0.5, the best" in out
    assert "\x1b" not in out
    assert out.splitlines()[-3].startswith(f"Best: trial {good.trial_id}, loss 0.5, with lr=0.1")
    assert Path(out.splitlines()[-2].rpartition(": ")[2]).is_dir(), "the checkpoint is where it is said to be"
    assert out.splitlines()[-1] == f"Fetch it with: det trial download {good.trial_id} --best"


@pytest.mark.parametrize("state", ["ERROR", "CANCELED"])
def test_the_exit_code_says_how_it_ended(det: Det, history: History, state: str) -> None:
    """6.2: as `wait`, `watch` exits with 0 only if the experiment is COMPLETED."""
    search = Search(history, state=state)
    assert f"Experiment {search.id} ended as {state}." in det("e", "watch", search.id, code=1).stderr


def test_leaving_says_how_to_come_back(det: Det, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 14, 6.1: Ctrl-C leaves the experiment running, says how to come back, and exits with 3 (interrupted)."""
    search = Search(history)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("determined.cli.running.watch.time.sleep", interrupt)
    said = det("e", "watch", search.id, code=3).stderr
    assert said == f"Experiment {search.id} goes on. Come back with: det experiment watch {search.id}\n"
    assert look(history, search).state == "QUEUED"
