"""det experiment: lists, descriptions, and changes."""

from __future__ import annotations

import csv
import getpass
import io
import json
from pathlib import Path

import pytest
import yaml

from determined.cli.output import terminal
from tests.history import History
from tests.unit.cli.conftest import Det


def ids(text: str) -> list[int]:
    return [int(row["ID"]) for row in csv.DictReader(io.StringIO(text))]


def test_archived_ones_and_other_peoples_are_hidden_unless_asked_for(det: Det, history: History) -> None:
    """P-81: archived ones are hidden; with -a an Archived column is last. 6.2: other owners are hidden too."""
    kept, archived = history.run("kept"), history.run("old")
    other = history.run("other", owner="bob")
    det("e", "archive", archived.experiment_id)
    shown = det("-u", "ada", "e", "list").stdout
    assert "kept" in shown
    assert "old" not in shown
    assert "other" not in shown
    everything = det("e", "ls", "-a", "--csv").stdout
    assert everything.splitlines()[0].endswith(",Archived")
    assert ids(everything) == [kept.experiment_id, archived.experiment_id, other.experiment_id]
    assert [row["Archived"] for row in csv.DictReader(io.StringIO(everything))] == ["False", "True", "False"]


def test_my_runs_are_the_default(det: Det, history: History) -> None:
    """6.2: without -u and -a, the list is of those who ask."""
    mine = history.run("mine", owner=getpass.getuser())
    history.run("other", owner="somebody else")
    assert ids(det("e", "ls", "--csv").stdout) == [mine.experiment_id]


def test_the_list_has_the_columns_that_scripts_know(det: Det, history: History) -> None:
    """6.2: the columns of `e list`, with workspace and project first when asked for, and the best value last."""
    history.run("one", validation={10: 0.5, 20: 0.25})
    header = "ID,Owner,Name,Parent ID,State,Progress,Started,Ended,Resource Pool,Searcher Metric,Best,H-Params"
    assert det("-u", "ada", "e", "ls", "--csv").stdout.splitlines()[0] == header
    [row] = json.loads(det("-u", "ada", "e", "ls", "--json", "--show_project").stdout)
    assert (row["workspace"], row["project"]) == ("Uncategorized", "Uncategorized")
    assert (row["best_metric"], row["searcher_metric"], row["state"]) == (0.25, "loss", "COMPLETED")


def test_a_noun_alone_lists(det: Det, history: History) -> None:
    """6.1: `det <noun>` without a verb lists, as `det <noun> list` does."""
    history.run("one")
    assert det("-u", "ada", "e").stdout == det("-u", "ada", "experiment", "list").stdout


def test_lists_are_filtered_sorted_and_paged(det: Det, history: History) -> None:
    """6.1, 6.2: by state, label and name; by the best value; page by page; the newest N."""
    a = history.run("alpha", validation={1: 3.0}, labels=["x"]).experiment_id
    b = history.run("beta", validation={1: 1.0}, labels=["x", "y"], state="ERROR").experiment_id
    c = history.run("gamma", validation={1: 2.0}).experiment_id
    d = history.run("delta").experiment_id

    def listed(*words: object) -> list[int]:
        return ids(det("-u", "ada", "e", "ls", "--csv", *words).stdout)

    assert listed() == [a, b, c, d]
    assert listed("--state", "ERROR") == listed("--state", "error") == [b]
    assert "none of PAUSED, ACTIVE" in det("e", "ls", "--state", "done", code=2).stderr
    assert listed("--label", "x") == [a, b]
    assert listed("--label", "x", "--label", "y") == [b]
    assert listed("--name", "LPH") == [a]
    assert listed("--sort-by", "best") == [b, c, a, d], "the best first, those without a value last"
    assert listed("--sort-by", "name") == [a, b, d, c]
    assert listed("--reverse") == [d, c, b, a]
    assert listed("--last", 3) == [b, c, d]
    assert listed("--last", 3, "--sort-by", "best") == [b, c, d]
    assert listed("--last", 3, "--sort-by", "started", "--reverse") == [d, c, b]
    assert listed("--limit", 2, "--pages", "1") == [a, b]
    assert listed("--limit", 2, "--pages", "1", "--offset", 2) == [c, d]
    assert listed("--limit", 2) == [a, b, c, d], "all pages are the default"


def test_best_first_follows_what_is_better(det: Det, history: History) -> None:
    """Where larger is better, the largest value is listed first."""
    low = history.run("low", validation={1: 0.1}, smaller_is_better=False).experiment_id
    high = history.run("high", validation={1: 0.9}, smaller_is_better=False).experiment_id
    assert ids(det("e", "ls", "-a", "--csv", "--sort-by", "best").stdout) == [high, low]


def test_any_metric_can_be_looked_at(det: Det, history: History) -> None:
    """Runs that name no searcher metric are ranked by the metric that is typed."""
    a = history.run("a", metric=None, validation={1: {"acc": 0.5}, 2: {"acc": 0.4}}).experiment_id
    b = history.run("b", metric=None, validation={1: {"acc": 0.9}}, training={1: {"loss": 2.0}}).experiment_id
    c = history.run("c", metric=None, validation={1: {"top.5": 0.25}}).experiment_id
    words = ("e", "ls", "-a", "--sort-by", "best", "--json", "-m")
    rows = json.loads(det(*words, "acc", "--larger-is-better").stdout)
    assert [(row["id"], row["best_metric"]) for row in rows] == [(b, 0.9), (a, 0.5), (c, None)]
    rows = json.loads(det(*words, "training.loss").stdout)
    assert [(row["id"], row["best_metric"]) for row in rows] == [(b, 2.0), (a, None), (c, None)]
    assert json.loads(det(*words, "top.5").stdout)[0]["best_metric"] == 0.25


def test_rows_show_the_hyperparameters_that_tell_them_apart(
    det: Det, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table has the hyperparameters that differ between its rows, however narrow; CSV and JSON have all of them."""
    for lr in (0.01, 0.05):
        history.run("digits", hparams={"optimizer": {"lr": lr, "name": "sgd"}, "hidden": 64}, validation={1: lr})
    search = history.experiment("search")
    for lr, loss in ((0.3, 0.9), (0.4, 0.1)):
        history.trial(search, hparams={"optimizer": {"lr": lr, "name": "sgd"}, "hidden": 64}, validation={1: loss})
    listed = det("-u", "ada", "e", "ls").stdout
    assert [line.rpartition("|")[2].strip() for line in listed.splitlines()] == [
        "H-Params", listed.splitlines()[1], "optimizer.lr=0.01", "optimizer.lr=0.05",
        "optimizer.lr=0.4",
    ], "of a search, those of its best trial"  # fmt: skip
    assert json.loads(det("-u", "ada", "e", "ls", "--json").stdout)[0]["hparams"]["hidden"] == 64
    [row, *_] = csv.DictReader(io.StringIO(det("-u", "ada", "e", "ls", "--csv").stdout))
    assert json.loads(row["H-Params"])["optimizer"] == {"lr": 0.01, "name": "sgd"}
    monkeypatch.setattr(terminal, "is_terminal", lambda stream=None: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    assert "optimizer.lr=0.05" in det("-u", "ada", "e", "ls").stdout
    alone = det("-u", "ada", "e", "ls", "--last", 1).stdout
    assert "H-Params" not in alone, "nothing differs, so nothing takes up room"


def test_a_metric_that_is_named_is_sorted_by(det: Det, history: History) -> None:
    """`-m NAME` shows and sorts by that metric, as its help says; what is better is known where a run has said it."""
    low = history.run("low", metric="acc", smaller_is_better=False, validation={1: {"acc": 0.5, "loss": 1.0}})
    high = history.run("high", metric=None, validation={1: {"acc": 0.9, "loss": 2.0}, 2: {"acc": 0.1, "loss": 3.0}})
    both = [low.experiment_id, high.experiment_id]
    assert ids(det("e", "ls", "-a", "--csv", "-m", "acc").stdout) == both[::-1]
    assert ids(det("e", "ls", "-a", "--csv", "-m", "acc", "--smaller-is-better").stdout) == both[::-1]
    assert ids(det("e", "ls", "-a", "--csv", "-m", "loss").stdout) == both
    assert ids(det("e", "ls", "-a", "--csv", "-m", "loss", "--larger-is-better").stdout) == both[::-1]
    assert ids(det("e", "ls", "-a", "--csv", "-m", "acc", "--sort-by", "id").stdout) == both
    best = [row["best_metric"] for row in json.loads(det("e", "ls", "-a", "--json", "-m", "acc").stdout)]
    assert best == [0.9, 0.5]
    assert "--metric" in det("e", "ls", "--larger-is-better", code=2).stderr


def test_an_unknown_metric_is_said_with_the_nearest(det: Det, history: History) -> None:
    """A metric that no run listed has reported is an error that names the nearest ones; no runs are no error."""
    assert "No experiment" in det("e", "ls", "-m", "acuracy").stderr
    history.run("a", owner=getpass.getuser(), validation={1: {"accuracy": 0.5}}, training={1: {"loss": 1.0}})
    said = det("e", "ls", "-m", "acuracy", code=1).stderr
    assert said == "None of these experiments reported 'acuracy'. Did you mean 'accuracy'?\n"
    assert "'training.loss'" in det("e", "ls", "-m", "trainin.loss", code=1).stderr
    assert "There is: accuracy, training.loss." in det("e", "ls", "-m", "zzz", code=1).stderr


def test_a_label_that_is_not_there_is_said(det: Det, history: History) -> None:
    """`label remove` of what is not there removes nothing, and names what is near."""
    number = history.run("one", labels=["keep", "digits"]).experiment_id
    said = det("e", "label", "remove", number, "digits", "kep", code=1).stderr
    assert said == f"Experiment {number} has no label 'kep'. Did you mean 'keep'?\n"
    [row] = json.loads(det("e", "describe", number, "--json").stdout)["experiments"]
    assert row["labels"] == ["digits", "keep"]


def test_describe_has_three_tables(det: Det, history: History, tmp_path: Path) -> None:
    """P-82: three CSV blocks parse; with --outdir three files; with --metrics a column for each metric."""
    run = history.run("one", training={10: {"loss": 1.5}}, validation={10: 0.5}, checkpoints=[10], hparams={"lr": 0.1})
    blocks = det("e", "describe", run.experiment_id, "--csv", "--metrics").stdout.split("\n\n")
    experiments, trials, workloads = (list(csv.DictReader(io.StringIO(block))) for block in blocks)
    assert experiments[0]["Experiment ID"] == str(run.experiment_id)
    assert json.loads(trials[0]["H-Params"]) == {"lr": 0.1}
    assert workloads[0]["Training Metric: loss"] == "1.5"
    assert workloads[0]["Validation Metric: loss"] == "0.5"
    assert (workloads[0]["# of Batches"], workloads[0]["Checkpoint"]) == ("10", "COMPLETED")
    det("e", "describe", run.experiment_id, "--outdir", tmp_path / "out")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "experiments.csv",
        "trials.csv",
        "workloads.csv",
    ]
    document = json.loads(det("e", "describe", run.experiment_id, "--json").stdout)
    assert [len(document[part]) for part in ("experiments", "trials", "workloads")] == [1, 1, 1]
    assert "Workloads" in det("e", "describe", run.experiment_id).stdout


def test_several_are_described_at_once(det: Det, history: History) -> None:
    """6.2: `det e describe 1,2` describes both."""
    a, b = history.run("a"), history.run("b")
    document = json.loads(det("e", "describe", f"{a.experiment_id},{b.experiment_id}", "--json").stdout)
    assert [row["name"] for row in document["experiments"]] == ["a", "b"]


def test_the_config_is_yaml(det: Det, history: History) -> None:
    """6.2: the effective config as YAML, block style."""
    run = history.run("one", config={"searcher": {"metric": "loss"}, "name": "one"})
    text = det("e", "config", run.experiment_id).stdout
    assert yaml.safe_load(text) == {"searcher": {"metric": "loss"}, "name": "one"}
    assert "{" not in text


def test_the_config_is_shown_without_secrets(det: Det, history: History) -> None:
    """P-09: `e config` masks values under data.secrets and the keys of storage, which the store may hold."""
    storage = {"type": "s3", "bucket": "b", "secret_key": "hunter2"}
    run = history.run("one", config={"data": {"secrets": {"t": "hunter2"}}, "checkpoint_storage": storage})
    text = det("e", "config", run.experiment_id).stdout
    assert "hunter2" not in text
    assert yaml.safe_load(text)["data"] == {"secrets": {"t": "********"}}


def test_the_log_of_an_experiment_is_its_first_trials(det: Det, history: History) -> None:
    """6.2: the log of the trial with the lowest id."""
    experiment = history.experiment("two")
    history.trial(experiment, lines=["first"])
    history.trial(experiment, lines=["second"])
    assert "first" in det("e", "logs", experiment).stdout
    assert "second" not in det("e", "logs", experiment).stdout


def test_trials_and_checkpoints_of_an_experiment(det: Det, history: History) -> None:
    """6.2: `lt` and `lc`; --best shows only validated ones, best first; else the newest is last."""
    run = history.run("one", validation={10: 0.5, 20: 0.7}, checkpoints=[10, 20, 30], hparams={"lr": 0.1})
    [trial] = csv.DictReader(io.StringIO(det("e", "lt", run.experiment_id, "--csv").stdout))
    assert list(trial)[:6] == ["Trial ID", "State", "H-Params", "Started", "Ended", "# of Batches"]
    listed = list(csv.DictReader(io.StringIO(det("e", "lc", run.experiment_id, "--csv").stdout)))
    assert list(listed[0]) == ["Trial ID", "# of Batches", "State", "Validation Metric", "UUID", "Resources", "Size"]
    assert [row["# of Batches"] for row in listed] == ["10", "20", "30"]
    best = list(csv.DictReader(io.StringIO(det("e", "lc", run.experiment_id, "--best", 5, "--csv").stdout)))
    assert [row["# of Batches"] for row in best] == ["10", "20"]


def test_the_best_checkpoints_are_downloaded(det: Det, history: History, tmp_path: Path) -> None:
    """6.2: into DIR/<uuid>/; --sort-by and --smaller-is-better go together."""
    run = history.run("one", validation={10: 0.5, 20: 0.7}, checkpoints=[10, 20])
    target = tmp_path / "out"
    det("e", "download", run.experiment_id, "-o", target)
    assert [path.name for path in target.iterdir()] == [run.checkpoints[10]]
    det("e", "download", run.experiment_id, "-o", target, "--sort-by", "loss", "--smaller-is-better", "false", "-q")
    assert (target / run.checkpoints[20] / "state_dict.pth").read_bytes() == b"weights"
    det("e", "download", run.experiment_id, "--sort-by", "loss", code=2)


@pytest.mark.parametrize(("state", "code"), [("COMPLETED", 0), ("ERROR", 1), ("CANCELED", 1)])
def test_waiting_ends_with_the_experiment(state: str, code: int, det: Det, history: History) -> None:
    """P-83: `e wait` on a failing experiment exits with 1; 6.2: 0 only if COMPLETED."""
    run = history.run("one", state=state)
    assert state in det("e", "wait", run.experiment_id, code=code).stderr


def test_waiting_for_a_paused_one_is_an_error(det: Det, history: History) -> None:
    """6.2: a paused experiment is an error: it might never end."""
    experiment = history.experiment("paused", state="PAUSED", unmanaged=False)
    assert "paused" in det("e", "wait", experiment, code=1).stderr


@pytest.mark.parametrize("action", ["activate", "pause", "cancel", "kill"])
def test_what_only_a_controller_can_do_is_refused_with_the_reason(action: str, det: Det, history: History) -> None:
    """P-98, 6.2: nobody can pause a plain run, and that is said; what has ended already is no error for a submitted."""
    run = history.run("one")
    assert f"no controller can {action} it" in det("e", action, run.experiment_id, code=1).stderr
    ended = history.experiment("two", state="PAUSED" if action == "pause" else "CANCELED", unmanaged=False)
    done = {"pause": "Paused", "cancel": "Canceled", "kill": "Killed"}
    if action in done:
        assert det("e", action, ended).stderr == f"{done[action]} experiment {ended}\n"


def test_a_policy_shows_what_would_go_and_asks(det: Det, history: History) -> None:
    """6.2, 4.9: `e set gc-policy` lists what would go, asks, and applies; all three numbers are needed."""
    run = history.run("one", validation={1: 0.5, 2: 0.1, 3: 0.3}, checkpoints=[1, 2, 3])
    words = ["e", "set", "gc-policy", run.experiment_id, "--save-experiment-best", 1, "--save-trial-best", 0]
    det(*words, code=2)
    words += ["--save-trial-latest", 1]
    refused = det(*words, typed="n\n", code=1)
    assert run.checkpoints[1] in refused.stdout
    assert not {run.checkpoints[2], run.checkpoints[3]} & set(refused.stdout.split())
    assert "Deleted 1 checkpoint" in det(*words, "--yes").stderr
    listed = json.loads(det("c", "ls", run.experiment_id, "--json").stdout)
    assert {row["uuid"] for row in listed if row["state"] == "COMPLETED"} == {run.checkpoints[2], run.checkpoints[3]}
    assert "Nothing" in det(*words).stderr


def test_names_descriptions_notes_and_labels_are_changed(det: Det, history: History) -> None:
    """6.2: `det e set` changes name, description and notes; `det e label` adds and removes labels."""
    number = history.run("one").experiment_id
    det("e", "set", "name", number, "better")
    assert "'' is no name" in det("e", "set", "name", number, "", code=1).stderr
    det("e", "set", "description", number, "why")
    det("e", "set", "notes", number, typed="line one\nline two\n")
    det("e", "label", "add", number, "x", "y")
    det("e", "label", "remove", number, "x")
    [row] = json.loads(det("e", "describe", number, "--json").stdout)["experiments"]
    assert (row["name"], row["description"], row["labels"]) == ("better", "why", ["y"])
    assert row["notes"] == "line one\nline two\n"


def test_deleting_asks_and_can_be_undone(det: Det, history: History) -> None:
    """6.1: destructive commands ask [y/n] unless --yes; undelete brings the experiment back."""
    number = history.run("one", checkpoints=[10]).experiment_id
    refused = det("e", "delete", number, code=1, typed="n\n")
    assert "[y/n]" in refused.stderr
    assert "1 checkpoints" in refused.stderr
    det("e", "describe", number)
    det("e", "delete", number, typed="y\n")
    assert f"There is no experiment {number}" in det("e", "describe", number, code=1).stderr
    det("e", "undelete", number)
    det("e", "describe", number)
    det("e", "delete", number, "--yes")
    assert ids(det("e", "ls", "-a", "--csv").stdout) == []


def test_an_experiment_moves_to_another_project(det: Det, history: History) -> None:
    """6.2: `e move ID WORKSPACE PROJECT`, and the project lists it."""
    number = history.run("one").experiment_id
    det("w", "create", "vision")
    det("p", "create", "vision", "cifar", "--description", "small pictures")
    det("e", "move", number, "vision", "cifar")
    assert ids(det("p", "le", "vision", "cifar", "--csv").stdout) == [number]
    rows = json.loads(det("p", "ls", "vision", "--json").stdout)
    assert [(row["name"], row["description"]) for row in rows] == [("cifar", "small pictures")]
    assert "vision" in det("w", "ls").stdout


def test_what_is_not_there_is_said_in_one_line(det: Det) -> None:
    """6.1: an expected error is one line that says what to type."""
    for words in (("e", "describe", 7), ("e", "config", 7), ("t", "describe", 7), ("c", "describe", "nothing")):
        result = det(*words, code=1)
        assert result.stderr.count("\n") == 1
        assert "List them with: det " in result.stderr


def test_a_mistake_in_an_id_is_misuse(det: Det) -> None:
    """Exit 2, and what an id looks like."""
    assert "Ids are whole numbers" in det("e", "describe", "one", code=2).stderr


def test_a_store_that_is_not_there_is_not_made(det: Det, tmp_path: Path) -> None:
    """A typing error in --store must not leave an empty database behind."""
    from click.testing import CliRunner

    from determined.cli.main import main

    result = CliRunner().invoke(main, ["--store", str(tmp_path / "typo.db"), "e", "ls"])
    assert result.exit_code == 1
    assert not (tmp_path / "typo.db").exists()


def test_an_old_masters_address_is_ignored(det: Det, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes from a cluster has DET_MASTER set: the command works, and one line names what is ignored."""
    from click.testing import CliRunner

    from determined import _left_out
    from determined.cli.main import main

    monkeypatch.setattr(_left_out, "_said_of_master", False)
    result = CliRunner().invoke(main, ["e", "ls"], env={"DET_MASTER": "http://master:8080"})
    assert result.exit_code == 0
    assert result.stderr.count("DET_MASTER=http://master:8080 is ignored") == 1


@pytest.mark.parametrize("noun", ["master", "user", "agent", "shell", "notebook", "cmd", "deploy", "rbac"])
def test_commands_of_a_cluster_say_what_replaces_them(det: Det, noun: str) -> None:
    """A command that only a cluster has ends with one line that says what does its work here."""
    from click.testing import CliRunner

    from determined.cli.main import main

    result = CliRunner().invoke(main, [noun, "list"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"det {noun} is left out: there ")
    assert result.stderr.count("\n") == 1
