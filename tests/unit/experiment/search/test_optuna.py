"""Optuna's samplers as a search: they propose, we decide who runs; the same again after a restart."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

from determined import errors
from determined.experiment.search.base import Create, ExitedReason, Shutdown, Stop, ValidationCompleted
from determined.experiment.search.optuna import Study
from tests.searches import Player, config, reloaded, report, space

SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "net": {"layers": {"type": "int", "minval": 1, "maxval": 9}, "width": 64, "none": {}},
    "act": {"type": "categorical", "vals": [["relu"], {"leaky": 0.1}, None]},
    "x": {"type": "double", "minval": 0, "maxval": 1},
}


def section(**fields: Any) -> dict[str, Any]:
    return config("optuna", **{"max_trials": 16, "max_concurrent_trials": 2, **fields})


def loss_of(trial: Create) -> float:
    return float((trial.hparams["x"] - 0.3) ** 2)  # type: ignore[operator]


def play(player: Player, restart: bool = False, times: tuple[int, ...] = (1, 4)) -> Player:
    number = 0
    while player.live:
        trial = player.trials[number]
        number += 1
        for time in times:
            actions = player.do(report(trial.request_id, loss_of(trial) + 1 / time, time))
            if restart:
                player.searcher = reloaded(player.searcher, player.section, player.space)
            if Stop(trial.request_id) in actions:
                break
        player.exits(trial.request_id)
    return player


SAMPLERS: list[tuple[str, dict[str, Any]]] = [
    ("TPESampler", {"n_startup_trials": 3}),
    ("TPESampler", {"n_startup_trials": 3, "multivariate": True, "constant_liar": True}),
    ("RandomSampler", {}),
    ("NSGAIISampler", {"population_size": 4}),
    ("QMCSampler", {}),
    ("BruteForceSampler", {}),
]


@pytest.mark.parametrize(("sampler", "arguments"), SAMPLERS)
@pytest.mark.parametrize("stopping", [{}, {"num_rungs": 2, "time_metric": "batches", "max_time": 4, "divisor": 2}])
def test_a_restart_changes_nothing(sampler: str, arguments: dict[str, Any], stopping: dict[str, Any]) -> None:
    """Issue 7: seeded and resumable: cut after every validation, with and without ASHA, gives the same trials."""
    declared = {**SPACE, "x": {"type": "int", "minval": 0, "maxval": 3}} if sampler == "BruteForceSampler" else SPACE
    declared = {name: d for name, d in declared.items() if sampler != "BruteForceSampler" or name != "lr"}
    fields = section(sampler=sampler, sampler_args=arguments, max_trials=10, **stopping)
    unbroken = play(Player(fields, space(declared), seed=5).start())
    player = play(Player(fields, space(declared), seed=5).start(), restart=True)
    assert player.actions == unbroken.actions
    assert len(player.trials) == 10
    assert player.end == Shutdown()


def test_a_sampler_that_has_proposed_everything_goes_on() -> None:
    """max_trials decides how many trials there are, also when a grid-like sampler would like to end."""
    fields = section(sampler="BruteForceSampler", max_trials=5)
    player = play(Player(fields, space({"x": {"type": "int", "minval": 0, "maxval": 1}})).start())
    assert len(player.trials) == 5
    assert player.end == Shutdown()


def test_proposals_have_the_shape_of_the_space() -> None:
    """2.1: plain values in the same nesting; each within its range; constants included."""
    player = play(Player(section(), space(SPACE)).start())
    for trial in player.trials:
        hparams: Any = trial.hparams
        assert hparams.keys() == SPACE.keys()
        assert hparams["net"] == {"layers": hparams["net"]["layers"], "width": 64, "none": {}}
        assert isinstance(hparams["net"]["layers"], int)
        assert 1e-4 <= hparams["lr"] <= 1e-1
        assert hparams["act"] in SPACE["act"]["vals"]  # type: ignore[operator]


def test_the_sampler_learns() -> None:
    """TPE is told what came of its proposals: later ones are nearer to the best, in either direction."""
    for smaller in (True, False):
        fields = section(max_trials=40, smaller_is_better=smaller, max_concurrent_trials=1)
        player = Player(fields, space({"x": SPACE["x"]})).start()
        while player.live:
            trial = player.trials[-1]
            player.do(report(trial.request_id, loss_of(trial) * (1 if smaller else -1)))
            player.exits(trial.request_id)
        losses = [loss_of(trial) for trial in player.trials]
        assert sum(losses[-15:]) / 15 < sum(losses[:10]) / 10 / 3


def test_the_seed_decides() -> None:
    """P-24: the same seed gives the same trials, another one others; `sampler_args.seed` is the user's choice."""
    one, same, other = (play(Player(section(), space(SPACE), seed).start()) for seed in (1, 1, 2))
    assert one.trials == same.trials
    assert [trial.hparams for trial in one.trials] != [trial.hparams for trial in other.trials]
    fixed = [play(Player(section(sampler_args={"seed": 3}), space(SPACE), seed).start()) for seed in (1, 2)]
    assert fixed[0].trials[0].hparams == fixed[1].trials[0].hparams


def test_what_the_sampler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped early is PRUNED with the last value, the top rung COMPLETE with the best, failed or NaN FAIL; once."""
    told: list[tuple[Any, ...]] = []
    tell = Study.tell
    monkeypatch.setattr(Study, "tell", lambda self, *args: (told.append(args), tell(self, *args)))
    stopping = {"num_rungs": 2, "time_metric": "batches", "max_time": 4, "divisor": 4, "max_concurrent_trials": 4}
    player = Player(section(**stopping, max_trials=4), space({"x": SPACE["x"]})).start()
    player.do(report(player[1], 0.5, 1))
    player.do(report(player[1], 0.7, 4))
    player.do(report(player[2], 0.6, 1))
    player.do(report(player[3], math.nan, 1))
    player.exits(player[4], ExitedReason.ERRORED)
    assert told == [(0, "COMPLETE", 0.5), (1, "PRUNED", 0.6, 1), (2, "FAIL"), (3, "FAIL")]
    for number in (1, 2, 3):
        player.exits(player[number])
    assert len(told) == 4


def test_a_pruned_trial_is_told_before_its_replacement_is_asked_for() -> None:
    """The sampler proposes with everything that is known."""
    stopping = {"num_rungs": 2, "time_metric": "batches", "max_time": 4, "divisor": 4}
    player = Player(section(**stopping), space({"x": SPACE["x"]})).start()
    player.do(report(player[1], 0.5, 1))
    player.do(report(player[2], 0.6, 1))
    log = player.searcher.snapshot()["method"]["study"]["log"]
    assert log == [[], [], [1, "PRUNED", 0.6, 1], []]


def test_invalid_trials_are_proposed_anew() -> None:
    """3.9: as in random search, a trial with invalid hyperparameters is replaced and does not count."""
    player = Player(section(max_trials=3), space(SPACE)).start()
    player.exits(player[1], ExitedReason.INVALID_HP)
    play_rest = [player.exits(request_id) for request_id in list(player.live)]
    while player.live:
        play_rest.append(player.exits(player.live[0]))
    assert len(player.trials) == 4


def test_a_trial_without_the_metric_failed() -> None:
    """D13: it counts, and the sampler hears of a failure."""
    player = Player(section(max_trials=2), space(SPACE)).start()
    player.do(ValidationCompleted(player[1], {"other": 1.0}, 1))
    player.exits(player[1])
    assert player.searcher.snapshot()["method"]["study"]["log"][-1] == [0, "FAIL", None, None]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sampler": "Nope"}, "TPESampler"),
        ({"sampler": "BaseSampler"}, "TPESampler"),
        ({"sampler": "TPESampler", "sampler_args": {"speed": 3}}, "speed"),
    ],
)
def test_mistakes_say_what_to_type(fields: dict[str, Any], words: str) -> None:
    """An unknown sampler is answered with those there are; an unknown argument with its name."""
    with pytest.raises(errors.SearchError, match=words):
        Player(section(**fields), space(SPACE)).start()


def test_without_optuna_the_command_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision 8: an optional package that is not there fails with what to type."""
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(errors.MissingPackage, match=r"pip install 'resolute\[optuna\]'"):
        Player(section(), space(SPACE)).start()


def test_optuna_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    """The library logs, the command line prints: nothing on stderr, and Optuna's own level is as before."""
    import optuna

    before = optuna.logging.get_verbosity()
    Player(section(), space(SPACE)).start()
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == before
