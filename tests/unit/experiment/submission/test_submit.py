"""Submitting: rows in one transaction if everything is right, and nothing at all if anything is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from determined import errors
from determined.experiment.config import experiment_file
from determined.experiment.submission import secret_values
from determined.experiment.submission.submit import SubmitRequest, Submitted, submit
from determined.store import experiments, schema, workspaces
from determined.store.control import code, pending
from determined.store.database.connection import Store, open_store
from determined.store.experiments import ExperimentRow
from tests.history import History

FILE = "name: digits  # a comment\nentrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n"
Submit = Callable[..., Submitted]


@pytest.fixture(autouse=True)
def no_controller(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DET_CONTROLLER", "off")
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DET_SLOTS", raising=False)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "train.py").write_text("print(1)\n")


@pytest.fixture
def place(store: Store, tmp_path: Path) -> Submit:
    """Submits a file's text on both kinds of store."""
    return submitter(store, tmp_path)


def submitter(store: Store, root: Path) -> Submit:
    def call(text: str = FILE, *settings: str, **what: Any) -> Submitted:
        path = root / "e.yaml"
        path.write_bytes(text.encode())
        what = {"directory": root / "model", **what}
        return submit(store, SubmitRequest(experiment_file.read(path), "ada", settings, **what))

    return call


def row(store: Store, made: Submitted) -> ExperimentRow:
    with store.read() as conn:
        return experiments.get(conn, made.experiment_id)


def waiting(store: Store) -> list[tuple[int, str, dict[str, Any]]]:
    with store.read() as conn:
        return [(event.experiment_id, event.kind, event.body) for event in pending.read(conn)]


def test_rows_of_a_submission(store: Store, place: Submit) -> None:
    """4.3, P-08: PAUSED with config, text byte for byte, code, labels; started and activated in the same moment."""
    text = FILE + "labels: [b, a, b]\ndescription: d\r\nmax_restarts: 2\n"
    made = place(text)
    found = row(store, made)
    assert (found.name, found.state, found.owner, found.labels) == ("digits", "PAUSED", "ada", ("a", "b"))
    assert (found.description, found.searcher_metric, found.project_id) == ("d", "loss", 1)
    assert found.original_config == text
    assert found.config is not None
    assert found.config["max_restarts"] == 2
    assert found.config["resources"]["slots_per_trial"] == 1
    assert not found.unmanaged
    ident = made.experiment_id
    assert waiting(store) == [(ident, "STARTED", {}), (ident, "REQUEST", {"action": "activate"})]


def test_paused_submissions_are_not_activated(store: Store, place: Submit) -> None:
    """P-53: with `paused` the search starts, so that its trials exist, and nobody activates it."""
    made = place(paused=True)
    assert waiting(store) == [(made.experiment_id, "STARTED", {})]
    assert row(store, made).state == "PAUSED"


def test_code_is_stored_once(store: Store, place: Submit, tmp_path: Path) -> None:
    """4.3, P-69: the same code is one snapshot; a changed one is another, and the first stays as it was."""
    first, second = place(), place()
    (tmp_path / "model" / "train.py").write_text("print(2)\n")
    third = place()
    snapshots = [row(store, made).code_snapshot_id for made in (first, second, third)]
    assert snapshots[0] == snapshots[1] != snapshots[2]
    with store.read() as conn:
        assert conn.scalar(sa.select(sa.func.count()).select_from(schema.code_snapshots)) == 2
        assert code.content(conn, snapshots[0] or 0) != code.content(conn, snapshots[2] or 0)


def test_overrides_and_templates(store: Store, place: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-08, P-13: --config over the file over a template; the stored text is then that of file and overrides."""
    template = tmp_path / "base.yaml"
    template.write_text("searcher: {name: random, max_trials: 4}\nmax_restarts: 0\nlabels: [t]\n")
    monkeypatch.setenv("DET_SLOTS", "4")
    made = place(FILE, "resources.slots_per_trial=2", "labels=a,b", template=str(template))
    found = row(store, made)
    assert found.config is not None
    assert found.config["resources"]["slots_per_trial"] == 2
    assert sorted(found.config["labels"]) == ["a", "b", "t"]
    assert (found.config["max_restarts"], found.config["searcher"]["name"]) == (0, "single")
    assert "max_trials" not in found.config["searcher"]
    assert "slots_per_trial: 2" in (found.original_config or "")
    with pytest.raises(errors.NotFound, match="There is no template 'absent'"):
        place(template="absent")


def test_warnings_are_returned_and_stored(store: Store, place: Submit, tmp_path: Path) -> None:
    """P-05: a field of containers is one warning; what was left out of the code is another."""
    (tmp_path / "model" / ".env").write_text("A=1")
    made = place(FILE + "environment: {image: x}\n")
    assert len(made.warnings) == 2
    assert "environment.image" in made.warnings[0]
    assert ".env" in made.warnings[1]
    assert row(store, made).warnings == made.warnings


def test_secrets_are_kept_for_the_trial(store: Store, place: Submit, tmp_path: Path) -> None:
    """P-09: neither the row nor the text has them; the configuration of a trial does."""
    found = row(store, place(FILE + "data: {secrets: {t: abc}}\n"))
    assert found.config is not None
    assert found.config["data"] == {"secrets": {"t": "********"}}
    assert found.original_config == ""
    assert secret_values.restore(found.config, found.uuid)["data"] == {"secrets": {"t": "abc"}}
    assert len(list((tmp_path / "home" / "secrets").iterdir())) == 1


def test_where_it_is_listed(store: Store, place: Submit) -> None:
    """1.2, 1.10: the project that the file or --project_id names; one that is missing comes with the command."""
    with store.write() as conn:
        workspaces.create_workspace(conn, "vision", {"type": "directory", "container_path": "/disk/vision"})
        project = workspaces.create_project(conn, "vision", "digits")
        other = workspaces.create_project(conn, "vision", "other")
        workspaces.update_project(conn, other, archived=True)
    found = row(store, place(FILE + "workspace: vision\nproject: digits\n"))
    assert found.project_id == project
    assert found.config is not None
    assert found.config["checkpoint_storage"]["container_path"] == "/disk/vision"
    assert row(store, place(project_id=project)).project_id == project
    with pytest.raises(errors.NotFound, match=r"no project vision/x\. Make it with: det project create 'vision' 'x'"):
        place(FILE + "workspace: vision\nproject: x\n")
    with pytest.raises(errors.NotFound, match=r"no workspace v, .* det workspace create 'v' && det project create"):
        place(FILE + "workspace: v\nproject: x\n")
    with pytest.raises(errors.NotFound):
        place(project_id=99)
    with pytest.raises(errors.Refused, match="archived"):
        place(project_id=other)


def test_defaults_of_the_user(store: Store, place: Submit, tmp_path: Path) -> None:
    """1.1: a defaults file of the user is below everything but our own defaults."""
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "defaults.yaml").write_text("max_restarts: 7\nname: mine\n")
    found = row(store, place())
    assert found.config is not None
    assert (found.config["max_restarts"], found.name) == (7, "digits")


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path) as made:
        yield made


def test_warm_start(history: History, tmp_path: Path) -> None:
    """P-62: a source trial means its newer checkpoint, for every trial of the experiment."""
    run = history.run(validation={1: 0.5, 2: 0.4}, checkpoints=[1, 2])
    place = submitter(history.store, tmp_path)
    warm = f"searcher: {{name: single, metric: loss, source_trial_id: {run.trial_id}}}\nentrypoint: python3 train.py\n"
    found = row(history.store, place(warm))
    assert found.config is not None
    assert found.config["searcher"]["source_checkpoint_uuid"] == run.checkpoints[2]
    assert found.config["searcher"]["source_trial_id"] is None
    by_uuid = row(history.store, place(FILE, f"searcher.source_checkpoint_uuid={run.checkpoints[1]}"))
    assert by_uuid.config is not None
    assert by_uuid.config["searcher"]["source_checkpoint_uuid"] == run.checkpoints[1]


BAD = {
    "no entrypoint (P-01)": ("searcher: {name: single, metric: m}\n", {}, "<config>.entrypoint: is missing"),
    "unknown key (P-02)": (FILE + "searchr: 1\n", {}, r"<config>\.searchr.*\(line 4, column 1\)"),
    "slots (P-04)": (FILE + "resources: {slots: 2}\n", {}, "slots_per_trial"),
    "workspace alone (P-06)": (FILE + "workspace: w\n", {}, "both workspace and project"),
    "policies (P-11)": (FILE + "log_policies: [{name: a, pattern: b}, {name: a}]\n", {}, "2 policies are called"),
    "prefix (P-12)": (FILE + "checkpoint_storage: {type: s3, bucket: bbb, prefix: a/../c}\n", {}, r"without '\.\.'"),
    "no time (P-15)": (FILE, {"settings": ["searcher.name=adaptive_asha", "searcher.max_trials=2"]}, "time_metric"),
    "removed (P-16)": (FILE, {"settings": ["searcher.name=adaptive_simple"]}, "adaptive_asha"),
    "both sources (P-17)": (
        FILE,
        {"settings": ["searcher.source_trial_id=1", "searcher.source_checkpoint_uuid=x"]},
        "has both source_trial_id and source_checkpoint_uuid",
    ),
    "too many slots (P-18)": (FILE, {"settings": ["resources.slots_per_trial=99"]}, r"is 99, and there are \d+ slots"),
    "space (P-19)": (FILE, {"settings": ["hyperparameters.n={type: int, minval: 3, maxval: 3}"]}, "minval"),
    "no method": (FILE, {"settings": ["searcher.name=custom"]}, "nothing says which method decides"),
    "no script": (FILE.replace("train", "trian"), {}, "which is not in"),
    "no module": (FILE.replace("python3 train.py", "model_def:Net"), {}, "which is not in"),
    "no directory": (FILE, {"directory": "nothing-there"}, "There is no directory nothing-there"),
    "no directory given": (FILE, {"directory": None}, "no directory was given"),
    "no source trial": (FILE, {"settings": ["searcher.source_trial_id=77"]}, "There is no trial 77"),
    "no source checkpoint": (FILE, {"settings": ["searcher.source_checkpoint_uuid=f00"]}, "no checkpoint f00"),
}


@pytest.mark.parametrize("case", BAD)
def test_nothing_is_created_of_what_cannot_work(sqlite_store: Store, tmp_path: Path, case: str) -> None:
    """P-01 to P-06, P-11, P-12, P-15 to P-19, P-62: refused with the reason, and no row of any table is written."""
    text, what, said = BAD[case]
    settings = what.pop("settings", [])
    with pytest.raises(errors.DeterminedError, match=said):
        submitter(sqlite_store, tmp_path)(text, *settings, **what)
    what["settings"] = settings
    with sqlite_store.read() as conn:
        for table in (schema.experiments, schema.code_snapshots, schema.pending_events):
            assert conn.scalar(sa.select(sa.func.count()).select_from(table)) == 0
    assert not (tmp_path / "home" / "secrets").exists()


def test_a_trial_without_checkpoint_starts_nothing(history: History, tmp_path: Path) -> None:
    """P-62, 4.3: a source trial without a checkpoint, or a checkpoint that is deleted, is refused."""
    run = history.run(validation={1: 0.5})
    with pytest.raises(errors.NotFound, match="has no complete checkpoint to start from"):
        submitter(history.store, tmp_path)(FILE, f"searcher.source_trial_id={run.trial_id}")


def test_a_store_that_may_only_be_read(tmp_path: Path) -> None:
    """Issue 14: one sentence, and neither a row nor a file of secrets."""
    path = tmp_path / "runs.db"
    open_store(path).close()
    store = open_store(path, read_only=True)
    with pytest.raises(errors.StoreUnavailable, match="may only be read, so nothing was changed"):
        submitter(store, tmp_path)(FILE + "data: {secrets: {t: abc}}\n")
    store.close()
    assert not (tmp_path / "home" / "secrets").exists()


def test_secrets_of_what_was_not_created_are_gone(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission that fails at its last step leaves no file of secrets behind."""
    keep = secret_values.keep

    def kept_and_failed(*arguments: Any) -> bool:
        keep(*arguments)
        raise OSError("no space")

    monkeypatch.setattr(secret_values, "keep", kept_and_failed)
    with pytest.raises(OSError, match="no space"):
        submitter(sqlite_store, tmp_path)(FILE + "data: {secrets: {t: abc}}\n")
    assert list((tmp_path / "home" / "secrets").iterdir()) == []
    assert waiting(sqlite_store) == []
