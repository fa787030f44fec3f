"""States, moves and verdicts: the tables of the contract, written out."""

from __future__ import annotations

import itertools

import pytest

from determined import errors
from determined.experiment import lifecycle
from determined.experiment.lifecycle import Exit, State, judge
from determined.experiment.search.base import ExitedReason

S = State
# platform 4.1, as it stands there.
LEGAL = {
    S.PAUSED: "ACTIVE STOPPING_COMPLETED STOPPING_CANCELED STOPPING_KILLED STOPPING_ERROR ERROR",
    S.ACTIVE: "PAUSED STOPPING_COMPLETED STOPPING_CANCELED STOPPING_KILLED STOPPING_ERROR ERROR",
    S.STOPPING_COMPLETED: "COMPLETED STOPPING_KILLED STOPPING_ERROR ERROR",
    S.STOPPING_CANCELED: "CANCELED STOPPING_KILLED STOPPING_ERROR ERROR",
    S.STOPPING_KILLED: "CANCELED STOPPING_ERROR ERROR",
    S.STOPPING_ERROR: "ERROR",
    S.COMPLETED: "DELETING",
    S.CANCELED: "DELETING",
    S.ERROR: "DELETING",
    S.DELETING: "DELETED DELETE_FAILED",
    S.DELETE_FAILED: "DELETING",
    S.DELETED: "",
}


@pytest.mark.parametrize(("state", "to"), list(itertools.product(LEGAL, LEGAL)))
def test_an_experiment_moves_only_as_the_table_says(state: State, to: State) -> None:
    """4.1: the table, and a request for the current state is a silent success; else the message names the state."""
    if state is to:
        assert lifecycle.move("Experiment 3", state, to) is False
    elif to.value in LEGAL[state].split():
        assert lifecycle.move("Experiment 3", state, to) is True
    else:
        with pytest.raises(errors.IllegalMove, match=f"Experiment 3 is {state.value}, so it cannot become {to.value}"):
            lifecycle.move("Experiment 3", state, to)


def test_a_stopping_trial_only_becomes_more_severe() -> None:
    """4.1: COMPLETED < CANCELED < KILLED < ERROR."""
    order = [S.STOPPING_COMPLETED, S.STOPPING_CANCELED, S.STOPPING_KILLED, S.STOPPING_ERROR]
    for earlier, later in itertools.combinations(order, 2):
        assert lifecycle.move("Trial 1", earlier, later, lifecycle.TRIAL_MOVES)
        with pytest.raises(errors.IllegalMove):
            lifecycle.move("Trial 1", later, earlier, lifecycle.TRIAL_MOVES)


class TestVerdicts:
    """4.5, row by row."""

    @pytest.mark.parametrize(
        "exit", [Exit(0), Exit(-9, killed=True), Exit(1, acknowledged=True), Exit(None, lost=True)]
    )
    @pytest.mark.parametrize(
        ("state", "end", "early"),
        [
            (S.STOPPING_COMPLETED, S.COMPLETED, None),
            (S.STOPPING_CANCELED, S.CANCELED, ExitedReason.USER_CANCELED),
            (S.STOPPING_KILLED, S.CANCELED, ExitedReason.USER_CANCELED),
            (S.STOPPING_ERROR, S.ERROR, ExitedReason.ERRORED),
        ],
    )
    def test_row_1_what_stops_ends_as_meant(self, exit: Exit, state: State, end: State, early: ExitedReason) -> None:
        """Row 1; a machine that goes away under a stopping trial ends it too."""
        verdict = judge(exit, state, restarts=2, max_restarts=5)
        assert (verdict.state, verdict.early, verdict.restarts) == (end, early, 2)

    def test_row_2_a_failure_of_its_own_while_stopping(self) -> None:
        """A trial that fails by itself while it is being stopped ends in ERROR, with its exit code."""
        verdict = judge(Exit(3), S.STOPPING_COMPLETED, restarts=0, max_restarts=5)
        assert (verdict.state, verdict.early) == (S.ERROR, ExitedReason.ERRORED)
        assert "exit code 3" in verdict.reason

    @pytest.mark.parametrize("state", [S.ACTIVE, S.PAUSED])
    @pytest.mark.parametrize("exit", [Exit(None, lost=True), Exit(7, acknowledged=True), Exit(-9, killed=True)])
    def test_rows_3_to_5_are_not_charged(self, exit: Exit, state: State) -> None:
        """Rows 3, 4, 5: the trial is not finished, and no restart is charged, even with none left."""
        verdict = judge(exit, state, restarts=0, max_restarts=0)
        assert (verdict.state, verdict.restarts) == (None, 0)

    def test_row_6_a_policy_forbids_another_try(self) -> None:
        """P-48: restarts stay 0, and the reason names what matched."""
        line = "log line 'CUDA out of memory' matches 'CUDA OOM'"
        verdict = judge(Exit(1, matched_policy=line), S.ACTIVE, restarts=0, max_restarts=5)
        assert (verdict.state, verdict.restarts) == (S.ERROR, 0)
        assert line in verdict.reason

    def test_row_7_failures_are_counted(self) -> None:
        """P-47: with max_restarts 2 a script that always fails is launched three times, and shows 2 restarts."""
        restarts, launches = 0, 0
        while True:
            launches += 1
            verdict = judge(Exit(1), S.ACTIVE, restarts=restarts, max_restarts=2)
            restarts = verdict.restarts
            if verdict.state is not None:
                break
        assert (launches, verdict.state, verdict.early) == (3, S.ERROR, ExitedReason.ERRORED)
        assert restarts == lifecycle.shown_restarts(restarts, 2) == 2

    @pytest.mark.parametrize("exit", [Exit(0), Exit(-9, killed=True)])
    def test_row_8_invalid_hyperparameters(self, exit: Exit) -> None:
        """Row 8, also for a trial that had to be killed after its ten seconds."""
        verdict = judge(exit, S.ACTIVE, restarts=0, max_restarts=5, is_invalid=True)
        assert (verdict.state, verdict.early) == (S.COMPLETED, ExitedReason.INVALID_HP)

    @pytest.mark.parametrize("state", [S.ACTIVE, S.PAUSED])
    def test_row_9_a_clean_end(self, state: State) -> None:
        """P-51: a script that ignores the pause and finishes is complete."""
        verdict = judge(Exit(0), state, restarts=1, max_restarts=1)
        assert (verdict.state, verdict.early, verdict.restarts) == (S.COMPLETED, None, 1)


@pytest.mark.parametrize(
    ("ends", "result"),
    [
        ("ERROR ERROR", S.ERROR),
        ("CANCELED CANCELED", S.CANCELED),
        ("ERROR COMPLETED ERROR", S.COMPLETED),
        ("ERROR CANCELED", S.ERROR),
        ("CANCELED COMPLETED", S.COMPLETED),
        ("", S.COMPLETED),
    ],
)
def test_what_an_experiment_comes_to(ends: str, result: State) -> None:
    """P-40, D10: one completed trial is enough; else a failed one decides."""
    assert lifecycle.result_of(State(end) for end in ends.split()) is result


def test_an_unmanaged_experiment_is_what_its_trials_are() -> None:
    """4.13: PAUSED < ERROR < COMPLETED < RUNNING."""
    order = [S.PAUSED, S.ERROR, S.COMPLETED, S.RUNNING]
    for less, more in itertools.combinations(order, 2):
        assert lifecycle.state_of_unmanaged([less, more, less]) is more
    assert lifecycle.state_of_unmanaged([]) is S.PAUSED


def test_what_people_see_of_an_active_experiment() -> None:
    """4.1: the most advanced of its allocations, QUEUED if there is none."""
    assert lifecycle.shown_state(S.ACTIVE, []) == "QUEUED"
    assert lifecycle.shown_state(S.ACTIVE, ["PENDING", "ASSIGNED"]) == "STARTING"
    assert lifecycle.shown_state(S.ACTIVE, ["ASSIGNED", "RUNNING"]) == "RUNNING"
    assert lifecycle.shown_state(S.PAUSED, ["RUNNING"]) == "PAUSED"
