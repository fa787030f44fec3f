"""The model registry."""

from __future__ import annotations

import pytest

from determined import errors
from determined.store import checkpoints, models
from determined.store.database.connection import Store
from tests.unit.store.rooms import add_run, save


def test_numbers_of_versions_do_not_come_back(store: Store) -> None:
    """P-89: versions 1, 2 and 2 removed; the next is 3."""
    with store.write() as conn:
        run = add_run(conn)
        for number in range(3):
            save(conn, run, f"u{number}", number)
        model = models.create(conn, "resnet", owner="ada")
        assert [models.register(conn, model.id, f"u{n}", owner="ada").version for n in range(2)] == [1, 2]
        models.delete_version(conn, model.id, 2)
        assert models.register(conn, model.id, "u2", owner="ada", name="third").version == 3
        assert [version.version for version in models.versions(conn, model.id)] == [3, 1]
        assert [version.version for version in models.versions(conn, model.id, descending=False)] == [1, 3]
        assert models.get_version(conn, model.id, 3).name == "third"
        with pytest.raises(errors.NotFound, match="'resnet' has no version 2"):
            models.get_version(conn, model.id, 2)
        assert models.get(conn, "resnet").num_versions == 2


@pytest.mark.parametrize("name", ["123", "a/b", "a\\b", "a  b", "", "  "])
def test_names_that_cannot_be(store: Store, name: str) -> None:
    """P-90: not blank, no double spaces, no / or \\, not only digits."""
    with store.write() as conn, pytest.raises(errors.InvalidValue, match="cannot name a model"):
        models.create(conn, name, owner="ada")


def test_names_are_unique_by_case(store: Store) -> None:
    """Platform 5.1: names of models are unique and case-sensitive, also when renaming."""
    with store.write() as conn:
        one = models.create(conn, "Net", owner="ada")
        two = models.create(conn, "net", owner="ada")
        with pytest.raises(errors.Refused, match="already"):
            models.create(conn, "net", owner="ada")
        with pytest.raises(errors.Refused, match="already"):
            models.update(conn, two.id, name="Net")
        models.update(conn, two.id, name="net")
        assert models.get(conn, "Net").id == one.id
        assert models.get(conn, two.id).name == "net"


def test_only_complete_checkpoints_can_be_registered(store: Store) -> None:
    """Platform 5.1: only a completed checkpoint can be registered as a version of a model."""
    with store.write() as conn:
        save(conn, add_run(conn), "u1", 1)
        checkpoints.set_state(conn, "u1", "DELETED")
        model = models.create(conn, "m", owner="ada")
        with pytest.raises(errors.Refused, match="DELETED"):
            models.register(conn, model.id, "u1", owner="ada")
        with pytest.raises(errors.NotFound):
            models.register(conn, model.id, "never", owner="ada")
        with pytest.raises(errors.NotFound):
            models.register(conn, 99, "u1", owner="ada")
        assert models.versions(conn, model.id) == []


def test_models_are_found_and_edited(store: Store) -> None:
    """By parts of name and description; labels by use; archived ones refuse edits."""
    with store.write() as conn:
        for name, labels in (("beta", ["x"]), ("alpha", ["y", "x"])):
            models.create(conn, name, owner="ada", labels=labels, description=f"about {name}", metadata={"k": 1})
        assert [model.name for model in models.find(conn)] == ["alpha", "beta"]
        assert [model.name for model in models.find(conn, name="ET")] == ["beta"]
        assert [model.name for model in models.find(conn, description="alpha")] == ["alpha"]
        assert [model.name for model in models.find(conn, sort_by="creation_time", workspace_ids=[1])] == [
            "beta",
            "alpha",
        ]
        assert models.find(conn, workspace_ids=[2]) == []
        assert models.labels_in_use(conn) == ["x", "y"]
        models.update(conn, 1, metadata={"k": 2}, archived=True)
        assert models.get(conn, 1).metadata == {"k": 2}
        with pytest.raises(errors.Refused, match="archived"):
            models.update(conn, 1, notes="n")
        models.update(conn, 1, archived=False)
        models.delete(conn, 1)
        assert [model.name for model in models.find(conn)] == ["alpha"]


def test_versions_are_edited(store: Store) -> None:
    """Name, comment, notes, metadata and labels; and a checkpoint knows what it is registered as."""
    with store.write() as conn:
        save(conn, add_run(conn), "u1", 1)
        model = models.create(conn, "m", owner="ada")
        models.register(conn, model.id, "u1", owner="ada")
        models.update_version(conn, model.id, 1, comment="good", labels=["prod"])
        (version,) = models.versions_of_checkpoint(conn, "u1")
        assert (version.comment, version.labels) == ("good", ["prod"])
        with pytest.raises(errors.InvalidValue, match="owner"):
            models.update_version(conn, model.id, 1, owner="bob")
