"""Importance of hyperparameters: on functions whose answer is known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.client import Determined
from determined.client._search.importance import Column, estimate, fenced
from tests.history import History


def shares(count: int, names: int, function: Callable[[list[float]], float], noise: float, seed: int) -> list[float]:
    chance = random.Random(seed)
    rows = [[chance.random() for _ in range(names)] for _ in range(count)]
    target = [function(row) + chance.gauss(0, noise) for row in rows]
    return estimate([Column.of([row[i] for row in rows], is_ordered=True) for i in range(names)], target)


@pytest.mark.parametrize("seed", range(5))
def test_what_matters_gets_the_largest_share(seed: int) -> None:
    """Of a bowl over x and a slope over y, x explains most, y a little, and three others nothing."""
    found = shares(64, 5, lambda row: 4 * (row[0] - 0.3) ** 2 + row[1], 0.05, seed)
    assert found[0] > 0.5
    assert max(found[2:]) < 0.1
    assert found[0] > found[1] > max(found[2:])


@pytest.mark.parametrize("seed", range(3))
def test_chance_explains_nothing(seed: int) -> None:
    """Where the value has nothing to do with hyperparameters, none gets a share worth naming."""
    assert sum(shares(100, 6, lambda _: 0.0, 1.0, seed)) < 0.1


def test_a_pair_that_acts_together_shares_the_credit() -> None:
    """Two hyperparameters that matter only together both get a share."""
    found = shares(200, 4, lambda row: float(row[0] > 0.5 and row[1] > 0.5), 0.05, 0)
    assert min(found[:2]) > 0.2
    assert max(found[2:]) < 0.1


def test_a_category_matters_by_its_values_not_by_its_order() -> None:
    """The second of three names is the bad one: names are grouped, whatever place they have."""
    chance = random.Random(0)
    kind = [float(chance.randrange(3)) for _ in range(60)]
    other = [chance.random() for _ in range(60)]
    target = [float(value == 1) + chance.gauss(0, 0.1) for value in kind]
    found = estimate([Column.of(kind, is_ordered=False), Column.of(other, is_ordered=True)], target)
    assert found[0] > 0.8
    assert found[1] < 0.05


def test_a_diverged_trial_is_not_all_the_variance() -> None:
    """A loss of a million is as bad as the worst of the usual ones: what the others say still counts."""
    usual = [i / 40 for i in range(40)]
    assert max(fenced([*usual, 1e6])) < 3
    assert fenced(usual) == usual
    chance = random.Random(1)
    x = [chance.random() for _ in range(60)]
    target = [value + chance.gauss(0, 0.02) for value in x]
    target[7] = 1e6
    assert estimate([Column.of(x, is_ordered=True)], target)[0] > 0.5


def test_the_same_trials_have_the_same_shares() -> None:
    """The trees are grown at random, but always the same ones."""
    first, second = (shares(30, 3, lambda row: row[0], 0.1, 3) for _ in range(2))
    assert first == second


@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats(-1e6, 1e6)), st.integers(0, 3), st.floats(-1e9, 1e9, allow_subnormal=False)
        ),
        max_size=40,
    )
)
@settings(max_examples=60, deadline=None)
def test_shares_are_parts_of_one(rows: list[tuple[float | None, int, float]]) -> None:
    """Whatever the trials, also with hyperparameters that some lack: shares are from 0 to 1, together at most 1."""
    columns = [
        Column.of([row[0] for row in rows], is_ordered=True),
        Column.of([float(row[1]) for row in rows], is_ordered=False),
    ]
    found = estimate(columns, [row[2] for row in rows])
    assert all(0 <= share <= 1 and math.isfinite(share) for share in found)
    assert sum(found) <= 1 + 1e-9


def test_an_experiment_says_which_hyperparameter_matters(history: History, runs: Determined) -> None:
    """`hyperparameter_importance()`: the greatest first; trials without a finite value and constants are left out."""
    chance = random.Random(0)
    config = {"hyperparameters": {"model": {"lr": {"type": "log", "base": 10, "minval": -5, "maxval": -1}}}}
    experiment = history.experiment("search", config=config, unmanaged=False)
    for number in range(40):
        exponent = chance.uniform(-5, -1)
        value = math.nan if number % 10 == 0 else (exponent + 3) ** 2 + chance.gauss(0, 0.1)
        hparams = {"model": {"lr": 10**exponent, "width": 64}, "dropout": chance.random()}
        history.trial(experiment, hparams=hparams, validation={100: value})
    found = runs.get_experiment(experiment).hyperparameter_importance()
    assert list(found.shares) == ["model.lr", "dropout"]
    assert found.shares["model.lr"] > 0.7
    assert found.trials == 36
    assert found.unexplained == pytest.approx(1 - sum(found.shares.values()))
    assert not found.is_uncertain


def test_few_trials_are_uncertain(history: History, runs: Determined) -> None:
    """Shares of a dozen trials come with the remark that they are uncertain."""
    experiment = history.experiment("search", unmanaged=False)
    for number in range(12):
        history.trial(experiment, hparams={"lr": number / 10}, validation={100: number / 10})
    found = runs.get_experiment(experiment).hyperparameter_importance()
    assert found.is_uncertain
    assert found.shares["lr"] > 0.5
