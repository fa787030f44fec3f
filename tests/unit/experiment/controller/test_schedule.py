"""Which trials get the free slots, and on which nodes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from determined.experiment.controller.schedule import Waiting, choose
from determined.experiment.slots import node_of, pick

NODES = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 4), max_size=4)


def slots_of(nodes: dict[str, int]) -> list[str]:
    return [f"{name}/{number}" for name, count in nodes.items() for number in range(count)]


@given(NODES, st.integers(0, 8), st.booleans())
def test_slots_are_picked_on_as_few_nodes_as_possible(nodes: dict[str, int], wanted: int, single: bool) -> None:
    """S11: Slots of a trial may be on several nodes, unless it says that they may not; one node is preferred."""
    free = slots_of(nodes)
    picked = pick(free, wanted, is_single_node=single)
    largest = max(nodes.values(), default=0)
    if picked is None:
        assert wanted > (largest if single else len(free))
        return
    assert len(picked) == len(set(picked)) == wanted
    assert set(picked) <= set(free)
    counts = Counter(map(node_of, picked))
    if wanted <= largest:
        assert len(counts) <= 1
    fewest, left = 0, wanted
    for count in sorted(nodes.values(), reverse=True):
        fewest, left = fewest + (left > 0), left - count
    assert len(counts) <= max(1, fewest)


POOLS = st.none() | st.sets(st.sampled_from("abcd"))
ASKED = st.tuples(st.integers(1, 3), st.integers(0, 3), st.none() | st.integers(0, 4), st.integers(0, 4), POOLS)


@given(NODES, st.lists(ASKED, max_size=5))
def test_no_slot_is_given_twice(
    nodes: dict[str, int], waiting: list[tuple[int, int, int | None, int, set[str] | None]]
) -> None:
    """Each slot goes to one trial, on a node that the trial can use, and no experiment has more than its max_slots."""
    free = slots_of(nodes)
    asked = [
        Waiting(
            number, priority, wanted, most, 0, [f"{number}.{place}" for place in range(queued)],
            None if pool is None else {slot for slot in free if node_of(slot) in pool},
        )
        for number, (priority, wanted, most, queued, pool) in enumerate(waiting)
    ]  # fmt: skip
    started = choose(asked, free)
    given_away = [slot for start in started for slot in start.slots]
    assert len(given_away) == len(set(given_away))
    assert set(given_away) <= set(free)
    for each in asked:
        mine = [start for start in started if start.experiment_id == each.experiment_id]
        assert [start.request_id for start in mine] == list(each.queued)[: len(mine)]
        assert all(len(start.slots) == each.slots_per_trial for start in mine)
        assert each.max_slots is None or sum(len(start.slots) for start in mine) <= each.max_slots
        assert each.usable is None or all(set(start.slots) <= set(each.usable) for start in mine)


def test_a_large_trial_is_not_overtaken() -> None:
    """A trial that waits for slots keeps those behind it from the slots that it can use, and from no others."""
    large = Waiting(1, 42, 3, None, 0, ["large"], {"a/0", "a/1", "a/2"})
    small = Waiting(2, 42, 1, None, 0, ["small"])
    assert choose([large, small], ["a/0", "a/1"]) == []
    assert [start.slots for start in choose([large, small], ["a/0", "a/1", "b/0"])] == [("b/0",)]


def test_a_limited_experiment_blocks_nobody() -> None:
    """One that has all that its max_slots allows lets those behind it start."""
    limited = Waiting(1, 1, 1, 1, 1, ["x"])
    assert [start.request_id for start in choose([limited, Waiting(2, 42, 1, None, 0, ["y"])], ["0"])] == ["y"]
