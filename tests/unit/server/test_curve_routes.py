"""Curves over the API."""

from __future__ import annotations

import math

import pytest

from determined.errors import InvalidValue
from determined.server.routes.curves import base_name
from determined.store.messages import MetricReport
from determined.store.metrics import metric_reports
from tests.asking import Asker
from tests.history import History


@pytest.mark.parametrize(
    "name", ["loss", "train_loss", "training_loss", "t_loss", "val_loss", "validation_loss", "v_loss"]
)
def test_training_and_validation_share_a_chart(name: str) -> None:
    """8.2: prefixes that say training or validation are ignored for grouping."""
    assert base_name(name) == "loss"


def test_a_prefix_alone_is_a_name() -> None:
    """A metric that is called like a prefix keeps its name; a word that begins so, too."""
    assert [base_name(name) for name in ("val_", "value", "test_loss")] == ["val_", "value", "test_loss"]


def test_curves_of_several_trials_come_in_one_answer(history: History, page: Asker) -> None:
    """Series say how many trials have them; curves have columns of one length, and odd points apart."""
    first = history.run(training={10: 1.0, 20: {"loss": math.nan, "epochs": 0.5}}, validation={20: {"val_loss": 0.5}})
    other = history.run(training={10: 3.0})
    ids = f"{first.trial_id},{other.trial_id}"
    found = page.get("/series", trials=ids)["series"]
    assert [(each["group"], each["name"], each["chart"], each["points"], each["trials"]) for each in found] == [
        ("training", "epochs", "epochs", 1, 1),
        ("training", "loss", "loss", 3, 2),
        ("validation", "val_loss", "loss", 1, 1),
    ]
    curves = page.get("/curves", trials=ids, series=["training:loss", "validation:val_loss"])["curves"]
    assert [(each["trial_id"], each["name"]) for each in curves] == [
        (first.trial_id, "loss"),
        (other.trial_id, "loss"),
        (first.trial_id, "val_loss"),
    ]
    assert curves[0]["mean"] == [1.0, None]
    assert curves[0]["odd"] == [{"steps": 20, "value": "NaN"}]
    assert curves[0]["epochs"] == [None, 0.5]
    assert (curves[0]["shown"], curves[0]["points"], curves[0]["total"]) == (2, 2, 2)


def test_the_profiler_has_curves_over_time(history: History, page: Asker) -> None:
    """8.2: samples of a machine are curves whose steps are seconds; a zoom is in seconds, too."""
    run = history.run(state="RUNNING")
    reports = [
        MetricReport("memory", {"node.local": {"memory_free": 100.0 - second}}, time=history.tick())
        for second in range(5)
    ]
    with history.store.write() as conn:
        metric_reports.append(conn, run.attempt, reports)
    (series,) = page.get("/series", trials=str(run.trial_id))["series"]
    assert (series["name"], series["chart"], series["is_sampled"]) == ("node.local.memory_free", "memory_free", True)
    name = f"memory:{series['name']}"
    (curve,) = page.get("/curves", trials=str(run.trial_id), series=[name])["curves"]
    assert curve["seconds"] == [float(second) for second in curve["ends"]]
    assert curve["mean"] == [100.0, 99.0, 98.0, 97.0, 96.0]
    assert (curve["is_sampled"], curve["total"]) == (True, 5)
    middle = {"first": curve["ends"][1], "last": curve["ends"][3]}
    (part,) = page.get("/curves", trials=str(run.trial_id), series=[name], **middle)["curves"]
    assert part["mean"] == [99.0, 98.0, 97.0]


def test_all_points_come_as_csv(history: History, page: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """CSV holds every point, read in pages; a name that a spreadsheet would run is harmless text."""
    monkeypatch.setattr("determined.server.routes.curves.PAGE", 2)
    run = history.run(training={step: {"=1+1": step / 1} for step in range(1, 6)})
    answer = page.ask("GET", f"/curves/csv?trials={run.trial_id}&series=training:%3D1%2B1&first=2")
    lines = answer.text.splitlines()
    assert lines[0] == "trial_id,group,name,steps,time,value"
    assert [line.split(",")[3] for line in lines[1:]] == ["2", "3", "4", "5"]
    assert lines[1].startswith(f"{run.trial_id},training,'=1+1,2,")
    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ({"trials": "1,x", "series": ["training:loss"]}, "'x', which is no id"),
        ({"trials": "1", "series": ["loss"]}, "Write its group and its name"),
        ({"trials": ",".join(map(str, range(101))), "series": ["a:b"]}, "100 at once is the most"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(page: Asker, question: dict[str, str], reason: str) -> None:
    """A wrong address says what is expected."""
    with pytest.raises(InvalidValue, match=reason):
        page.get("/curves", **question)
