"""Layers of configuration: every merge rule of the contract."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from determined.experiment.config.layers import merged


def test_mappings_merge_and_scalars_and_lists_are_replaced() -> None:
    """platform 1.1: mappings merge at every level; of scalars and lists the strongest layer's counts."""
    layers = [{"data": {"a": {"x": 1}, "l": [1]}}, {"data": {"a": {"x": 2, "y": 2}, "l": [2, 3]}}, {"data": {"z": 3}}]
    assert merged(layers) == {"data": {"a": {"x": 1, "y": 2}, "l": [1], "z": 3}}


def test_layers_are_left_alone() -> None:
    """Merging changes nobody's values."""
    layers: list[dict[str, Any]] = [{"labels": ["a"], "data": {"x": 1}}, {"labels": ["b"], "data": {"y": 1}}]
    before = copy.deepcopy(layers)
    merged(layers)
    assert layers == before


def test_labels_are_united() -> None:
    """platform 1.1: labels are a set union."""
    assert merged([{"labels": ["a", "b"]}, {"labels": ["b", "c"]}]) == {"labels": ["a", "b", "c"]}


def test_mounts_append_by_container_path() -> None:
    """platform 1.1: bind_mounts append, one entry per container_path."""
    strong = [{"host_path": "/1", "container_path": "a"}]
    weak = [{"host_path": "/2", "container_path": "a"}, {"host_path": "/3", "container_path": "b"}]
    assert merged([{"bind_mounts": strong}, {"bind_mounts": weak}])["bind_mounts"] == [strong[0], weak[1]]


def test_policies_append_by_name_or_pattern_and_action() -> None:
    """platform 1.1: log_policies append by name, or by pattern and action when unnamed; the stronger wins."""
    strong = [{"name": "a"}, {"pattern": "p", "action": "cancel_retries"}]
    weak = [
        {"name": "a", "pattern": "x"},
        {"pattern": "p", "action": {"type": "cancel_retries"}},
        {"pattern": "p", "action": "exclude_node"},
    ]
    assert merged([{"log_policies": strong}, {"log_policies": weak}])["log_policies"] == [*strong, weak[2]]


def test_hyperparameters_are_atomic_unless_nested() -> None:
    """platform 1.1: declarations and constants replace each other; groups merge key by key."""
    const: dict[str, Any] = {"type": "const", "val": {"deep": 1}}
    strong = {"a": {"type": "int", "minval": 1, "maxval": 2}, "g": {"x": 1}, "c": const, "s": 5, "t": {"type": 3}}
    weak = {"a": {"type": "int", "minval": 0, "maxval": 9, "count": 3}, "g": {"x": 2, "y": 2}, "c": {"other": 1},
            "s": {"group": 1}, "only": 1, "t": {"x": 1}}  # fmt: skip
    found = merged([{"hyperparameters": strong}, {"hyperparameters": weak}])["hyperparameters"]
    assert found == {**strong, "g": {"x": 1, "y": 2}, "only": 1}


def test_searchers_are_a_union() -> None:
    """platform 1.1: the stronger name decides; fields of the weaker method only are dropped, shared ones merge."""
    strong = {"name": "asha", "num_rungs": 3}
    weak = {"name": "adaptive_asha", "metric": "m", "mode": "aggressive", "max_trials": 5, "typo": 1}
    found = merged([{"searcher": strong}, {"searcher": weak}])["searcher"]
    assert found == {"name": "asha", "num_rungs": 3, "metric": "m", "max_trials": 5, "typo": 1}


def test_fields_of_a_removed_searcher_go_with_it() -> None:
    """platform 1.1: an old file needs no more than another name on the command line."""
    old = {
        "name": "adaptive_simple",
        "metric": "m",
        "max_trials": 5,
        "budget": {"batches": 9},
        "train_stragglers": True,
    }
    found = merged([{"searcher": {"name": "random"}}, {"searcher": old}])["searcher"]
    assert found == {"name": "random", "metric": "m", "max_trials": 5}


def test_the_same_searcher_under_its_two_names_merges() -> None:
    """platform 1.8: async_halving and asha are one."""
    found = merged([{"searcher": {"name": "asha"}}, {"searcher": {"name": "async_halving", "num_rungs": 3}}])
    assert found["searcher"] == {"name": "asha", "num_rungs": 3}


def test_a_searcher_without_name_takes_the_weaker_one() -> None:
    """platform 1.1: a layer that only changes a field keeps the method."""
    found = merged([{"searcher": {"max_trials": 3}}, {"searcher": {"name": "random", "max_trials": 9, "metric": "m"}}])
    assert found["searcher"] == {"name": "random", "max_trials": 3, "metric": "m"}


def test_storages_are_a_union() -> None:
    """platform 1.1: of two storages the stronger type counts; keys that only the weaker type knows go, others merge."""
    strong = {"type": "gcs", "bucket": "b"}
    weak = {"type": "s3", "bucket": "c", "access_key": "k", "prefix": "p", "save_trial_best": 3}
    found = merged([{"checkpoint_storage": strong}, {"checkpoint_storage": weak}])["checkpoint_storage"]
    assert found == {"type": "gcs", "bucket": "b", "prefix": "p", "save_trial_best": 3}


@pytest.mark.parametrize(
    ("section", "strong", "weak", "expected"),
    [
        ("searcher", {"source_trial_id": 1}, {"source_checkpoint_uuid": "u"}, {"source_trial_id": 1}),
        ("searcher", {"max_length": {"epochs": 1}}, {"max_length": {"batches": 5}}, {"max_length": {"epochs": 1}}),
        ("checkpoint_storage", {"account_url": "a"}, {"connection_string": "c"}, {"account_url": "a"}),
    ],
)
def test_one_of_several_ways_stays_one(section: str, strong: Any, weak: Any, expected: Any) -> None:
    """Where a file may say only one of several, the weaker layer's choice does not make it two."""
    assert merged([{section: strong}, {section: weak}]) == {section: expected}


@pytest.mark.parametrize("key", ["labels", "bind_mounts", "log_policies", "hyperparameters", "searcher", "data"])
def test_wrong_types_are_left_for_the_check(key: str) -> None:
    """A merge never fails: the stronger value is kept as it is, and the check says what is wrong with it."""
    for strong, weak in ((5, [{"a": 1}]), (["x"], {"a": 1}), ({"a": 1}, 5), ([5], [5]), ([None], ["x"])):
        assert key in merged([{key: strong}, {key: weak}])
