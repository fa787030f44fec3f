"""Fork, continue and search dialogs over the API: what they start with, what is checked, what is submitted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from determined import errors
from determined.client import Determined, Experiment
from determined.experiment.submission import secret_values
from determined.store import experiments, trials
from determined.store.control import pending
from tests.asking import Asker
from tests.history import History

TEXT = """\
# My digits.
name: digits  # as ever
entrypoint: python3 train.py
searcher:
  name: single
  metric: loss
  max_length: {batches: 400}
hyperparameters:
  lr: 0.1
  net:
    layers: {type: int, minval: 1, maxval: 3}
"""
SECRET = TEXT + "environment:\n  environment_variables: [A=1, API_TOKEN=hunter2, B=2]\n"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of code; no controller starts by itself."""
    monkeypatch.setenv("DET_CONTROLLER", "off")
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "train.py").write_text("print(1)\n")
    return tmp_path / "model"


def submitted(runs: Determined, model: Path, text: str = TEXT, **more: Any) -> Experiment:
    file = model.parent / "experiment.yaml"
    file.write_text(text)
    return runs.create_experiment(file, model, **more)


def end(history: History, experiment: Experiment, state: str = "ERROR", **hparams: Any) -> int:
    """Do what a controller would: one trial that ended so, and the experiment; return the trial."""
    with history.store.write() as conn:
        pending.remove(conn, [event.id for event in pending.read(conn, experiment_id=experiment.id)])
        trial = trials.create(conn, experiment.id, hparams=hparams or {"lr": 0.1, "net": {"layers": 2}})
        trials.set_state(conn, trial, state)
        experiments.set_state(conn, experiment.id, state)
    return trial


def check(page: Asker, experiment: Experiment, config: str, purpose: str = "fork") -> dict[str, Any]:
    answer: dict[str, Any] = page.send(
        "POST", f"/experiments/{experiment.id}/check", {"config": config, "purpose": purpose}
    )
    return answer


def test_a_fork_starts_with_what_was_written(page: Asker, runs: Determined, model: Path) -> None:
    """8.2: the editor shows the submitted text with its comments, under a new name."""
    parent = submitted(runs, model)
    found = page.get(f"/experiments/{parent.id}/draft")
    assert found == {"config": TEXT.replace("digits  #", "Fork of digits  #"), "name": "Fork of digits", "form": None}
    assert check(page, parent, found["config"])["is_fine"]


def test_a_text_that_does_not_say_all_is_not_shown(page: Asker, runs: Determined, model: Path) -> None:
    """8.2: with a template below it, the text alone would be another experiment: the effective values are shown."""
    (model.parent / "below.yaml").write_text("max_restarts: 1\n")
    parent = submitted(runs, model, template=str(model.parent / "below.yaml"))
    shown = yaml.safe_load(page.get(f"/experiments/{parent.id}/draft")["config"])
    assert (shown["max_restarts"], shown["name"]) == (1, "Fork of digits")
    assert shown["hyperparameters"]["lr"] == {"type": "const", "val": 0.1}


def test_a_fork_is_checked_and_submitted(page: Asker, runs: Determined, model: Path) -> None:
    """8.2: what was typed becomes a new experiment with the parent's code, comments kept; no text is the parent's."""
    parent = submitted(runs, model)
    typed = TEXT.replace("lr: 0.1", "lr: 0.5")
    answer = page.send("POST", f"/experiments/{parent.id}/fork", {"config": typed, "name": "mine", "paused": True})
    made = runs.get_experiment(answer["experiment_id"])
    assert (made.name, made.parent_id) == ("mine", parent.id)
    assert made.config["hyperparameters"]["lr"]["val"] == 0.5
    assert made.submitted_config == typed.replace("name: digits", "name: mine")
    assert made.packed_code() == parent.packed_code()
    same = page.send("POST", f"/experiments/{parent.id}/fork", {"config": "# nothing\n", "name": "a: b"})
    copy = runs.get_experiment(same["experiment_id"])
    assert (copy.name, copy.config["hyperparameters"]) == ("a: b", parent.config["hyperparameters"])


def test_problems_have_their_lines(page: Asker, runs: Determined, model: Path) -> None:
    """8.2: the checks of `det experiment create`, each problem with its line; nothing is written."""
    parent = submitted(runs, model)
    wrong = TEXT.replace("metric: loss", "metrik: loss").replace("minval: 1", "minval: 9")
    found = check(page, parent, wrong)
    assert not found["is_fine"]
    assert [(each["line"], each["path"]) for each in found["problems"]] == [
        (6, "<config>.searcher.metrik"), (11, "<config>.hyperparameters.net.layers")
    ]  # fmt: skip
    assert "Did you mean metric?" in found["problems"][0]["reason"]
    for text, line, said in (
        ("a: [1\nb: 2", 2, "expected"),
        ("- 1", None, "has to be a mapping"),
        (TEXT.replace("train.py", "other.py"), 3, "other.py"),
        (TEXT + "workspace: none\nproject: x\n", None, "There is no workspace none"),
        (TEXT.replace("  metric: loss", "  metric: loss\n  source_trial_id: 77"), None, "There is no trial 77"),
    ):
        [problem] = check(page, parent, text)["problems"]
        assert problem["line"] == line, problem
        assert said in problem["reason"]
    assert len(runs.list_experiments()) == 1


def test_a_run_that_was_not_submitted_cannot_be_forked(history: History, page: Asker) -> None:
    """8.2: the dialog reads why, before anything is typed."""
    run = history.run("mine")
    answer = page.send("POST", f"/experiments/{run.experiment_id}/check", {"config": TEXT})
    assert "was not submitted" in answer["problems"][0]["reason"]
    with pytest.raises(errors.NotFound):
        page.send("POST", "/experiments/99/check", {"config": TEXT})


def test_secrets_are_masked_and_carry_over(page: Asker, runs: Determined, model: Path) -> None:
    """8.2: a secret is never shown; a fork that leaves its mask has the secret itself, also where lines were added."""
    parent = submitted(runs, model, SECRET)
    shown = page.get(f"/experiments/{parent.id}/draft")["config"]
    assert "hunter2" not in shown
    assert "API_TOKEN=********" in shown
    typed = shown.replace("- A=1\n", "- NEW=0\n    - A=1\n", 1).replace("max_restarts: 5", "max_restarts: 2")
    assert check(page, parent, typed)["is_fine"]
    made = runs.get_experiment(page.send("POST", f"/experiments/{parent.id}/fork", {"config": typed})["experiment_id"])
    assert "hunter2" not in json.dumps(made.config) + made.submitted_config
    whole = secret_values.restore(made.config, made.uuid)  # type: ignore[attr-defined]  # a column of its row
    assert "API_TOKEN=hunter2" in json.dumps(whole)
    assert "********" not in json.dumps(whole)


def test_a_mask_that_hides_nothing_is_refused(page: Asker, runs: Determined, model: Path) -> None:
    """8.2: stars where the parent has no secret would become the value: the line is named instead."""
    parent = submitted(runs, model, SECRET)
    found = check(page, parent, TEXT + "data:\n  secrets:\n    key: '********'\n")
    assert [(each["line"], each["path"]) for each in found["problems"]] == [(14, "<config>.data.secrets.key")]
    assert "Write the value itself" in found["problems"][0]["reason"]


def test_a_fork_of_a_trial_is_one_trial_with_its_values(
    history: History, page: Asker, runs: Determined, model: Path
) -> None:
    """8.2: the hyperparameters of a trial as constants, and a single searcher that keeps metric and length."""
    parent = submitted(runs, model, TEXT.replace("name: single", "name: random\n  max_trials: 4"))
    trial = end(history, parent, lr=0.3, net={"layers": 2})
    found = page.get(f"/experiments/{parent.id}/draft", trial_id=trial)
    values = yaml.safe_load(found["config"])
    assert values["searcher"] == {"name": "single", "metric": "loss", "max_length": {"batches": 400}}
    assert values["hyperparameters"] == {"lr": 0.3, "net": {"layers": 2}}
    assert list(values) == ["name", "entrypoint", "searcher", "hyperparameters"]
    assert check(page, parent, found["config"])["trials"] == 1
    going_on = yaml.safe_load(page.get(f"/experiments/{parent.id}/draft", trial_id=trial, purpose="continue")["config"])
    assert going_on["searcher"]["source_trial_id"] == trial
    with pytest.raises(errors.NotFound, match="not 1"):
        page.get(f"/experiments/{parent.id}/draft", trial_id=history.run().trial_id)


def test_an_experiment_is_continued_with_changes(history: History, page: Asker, runs: Determined, model: Path) -> None:
    """4.7: the same checks as `det experiment continue`; a text that changes nothing changes nothing."""
    made = submitted(runs, model)
    assert "only one that has ended" in check(page, made, "", "continue")["problems"][0]["reason"]
    end(history, made)
    shown = page.get(f"/experiments/{made.id}/draft", purpose="continue")
    assert shown == {"config": TEXT, "name": "digits", "form": None}
    assert check(page, made, TEXT, "continue")["is_fine"]
    wrong = check(page, made, TEXT.replace("name: single", "name: grid"), "continue")
    assert "is continued with single" in wrong["problems"][0]["reason"]
    page.send("POST", f"/experiments/{made.id}/continue", {"config": TEXT})
    assert "CONFIG" not in [event.kind for event in made.events()], "no change of the configuration is recorded"
    end(history, made, "CANCELED")
    page.send("POST", f"/experiments/{made.id}/continue", {"config": TEXT.replace("lr: 0.1", "lr: 0.2")})
    made.reload()
    assert made.config["hyperparameters"]["lr"]["val"] == 0.2
    assert "CONFIG" in [event.kind for event in made.events()]


def test_a_random_search_is_continued_as_it_is(history: History, page: Asker, runs: Determined, model: Path) -> None:
    """4.7: there is nothing to edit of a search that is continued; ASHA cannot be continued, and says so."""
    search = submitted(runs, model, TEXT.replace("name: single", "name: random\n  max_trials: 4"))
    end(history, search)
    assert page.get(f"/experiments/{search.id}/draft", purpose="continue")["config"] == ""
    assert check(page, search, "", "continue")["is_fine"]
    assert page.send("POST", f"/experiments/{search.id}/continue", {})["said"] == f"Continued experiment {search.id}."


def test_the_search_dialog_starts_with_what_there_is(
    history: History, page: Asker, runs: Determined, model: Path
) -> None:
    """8.2: every hyperparameter as a range or a constant, and a budget from the length of training."""
    parent = submitted(runs, model)
    form = page.get(f"/experiments/{parent.id}/draft", purpose="search")["form"]
    assert (form["searcher"], form["metric"], form["max_trials"]) == ("adaptive_asha", "loss", 16)
    assert (form["time_metric"], form["max_time"]) == ("batches", 400)
    ranges = {row["name"]: {key: row[key] for key in row if row[key] is not None} for row in form["ranges"]}
    assert ranges == {
        "lr": {"name": "lr", "type": "const", "val": 0.1},
        "net.layers": {"name": "net.layers", "type": "int", "minval": 1.0, "maxval": 3.0},
    }
    trial = end(history, parent, lr=0.3, net={"layers": 2})
    rows = page.get(f"/experiments/{parent.id}/draft", purpose="search", trial_id=trial)["form"]["ranges"]
    assert [(row["name"], row["type"], row["val"]) for row in rows] == [
        ("lr", "const", 0.3),
        ("net.layers", "const", 2),
    ]


def test_a_form_becomes_a_configuration(page: Asker, runs: Determined, model: Path) -> None:
    """8.2: the search's YAML, keys in their order, and the counts that `det preview-search` gives."""
    parent = submitted(runs, model)
    form = {
        "searcher": "adaptive_asha", "max_trials": 16, "time_metric": "batches", "max_time": 937,
        "name": "wide: search",
        "ranges": [
            {"name": "lr", "type": "log", "base": 10, "minval": -4, "maxval": -1.5},
            {"name": "net.layers", "type": "int", "minval": 1, "maxval": 8},
            {"name": "act", "type": "categorical", "vals": ["relu", "gelu", None]},
            {"name": "shape", "type": "const", "val": {"a": 1}},
        ],
    }  # fmt: skip
    text = page.send("POST", f"/experiments/{parent.id}/search-config", form)["config"]
    values = yaml.safe_load(text)
    assert list(values) == ["name", "entrypoint", "searcher", "hyperparameters"]
    assert values["name"] == "wide: search"
    assert values["searcher"] == {
        "name": "adaptive_asha", "metric": "loss", "max_trials": 16, "time_metric": "batches", "max_time": 937
    }  # fmt: skip
    assert values["hyperparameters"] == {
        "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1.5},
        "net": {"layers": {"type": "int", "minval": 1, "maxval": 8}},
        "act": {"type": "categorical", "vals": ["relu", "gelu", None]},
        "shape": {"type": "const", "val": {"a": 1}},
    }
    found = check(page, parent, text, "search")
    assert found["is_fine"], found["problems"]
    assert [(row["trials"], row["units"]) for row in found["preview"]] == [
        (9, "train for 58 batches"), (5, "train for 234 batches"), (2, "train for 937 batches")
    ]  # fmt: skip
    assert (found["trials"], found["said"].partition(":")[0]) == (16, "16 trials")


@pytest.mark.parametrize("searcher", ["random", "grid", "async_halving"])
def test_every_search_of_the_form_can_be_submitted(page: Asker, runs: Determined, model: Path, searcher: str) -> None:
    """8.2: with what the form asks for, each kind of search passes the checks."""
    parent = submitted(runs, model)
    ranges = [
        {"name": "lr", "type": "double", "minval": 0, "maxval": 1, "count": 3},
        {"name": "n", "type": "const", "val": 1},
    ]
    form = {"searcher": searcher, "max_trials": 8, "time_metric": "epochs", "max_time": 16, "ranges": ranges}
    text = page.send("POST", f"/experiments/{parent.id}/search-config", form)["config"]
    found = check(page, parent, text, "search")
    assert found["is_fine"], found["problems"]
    assert found["trials"] == (3 if searcher == "grid" else 8)


@pytest.mark.parametrize("name", ["", ".", "a..b", "lr.inner"])
def test_names_that_cannot_be_are_refused(page: Asker, runs: Determined, model: Path, name: str) -> None:
    """8.2: a name without letters between its dots, or inside of another hyperparameter, is a sentence."""
    parent = submitted(runs, model)
    ranges = [{"name": "lr", "type": "const", "val": {"type": "x"}}, {"name": name, "type": "const", "val": 1}]
    with pytest.raises(errors.InvalidValue):
        page.send("POST", f"/experiments/{parent.id}/search-config", {"searcher": "random", "ranges": ranges})
