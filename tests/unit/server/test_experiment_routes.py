"""Experiments over the API: what the head of a page says, and what can be done to one or to many."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa

from determined import errors
from determined.client import Determined
from determined.store import experiments, trials
from determined.store.control import pending
from tests.asha import ASHA, drive
from tests.asking import Asker
from tests.history import History
from tests.launchers import submit

GONE = "There is no experiment 99 in this store. List them with: det experiment ls"


def act(page: Asker, action: str, *ids: int, **more: Any) -> list[tuple[int, bool, str]]:
    outcomes = page.send("POST", "/experiments/actions", {"action": action, "ids": list(ids), **more})["outcomes"]
    return [(outcome["id"], outcome["is_done"], outcome["said"]) for outcome in outcomes]


def test_the_head_of_a_run(history: History, page: Asker) -> None:
    """8.1: name, state, owner, project, times, best value and best checkpoint; a run of one trial says which."""
    run = history.run("digits", labels=["b", "a"], training={100: 2.0}, validation={100: 0.9, 200: 0.7, 300: 0.8},
                      checkpoints=[100, 200, 300])  # fmt: skip
    found = page.get(f"/experiments/{run.experiment_id}")
    assert (found["name"], found["state"], found["owner"], found["labels"]) == (
        "digits",
        "COMPLETED",
        "ada",
        ["a", "b"],
    )
    assert (found["project"], found["workspace"], found["script"]) == (
        "Uncategorized",
        "Uncategorized",
        "/home/ada/train.py",
    )
    assert (found["best_metric"], found["best_trial_id"]) == (0.7, run.trial_id)
    assert found["best_checkpoint_uuid"] == run.checkpoints[200]
    assert (found["single_trial_id"], found["counts"], found["trial_count"]) == (run.trial_id, {"COMPLETED": 1}, 1)
    assert found["metric_names"] == {"training": ["loss"], "validation": ["loss"]}
    assert (found["checkpoint_count"], found["slots"], found["has_code"]) == (3, 0, False)


def test_the_head_of_a_search(history: History, page: Asker) -> None:
    """8.1: trials are counted by what their processes do; a search has no single trial, one by `single` has its own."""
    ident = submit(history.store, ASHA)
    assert page.get(f"/experiments/{ident}")["state"] == "QUEUED", "submitted, and not taken up yet"
    drive(history, rounds=6)
    found = page.get(f"/experiments/{ident}")
    with history.store.read() as conn:
        states = experiments.trial_counts(conn, [ident])[ident]
    assert sum(found["counts"].values()) == found["trial_count"] == sum(states.values())
    assert "ACTIVE" in states
    assert "ACTIVE" not in found["counts"]
    assert (found["searcher"], found["has_rungs"], found["single_trial_id"]) == ("adaptive_asha", True, None)
    assert found["slots"] == found["counts"]["RUNNING"] > 0
    single = submit(history.store, {"searcher": {"name": "single", "metric": "loss"}, "hyperparameters": {"lr": 0.1}})
    assert page.get(f"/experiments/{single}")["single_trial_id"] is None, "it has none yet"
    drive(history)
    with history.store.read() as conn:
        [trial] = trials.of_experiment(conn, single)
    assert page.get(f"/experiments/{single}")["single_trial_id"] == trial.id


def test_the_best_checkpoint_is_the_one_that_the_sdk_finds(history: History, page: Asker, runs: Determined) -> None:
    """8.2: of many trials the best checkpoint, not that of the best trial, whose best step may not be saved."""
    experiment = history.experiment("search", unmanaged=False, state="COMPLETED")
    for number in range(45):
        saved = [100] if number % 3 else [200]
        history.trial(experiment, validation={100: 5.0 - number / 10, 200: 0.1 + number / 100}, checkpoints=saved)
    found = page.get(f"/experiments/{experiment}")["best_checkpoint_uuid"]
    assert found == runs.get_experiment(experiment).top_checkpoint().uuid


def test_a_large_search_costs_no_more_questions(history: History, page: Asker) -> None:
    """Issue 15: the head of a search with many trials is read with as many questions as that of a small one."""

    def questions(ident: int) -> int:
        asked: list[str] = []
        engine = page.app.state.session.store._ours()
        sa.event.listen(engine, "before_cursor_execute", note := lambda *given: asked.append(given[2]))
        try:
            page.get(f"/experiments/{ident}")
        finally:
            sa.event.remove(engine, "before_cursor_execute", note)
        return len(asked)

    few, many = (history.experiment(name, unmanaged=False, state="COMPLETED") for name in ("few", "many"))
    for ident, count in ((few, 2), (many, 30)):
        for number in range(count):
            history.trial(ident, hparams={"lr": number}, validation={100: 1.0 / (number + 1)}, checkpoints=[100])
    page.get(f"/experiments/{few}")
    assert questions(many) <= questions(few) + 1


def test_pause_of_an_unmanaged_run_is_refused_with_a_reason(history: History, page: Asker, runs: Determined) -> None:
    """P-98: a run of `python train.py` cannot be paused: the page says why beforehand, and in the words of the SDK."""
    run = history.run("mine", state="RUNNING")
    said = page.get(f"/experiments/{run.experiment_id}")["actions"]["pause"]
    assert said.startswith(
        f"Experiment {run.experiment_id} was started with python train.py, so no controller can pause it"
    )
    assert said.endswith(f"det trial stop {run.trial_id}")
    assert act(page, "pause", run.experiment_id) == [(run.experiment_id, False, said)]
    with pytest.raises(errors.NoController) as refused:
        runs.get_experiment(run.experiment_id).pause()
    assert str(refused.value) == said


def test_every_action_is_possible_or_has_a_reason(history: History, page: Asker) -> None:
    """8.1: what cannot be done now is shown with the sentence why, in every state."""
    ended = history.run("ended").experiment_id
    actions = page.get(f"/experiments/{ended}")["actions"]
    assert actions.keys() == {
        "activate", "pause", "cancel", "kill", "archive", "unarchive", "delete", "move", "edit",
        "fork", "search", "continue", "retry", "tensorboard",
    }  # fmt: skip
    assert [name for name, reason in actions.items() if not reason] == ["archive", "delete", "move", "edit"]
    assert all(reason.endswith((".", "DIRECTORY")) for reason in actions.values() if reason)
    act(page, "archive", ended)
    archived = page.get(f"/experiments/{ended}")["actions"]
    assert (archived["archive"], archived["unarchive"]) == (f"Experiment {ended} is archived already.", "")
    assert "is not edited" in archived["move"]
    search = submit(history.store, ASHA, paused=True)
    drive(history, rounds=3)
    paused = page.get(f"/experiments/{search}")["actions"]
    assert (paused["activate"], paused["pause"]) == ("", f"Experiment {search} is PAUSED already.")
    assert paused["fork"] == paused["search"] == ""
    assert "cannot be continued" in paused["continue"]


def test_actions_on_many_are_answered_one_by_one(
    history: History, page: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8.1: of several experiments each has its own outcome; what was reached already is a success."""
    monkeypatch.setenv("DET_CONTROLLER", "off")
    going, mine = submit(history.store, ASHA), history.run("mine").experiment_id
    drive(history, rounds=3)
    outcomes = act(page, "pause", going, mine, 99, going)
    assert [(ident, is_done) for ident, is_done, _ in outcomes] == [(going, True), (mine, False), (99, False)]
    assert outcomes[0][2] == f"Paused experiment {going}."
    assert outcomes[2][2] == GONE
    with history.store.read() as conn:
        assert [(row.kind, row.body) for row in pending.read(conn, experiment_id=going)][-1:] == [
            ("REQUEST", {"action": "pause"})
        ]


def test_a_deleted_experiment_can_be_brought_back(history: History, page: Asker, runs: Determined) -> None:
    """4.8: deletion hides, says how to undo it, and refuses what is in the model registry or has not ended."""
    gone, kept, going = (
        history.run("gone"),
        history.run("kept", checkpoints=[100]),
        history.run("going", state="RUNNING"),
    )
    runs.create_model("digits").register_version(kept.uuids[0])
    outcomes = act(page, "delete", gone.experiment_id, kept.experiment_id, going.experiment_id)
    assert [is_done for _, is_done, _ in outcomes] == [True, False, False]
    assert f"det experiment undelete {gone.experiment_id}" in outcomes[0][2]
    assert "is in the model registry" in outcomes[1][2]
    assert page.get(f"/experiments/{kept.experiment_id}")["actions"]["delete"] == outcomes[1][2]
    assert outcomes[2][2].endswith("Stop it first.")
    with pytest.raises(errors.NotFound):
        page.get(f"/experiments/{gone.experiment_id}")
    runs.undelete_experiment(gone.experiment_id)
    assert page.get(f"/experiments/{gone.experiment_id}")["name"] == "gone"


def test_moving_and_editing(history: History, page: Asker, runs: Determined) -> None:
    """8.1: several texts change at once; an experiment moves to a project that is there; archived ones stay."""
    run = history.run("old", labels=["a"])
    page.send("PATCH", f"/experiments/{run.experiment_id}", {"name": "new", "notes": "# *x*", "labels": ["c", "b"]})
    found = page.get(f"/experiments/{run.experiment_id}")
    assert (found["name"], found["notes"], found["labels"], found["description"]) == ("new", "# *x*", ["b", "c"], "")
    with pytest.raises(errors.InvalidValue):
        page.send("PATCH", f"/experiments/{run.experiment_id}", {"name": "  "})
    project = runs.create_workspace("vision").create_project("cifar")
    assert act(page, "move", run.experiment_id, project_id=project.id)[0][1]
    assert page.get(f"/experiments/{run.experiment_id}")["project"] == "cifar"
    for wrong in ({}, {"project_id": 77}):
        with pytest.raises((errors.InvalidValue, errors.NotFound)):
            act(page, "move", run.experiment_id, **wrong)
    act(page, "archive", run.experiment_id)
    assert act(page, "move", run.experiment_id, project_id=1)[0][1] is False


def test_what_happened_comes_in_pages(history: History, page: Asker) -> None:
    """8.1: changes of state with their reasons, the newest first, in pages that meet without a gap."""
    ident = submit(history.store, ASHA)
    drive(history)
    seen: list[dict[str, Any]] = []
    before = None
    while True:
        answer = page.get(f"/experiments/{ident}/events", limit=7, before=before)
        seen += answer["events"]
        if (before := answer["next_before"]) is None:
            break
    assert [event["id"] for event in seen] == sorted({event["id"] for event in seen}, reverse=True)
    assert seen[0]["said"].startswith("The experiment became COMPLETED")
    assert {event["kind"] for event in seen} == {"STATE", "TRIAL_STATE"}
    assert len([event for event in seen if event["trial_id"] is not None]) >= 8


def test_secrets_are_masked_in_both_texts(history: History, page: Asker) -> None:
    """8.2: the configuration is shown as it was written and with all defaults; secrets in neither."""
    text = "name: mine  # a comment\nsearcher: {name: single, metric: loss}\n"
    plain = history.experiment("plain", config={"name": "mine"}, original_config=text)
    assert page.get(f"/experiments/{plain}/config") == {"submitted": text, "effective": "name: mine\n"}
    config = {"environment": {"environment_variables": ["API_TOKEN=hunter2"]}}
    secret = history.experiment("secret", config=config, original_config=json.dumps(config))
    found = page.get(f"/experiments/{secret}/config")
    assert "hunter2" not in json.dumps(found)
    assert "API_TOKEN=********" in found["effective"]


@pytest.mark.parametrize(
    "config",
    [
        {"searcher": "mine", "hyperparameters": [1], "resources": 3, "max_restarts": "x"},
        {"searcher": {"name": 5, "max_trials": "x"}, "resources": {"slots_per_trial": "2"}, "environment": []},
    ],
)
def test_what_a_plain_run_says_of_itself_may_be_anything(history: History, page: Asker, config: dict[str, Any]) -> None:
    """Issue 15: the configuration of a run of one's own is no experiment file, and every part of its page is shown."""
    ident = history.run("odd", config=config, hparams={"lr": 1}, validation={10: 0.5}).experiment_id
    for path in (
        "",
        "/curves",
        "/search",
        "/rungs",
        "/events",
        "/config",
        "/code",
        "/draft",
        "/draft?purpose=continue",
    ):
        assert page.ask("GET", f"/experiments/{ident}{path}").status_code == 200, path
    assert page.get(f"/experiments/{ident}")["slots_per_trial"] == 1
