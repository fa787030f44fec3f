"""How an epoch is dealt to ranks: nobody waits, nothing is lost, and others may deal the rest."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from determined.pytorch.data.deal import Deal

lengths = st.integers(0, 1_000)
batches = st.integers(1, 17)
ranks = st.integers(1, 9)


def epoch(deal: Deal, length: int, position: int = 0) -> list[list[tuple[int, int, bool]]]:
    """Each step's parts, one per rank, as (start, stop, is_stand_in)."""
    steps = []
    while deal.usable(length - position):
        left = length - position
        parts = [deal.part(rank, left) for rank in range(deal.ranks)]
        steps.append([(position + part.start, position + part.stop, part.is_stand_in) for part in parts])
        position += deal.taken(left)
    return steps


def own_positions(steps: list[list[tuple[int, int, bool]]]) -> list[int]:
    return [p for step in steps for start, stop, is_stand_in in step if not is_stand_in for p in range(start, stop)]


@settings(deadline=None)
@given(lengths, batches, ranks, st.booleans(), st.booleans())
def test_each_position_once_and_in_order(length: int, batch: int, size: int, drop_last: bool, may_cut: bool) -> None:
    """Stand-ins aside, ranks read round by round give the epoch exactly, and each rank has a batch in each step."""
    deal = Deal(batch, size, drop_last, may_cut)
    steps = epoch(deal, length)
    assert own_positions(steps) == list(range(deal.usable(length)))
    assert len(steps) == deal.steps(length) == -(-deal.usable(length) // (batch * size))
    assert all(0 < stop - start <= batch for step in steps for start, stop, _ in step)


@settings(deadline=None)
@given(lengths, batches, ranks)
def test_stand_ins_only_where_records_are_too_few(length: int, batch: int, size: int) -> None:
    """Records cut by us are never given twice, unless batches are of one record, or there are fewer than ranks."""
    if any(is_stand_in for step in epoch(Deal(batch, size), length) for _, _, is_stand_in in step):
        assert batch == 1 or length < size


@settings(deadline=None)
@given(lengths, st.integers(2, 17), st.integers(2, 9))
def test_cut_batches_are_not_tiny(length: int, batch: int, size: int) -> None:
    """Where the last round is cut smaller, batches keep half their size, if the epoch has more than one round."""
    steps = epoch(Deal(batch, size), length)
    is_ragged = -(-length // batch) % size > 0
    if is_ragged and len(steps) > 1:
        assert all(stop - start >= batch // 2 for step in steps for start, stop, _ in step)


@settings(deadline=None)
@given(lengths, batches, ranks, st.booleans(), st.booleans())
def test_full_rounds_are_the_contracts(length: int, batch: int, size: int, drop_last: bool, may_cut: bool) -> None:
    """D-09 As long as batches do not run out, rank r has batches r, r + size, ... of the epoch."""
    deal = Deal(batch, size, drop_last, may_cut)
    steps = epoch(deal, length)
    for number, step in enumerate(steps[:-2]):
        assert step == [
            ((number * size + rank) * batch, (number * size + rank + 1) * batch, False) for rank in range(size)
        ]
    if -(-deal.usable(length) // batch) % size == 0:
        flat = [part[:2] for step in steps for part in step]
        assert flat == [(start, min(start + batch, length)) for start in range(0, deal.usable(length), batch)]


@settings(deadline=None)
@given(st.integers(0, 200), batches, ranks, st.booleans(), st.booleans())
def test_any_step_is_reached_at_once(length: int, batch: int, size: int, drop_last: bool, may_cut: bool) -> None:
    """The position after s steps is computed, and going on from it gives the steps that were left."""
    deal = Deal(batch, size, drop_last, may_cut)
    steps = epoch(deal, length)
    for done in range(len(steps) + 1):
        assert epoch(deal, length, deal.taken_by(done, length)) == steps[done:]


@settings(deadline=None)
@given(
    lengths,
    st.lists(st.tuples(batches, ranks, st.integers(1, 20)), min_size=1, max_size=4),
    batches,
    ranks,
    st.booleans(),
)
def test_ranks_may_change_within_an_epoch(
    length: int, segments: list[tuple[int, int, int]], batch: int, size: int, may_cut: bool
) -> None:
    """D-70 Any number of ranks, then any other: together they see each position of the epoch exactly once."""
    position, seen = 0, []
    for segment_batch, segment_size, steps in segments:
        deal = Deal(segment_batch if may_cut else batch, segment_size, False, may_cut)
        part = epoch(deal, length, position)[:steps]
        seen += own_positions(part)
        position += deal.taken_by(len(part), length - position)
    seen += own_positions(epoch(Deal(batch, size, False, may_cut), length, position))
    assert seen == list(range(length))


def test_ragged_epochs_by_example() -> None:
    """What the docs show: 5 batches of 2 records on 2 ranks; a last round too small for its ranks; whole batches."""
    assert epoch(Deal(2, 2), 10)[-1] == [(8, 9, False), (9, 10, False)]
    assert epoch(Deal(10, 4), 45) == [
        [(0, 6, False), (6, 12, False), (12, 18, False), (18, 23, False)],
        [(23, 29, False), (29, 35, False), (35, 40, False), (40, 45, False)],
    ]
    assert epoch(Deal(2, 2, drop_last=True), 11)[-1] == [(8, 10, False), (8, 10, True)]
    assert epoch(Deal(1, 2, may_cut=False), 5)[-1] == [(4, 5, False), (4, 5, True)]
