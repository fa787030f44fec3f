"""A rank that hangs, in real processes: soon a line names it with its last call and stack, and so does the error."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from determined.pytorch import Batch
from tests.ddp_trials import elsewhere, fail_at, regress
from tests.forks import Job, Nursery

SOON = {"DET_SLOW_RANK_SECONDS": "4"}
PLACES = {"before forward": "in an exchange of tensors", "in validation": "in allgather(), call "}


def hangs(rank: int, where: str, how: str) -> dict[str, Any]:
    elsewhere()
    return regress(trial={"fails": fail_at(rank, 3, where, how)}, validation_period=Batch(4))


def said_by(output: str) -> str:
    """The first line of the watch, with the stack below it."""
    return output[output.index("keeps rank") :].partition("\nRanks wait")[0]


def start(nursery: Nursery, rank: int, how: str, **env: str) -> dict[str, Job]:
    """A job for each place in which a rank may hang, side by side: they only wait."""
    return {where: nursery.start(2, hangs, [rank, where, how], env={**SOON, **env}) for where in PLACES}


def test_a_rank_that_sleeps_is_named_with_its_stack(nursery: Nursery) -> None:
    """Issue 11, 9: others wait in DDP's backward or in our own call; who sleeps in user code says itself where."""
    for where, job in start(nursery, 1, "sleep").items():
        job.wait_for("s for each other; if this takes longer")
        job.kill()
        output = job.output(0)
        assert f"rank 1 (pid {job.pids[1]} on " in output
        said = said_by(output)
        assert said.startswith(f"keeps rank 0 waiting {PLACES[where]}")
        assert "It last called " in said
        assert "It has trained " in said
        assert "ddp_trials.py" in said.partition("It is at (most recent call first):")[2].splitlines()[1]


def test_a_rank_that_is_stopped_is_named_and_may_go_on(nursery: Nursery) -> None:
    """Issue 11, 9: a stopped process cannot say where it is; others say that, and nothing is broken when it goes on."""
    for job in start(nursery, 1, "stop").values():
        job.wait_for("s for each other; if this takes longer")
        said = said_by(job.output(0))
        assert "It last called " in said
        assert f"Its process is stopped; `kill -CONT {job.pids[1]}` lets it go on." in said
        os.kill(job.pids[1], signal.SIGCONT)
        outcomes = job.wait()
        assert [outcome.exit_code for outcome in outcomes] == [0, 0], outcomes
        assert outcomes[0].returned["digest"] == outcomes[1].returned["digest"]


@pytest.mark.slow
def test_the_error_names_the_rank_too(nursery: Nursery) -> None:
    """Issue 11, 9: after DET_COLLECTIVE_TIMEOUT torch says no more than that it was late; we say who, and where."""
    job = nursery.start(3, hangs, [1, "before forward", "sleep"], env={**SOON, "DET_COLLECTIVE_TIMEOUT": "15"})
    for rank in (0, 2):  # also the one that gives up a moment later, when the other has left
        job.wait_for("determined.errors.CollectiveTimeout: ", rank)
    job.kill()
    for rank in (0, 2):
        text = job.output(rank).partition("determined.errors.CollectiveTimeout: ")[2]
        assert text.startswith(f"Rank {rank} was exchanging tensors, and not every rank came to it within 15 s")
        assert f"Rank 1 (pid {job.pids[1]} on " in text
        assert "last called " in text
        assert "ddp_trials.py" in text.partition("It is at (most recent call first):")[2]


@pytest.mark.slow
def test_a_chief_that_is_stopped_with_the_store(nursery: Nursery) -> None:
    """Issue 11, 9: if the store is in the stopped process, the others say so, and do not wait for ever."""
    for job in start(nursery, 0, "stop", DET_COLLECTIVE_TIMEOUT="15").values():
        job.wait_for("does not answer rank 1 since", rank=1)
        assert f"`kill -CONT {job.pids[0]}` lets it go on." in job.output(1)
        assert "It last called " in job.output(1)
        job.wait_for("determined.errors.CollectiveTimeout: ", rank=1)
        job.kill()
        text = job.output(1).partition("determined.errors.CollectiveTimeout: ")[2]
        assert f"ank 0 (pid {job.pids[0]} on " in text
        assert f"`kill -CONT {job.pids[0]}` lets it go on." in text
