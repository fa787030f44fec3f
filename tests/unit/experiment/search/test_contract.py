"""Every search method keeps the contract of `tests/contracts/search_method.py`."""

from __future__ import annotations

from typing import Any

from determined.experiment.search import base
from tests.contracts.search_method import SearchMethodContract
from tests.searches import adaptive, asha, config

HALVING = {"num_rungs": 3, "divisor": 2, "max_time": 8, "max_trials": 9, "max_concurrent_trials": 3}


class TestSingle(SearchMethodContract):
    section = config("single")
    planned = 1
    replaces_invalid = False
    at_once = 1


class TestRandom(SearchMethodContract):
    section = config("random", max_trials=9, max_concurrent_trials=3)
    at_once = 3


class TestGrid(SearchMethodContract):
    section = config("grid", max_concurrent_trials=2)
    replaces_invalid = False
    at_once = 2


class TestStopping(SearchMethodContract):
    section = asha(**HALVING)
    at_once = 3
    ranks = True


class TestStoppingWithoutLimit(SearchMethodContract):
    section = asha(**{**HALVING, "max_concurrent_trials": 0, "divisor": 1.5})
    ranks = True


class TestPromotion(SearchMethodContract):
    section = asha(**HALVING, form="promotion")
    at_once = 3
    ranks = True


class TestAdaptive(SearchMethodContract):
    section = adaptive(9, 8, divisor=2, max_concurrent_trials=4, mode="conservative")
    at_once = 4
    ranks = True


class TestAdaptivePromotion(SearchMethodContract):
    section = adaptive(9, 8, divisor=2, max_concurrent_trials=4, form="promotion")
    at_once = 4
    ranks = True


class TestOptuna(SearchMethodContract):
    section = config("optuna", sampler="RandomSampler", max_trials=9, max_concurrent_trials=3)
    at_once = 3


class TestOptunaWithStopping(SearchMethodContract):
    section = config("optuna", sampler="RandomSampler", time_metric="batches", **HALVING)
    at_once = 3
    ranks = True


class Two(base.SearchMethod):
    """A method of a user's own: nine trials, two at once."""

    created = 0

    def initial_trials(self, ctx: base.SearchContext) -> list[base.Action]:
        self.created = 2
        return [ctx.create(), ctx.create()]

    def trial_exited(self, ctx: base.SearchContext, request_id: str) -> list[base.Action]:
        self.created += 1
        return [ctx.create()] if self.created <= 9 else []

    def snapshot(self) -> dict[str, Any]:
        return {"created": self.created}

    def restore(self, state: Any) -> None:
        self.created = state["created"]


class TestCustom(SearchMethodContract):
    section = config("custom")
    replaces_invalid = False
    at_once = 2
    bars_never_fall = False

    def method(self) -> base.SearchMethod:
        return Two()
