"""One rank breaks, always in the same place: the others end soon and name it, and the next start goes on.

`fail_at(rank, step, where)` of `tests/ddp_trials.py` breaks it. Errors that are raised and caught share two processes,
which open one `init()` after the other; deaths need processes of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from determined import errors
from determined.pytorch import Batch, ShouldExit, _loop
from tests.ddp_trials import elsewhere, fail_at, regress
from tests.forks import Nursery
from tests.ranks import ROOT

PERIODS = {"checkpoint_period": Batch(2), "validation_period": Batch(2)}
CAUGHT = [
    (1, 3, "before forward"),
    (0, 3, "before forward"),
    (1, 3, "in the exchange"),
    (0, 3, "in the exchange"),
    (1, 3, "in validation"),
    (0, 3, "in validation"),
    (0, 3, "in save"),
    (1, 3, "in a callback"),
    (0, 3, "in a callback"),
]


def error_of(work: Any) -> list[Any]:
    """The name and the text of what it raises."""
    try:
        work()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return [None, ""]


def caught() -> list[list[Any]]:
    """Each failure in turn, in a process that goes on, with the traceback of the one before still alive."""
    elsewhere()
    return [error_of(lambda case=case: regress(trial={"fails": fail_at(*case)}, **PERIODS)) for case in CAUGHT]


def test_an_error_on_one_rank_is_an_error_on_all(nursery: Nursery) -> None:
    """W9, 3.11: whoever waits, in gloo's all-reduce too, learns which rank failed, and why."""
    ranks = nursery.run(2, caught)
    for case, *said in zip(CAUGHT, *ranks, strict=True):
        rank, step, where = case
        own, others = said[rank], said[1 - rank]
        told = f"told to fail on rank {rank} at batch {step} {where}"
        assert own == ["ArithmeticError", told], case
        assert told in others[1], case
        if where == "in save":  # everyone waits for the chief's word, so the error itself can be sent
            assert others[0] == "ArithmeticError", case
        else:
            assert others[0] == "CollectiveError", case
            assert f"rank {rank} failed with ArithmeticError" in others[1], case


def broken(rank: int, step: int, where: str, how: str) -> dict[str, Any]:
    elsewhere()
    return regress(trial={"fails": fail_at(rank, step, where, how)}, **PERIODS)


def resumed() -> dict[str, Any]:
    elsewhere()
    return regress(latest_checkpoint="latest")


def straight() -> dict[str, Any]:
    elsewhere()
    return regress()


@pytest.fixture(scope="module")
def unbroken(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two ranks end with whom nothing happens to."""
    return nursery.run(2, straight, env={"DET_HOME": str(tmp_path_factory.mktemp("unbroken"))})


@pytest.mark.parametrize(
    ("rank", "where", "how"),
    [
        (1, "in the exchange", "kill"),
        (0, "before forward", "exit"),
        (1, "in validation", "exit"),
        (0, "in save", "kill"),
    ],
)
def test_a_death(rank: int, where: str, how: str, nursery: Nursery, unbroken: list[dict[str, Any]]) -> None:
    """The survivor ends with an error that names the rank; the next start loses only what came after the checkpoint."""
    outcomes = nursery.start(2, broken, [rank, 3, where, how]).wait()
    died, survivor = outcomes[rank], outcomes[1 - rank]
    assert died.exit_code == (3 if how == "exit" else -9), died.output
    assert survivor.exit_code == 1, survivor.output
    assert survivor.error == "CollectiveError", survivor.output
    assert f"rank {rank} (pid " in survivor.text
    assert "its process has ended" in survivor.text
    ends = nursery.run(2, resumed)
    assert [len(end["seen"]) for end in ends] == [4, 4]  # of six: the two before the checkpoint are not lost
    assert [end["digest"] for end in ends] == [end["digest"] for end in unbroken]


def leaves_alone(kind: str) -> list[Any]:
    elsewhere()
    _loop.LEAVING_SECONDS = 2.0

    def on_batch(batch_idx: int) -> None:
        if batch_idx == 2 and os.environ["RANK"] == "1":
            raise ShouldExit if kind == "ShouldExit" else errors.InvalidHP("one rank thinks so")

    return error_of(lambda: regress(trial={"on_batch": on_batch}))


@pytest.mark.parametrize("kind", ["ShouldExit", "InvalidHP"])
def test_one_rank_that_leaves_alone(kind: str, nursery: Nursery) -> None:
    """W9, W19: to leave from inside a batch is for all ranks; one that does so alone is named, and nobody hangs."""
    outcomes = nursery.start(2, leaves_alone, [kind]).wait()
    said = [outcome.returned or [outcome.error, outcome.text] for outcome in outcomes]
    assert said[1][0] == "CollectiveTimeout", said
    assert f"Rank 1 raised {kind}(" in said[1][1]
    assert "rank 0 did not come to leaving fit()" in said[1][1]
    assert "context.set_stop_requested(True)" in said[1][1]
    assert said[0][0] == "CollectiveError", said
    assert "rank 1" in said[0][1]


@pytest.mark.slow
def test_through_the_launcher(tmp_path: Path) -> None:
    """The traceback of the rank that failed comes last, the exit code is its own, and no process is left."""
    script = tmp_path / "train.py"
    script.write_text("from tests.integration.test_ddp_fault import broken\nbroken(1, 3, 'in the exchange', 'raise')\n")
    mark = {"DET_TEST_FAULT": str(tmp_path)}
    command = [sys.executable, "-m", "determined.launch.torch_distributed", "--nproc_per_node", "2", "--"]
    ended = subprocess.run(
        [*command, sys.executable, str(script)],
        env={**os.environ, **mark, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    last = ended.stderr[ended.stderr.index("rank 1 failed first") :]
    assert last.rstrip().endswith("ArithmeticError: told to fail on rank 1 at batch 3 in the exchange")
    assert "rank 1 failed with ArithmeticError: told to fail" in ended.stderr  # what rank 0 says
    left = [p for p in psutil.process_iter() if _mark(p) == str(tmp_path)]
    assert psutil.wait_procs(left, timeout=60)[1] == []


def _mark(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("DET_TEST_FAULT")
    except psutil.Error:
        return None
