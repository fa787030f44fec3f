"""Who uploads what in a sharded checkpoint, and what counts as a conflict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.core._checkpoint_files import Offer, describe, merge_metadata, merge_resources, share


@pytest.mark.parametrize(
    ("offered", "merged", "conflicts"),
    [
        ([{"a": 0}, {"b": 0}], {"a": 0, "b": 0}, {}),
        ([{"a": 0}, {"a": 0}], {"a": 0}, {}),
        ([{"a": 1, "b": 0}, {"a": 0}], {"a": 1, "b": 0}, {"/a": [0, 1]}),
        ([{"a": {"c": 1}}, {"a": {"d": 2}}], {"a": {"c": 1, "d": 2}}, {}),
        ([{"a": {"c": 1}}, {"a": 2}], {"a": {"c": 1}}, {"/a": [0, 1]}),
        ([{"a": {"c": 1}}, {"a": {"c": 2}}], {"a": {"c": 1}}, {"/a/c": [0, 1]}),
        ([{"a": [1]}, {"a": [2]}, {"a": [1]}], {"a": [1]}, {"/a": [0, 1]}),
        ([{"a": 1}, {"a": 1}, {"a": 2}, {"a": 3}], {"a": 1}, {"/a": [0, 1, 2, 3]}),
    ],
)
def test_metadata_merges_as_the_table_says(offered: list[dict[str, Any]], merged: object, conflicts: object) -> None:
    """C-24: metadata of ranks merges key by key, at every level; different values are a conflict, the first stays."""
    assert merge_metadata(offered) == (merged, conflicts)


@pytest.mark.parametrize(
    ("offered", "conflicts"),
    [
        ([["file0"], ["file0"]], {"file0": [0, 1]}),
        ([["dir1/"], ["dir1/"]], {}),
        ([["file1/"], ["file1"]], {"file1": [0, 1]}),
        ([["dir1/", "dir1/file1"], ["file1"]], {}),
    ],
)
def test_files_merge_as_the_examples_say(offered: list[list[str]], conflicts: object) -> None:
    """C-24: the examples of merge_resources in 3.5."""
    merged, found = merge_resources(offered)
    assert found == conflicts
    assert set(merged) == {path for paths in offered for path in paths}


def test_the_worked_example() -> None:
    """Contract 3.5: 4 ranks on 2 machines; rank 0 uploads node0 and same, rank 2 node1, ranks 1 and 3 nothing."""
    first, second = (0, 1, 10), (1, 1, 10)
    offers = [Offer(["node0", "same"], first)] * 2 + [Offer(["node1", "same"], second)] * 2
    shares = share(offers)
    assert shares.contested == {"same": [0, 2]}
    paths, conflicts = shares.settle([{"same": "x"}, {}, {"same": "x"}, {}])
    assert (paths, conflicts) == ([{"node0", "same"}, set(), {"node1"}, set()], {})


def test_a_selector_makes_a_rank_upload_its_own() -> None:
    """Contract 3.4 point 3: only whole directories are shared; a rank with a selector uploads its selection."""
    shares = share([Offer(["a", "b"], (0, 1, 1)), Offer(["c"], None), Offer(None)])
    assert shares.paths == [{"a", "b"}, {"c"}, set()]


def test_a_file_here_and_a_directory_there_cannot_be() -> None:
    """C-27: a directory and a file of one name conflict, whatever they hold."""
    _, conflicts = share([Offer(["abc/"], (0, 1, 1)), Offer(["abc"], (1, 1, 1))]).settle([{}, {}])
    assert conflicts == {"abc": [0, 1]}


def test_different_copies_conflict() -> None:
    """C-25: one name with different content is a conflict of those ranks."""
    _, conflicts = share([Offer(["f"], (0, 1, 1)), Offer(["f"], (1, 1, 1))]).settle([{"f": "x"}, {"f": "y"}])
    assert conflicts == {"f": [0, 1]}
    assert describe(conflicts, is_chief=True) == "\n    f: ranks 0, 1"
    assert describe(conflicts, is_chief=False) == " {'f': [0, 1]}"


names = st.text("abc", min_size=1, max_size=2)


@given(st.lists(st.none() | st.sets(names), min_size=1, max_size=5))
def test_every_file_is_uploaded_exactly_once(offered: list[set[str] | None]) -> None:
    """C-26, C-28: if all copies are equal, each file is uploaded by exactly one rank, the lowest that has it."""
    offers = [Offer(None if paths is None else sorted(paths), None) for paths in offered]
    shares = share(offers)
    paths, conflicts = shares.settle([dict.fromkeys(o or [], "same") for o in offered])
    assert conflicts == {}
    everything = [path for share_of_rank in paths for path in share_of_rank]
    assert sorted(everything) == sorted({path for o in offered for path in o or []})
    for path in everything:
        lowest = min(rank for rank, o in enumerate(offered) if o and path in o)
        assert path in paths[lowest]


trees = st.recursive(
    st.integers(0, 2), lambda inner: st.dictionaries(st.sampled_from("ab"), inner, max_size=2), max_leaves=6
)


@given(st.lists(st.dictionaries(st.sampled_from("ab"), trees, max_size=2), min_size=1, max_size=4))
def test_merging_equal_metadata_changes_nothing(offered: list[dict[str, Any]]) -> None:
    """3.5: offering the merged result again conflicts with nobody, and inputs are not changed."""
    before = repr(offered)
    merged, _ = merge_metadata(offered)
    assert repr(offered) == before
    assert merge_metadata([merged, merged]) == (merged, {})
