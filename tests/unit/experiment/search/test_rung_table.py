"""The rung table of a halving search, and the place of each of its trials."""

from __future__ import annotations

import math

from determined.experiment.search.base import ExitedReason
from determined.experiment.search.rung_table import RungRow, place_of, rung_table
from tests.searches import Player, adaptive, asha, config, reloaded, report


def shown(player: Player) -> list[tuple[int, int, int, int, float | None]]:
    return [(r.units, r.arrived, r.passed, r.stopped, r.best) for r in rung_table(player.searcher.method)]


def test_the_table_of_the_trace() -> None:
    """3.5: after the trace, each rung says who arrived, who went on, who ended there, and the best value."""
    player = Player(asha(num_rungs=3, max_time=16, max_trials=8, max_concurrent_trials=4)).start()
    trace = [(1, 1, 0.5), (2, 1, 0.6), (3, 1, 0.4), (4, 4, 0.45), (5, 4, 0.3), (1, 4, 0.44), (3, 4, 0.38)]
    for number, time, loss in trace:
        player.do(report(player[number], loss, time))
    assert shown(player) == [(1, 5, 3, 2, 0.3), (4, 3, 1, 2, 0.3), (16, 0, 0, 0, None)]
    assert str(place_of(player.searcher.method, player[5])) == "2/3"
    assert str(place_of(player.searcher.method, player[2])) == "1/3"
    assert str(place_of(player.searcher.method, player[6])) == "0/3"
    player.exits(player[6], ExitedReason.ERRORED)
    assert place_of(player.searcher.method, player[6]) is None
    assert shown(player)[0] == (1, 6, 3, 3, 0.3), "a trial that failed on its way to a rung ended there"
    player.do(report(player[5], 0.25, 16))
    assert shown(player)[2] == (16, 1, 0, 1, 0.25), "at the top, everybody ends"


def test_what_an_invalid_trial_passed_is_forgotten() -> None:
    """3.9: all values of a trial that raises InvalidHP are removed, so it passed nothing either."""
    player = Player(asha(num_rungs=3, max_time=16, max_trials=8, max_concurrent_trials=4)).start()
    player.do(report(player[1], 0.5, 4))
    assert [row[1:4] for row in shown(player)] == [(1, 1, 0), (1, 1, 0), (0, 0, 0)]
    player.exits(player[1], ExitedReason.INVALID_HP)
    assert [row[1:4] for row in shown(player)] == [(0, 0, 0)] * 3


def test_larger_is_better_has_its_own_sign() -> None:
    """The best value is one that was reported, also where larger is better; NaN arrives, and is no best."""
    player = Player(asha(num_rungs=2, max_time=4, max_trials=4, smaller_is_better=False)).start()
    player.do(report(player[1], math.nan, 1))
    assert shown(player)[0] == (1, 1, 1, 0, None)
    player.do(report(player[2], 0.9, 1))
    assert shown(player)[0][-1] == 0.9


def test_each_bracket_has_its_rungs() -> None:
    """3.6: an adaptive search lists its brackets, the longest first, and knows in which one a trial climbs."""
    player = Player(adaptive(16, 937)).start()
    rows = rung_table(player.searcher.method)
    assert [(r.bracket, r.rung, r.units) for r in rows] == [
        (1, 1, 58),
        (1, 2, 234),
        (1, 3, 937),
        (2, 1, 234),
        (2, 2, 937),
    ]
    assert str(place_of(player.searcher.method, player[1])) == "0/3"
    assert str(place_of(player.searcher.method, player[-1])) == "0/2"


def test_paused_trials_wait_at_their_rung() -> None:
    """In a search that promotes, those who may still go on are neither stopped nor passed."""
    player = Player(asha(num_rungs=2, max_time=4, divisor=2, max_trials=4, max_concurrent_trials=2, form="promotion"))
    player.start()
    for number, loss in ((1, 0.5), (2, 0.4)):
        player.do(report(player[number], loss, 2))
    [first, _] = rung_table(player.searcher.method)
    assert (first.arrived, first.passed, first.waiting, first.stopped) == (2, 1, 1, 0)


def test_other_searches_have_no_rungs() -> None:
    """A random search has neither rungs nor places."""
    player = Player(config("random", max_trials=2)).start()
    assert rung_table(player.searcher.method) == []
    assert place_of(player.searcher.method, player[1]) is None


def test_a_table_survives_a_restart() -> None:
    """Who went on is part of what is saved with the search."""
    player = Player(asha(num_rungs=3, max_time=16, max_trials=8, max_concurrent_trials=4)).start()
    player.do(report(player[1], 0.5, 4))
    again = reloaded(player.searcher, player.section, player.space)
    assert rung_table(again.method) == rung_table(player.searcher.method)
    assert rung_table(again.method)[0] == RungRow(1, 1, 1, "batches", 1, 1, 0, 0.5)
