"""Which run was best: by what the runs look at, or by any metric."""

from __future__ import annotations

import math

import pytest

from determined import client, errors
from determined.client import Determined
from tests.history import History


def test_the_best_comes_first_whichever_way_is_better(history: History, runs: Determined) -> None:
    """Where larger is better, the largest comes first; runs without a value, or with a NaN, come last."""
    ids = [
        history.run(validation={1: value} if value is not None else {}, smaller_is_better=False).experiment_id
        for value in (0.1, 0.9, None, 0.5)
    ]
    assert [e.id for e in client.rank(runs.list_experiments())] == [ids[1], ids[3], ids[0], ids[2]]


def test_any_metric_can_be_ranked_by(history: History, runs: Determined) -> None:
    """By a metric of one's own, smaller is better unless a run has said otherwise, or the caller does."""
    a = history.run(metric="acc", smaller_is_better=False, validation={1: {"acc": 0.5, "loss": 2.0}}).experiment_id
    b = history.run(metric=None, validation={1: {"acc": 0.9, "loss": 3.0}, 2: {"acc": 0.1}}).experiment_id
    found = runs.list_experiments()
    assert [e.id for e in client.rank(found, "acc")] == [b, a]
    assert client.best_values(found, "acc") == {b: 0.9, a: 0.5}
    assert [e.id for e in client.rank(found, "acc", smaller_is_better=True)] == [b, a]
    assert client.best_values(found, "acc", smaller_is_better=True) == {b: 0.1, a: 0.5}
    assert [e.id for e in client.rank(found, "validation.loss")] == [a, b]
    assert client.best_values(found, "loss") == {a: 2.0, b: 3.0}


def test_ranking_changes_no_experiment(history: History, runs: Determined) -> None:
    """Ranking by another metric returns the same objects, which still say what they look at and how good they are."""
    history.run(metric="acc", smaller_is_better=False, validation={1: {"acc": 0.5, "loss": 2.0}})
    history.run(metric="acc", smaller_is_better=False, validation={1: {"acc": 0.7, "loss": 1.0}})
    found = runs.list_experiments()
    ranked = client.rank(found, "loss")
    assert [id(e) for e in ranked] == [id(e) for e in reversed(found)]
    assert [(e.searcher_metric, e.best_metric) for e in ranked] == [("acc", 0.7), ("acc", 0.5)]


def test_a_metric_that_nobody_reported_is_said(history: History, runs: Determined) -> None:
    """The nearest names are in the message; ranking nothing is no error."""
    history.run(validation={1: {"accuracy": math.nan}})
    with pytest.raises(errors.NotFound, match="Did you mean 'accuracy'"):
        client.rank(runs.list_experiments(), "acc")
    assert client.rank([], "acc") == []
