"""Workspaces and projects: their names, places and notes."""

from __future__ import annotations

import pytest

from determined.client import Determined
from determined.errors import InvalidValue, Refused


def test_a_project_moves_with_its_notes(runs: Determined) -> None:
    """A project goes to another workspace as it is; one of its name there refuses it."""
    vision, products = runs.create_workspace("vision"), runs.create_workspace("products")
    cifar = vision.create_project("cifar")
    cifar.set_notes([{"name": "Plan", "contents": "- less `lr`"}])
    cifar.move("products")
    assert cifar.workspace_id == products.id
    assert products.get_project("cifar").notes == [{"name": "Plan", "contents": "- less `lr`"}]
    again = vision.create_project("cifar")
    with pytest.raises(Refused, match="There is a project 'cifar' in 'products' already"):
        again.move("products")
    assert again.workspace_id == vision.id


def test_renaming_keeps_the_rules_of_names(runs: Determined) -> None:
    """A new name has 1 to 80 characters and is not another's, as for what is made."""
    vision = runs.create_workspace("vision")
    cifar, _ = vision.create_project("cifar"), vision.create_project("mnist")
    with pytest.raises(Refused, match="There is a project 'mnist' in 'vision' already"):
        cifar.set_name("mnist")
    with pytest.raises(InvalidValue, match="1 to 80 characters"):
        vision.set_name("x" * 81)
    with pytest.raises(Refused, match="There is a workspace 'Uncategorized' already"):
        vision.set_name("Uncategorized")
    cifar.edit(name="cifar100", description="more classes")
    cifar.reload()
    assert (cifar.name, cifar.description) == ("cifar100", "more classes")
    cifar.edit()
    with pytest.raises(InvalidValue, match="Notes are a list"):
        cifar.set_notes([{"title": "x"}])
