"""What Ray is asked for: bundles for the slots of an attempt."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from determined.experiment.launchers import placement
from determined.experiment.launchers.placement import RayNode

NODES = st.lists(
    st.builds(lambda slots, free, pools: (slots, min(slots, free), pools), st.integers(0, 4), st.integers(0, 4),
              st.sets(st.sampled_from(["big", "fast"]))),
    max_size=5,
)  # fmt: skip


def node(number: int, slots: int, free: int, pools: set[str]) -> RayNode:
    return RayNode(f"id{number}", f"node{number}", "10.0.0.1", "machine", slots, free, tuple(sorted(pools)))


@given(NODES, st.integers(0, 9), st.sampled_from(["", "big"]), st.booleans(), st.sets(st.integers(0, 4)))
def test_bundles_hold_all_slots(
    found: list[tuple[int, int, set[str]]], slots: int, pool: str, single: bool, barred: set[int]
) -> None:
    """9.4: bundles have as many slots as the trial, one bundle for each node; a trial for one node is packed strictly,
    and what fits on nodes as they are is asked for in that shape."""
    nodes = [node(number, *each) for number, each in enumerate(found)]
    excluded = [each.name for number, each in enumerate(nodes) if number in barred]
    asked = placement.request(nodes, slots, "cpu", pool=pool, is_single_node=single, excluded=excluded)
    assert sum(asked.sizes) == slots
    assert len(asked.bundles) == len(asked.sizes)
    assert sum(bundle["CPU"] for bundle in asked.bundles) == (slots or placement.SHARE)
    assert all((pool in bundle) == bool(pool) for bundle in asked.bundles)
    assert asked.strategy == ("STRICT_PACK" if single else "STRICT_SPREAD" if len(asked.sizes) > 1 else "PACK")
    assert not single or len(asked.sizes) == 1
    assert set(asked.excluded) == {f"id{number}" for number in barred if number < len(nodes)}
    fit = [each for each in nodes if each.name not in excluded and (not pool or pool in each.pools)]
    free = sorted((each.free for each in fit), reverse=True)
    if slots and not single and sum(free) >= slots:  # it can start now
        assert len(asked.sizes) <= len(fit)
        assert all(size <= there for size, there in zip(asked.sizes, free, strict=False))


def row(name: str, ident: str, **changes: Any) -> dict[str, Any]:
    resources = {"CPU": 2.0, "memory": 1.0, "object_store_memory": 1.0, "node:10.0.0.1": 1.0, **changes}
    return {
        "NodeID": ident, "Alive": True, "NodeName": name, "NodeManagerAddress": "10.0.0.1",
        "NodeManagerHostname": "machine", "Resources": resources,
    }  # fmt: skip


def test_nodes_have_names_of_their_own() -> None:
    """Slots come from Ray's resources; nodes that share a name are told apart; custom resources are pools."""
    rows = [row("a", "1" * 8, big=1.0), row("b", "2" * 8), row("b", "3" * 8), {**row("c", "4" * 8), "Alive": False}]
    nodes = placement.nodes_of(rows, {"1" * 8: {"CPU": 1.0}})
    assert [(each.name, each.slots, each.free, each.pools) for each in nodes] == [
        ("a", 2, 1, ("big",)),
        ("b-222222", 2, 0, ()),
        ("b-333333", 2, 0, ()),
    ]


def test_gpus_are_the_slots_of_a_cluster_that_has_any() -> None:
    """Slots are GPUs if there is one, else CPUs."""
    rows = [row("a", "1", GPU=4.0), row("b", "2")]
    assert placement.kind_of(rows) == "cuda"
    assert [each.slots for each in placement.nodes_of(rows, {})] == [4, 0]
    assert placement.request([], 2, "cuda").bundles == [{"GPU": 2.0}]
