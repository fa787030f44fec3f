"""Which checkpoints stay: the vectors of the contract, and what holds for every experiment."""

from __future__ import annotations

import datetime
import math

import hypothesis
import pytest
from hypothesis import strategies as st

from determined.errors import ConfigError
from determined.store.upkeep.retention import Candidate, Policy, to_keep

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
# platform.md 4.9: two trials, some checkpoints validated.
VECTORS = [
    Candidate("c1", 1, 100),
    Candidate("c2", 1, 200, 0.90),
    Candidate("c3", 1, 300, 0.70),
    Candidate("c4", 1, 400, 0.80),
    Candidate("c5", 2, 100, 0.75),
    Candidate("c6", 2, 200, 0.60),
    Candidate("c7", 2, 300),
]


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ((0, 0, 0), ""),
        ((2, 0, 0), "c3 c6"),
        ((3, 0, 0), "c3 c5 c6"),
        ((99, 0, 0), "c2 c3 c4 c5 c6"),
        ((0, 1, 0), "c3 c6"),
        ((0, 2, 0), "c3 c4 c5 c6"),
        ((0, 0, 1), "c4 c7"),
        ((0, 0, 2), "c3 c4 c6 c7"),
        ((0, 1, 1), "c3 c4 c6 c7"),
        ((1, 0, 1), "c4 c6 c7"),
    ],
)
def test_vectors(policy: tuple[int, int, int], kept: str) -> None:
    """P-63: the kept sets of platform.md 4.9, smaller is better."""
    assert to_keep(VECTORS, Policy(*policy)) == set(kept.split())


def test_larger_is_better() -> None:
    """P-63: with larger is better, the best of the experiment is c2."""
    assert to_keep(VECTORS, Policy(1, 0, 0), smaller_is_better=False) == {"c2"}


def test_protected_ones_stay() -> None:
    """P-64: policy 0/0/0 keeps what is protected, and invents nothing that is not there."""
    assert to_keep(VECTORS, Policy(0, 0, 0), protected={"c1", "elsewhere"}) == {"c1"}


def test_of_equally_good_ones_the_earlier_validation_stays() -> None:
    """platform.md 4.9: ties go to the earlier validation, whatever the steps are."""
    late = Candidate("late", 1, 100, 0.5, order=2)
    early = Candidate("early", 2, 900, 0.5, order=1)
    assert to_keep([late, early], Policy(1, 0, 0)) == {"early"}


@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_nan_is_worst(smaller_is_better: bool) -> None:
    """D3: a NaN is worse than any number, and an infinity is a number."""
    three = [Candidate("nan", 1, 1, math.nan), Candidate("inf", 1, 2, math.inf), Candidate("-inf", 1, 3, -math.inf)]
    assert to_keep(three, Policy(1, 0, 0), smaller_is_better) == {"-inf" if smaller_is_better else "inf"}
    assert to_keep(three, Policy(2, 0, 0), smaller_is_better) == {"inf", "-inf"}
    assert to_keep(three, Policy(3, 0, 0), smaller_is_better) == {"nan", "inf", "-inf"}


def test_the_later_of_two_saved_at_one_step_is_newer() -> None:
    """A run that was resumed saves a step again: the newer copy is the one to go on from."""
    first = Candidate("z", 1, 100, saved_at=START)
    second = Candidate("a", 1, 100, saved_at=START + datetime.timedelta(seconds=1))
    assert to_keep([first, second], Policy(0, 0, 1)) == {"a"}


def test_policy_is_asked_for() -> None:
    """4.9 for local runs: only a config that says how many to keep asks for removal; the other numbers are 0, 1, 1."""
    assert Policy.asked_for(None) is None
    assert Policy.asked_for("/data") is None
    assert Policy.asked_for({"type": "directory", "container_path": "/data"}) is None
    assert Policy.asked_for({"save_trial_latest": 0}) == Policy(0, 1, 0)
    assert Policy.asked_for({"save_experiment_best": 2, "save_trial_best": None}) == Policy(2, 1, 1)


@pytest.mark.parametrize("number", [-1, 1.5, "2", True])
def test_only_whole_numbers(number: object) -> None:
    """1.5: the numbers are whole and not negative."""
    with pytest.raises(ConfigError, match=r"save_trial_best is .* whole number"):
        Policy.asked_for({"save_trial_best": number})


NUMBERS = st.integers(0, 4)
METRICS = st.none() | st.floats() | st.sampled_from([0.1, 0.2])
CANDIDATES = st.lists(
    st.builds(
        lambda trial, steps, metric, at: (trial, steps, metric, at),
        st.integers(1, 3),
        st.integers(0, 5),
        METRICS,
        st.integers(0, 3),
    ),
    max_size=12,
).map(
    lambda rows: [
        Candidate(f"u{i}", t, s, m, at, START + datetime.timedelta(seconds=at)) for i, (t, s, m, at) in enumerate(rows)
    ]
)


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(CANDIDATES, NUMBERS, NUMBERS, NUMBERS, st.booleans(), st.randoms(use_true_random=False))
def test_what_holds_always(found, best, trial_best, latest, smaller, random) -> None:  # type: ignore[no-untyped-def]
    """4.9: kept is the union of the three parts, in any order of rows; more is kept when more is asked for; what is
    best or newest of a trial is kept; at least as many as asked for are kept while there are enough."""
    policy = Policy(best, trial_best, latest)
    kept = to_keep(found, policy, smaller)
    shuffled = random.sample(found, len(found))
    assert to_keep(shuffled, policy, smaller) == kept
    parts = [Policy(best, 0, 0), Policy(0, trial_best, 0), Policy(0, 0, latest)]
    assert kept == set().union(*(to_keep(found, part, smaller) for part in parts))
    assert kept <= to_keep(found, Policy(best + 1, trial_best + 1, latest + 1), smaller)
    assert kept <= {candidate.uuid for candidate in found}
    validated = [candidate for candidate in found if candidate.metric is not None]
    assert len(to_keep(found, Policy(best, 0, 0), smaller)) == min(best, len(validated))
    for trial in {candidate.trial_id for candidate in found}:
        own = [candidate for candidate in found if candidate.trial_id == trial]
        assert len(to_keep(own, Policy(0, 0, latest), smaller)) == min(latest, len(own))
        furthest = max(own, key=lambda candidate: (candidate.steps, candidate.saved_at, candidate.uuid))
        assert not latest or furthest.uuid in kept
