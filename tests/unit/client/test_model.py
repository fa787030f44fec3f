"""The registry and workspaces through the SDK."""

from __future__ import annotations

import pytest

from determined import errors
from determined.client import Determined, ModelSortBy, OrderBy
from tests.history import History


def test_versions_are_never_reused(history: History, runs: Determined) -> None:
    """P-89: with versions 1 and 2, and 2 deleted, the next is 3."""
    uuids = history.run(checkpoints=[1, 2, 3]).uuids
    model = runs.create_model("digits")
    assert model.get_version() is None
    assert [model.register_version(uuid).model_version for uuid in uuids[:2]] == [1, 2]
    second = model.get_version()
    assert second is not None
    second.delete()
    assert model.register_version(uuids[2]).model_version == 3
    assert [version.model_version for version in model.list_versions()] == [3, 1]
    assert [version.model_version for version in model.get_versions(OrderBy.ASC)] == [1, 3]
    with pytest.raises(errors.NotFound):
        model.get_version(2)


@pytest.mark.parametrize("name", ["123", "a/b", "a\\b", " ", "a  b"])
def test_names_that_are_refused(runs: Determined, name: str) -> None:
    """P-90: digits only, slashes, blanks and double spaces."""
    with pytest.raises(errors.InvalidValue, match="cannot name a model"):
        runs.create_model(name)


def test_registered_checkpoints_stay(history: History, runs: Determined) -> None:
    """P-64: one in the registry survives policy 0/0/0, and deleting it or its experiment is refused."""
    run = history.run(checkpoints=[1, 2])
    version = runs.create_model("digits").register_version(run.checkpoints[1])
    experiment = runs.get_experiment(run.experiment_id)
    assert experiment.apply_retention(0, 0, 0).removed == [run.checkpoints[2]]
    for refused in (version.checkpoint.delete, lambda: version.checkpoint.remove_files(["**"]), experiment.delete):
        with pytest.raises(errors.Refused, match="model registry"):
            refused()
    assert version.checkpoint.verify() == []
    version.delete()
    version.checkpoint.delete()
    experiment.delete()


def test_fields_and_edits_of_a_model(history: History, runs: Determined) -> None:
    """7.5: what can be said of a model, and changed."""
    model = runs.create_model("digits", "handwriting", {"a": 1}, ["x"])
    model.add_metadata({"b": 2})
    model.remove_metadata(["a"])
    model.set_labels(["y", "z"])
    model.set_description("by hand")
    model.set_notes("long")
    again = runs.get_model("digits")
    assert (again.description, again.notes, again.metadata, again.labels) == ("by hand", "long", {"b": 2}, ["y", "z"])
    assert (again.username, again.workspace_id, again.archived) == (runs.user, 1, False)
    assert runs.get_model(model.model_id).name == runs.get_model(str(model.model_id)).name == "digits"
    model.archive()
    with pytest.raises(errors.Refused, match="archived"):
        model.set_description("no")
    model.unarchive()
    model.delete()
    with pytest.raises(errors.NotFound):
        model.reload()


def test_fields_and_edits_of_a_version(history: History, runs: Determined) -> None:
    """7.5: a version is a checkpoint with a number, a name and notes; only complete ones can be one."""
    run = history.run(validation={1: 0.5}, checkpoints=[1, 2])
    model = runs.create_model("digits")
    version = model.register_version(run.checkpoints[1], comment="good")
    version.set_name("first")
    version.set_notes("shipped")
    found = model.get_version(1)
    assert found is not None
    assert (found.model_name, found.model_id, found.model_version) == ("digits", model.model_id, 1)
    assert (found.name, found.comment, found.notes, found.metadata) == ("first", "good", "shipped", {})
    assert found.checkpoint.uuid == run.checkpoints[1]
    assert [report.metrics for report in found.iter_metrics("validation")] == [{"loss": 0.5}]
    runs.get_checkpoint(run.checkpoints[2]).delete()
    with pytest.raises(errors.Refused, match="only COMPLETED"):
        model.register_version(run.checkpoints[2])


def test_list_models(runs: Determined) -> None:
    """7.1: by a part of the name or description, in any order; labels most used first."""
    runs.create_model("digits", "numbers", labels=["vision", "small"])
    runs.create_model("faces", "people", labels=["vision"])
    assert [model.name for model in runs.list_models(order_by=OrderBy.DESC)] == ["faces", "digits"]
    assert [model.name for model in runs.list_models(name="DIG")] == ["digits"]
    assert [model.name for model in runs.list_models(description="people")] == ["faces"]
    assert runs.get_model_labels() == ["vision", "small"]
    for order in ModelSortBy:
        assert len(runs.list_models(sort_by=order)) == 2
    assert list(runs.list_models().to_pandas()["name"]) == ["digits", "faces"]


def test_workspaces_and_projects(history: History, runs: Determined) -> None:
    """7.1, 7.2: experiments and models are filed in workspaces; one that is not empty stays."""
    workspace = runs.create_workspace("vision")
    project = workspace.create_project("cifar", "ten classes")
    assert [w.name for w in runs.list_workspaces()] == ["Uncategorized", "vision"]
    assert [p.name for p in runs.get_workspace("vision").list_projects()] == ["cifar"]
    experiment = runs.get_experiment(history.run("here").experiment_id)
    experiment.move_to_project("vision", "cifar")
    assert (experiment.project_id, experiment.workspace_id) == (project.id, workspace.id)
    assert [e.name for e in workspace.get_project("cifar").list_experiments()] == ["here"]
    assert [e.name for e in runs.list_experiments(project_id=project.id)] == ["here"]
    model = runs.create_model("faces", workspace_name="vision")
    assert [m.name for m in runs.list_models(workspace_names=["vision"])] == ["faces"]
    assert runs.list_models(workspace_ids=[1]) == []
    with pytest.raises(errors.Refused, match="not empty"):
        runs.delete_workspace("vision")
    model.move_to_workspace("Uncategorized")
    experiment.move_to_project("Uncategorized", "Uncategorized")
    project.set_description("")
    project.delete()
    workspace.archive()
    workspace.unarchive()
    workspace.set_name("sight")
    runs.delete_workspace("sight")
