"""single, random and grid: they count trials and do not look at metrics."""

from __future__ import annotations

import pytest

from determined.experiment.search.base import Create, ExitedReason, Shutdown, TrialProgress, creates
from tests.searches import Player, config, report, shape, space

GRID = {"a": {"type": "int", "minval": 0, "maxval": 3, "count": 4}}


def random(max_trials: int, concurrent: int, seed: int = 0) -> Player:
    section = config("random", max_trials=max_trials, max_concurrent_trials=concurrent)
    return Player(section, seed=seed).start()


class TestSingle:
    def test_one_trial(self) -> None:
        """3.3: exactly one trial; then the search is over."""
        player = Player(config("single"), space({"lr": 0.1})).start()
        assert [trial.hparams for trial in player.trials] == [{"lr": 0.1}]
        assert player.searcher.warnings == []
        assert player.exits(player[1]) == [Shutdown()]

    def test_ranges_are_drawn_once_with_a_warning(self) -> None:
        """2.2: `single` with non-constant parameters: sample once and warn."""
        player = Player(config("single")).start()
        assert len(player.searcher.warnings) == 1
        assert "single" in player.searcher.warnings[0]

    @pytest.mark.parametrize(
        ("reason", "end"),
        [
            (ExitedReason.ERRORED, Shutdown(failure=True)),
            (ExitedReason.USER_CANCELED, Shutdown(cancel=True)),
            (ExitedReason.INVALID_HP, Shutdown()),
        ],
    )
    def test_early_exits(self, reason: ExitedReason, end: Shutdown) -> None:
        """3.9: ERRORED ends the experiment in ERROR, USER_CANCELED in CANCELED, INVALID_HP without replacement."""
        player = Player(config("single"), space({})).start()
        assert player.exits(player[1], reason) == [end]

    def test_progress_is_the_trials(self) -> None:
        """3.8: what the trial last reported; exactly 1 when done."""
        player = Player(config("single"), space({})).start()
        player.do(TrialProgress(player[1], 0.25))
        assert player.searcher.progress() == 0.25
        player.do(TrialProgress(player[1], float("nan")))
        assert player.searcher.progress() == 0.25
        player.exits(player[1])
        assert player.searcher.progress() == 1.0


class TestRandom:
    def test_vectors(self) -> None:
        """P-23: the searcher draws hyperparameters, request id and trial seed, in this order."""
        declared = {
            "batch": {"type": "categorical", "vals": [16, 32, 64]},
            "dropout": {"type": "double", "minval": 0.2, "maxval": 0.5},
            "global_batch_size": 64,
            "layers": {"type": "int", "minval": 1, "maxval": 3},
            "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
        }
        player = Player(config("random", max_trials=3), space(declared)).start()
        assert player.trials[2] == Create(
            "48985f56-091b-4e16-9497-eea573082d05",
            {
                "batch": 64,
                "dropout": 0.3704133683281797,
                "global_batch_size": 64,
                "layers": 2,
                "lr": 0.03222821784787407,
            },
            1581585360,
        )

    def test_a_limit_holds(self) -> None:
        """P-34: Given random max_trials 4, concurrency 2, then never more than 2 non-terminal trials and 4 in total."""
        player = random(4, 2)
        assert len(player.live) == 2
        while player.live:
            player.exits(player.live[0])
            assert len(player.live) <= 2
        assert len(player.trials) == 4
        assert player.end == Shutdown()

    def test_no_limit(self) -> None:
        """P-35: Given random concurrency 0 and 4 trials, then 4 created at once."""
        assert len(random(4, 0).trials) == 4

    def test_invalid_trials_are_replaced(self) -> None:
        """P-37: Given random max_trials 3 where the first trial raises InvalidHP, then 4 trials exist and 3 trained."""
        player = random(3, 1)
        player.exits(player[1], ExitedReason.INVALID_HP)
        assert player.searcher.progress() == 0
        while player.live:
            player.exits(player.live[0])
        assert len(player.trials) == 4
        assert player.end == Shutdown()

    @pytest.mark.parametrize("reason", [ExitedReason.ERRORED, ExitedReason.USER_CANCELED])
    def test_failed_trials_count(self, reason: ExitedReason) -> None:
        """3.9: a trial that fails, or is killed, counts; the next one runs."""
        player = random(3, 1)
        player.exits(player[1], reason)
        while player.live:
            player.exits(player.live[0])
        assert len(player.trials) == 3
        assert player.end == Shutdown()

    def test_metrics_change_nothing(self) -> None:
        """3.3: metrics are not used; a report without the metric is no reason for a warning."""
        player = random(3, 1)
        assert player.do(report(player[1], 1.0)) == []
        assert player.do(report(player[1], None)) == []
        assert player.searcher.warnings == []
        assert shape(player.exits(player[1])) == ["Create"]

    def test_progress_is_over_planned_trials(self) -> None:
        """P-46, D15: given 1 of 4 random trials done and others at 0, then 0.25; finished is exactly 1."""
        player = random(4, 2)
        player.exits(player[1])
        assert player.searcher.progress() == 0.25
        player.do(TrialProgress(player[2], 0.5))
        assert player.searcher.progress() == 0.375
        while player.live:
            player.exits(player.live[0])
        assert player.searcher.progress() == 1.0

    @pytest.mark.parametrize(
        ("reasons", "end"),
        [
            ([ExitedReason.ERRORED] * 3, Shutdown(failure=True)),
            ([ExitedReason.USER_CANCELED] * 3, Shutdown(cancel=True)),
            ([ExitedReason.USER_CANCELED, ExitedReason.ERRORED, ExitedReason.USER_CANCELED], Shutdown(failure=True)),
            ([ExitedReason.ERRORED, None, ExitedReason.ERRORED], Shutdown()),
        ],
    )
    def test_verdicts(self, reasons: list[ExitedReason | None], end: Shutdown) -> None:
        """P-40, D10: all failing ERROR; all killed CANCELED; one completed COMPLETED; failed and killed ERROR."""
        player = random(3, 3)
        for number, reason in enumerate(reasons, 1):
            player.exits(player[number], reason)
        assert player.end == end


class TestGrid:
    def test_from_the_last_point_backwards(self) -> None:
        """P-36: Given grid a int 0..3 count 4, concurrency 2, then a = 3, 2 first, then 1, 0."""
        player = Player(config("grid", max_concurrent_trials=2), space(GRID)).start()
        assert [trial.hparams["a"] for trial in player.trials] == [3, 2]
        while player.live:
            player.exits(player.live[0])
        assert [trial.hparams["a"] for trial in player.trials] == [3, 2, 1, 0]
        assert player.end == Shutdown()

    def test_no_limit(self) -> None:
        """3.4: a grid whose concurrency is not limited (0) starts all of its trials."""
        player = Player(config("grid", max_concurrent_trials=0), space(GRID)).start()
        assert [trial.hparams["a"] for trial in player.trials] == [3, 2, 1, 0]

    @pytest.mark.parametrize("reason", list(ExitedReason))
    def test_a_point_is_tried_once(self, reason: ExitedReason) -> None:
        """P-39, 3.9: a point that fails counts as its point; the others still run, and the search completes."""
        player = Player(config("grid", max_concurrent_trials=1), space(GRID)).start()
        assert len(creates(player.exits(player[1], reason))) == 1
        while player.live:
            player.exits(player.live[0])
        assert [trial.hparams["a"] for trial in player.trials] == [3, 2, 1, 0]
        assert player.end == Shutdown()

    def test_progress_leaves_out_invalid_points(self) -> None:
        """3.8: over planned trials, invalid-HP trials excluded: 1 of the 3 others is done."""
        player = Player(config("grid", max_concurrent_trials=1), space(GRID)).start()
        player.exits(player[1], ExitedReason.INVALID_HP)
        player.exits(player[2])
        assert player.searcher.progress() == pytest.approx(1 / 3)

    def test_a_huge_grid_starts_at_once(self) -> None:
        """A grid of 10^30 points starts like any other: no point exists before its trial."""
        axes = {f"x{i}": {"type": "double", "minval": 0, "maxval": 1, "count": 1000} for i in range(10)}
        player = Player(config("grid", max_concurrent_trials=2), space(axes)).start()
        assert player.trials[0].hparams == dict.fromkeys(axes, 1.0)
