"""Submitting from Python: create_experiment, fork, continue_, download_code."""

from __future__ import annotations

import logging
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from determined import errors
from determined.client import Determined, Experiment
from determined.store import experiments, trials
from determined.store.control import pending
from tests.history import History

CONFIG: dict[str, Any] = {
    "name": "digits",
    "entrypoint": "python3 train.py",
    "searcher": {"name": "single", "metric": "loss"},
    "hyperparameters": {"lr": 0.1, "n": {"type": "int", "minval": 1, "maxval": 3}},
}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of code; no controller starts by itself."""
    monkeypatch.setenv("DET_CONTROLLER", "off")
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "train.py").write_text("print(1)\n")
    return tmp_path / "model"


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path) as made:
        yield made


@pytest.fixture
def runs(history: History, model: Path) -> Iterator[Determined]:
    with Determined(store=history.place, user="ada") as made:
        yield made


def kinds(history: History, experiment: Experiment) -> list[str]:
    with history.store.read() as conn:
        return [event.kind for event in pending.read(conn, experiment_id=experiment.id)]


def end(history: History, experiment: Experiment, *states: str, state: str = "ERROR") -> None:
    """Do what a controller would: trials that ended so, and the experiment."""
    with history.store.write() as conn:
        for event in pending.read(conn, experiment_id=experiment.id):
            pending.remove(conn, [event.id])
        for ended in states:
            trials.set_state(conn, trials.create(conn, experiment.id, hparams={}), ended)
        experiments.set_state(conn, experiment.id, state)


def test_create(history: History, runs: Determined, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    """7.1: a dict or the path of a file; activated unless `paused`; anything else is a ValueError."""
    caplog.set_level(logging.WARNING)
    made = runs.create_experiment({**CONFIG, "environment": {"image": "x"}}, model)
    assert (made.name, str(made.state), made.owner) == ("digits", "PAUSED", "ada")
    assert kinds(history, made) == ["STARTED", "REQUEST"]
    assert made.warnings[-1] in caplog.text
    file = model.parent / "e.yaml"
    file.write_text("entrypoint: python3 t.py\nsearcher: {name: single, metric: m}\n")
    (model / "more").mkdir()
    (model.parent / "t.py").write_text("")
    paused = runs.create_experiment(str(file), str(model), [model.parent / "t.py"], paused=True)
    assert kinds(history, paused) == ["STARTED"]
    with pytest.raises(ValueError, match="config is a list"):
        runs.create_experiment([])  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError, match=r"<config>\.entrypoint"):
        runs.create_experiment({"name": "x"})
    assert len(runs.list_experiments()) == 2


def test_waiting_for_what_is_not_yet_activated(history: History, runs: Determined, model: Path) -> None:
    """P-87: wait() goes on while somebody's wish to activate it is not handled; one that stays paused is an error."""
    import threading

    made = runs.create_experiment(CONFIG, model)
    ender = threading.Timer(0.2, end, [history, made], {"state": "COMPLETED"})
    ender.start()
    assert str(made.wait(interval=0.01)) == "COMPLETED"
    ender.join()
    paused = runs.create_experiment(CONFIG, model, paused=True)
    end(history, paused, state="PAUSED")
    with pytest.raises(ValueError, match="is paused"):
        paused.wait(interval=0.01)


def test_code_can_be_fetched(runs: Determined, model: Path) -> None:
    """7.2: the code comes back as it was submitted."""
    made = runs.create_experiment(CONFIG, model)
    (model / "train.py").write_text("changed")
    path = Path(made.download_code(str(model.parent / "out")))
    assert path == model.parent / "out" / f"exp-{made.id}_model_def.tar.gz"
    with tarfile.open(path) as archive:
        assert archive.extractfile("train.py").read() == b"print(1)\n"  # type: ignore[union-attr]


def test_fork(history: History, runs: Determined, model: Path) -> None:
    """4.7: the parent's code, an edited configuration, the parent recorded; the directory is not looked at again."""
    parent = runs.create_experiment({**CONFIG, "data": {"secrets": {"t": "abc"}}}, model)
    (model / "train.py").unlink()
    same, changed = parent.fork(paused=True), parent.fork(settings=["hyperparameters.lr=0.5", "name=other"])
    assert (same.parent_id, changed.parent_id) == (parent.id, parent.id)
    assert same.config == parent.config
    assert (changed.name, changed.config["hyperparameters"]["lr"]) == ("other", {"type": "const", "val": 0.5})
    assert kinds(history, same) == ["STARTED"]
    with history.store.read() as conn:
        assert len({experiments.get(conn, e.id).code_snapshot_id for e in (parent, same, changed)}) == 1
    other = parent.fork({**CONFIG, "hyperparameters": {}})
    assert other.config["hyperparameters"] == {}
    with pytest.raises(errors.ConfigError, match=r"runs other\.py, which is not in the code of the parent"):
        parent.fork(settings=["entrypoint=python3 other.py"])
    plain = runs.get_experiment(history.run().experiment_id)
    with pytest.raises(errors.Refused, match="was not submitted"):
        plain.fork()


def test_secrets_that_are_not_here_stop_a_fork(runs: Determined, model: Path) -> None:
    """P-09: a trial is never started with ******** for a password."""
    parent = runs.create_experiment({**CONFIG, "data": {"secrets": {"t": "abc"}}}, model)
    for file in (model.parent / "home" / "secrets").iterdir():
        file.unlink()
    with pytest.raises(errors.Refused, match=r"holds secrets not known here: data\.secrets\.t"):
        parent.fork()


def test_continue_a_single_trial(history: History, runs: Determined, model: Path) -> None:
    """4.7, P-59: values may change, the text as submitted stays; not project, workspace or another searcher."""
    made = runs.create_experiment({**CONFIG, "data": {"secrets": {"t": "abc"}}}, model)
    with pytest.raises(errors.Refused, match="is PAUSED; only one that has ended"):
        made.continue_()
    end(history, made, "ERROR")
    for wrong in ("project=p", "workspace=w", "searcher.name=random"):
        with pytest.raises(errors.Refused, match=r"stays as it is|is continued with single"):
            made.continue_(settings=[wrong])
    with pytest.raises(errors.ConfigError, match=r"max_restarts.*in --config"):
        made.continue_(settings=["max_restarts=-1"])
    assert kinds(history, made) == []
    made.continue_({"name": "again"}, ["max_restarts=1"])
    assert kinds(history, made) == ["CONTINUED", "REQUEST"]
    assert (made.config["max_restarts"], made.name) == (1, "again")
    assert made.config["data"] == {"secrets": {"t": "********"}}
    with pytest.raises(errors.Refused, match="is being continued already"):
        made.continue_()


def test_continue_a_search(history: History, runs: Determined, model: Path) -> None:
    """4.7, P-60, P-61: random and grid as they are while a trial is left; ASHA, custom and plain runs not at all."""
    random = {**CONFIG, "searcher": {"name": "random", "metric": "loss", "max_trials": 2}}
    made = runs.create_experiment(random, model)
    end(history, made, "COMPLETED", "CANCELED", state="COMPLETED")
    with pytest.raises(errors.Refused, match="continued with the configuration it has"):
        made.continue_(settings=["max_restarts=1"])
    made.continue_()
    assert kinds(history, made) == ["CONTINUED", "REQUEST"]
    done = runs.create_experiment(random, model)
    end(history, done, "COMPLETED", "COMPLETED", state="COMPLETED")
    with pytest.raises(errors.Refused, match=r"All trials of experiment .* are COMPLETED"):
        done.continue_()
    asha = {"name": "adaptive_asha", "metric": "loss", "max_trials": 2, "time_metric": "batches", "max_time": 8}
    search = runs.create_experiment({**CONFIG, "searcher": asha}, model)
    end(history, search, "COMPLETED", state="COMPLETED")
    with pytest.raises(
        errors.Refused, match=f"adaptive_asha, which cannot be continued.*det experiment fork {search.id}"
    ):
        search.continue_()
    with pytest.raises(errors.Refused, match="was not submitted"):
        runs.get_experiment(history.run().experiment_id).continue_()


def test_a_fork_of_a_text(runs: Determined, model: Path) -> None:
    """7.2: YAML text is kept as it was typed; text and dict exclude each other; no text is the parent's."""
    parent = runs.create_experiment(CONFIG, model)
    text = "entrypoint: python3 train.py  # mine\nsearcher: {name: single, metric: loss}\n"
    assert parent.fork(text=text).submitted_config == text
    assert parent.fork(text="# nothing\n").config["hyperparameters"] == parent.config["hyperparameters"]
    with pytest.raises(errors.InvalidValue, match="both given"):
        parent.fork(CONFIG, text=text)
