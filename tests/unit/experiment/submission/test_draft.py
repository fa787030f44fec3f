"""The text that a dialog starts with: another name in it, one trial of it, another search in it."""

from __future__ import annotations

import pytest
import yaml

from determined.errors import InvalidValue
from determined.experiment.config.experiment_file import ConfigFile
from determined.experiment.submission import draft


def read(text: str) -> ConfigFile:
    found = draft.read_text(text)
    assert found is not None
    return found


@pytest.mark.parametrize("text", ["", "  \n", "# only a comment\n", "---\n", "null"])
def test_a_text_that_says_nothing_is_none(text: str) -> None:
    """An editor that was emptied, or holds comments only, means: as it is."""
    assert draft.read_text(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: a  # mine\nlr: 1\n", "name: b  # mine\nlr: 1\n"),
        ("lr: 1 # x\nname: 'a b'\n", "lr: 1 # x\nname: b\n"),
        ("# top\nlr: 1\n", "name: b\n# top\nlr: 1\n"),
        ("name:\n  a\nlr: 1 # x\n", "name:\n  b\nlr: 1 # x\n"),
        ("inner: {name: a}\nname: a\n", "inner: {name: a}\nname: b\n"),
        ('{"name": "a", "lr": 1}', "name: b\nlr: 1\n"),
        ("name: >\n  a\n  b\nlr: 1\n", "name: b\nlr: 1\n"),
        ("name: &x a\nother: *x\n", "name: b\nother: a\n"),
        ("name: b # same\n", "name: b # same\n"),
    ],
)
def test_a_new_name_leaves_the_rest(text: str, expected: str) -> None:
    """Comments and order stay where the text is plain enough; where it is not, it is written anew."""
    found = draft.with_name(read(text), "b")
    assert found.text == expected
    assert yaml.safe_load(found.text) == found.values


@pytest.mark.parametrize(
    "name", ["a: b", "yes", "1.0", "é 🎉", "x" * 300, "a\nb", "'", "#no", "{{x}}", " lead", "~", ""]
)
def test_any_name_can_be_written(name: str) -> None:
    """Whatever a person calls it, the text says just that."""
    found = draft.with_name(read("name: a\nlr: 1\n"), name)
    assert yaml.safe_load(found.text) == {"name": name, "lr": 1}


def test_values_that_look_like_declarations_stay_values() -> None:
    """A hyperparameter whose value is a mapping with a `type` is written so that it is not taken for a range."""
    file = read("searcher: {name: random, metric: m, max_trials: 3, source_trial_id: 2}\nhyperparameters: {a: 1}\n")
    found = draft.of_trial(file, 7, {"opt": {"type": "int", "minval": 1}, "group": {"lr": 0.1}, "empty": {}})
    assert found.values["hyperparameters"] == {
        "opt": {"type": "const", "val": {"type": "int", "minval": 1}},
        "group": {"lr": 0.1},
        "empty": {"type": "const", "val": {}},
    }
    assert found.values["searcher"] == {"name": "single", "metric": "m"}
    assert draft.of_trial(file, 7, {}, is_continued=True).values["searcher"]["source_trial_id"] == 7


def test_another_search_keeps_the_order() -> None:
    """Keys, and hyperparameters that were there, stand in the order that they had."""
    file = read("hyperparameters: {z: 1, g: {y: 1, x: 2}, a: 3}\nname: n\n")
    declared = [(("a",), 1), (("g", "x"), 2), (("g", "y"), 3), (("new",), 4), (("z",), 5)]
    found = draft.with_search(file, {"name": "random"}, declared)
    assert list(found.values) == ["hyperparameters", "name", "searcher"]
    assert list(found.values["hyperparameters"]) == ["z", "g", "a", "new"]
    assert list(found.values["hyperparameters"]["g"]) == ["y", "x"]
    with pytest.raises(InvalidValue, match="is there twice"):
        draft.with_search(file, {}, [(("a",), 1), (("a",), 2)])
