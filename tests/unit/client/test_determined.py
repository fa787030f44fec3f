"""The client itself: which store it means, the functions of the module, and what it costs to import."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

import determined
from determined import client, errors
from determined.client import Determined, _default
from determined.experimental import client as older
from tests.history import History
from tests.unit.test_front_door import loaded_after


@pytest.fixture(autouse=True)
def nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_default, "_logged_in", None)
    monkeypatch.setattr(_default, "_local", None)
    yield
    for made in (_default._logged_in, _default._local and _default._local[1]):
        if made:
            made.close()


def test_without_login_it_is_the_store_of_this_machine(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """7.1: login is optional; $DET_STORE, else the data directory; looking at an empty one is no error."""
    assert client.list_experiments() == []
    run = history.run("here", validation={1: 0.5}, checkpoints=[1])
    monkeypatch.setenv("DET_STORE", str(history.place))
    assert [experiment.name for experiment in client.list_experiments()] == ["here"]
    assert client.get_experiment(run.experiment_id).name == "here"
    assert client.get_trial(run.trial_id).best_metric == 0.5
    assert client.get_checkpoint(run.checkpoints[1]).steps_completed == 1
    assert len(list(client.iter_trials_metrics([run.trial_id], "validation"))) == 1
    assert client.connect() is client.connect()
    model = client.create_model("digits", labels=["x"])
    assert client.get_model("digits").model_id == model.model_id
    assert [m.name for m in client.list_models()] == ["digits"]
    assert client.get_model_labels() == ["x"]
    client.create_workspace("w")
    assert client.get_workspace("w").name == client.list_workspaces()[1].name
    client.delete_workspace("w")
    with pytest.raises(errors.ConfigError):
        client.create_experiment({})


def test_another_place_closes_the_one_before(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stays open when a notebook sets DET_STORE; what came from the store before can still be used."""
    run, other = history.run("before"), history.root / "other.db"
    history.close()
    monkeypatch.setenv("DET_STORE", str(history.place))
    experiment = client.get_experiment(run.experiment_id)
    monkeypatch.setenv("DET_STORE", str(other))
    client.list_experiments()
    opened = {file.path for file in psutil.Process().open_files()}
    assert not any(path.startswith(str(history.place)) for path in opened)
    with closing(experiment._session):
        experiment.reload()
        assert experiment.name == "before"


def test_login_once(history: History) -> None:
    """7.1: a second login() raises ValueError."""
    history.run("there")
    client.login(store=history.place)
    assert [experiment.name for experiment in client.list_experiments()] == ["there"]
    with pytest.raises(ValueError, match="called before"):
        client.login()


def test_master_is_a_store_or_a_sentence(history: History) -> None:
    """7.1: the older arguments are taken; the address of a server is told that there is none."""
    with Determined(str(history.place), "ada", "secret", noverify=True) as runs:
        assert runs.user == "ada"
        assert runs.list_experiments() == []
        assert "runs.db" in repr(runs)
    with pytest.raises(errors.DeterminedError, match=r"http://localhost:8080 is the address of a server"):
        Determined("http://localhost:8080")


def test_a_store_that_is_named_has_to_be_there(tmp_path: Path) -> None:
    """A typing mistake does not make an empty store."""
    with pytest.raises(errors.StoreError, match="There is no store"):
        Determined(store=tmp_path / "typo.db").list_experiments()
    assert list(tmp_path.glob("*.db")) == []


def test_a_directory_can_be_a_store(history: History) -> None:
    """7.1: Determined(store=<directory>) is the determined.db in it."""
    history.run()
    history.close()
    Path(history.place).rename(history.root / "determined.db")
    with Determined(store=history.root) as runs:
        assert len(runs.list_experiments()) == 1


def test_lists_over_all_experiments(history: History) -> None:
    """The newest trials and all checkpoints, without those of deleted experiments."""
    made = [history.run(checkpoints=[1]) for _ in range(3)]
    with Determined(store=history.place) as runs:
        runs.get_experiment(made[1].experiment_id).delete()
        assert [trial.id for trial in runs.list_trials()] == [made[0].trial_id, made[2].trial_id]
        assert [trial.id for trial in runs.list_trials(limit=1)] == [made[2].trial_id]
        assert [c.uuid for c in runs.list_checkpoints()] == [*made[0].uuids, *made[2].uuids]


def test_reading_needs_no_controller(history: History) -> None:
    """P-91: lists, descriptions and logs come from the store alone."""
    run = history.run(lines=["hello"])
    with Determined(store=history.place) as runs:
        assert len(runs.list_experiments()) == 1
        assert runs.get_trial(run.trial_id).hparams == {}
        assert len(list(runs.get_trial(run.trial_id).iter_logs())) == 1


def test_a_store_that_is_only_readable_can_be_looked_at(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that died shows as running there; nothing is written."""
    run = history.run(state="RUNNING", pid=2**22 + 5)
    with Determined(store=history.place) as runs:
        monkeypatch.setattr(runs._session.store, "read_only", True)
        assert str(runs.get_experiment(run.experiment_id).state) == "RUNNING"
        with pytest.raises(errors.StoreUnavailable, match="may only be read"):
            runs.get_experiment(run.experiment_id).set_name("x")


def test_older_import_path() -> None:
    """7: determined.experimental.client has the same names, and so has the class."""
    assert older.__all__ == client.__all__
    for name in client.__all__:
        assert getattr(older, name) is getattr(client, name)
    assert determined.client is client
    for name in _default.__dict__:
        function = getattr(_default, name)
        if inspect.isfunction(function) and function.__module__ == _default.__name__ and not name.startswith("_"):
            assert name in ("login", "connect") or hasattr(Determined, name)


def test_importing_is_light() -> None:
    """Decision 8: a client loads neither torch nor pandas, and SQL only when a store is opened."""
    loaded = loaded_after("import determined\nfrom determined.client import Determined\nDetermined()")
    assert {"torch", "pandas", "numpy", "sqlalchemy", "alembic"} & loaded == set()


def test_everything_public_explains_itself() -> None:
    """style.md 5: every public class and method has a docstring."""
    silent = []
    for name in client.__all__:
        thing = getattr(client, name)
        if not inspect.getdoc(thing):
            silent.append(name)
        if inspect.isclass(thing) and thing.__module__.startswith("determined.client"):
            silent += [
                f"{name}.{method}"
                for method, value in vars(thing).items()
                if not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
                if not inspect.getdoc(value)
            ]
    assert silent == []


def test_tables_need_pandas(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision 8: an optional package is imported late, and missing it is a sentence with what to type."""
    history.run()
    with Determined(store=history.place) as runs:
        assert len(runs.list_experiments().to_pandas()) == 1
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(errors.MissingPackage, match="pip install pandas"):
            runs.list_experiments().to_pandas()


@pytest.mark.parametrize("name", ["create_experiment", "get_trial", "list_models", "stream_trials_training_metrics"])
def test_functions_are_the_methods_of_the_default_client(name: str) -> None:
    """A function of the module has the signature, without self, and the docstring of the method that it calls."""
    function, method = getattr(client, name), getattr(Determined, name)
    _, *parameters = inspect.signature(method).parameters.values()
    assert list(inspect.signature(function).parameters.values()) == parameters
    assert function.__doc__ == method.__doc__
    assert function.__name__ == name
