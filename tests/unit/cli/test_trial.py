"""det trial: descriptions, logs, metrics, curves, downloads."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
from pathlib import Path

import pytest

from determined.cli.output import terminal
from tests.history import History, Run
from tests.unit.cli.conftest import Det

LINES = ["plain", "INFO: fine", "[rank=1] WARNING: hot", "ERROR: broken"]


@pytest.fixture
def run(history: History) -> Run:
    return history.run(
        "one",
        training={10: {"loss": 1.5, "acc": 0.1}, 20: {"loss": 1.0}},
        validation={10: 0.5, 20: 0.25},
        checkpoints=[10, 20],
        lines=LINES,
        hparams={"lr": 0.1},
    )


def test_a_trial_is_described_with_what_it_did(det: Det, run: Run) -> None:
    """6.3: the trial's row, then its workloads."""
    document = json.loads(det("t", "describe", run.trial_id, "--json", "--metrics").stdout)
    assert document["trial"]["h_params"] == {"lr": 0.1}
    assert document["trial"]["summary_metrics"]["validation_metrics"]["loss"]["min"] == 0.25
    assert [row["checkpoint_uuid"] for row in document["workloads"]] == run.uuids
    assert [row["validation_metrics"] for row in document["workloads"]] == [{"loss": 0.5}, {"loss": 0.25}]
    assert document["workloads"][0]["workload_metrics"] == {"acc": 0.1, "loss": 1.5}
    blocks = det("t", "describe", run.trial_id, "--csv", "--limit", 1, "--pages", "1").stdout.split("\n\n")
    assert [len(list(csv.reader(io.StringIO(block)))) for block in blocks] == [2, 2]
    text = det("t", "describe", run.trial_id).stdout
    assert all(title in text for title in ("Experiment ID", "Summary Metrics", "# of Batches", "Checkpoint UUID"))


def test_the_summary_of_metrics_is_a_table(det: Det, run: Run) -> None:
    """6.3: --metrics-summary; P-74: count, min, max, mean, last."""
    rows = json.loads(det("t", "describe", run.trial_id, "--metrics-summary", "--json").stdout)
    [loss] = [row for row in rows if (row["group"], row["metric"]) == ("training", "loss")]
    assert (loss["count"], loss["min"], loss["max"], loss["mean"], loss["last"]) == (2, 1.0, 1.5, 1.25, 1.0)


def test_trials_are_listed(det: Det, history: History, run: Run) -> None:
    """Trials of all experiments or of one, with what they were trained with."""
    other = history.run("two", hparams={"lr": 0.2})
    rows = json.loads(det("t", "ls", "--json").stdout)
    assert [(row["trial_id"], row["hparams"]) for row in rows] == [
        (run.trial_id, {"lr": 0.1}),
        (other.trial_id, {"lr": 0.2}),
    ]
    assert [row["trial_id"] for row in json.loads(det("t", "ls", "-e", run.experiment_id, "--json").stdout)] == [
        run.trial_id
    ]
    assert [row["trial_id"] for row in json.loads(det("t", "ls", "--last", 1, "--json").stdout)] == [other.trial_id]


def test_a_finished_log_is_printed_and_following_it_ends(det: Det, run: Run) -> None:
    """P-79: `t logs -f` on a finished trial prints everything and returns; 4.11: how a line looks."""
    text = det("t", "logs", run.trial_id).stdout
    assert det("t", "logs", "-f", run.trial_id).stdout == text
    lines = text.splitlines()
    assert [line.split("|| ")[1] for line in lines] == ["plain", "INFO: fine", "WARNING: hot", "ERROR: broken"]
    assert lines[2].startswith("[2026-01-01T00:00:")
    assert "Z] " in lines[2]
    assert "[rank=1] ||" in lines[2]


def test_levels_and_ranks_are_filtered(det: Det, run: Run) -> None:
    """P-78: rank 1, level WARNING, text `hot`; `t logs --level ERROR` hides it."""
    assert "hot" in det("t", "logs", run.trial_id, "--level", "warning").stdout
    assert "hot" not in det("t", "logs", run.trial_id, "--level", "ERROR").stdout
    assert det("t", "logs", run.trial_id, "--rank-id", 1).stdout.count("\n") == 1
    [line] = [json.loads(line) for line in det("t", "logs", run.trial_id, "--rank-id", 1, "--json").stdout.splitlines()]
    assert (line["rank"], line["level"], line["text"]) == (1, "WARNING", "hot")


def test_logs_have_a_head_a_tail_and_a_time(det: Det, history: History, run: Run) -> None:
    """6.3: --head, --tail, --timestamp-before/-after, --stdtype, --search; at most one of head, tail, follow."""
    history.log(run, ["to stderr"], stream="stderr")

    def texts(*words: object) -> list[str]:
        return [
            json.loads(line)["text"] for line in det("t", "logs", run.trial_id, "--json", *words).stdout.splitlines()
        ]

    assert texts("--head", 1) == ["plain"]
    assert texts("--tail", 1) == ["to stderr"]
    assert texts("--tail", 0) == []
    assert texts("--stdtype", "stderr") == ["to stderr"]
    assert texts("--search", "brok") == ["broken"]
    assert texts("--source", "controller") == []
    assert texts("--node-id", "nowhere") == []
    times = [json.loads(line)["timestamp"] for line in det("t", "logs", run.trial_id, "--json").stdout.splitlines()]
    middle = datetime.datetime.fromisoformat(times[2]) - datetime.timedelta(seconds=0.5)
    assert texts("--timestamp-before", middle.isoformat()) == ["plain", "fine"]
    assert texts("--timestamp-after", middle.isoformat()) == ["hot", "broken", "to stderr"]
    assert "at most one" in det("t", "logs", run.trial_id, "--head", 1, "--tail", 1, code=2).stderr
    for option in ("--timestamp-after", "--timestamp-before"):
        assert "'noon' is no time" in det("t", "logs", run.trial_id, option, "noon", code=2).stderr


def test_metrics_come_as_table_csv_and_json(det: Det, run: Run) -> None:
    """A row for each report in order of steps; chosen groups and names; what is missing is empty."""
    rows = list(csv.DictReader(io.StringIO(det("t", "metrics", run.trial_id, "--csv").stdout)))
    assert [(row["# of Batches"], row["Group"]) for row in rows] == [
        ("10", "training"), ("10", "validation"), ("20", "training"), ("20", "validation")
    ]  # fmt: skip
    assert (rows[0]["loss"], rows[0]["acc"], rows[2]["acc"]) == ("1.5", "0.1", "")
    chosen = json.loads(det("t", "metrics", run.trial_id, "-g", "validation", "-m", "loss", "--json").stdout)
    assert [(row["steps_completed"], row["metrics"]) for row in chosen] == [(10, {"loss": 0.5}), (20, {"loss": 0.25})]
    assert "validation" in det("t", "metrics", run.trial_id).stdout
    message = det("t", "metrics", run.trial_id, "-m", "los", code=1).stderr
    assert "reported no 'los'" in message
    assert "loss" in message


def test_metrics_may_be_called_like_anything(det: Det, history: History) -> None:
    """Neither a metric nor the field of that name is lost, in JSON and in CSV."""
    named = {"time": 1.0, "group": 2.0, "steps_completed": 3.0}
    run = history.run("odd", training={7: named})
    [row] = json.loads(det("t", "metrics", run.trial_id, "--json").stdout)
    assert (row["steps_completed"], row["group"], row["metrics"]) == (7, "training", named)
    assert datetime.datetime.fromisoformat(row["time"])
    header, values = csv.reader(io.StringIO(det("t", "metrics", run.trial_id, "--csv").stdout))
    assert dict(zip(header[3:], values[3:], strict=True)) == {name: str(value) for name, value in named.items()}


def test_many_metrics_fit_the_terminal(det: Det, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 6: output fits the terminal; the first metrics are whole, and the others are named."""
    monkeypatch.setattr(terminal, "is_terminal", lambda stream=None: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    run = history.run("many", training={1: {f"metric_{i:02}": 0.123456 for i in range(20)}})
    *table, hint = det("t", "metrics", run.trial_id).stdout.splitlines()
    assert max(map(len, table)) <= 60
    assert "0.123456" in table[2]
    assert "metric_19" in hint


def test_nan_and_infinity_are_kept(det: Det, history: History) -> None:
    """P-73: NaN and Infinity are read back as such, in JSON by their names."""
    run = history.run("odd", training={1: {"loss": math.nan}, 2: {"loss": math.inf}})
    rows = json.loads(det("t", "metrics", run.trial_id, "--json").stdout)
    assert [row["metrics"]["loss"] for row in rows] == ["NaN", "Infinity"]
    assert det("t", "metrics", run.trial_id, "--csv").stdout.splitlines()[1].endswith(",nan")


@pytest.mark.parametrize("flags", [("--latest",), ("--best",), ("--uuid",)])
def test_one_checkpoint_is_fetched_by_every_flag(
    flags: tuple[str, ...], det: Det, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-84, D9: given one checkpoint, --latest, --best and --uuid each fetch it; the path is printed first."""
    monkeypatch.chdir(tmp_path)
    run = history.run("one", validation={10: 0.5}, checkpoints=[10])
    words = [*flags, run.uuids[0]] if flags == ("--uuid",) else list(flags)
    out = det("t", "download", run.trial_id, *words).stdout
    assert out.splitlines()[0] == f"checkpoints/{run.uuids[0]}"
    assert (tmp_path / "checkpoints" / run.uuids[0] / "state_dict.pth").read_bytes() == b"weights"
    assert "Steps Completed" in out
    quiet = det("t", "download", run.trial_id, *words, "-q", "-o", tmp_path / "here").stdout
    assert quiet == f"{tmp_path / 'here'}\n"


def test_each_flag_fetches_what_it_says(det: Det, run: Run, tmp_path: Path) -> None:
    """D9: --best and --latest take the right end of the list; --sort-by needs --best."""
    det(
        "t",
        "download",
        run.trial_id,
        "--best",
        "--sort-by",
        "loss",
        "--smaller-is-better",
        "false",
        "-o",
        tmp_path / "a",
    )
    assert json.loads((tmp_path / "a" / "metadata.json").read_text())["steps_completed"] == 10
    det("t", "download", run.trial_id, "--latest", "-o", tmp_path / "b")
    assert json.loads((tmp_path / "b" / "metadata.json").read_text())["steps_completed"] == 20
    det("t", "download", run.trial_id, code=2)
    det("t", "download", run.trial_id, "--best", "--latest", code=2)
    det("t", "download", run.trial_id, "--latest", "--sort-by", "loss", "--smaller-is-better", "true", code=2)


def test_a_running_trial_is_asked_to_stop(det: Det, history: History) -> None:
    """`t stop` leaves a request that the process sees; a finished trial is left alone."""
    from determined.store import attempts
    from determined.store.messages import Signal

    history.catch_up()
    going = history.run("going", state="RUNNING")
    done = history.run("done")
    assert "asked to stop" in det("t", "stop", going.trial_id).stderr
    assert "COMPLETED, so there is nothing to stop" in det("t", "stop", done.trial_id).stderr
    with history.store.read() as conn:
        assert attempts.signals(conn, going.attempt.allocation_id) is Signal.PREEMPT


def test_a_plain_run_is_not_killed(det: Det, run: Run) -> None:
    """P-98, 6.3: `t kill` says why nobody can."""
    assert "no controller can kill it" in det("t", "kill", run.trial_id, code=1).stderr


def test_curves_are_drawn_in_the_terminal(det: Det, history: History, run: Run) -> None:
    """Without -m the searcher metric is drawn, of training and validation if both have it; piped it is ASCII."""
    text = det("t", "plot", run.trial_id).stdout
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 80
    assert f"** trial {run.trial_id} validation   last 0.25   min 0.25 at 20" in text
    assert f"++ trial {run.trial_id} training   last 1" in text
    other = history.run("two", validation={10: 0.4})
    text = det("t", "plot", f"{run.trial_id},{other.trial_id}", "-m", "validation.loss", "--log").stdout
    assert " validation loss" in text
    assert f"trial {other.trial_id}" in text
    assert "training" not in text


def test_a_curve_is_drawn_with_colours_and_dots_on_a_terminal(
    det: Det, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal that shows them: braille dots, within its width."""
    monkeypatch.setattr(terminal, "is_terminal", lambda stream=None: True)
    monkeypatch.setattr(terminal, "has_unicode", lambda stream=None: True)
    monkeypatch.setattr(terminal, "has_colour", lambda stream=None: False)
    monkeypatch.setenv("COLUMNS", "60")
    text = det("t", "plot", run.trial_id, "-m", "acc").stdout
    assert any(0x2800 < ord(c) < 0x2900 for c in text)
    assert max(map(len, text.splitlines())) <= 60


@pytest.mark.parametrize("kind", ["svg", "html", "png"])
def test_curves_are_drawn_into_files(kind: str, det: Det, run: Run, tmp_path: Path) -> None:
    """-o FILE draws into it, in the form its name asks for."""
    file = tmp_path / f"curve.{kind}"
    assert f"Wrote {file}" in det("t", "plot", run.trial_id, "-m", "loss", "-m", "acc", "-o", file).stderr
    assert file.read_bytes().startswith({"svg": b"<svg", "html": b"<!DOCTYPE html>", "png": b"\x89PNG"}[kind])


def test_what_cannot_be_drawn_is_said(det: Det, history: History, run: Run, tmp_path: Path) -> None:
    """An unknown metric names the known ones; an unknown kind of file is misuse; nothing reported is said."""
    assert (
        "There is: training.acc, training.loss, validation.loss"
        in det("t", "plot", run.trial_id, "-m", "nope", code=1).stderr
    )
    assert ".svg" in det("t", "plot", run.trial_id, "-o", tmp_path / "a.gif", code=2).stderr
    silent = history.run("silent", training={1: {"note": "text"}})
    assert "no number of 'note'" in det("t", "plot", silent.trial_id, "-m", "note", code=1).stderr
    assert "in these steps" in det("t", "plot", run.trial_id, "--from", 20, "--to", 10, code=1).stderr
    assert "reported nothing" in det("t", "plot", history.run("nothing").trial_id, code=1).stderr
    assert "printed nothing" in det("t", "logs", silent.trial_id).stderr


def test_a_range_is_zoomed_into(det: Det, run: Run) -> None:
    """--from and --to leave out what lies outside."""
    assert "last 0.5   min 0.5 at 10" in det("t", "plot", run.trial_id, "-m", "validation.loss", "--to", 15).stdout


def test_without_pillow_a_png_says_what_to_install(
    det: Det, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 8: a missing extra is one sentence with the pip install to type."""
    import sys

    monkeypatch.setitem(sys.modules, "PIL", None)
    assert "pip install 'resolute[plot]'" in det("t", "plot", run.trial_id, "-o", tmp_path / "a.png", code=1).stderr


def test_a_description_that_is_piped_has_no_giant_column(det: Det, history: History) -> None:
    """Piped, `t describe` is for people too: summaries are a table, and no cell holds a JSON document; CSV has all."""
    run = history.run(
        training={s: {"loss": 1.0, "accuracy": 0.5, "f1": 0.5} for s in range(1, 5)},
        validation={4: 0.5},
        checkpoints=[4],
    )
    text = det("t", "describe", run.trial_id).stdout
    assert "{" not in text
    assert max(map(len, text.splitlines())) < 160
    assert "Summary Metrics" in det("t", "describe", run.trial_id, "--csv").stdout
    assert "Checkpoint Metadata" in det("t", "describe", run.trial_id, "--csv").stdout
    document = json.loads(det("t", "describe", run.trial_id, "--json").stdout)
    assert document["trial"]["summary_metrics"]["avg_metrics"]["loss"]["count"] == 4
