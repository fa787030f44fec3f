"""The rung table of a halving search, and the place of each of its trials."""

from __future__ import annotations

import math
import random

import pytest

from determined.experiment.search.base import ExitedReason
from determined.experiment.search.rung_table import RungRow, place_of, rung_table, trials_at_rungs
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


def there(player: Player) -> dict[tuple[int, int], list[tuple[str, float | None, bool, bool]]]:
    found = trials_at_rungs(player.searcher.method)
    return {
        key: [(trial.request_id, trial.value, trial.is_stopped_here, trial.is_waiting) for trial in trials]
        for key, trials in found.items()
    }


def test_who_is_at_each_rung() -> None:
    """8.2: each trial with its value at every rung it came to, the best first; it ended at the last, or went on."""
    player = Player(asha(num_rungs=3, max_time=16, max_trials=8, max_concurrent_trials=4)).start()
    for number, time, loss in [(1, 1, 0.5), (2, 1, 0.6), (3, 1, 0.4), (4, 1, math.nan), (1, 4, 0.45)]:
        player.do(report(player[number], loss, time))
    one, two, three, four = (player[number] for number in range(1, 5))
    expected = {
        (1, 1): [
            (three, 0.4, False, False),
            (one, 0.5, False, False),
            (two, 0.6, True, False),
            (four, None, True, False),
        ],
        (1, 2): [(one, 0.45, False, False)],
    }
    assert there(player) == expected
    player.exits(two)
    assert there(player) == expected, "a trial that has exited is still known"
    player.exits(three, ExitedReason.ERRORED)
    assert there(player)[1, 2] == [(one, 0.45, False, False), (three, None, True, False)], "it failed on its way there"
    player.exits(one, ExitedReason.INVALID_HP)
    assert [trial[0] for trial in there(player)[1, 1]] == [three, two, four]


def test_who_waits_at_a_rung() -> None:
    """8.2: in a search that promotes, who waits is marked so, and is stopped there when nothing is left to do."""
    player = Player(asha(num_rungs=2, max_time=4, divisor=2, max_trials=4, max_concurrent_trials=2, form="promotion"))
    player.start()
    for number, loss in ((1, 0.5), (2, 0.4)):
        player.do(report(player[number], loss, 2))
    assert there(player) == {(1, 1): [(player[2], 0.4, False, False), (player[1], 0.5, False, True)]}
    player.exits(player[1], ExitedReason.USER_CANCELED)
    assert there(player)[1, 1][1] == (player[1], 0.5, True, False)


@pytest.mark.parametrize("form", ["stopping", "promotion"])
@pytest.mark.parametrize("seed", range(5))
def test_trials_and_counts_agree(form: str, seed: int) -> None:
    """8.2: in a search played at random, as many trials are at each rung as the table counts, at every moment."""
    chance = random.Random(seed)
    player = Player(adaptive(24, 64, form=form, smaller_is_better=False)).start()
    clock: dict[str, int] = {}
    while player.live:
        trial = chance.choice(player.unpaused())
        if trial in player.stopped or clock.get(trial, 0) >= 64:
            player.exits(trial)
        else:
            clock[trial] = clock.get(trial, 0) + 4
            player.do(report(trial, chance.random(), clock[trial]))
        found = trials_at_rungs(player.searcher.method)
        for row in rung_table(player.searcher.method):
            here = found.get((row.bracket, row.rung), [])
            counts = (len(here), sum(each.is_stopped_here for each in here), sum(each.is_waiting for each in here))
            assert counts == (row.arrived, row.stopped, row.waiting)
            assert (here[0].value if here else None) == row.best


def test_a_restored_search_knows_who_lives() -> None:
    """Who has exited is no part of a snapshot; who has not, is where it was."""
    player = Player(asha(num_rungs=3, max_time=16, max_trials=8, max_concurrent_trials=4)).start()
    for number, loss in ((1, 0.5), (2, 0.6)):
        player.do(report(player[number], loss, 1))
    player.exits(player[2])
    again = reloaded(player.searcher, player.section, player.space)
    assert [trial.request_id for trial in trials_at_rungs(again.method)[1, 1]] == [player[1]]
