"""Trials of several ranks under a real controller: they fail, stop and save as one."""

from __future__ import annotations

import psutil
import pytest

from tests.lifecycles import Lab

LAUNCH = "python3 -m determined.launch.torch_distributed"

pytestmark = pytest.mark.slow


def test_ranks_leave_and_fail_together(lab: Lab) -> None:
    """P-93: a two-slot trial that is paused leaves on both ranks at the same step, with one checkpoint.
    P-92: activated, its rank 1 raises: rank 0 is terminated, and one restart is charged; the next attempt, on both
    ranks again, completes.
    """
    script = """
    rank = int(os.environ["RANK"])
    with core.init(distributed=core.DistributedContext.from_torch_distributed()) as context:
        step = restored(context)
        note(start=step, rank=rank, pid=os.getpid())
        while attempt < 3:
            step += 1
            if attempt == 2 and is_told("fail"):
                if rank == 1:
                    raise RuntimeError("rank 1 cannot go on")
                time.sleep(600)
            time.sleep(0.02)
            if context.preempt.should_preempt():
                note(left=step, rank=rank)
                if rank == 0:
                    save(context, step)
                break
    """
    experiment = lab.submit(
        script,
        entrypoint=f"{LAUNCH} python3 train.py",
        resources={"slots_per_trial": 2},
        max_restarts=1,
    )
    lab.started(experiment, 2)
    experiment.pause()
    first, second = lab.noted(experiment, "left", 2)
    assert first["left"] == second["left"]
    assert {first["rank"], second["rank"]} == {0, 1}
    lab.until(lambda: lab.no_attempt_runs(experiment))
    (saved,) = experiment.list_checkpoints()
    assert saved.metadata["steps_completed"] == first["left"]
    experiment.activate()
    lab.started(experiment, 4)
    running = lab.notes(experiment, attempt=2)
    lab.tell("fail")
    assert lab.end(experiment) == "COMPLETED"
    assert not any(psutil.pid_exists(note["pid"]) for note in running)
    assert [(row.exit_code, row.slots) for row in lab.attempts(experiment)] == [(0, 2), (1, 2), (0, 2)]
    assert lab.only_trial(experiment).restarts == 1
    assert "rank 1 cannot go on" in lab.log(experiment)
