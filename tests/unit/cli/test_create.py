"""`det experiment create, fork, continue` and `det template`: what is said, and what is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from determined.store import experiments, schema, trials
from determined.store.control import pending
from tests.history import History
from tests.unit.cli.conftest import Det

FILE = "entrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an experiment in it; no controller starts by itself."""
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DET_CONTROLLER", "off")
    monkeypatch.delenv("DET_SLOTS", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "train.py").write_text("print('hello')\n")
    (tmp_path / "e.yaml").write_text(FILE)
    return tmp_path


BAD: dict[str, tuple[list[str], int, str]] = {
    "missing directory": (["e.yaml", "nowhere"], 1, "There is no directory nowhere"),
    "file for a directory": (["e.yaml", "model/train.py"], 1, "model/train.py is a file"),
    "no directory": (["e.yaml"], 1, "no directory was given"),
    "missing script": (["e.yaml", "model", "--config", "entrypoint=python3 trian.py"], 1, "Did you mean 'train.py'"),
    "missing module": (["e.yaml", "model", "--config", "entrypoint=model_def:Net"], 1, "model_def"),
    "over the limit": (["e.yaml", "model"], 1, ".detignore"),
    "too many slots": (["e.yaml", "model", "--config", "resources.slots_per_trial=99"], 1, "is 99, and there are"),
    "missing file": (["absent.yaml", "model"], 1, "absent.yaml cannot be read"),
    "not YAML": (["model/train.py", "model"], 1, "model/train.py"),
    "missing include": (["e.yaml", "model", "-i", "lib"], 1, "--include lib is not there"),
    "clash": (["e.yaml", "model", "-i", "model/train.py"], 1, "there is a train.py in the code already"),
    "missing template": (["e.yaml", "model", "--template", "base"], 1, "There is no template 'base'"),
    "missing project": (["e.yaml", "model", "--project_id", "9"], 1, "There is no project 9"),
    "missing source": (["e.yaml", "model", "--config", "searcher.source_trial_id=5"], 1, "There is no trial 5"),
    "bad setting": (["e.yaml", "model", "--config", "name"], 1, "not of the form key=value"),
    "two ways": (["e.yaml", "model", "--paused", "-f"], 2, "exclude each other"),
    "local alone": (["e.yaml", "model", "--local"], 2, "--local goes with --test"),
    "nothing": ([], 2, "Missing argument"),
    "unknown option": (["e.yaml", "model", "--pause"], 2, "No such option"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(
    root: Path, det: Det, history: History, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 14, P-01, P-18: exit code 1 or 2, nothing on stdout, at most a heading and a line, and no experiment."""
    words, code, said = BAD[case]
    if case == "over the limit":
        (root / "model" / "data.bin").write_bytes(b"x" * 100_000)
        monkeypatch.setenv("DET_CODE_LIMIT_MB", "0.05")
    done = det("e", "create", *words, code=code)
    assert done.stdout == ""
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2  # a heading and a problem, where the file is to blame
    with history.store.read() as conn:
        for table in (schema.experiments, schema.code_snapshots, schema.pending_events):
            assert conn.scalar(sa.select(sa.func.count()).select_from(table)) == 0


def later(history: History, what: Callable[[Any], None]) -> threading.Thread:
    """Do what a controller would do with a new experiment, as soon as there is one."""

    def do() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with history.store.write() as conn:
                if waiting := pending.read(conn):
                    pending.remove(conn, [event.id for event in waiting])
                    what(conn)
                    return
            time.sleep(0.05)

    thread = threading.Thread(target=do)
    thread.start()
    return thread


def test_following_ends_with_the_experiment(det: Det, history: History) -> None:
    """6.2: -f stays until the end; exit 1 unless it is COMPLETED."""
    for state, code in (("COMPLETED", 0), ("ERROR", 1)):

        def end(conn: sa.Connection, state: str = state) -> None:
            newest = experiments.find(conn, descending=True, limit=1)[0].id
            trials.set_state(conn, trials.create(conn, newest, hparams={}), state)
            experiments.set_state(conn, newest, state)

        controller = later(history, end)
        done = det("e", "create", "e.yaml", "model", "-f", code=code)
        controller.join()
        assert done.stdout.startswith("Created experiment")
        assert ("ended as ERROR" in done.stderr) is (state == "ERROR")


def test_test_mode(det: Det, history: History) -> None:
    """6.2: a copy of one batch with one sample, no restarts and nothing kept, archived; four stages, 1 if it fails."""
    sampled = ["--config", "hyperparameters.n={type: int, minval: 1, maxval: 3}", "--config", "description=d"]
    for state, code in (("COMPLETED", 0), ("ERROR", 1)):

        def end(conn: sa.Connection, state: str = state) -> None:
            newest = experiments.find(conn, descending=True, limit=1)[0].id
            trial = trials.create(conn, newest, hparams={})
            began = schema.trials.update().where(schema.trials.c.id == trial)
            conn.execute(began.values(attempt=1, total_batches=1))
            experiments.set_state(conn, newest, state)

        controller = later(history, end)
        done = det("e", "create", "e.yaml", "model", "-t", *sampled, code=code)
        controller.join()
        assert "scheduling: ok" in done.stderr
        assert "training: ok" in done.stderr
    assert "ended as ERROR while validation" in done.stderr
    with history.store.read() as conn:
        row = experiments.get(conn, 1)
    assert row.archived
    assert row.config is not None
    config = row.config
    assert (config["description"], config["max_restarts"], config["searcher"]["name"]) == ("[test-mode] d", 0, "single")
    assert config["searcher"]["max_length"]["batches"] == config["min_validation_period"]["batches"] == 1
    assert config["hyperparameters"]["n"]["val"] in (1, 2, 3)
    assert {config["checkpoint_storage"][f"save_{which}"] for which in ("experiment_best", "trial_best")} == {0}


def test_fork_and_continue(det: Det, history: History, root: Path) -> None:
    """4.7, P-61: a fork names its parent; ASHA is not continued."""
    asha = "{name: asha, metric: loss, max_trials: 2, time_metric: batches, max_time: 8, num_rungs: 2}"
    det("e", "create", "e.yaml", "model", "--paused", "--config", f"searcher={asha}")
    assert det("e", "fork", 1, "--config", "name=again").stdout == "Created experiment 2\n"
    with history.store.write() as conn:
        assert experiments.get(conn, 2).parent_id == 1
        experiments.set_state(conn, 1, "COMPLETED")
    done = det("e", "continue", 1, code=1)
    assert "async_halving, which cannot be continued" in done.stderr
    single = root / "single.yaml"
    single.write_text(FILE)
    det("e", "fork", 1, "--config-file", single, "--paused")
    with history.store.write() as conn:
        pending.remove(conn, [event.id for event in pending.read(conn)])
        experiments.set_state(conn, 3, "ERROR")
    assert det("e", "continue", 3, "--config", "max_restarts=1").stdout == "Continued experiment 3\n"
    with history.store.read() as conn:
        assert [event.kind for event in pending.read(conn)] == ["CONTINUED", "REQUEST"]


def test_templates(det: Det, history: History, root: Path) -> None:
    """6.3, P-13: a part of a file by its name; the experiment's own file is stronger."""
    assert "det template set" in det("template").stderr
    part = root / "part.yaml"
    part.write_text("# shared\nmax_restarts: 7\nsearcher: {name: random, max_trials: 3}\nname: t\n")
    det("template", "set", "base", part)
    assert det("template", "list").stdout == "base\n"
    assert det("template", "describe", "base").stdout == part.read_text()
    det("e", "create", "e.yaml", "model", "--template", "base", "--config", "name=mine")
    with history.store.read() as conn:
        row = experiments.get(conn, 1)
    assert row.config is not None
    assert (row.name, row.config["max_restarts"]) == ("mine", 7)
    part.write_text("max_restart: 7\n")
    assert "max_restarts" in det("template", "set", "worse", part, code=1).stderr
    assert "is no name of a template" in det("template", "set", "../up", part, code=1).stderr
    det("template", "remove", "base")
    assert "There is no template 'base'" in det("template", "rm", "base", code=1).stderr
    assert "There is no template" in det("template", "describe", "base", code=1).stderr


def test_local_test_is_for_trial_classes(det: Det) -> None:
    """6.2: --local --test takes a trial class only, and says what to do with a script."""
    assert (
        "takes an entrypoint of the form module:Class"
        in det("e", "create", "e.yaml", "model", "--local", "--test", code=1).stderr
    )
