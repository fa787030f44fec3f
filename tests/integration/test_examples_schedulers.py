"""Runs that somebody else's scheduler starts, and starts again: Ray Tune, Ray Train, and Slurm as a script sees it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import records

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDER = EXAMPLES / "other_schedulers"
BATCHES = 44  # in an epoch

pytestmark = [pytest.mark.slow]


@pytest.fixture
def ray_environment(home: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """For a Ray of the test's own: its files, its token and its results are removed with it."""
    short = tempfile.mkdtemp(prefix="det-ray-")  # the names of its sockets have room for no more
    own = {
        "DET_HOME": str(home),
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "RAY_TMPDIR": short,
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "100",
    }
    yield {**{name: value for name, value in os.environ.items() if not name.startswith("RAY_")}, **own}
    shutil.rmtree(short, ignore_errors=True)


def run(environment: dict[str, str], *arguments: str) -> str:
    """What a script prints that ends well."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=environment["HOME"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def trials() -> dict[str, dict[str, Any]]:
    """The trials by the names that their scheduler has for them."""
    return {row["external_trial_id"]: row for row in records.table("trials")}


def validations() -> dict[int, list[tuple[int, dict[str, float]]]]:
    """Steps and metrics of the validations of each trial, those that count, in the order of their steps."""
    found: dict[int, list[tuple[int, dict[str, float]]]] = {}
    for row in sorted(records.table("metrics"), key=lambda row: row["steps"]):
        if row["metric_group"] == "validation" and not row["archived"]:
            found.setdefault(row["trial_id"], []).append((row["steps"], json.loads(row["body"])))
    return found


def attempts() -> dict[int, list[int]]:
    """Which attempt has reported each of them."""
    found: dict[int, list[int]] = {}
    for row in sorted(records.table("metrics"), key=lambda row: row["steps"]):
        if row["metric_group"] == "validation" and not row["archived"]:
            found.setdefault(row["trial_id"], []).append(row["attempt"])
    return found


def test_a_search_of_ray_tune_is_an_experiment(ray_environment: dict[str, str]) -> None:
    """Platform 9.4: every sample is a trial of one experiment; states, batches and the best are those that Tune has,
    also of samples that its scheduler has stopped.
    """
    out = run(ray_environment, str(FOLDER / "ray_tune.py"), "--name", "mine", "--samples", "4")
    assert "Tune and our store agree." in out
    [experiment] = records.table("experiments")
    assert (experiment["external_experiment_id"], experiment["state"]) == ("mine", "COMPLETED")
    rows = list(trials().values())
    assert {(row["state"], row["attempt"]) for row in rows} == {("COMPLETED", 1)}
    lengths = sorted(row["total_batches"] for row in rows)
    assert len(lengths) == 4
    assert lengths[0] < lengths[-1] == 9 * BATCHES, "ASHA has stopped some of them"
    assert experiment["best_trial_id"] == min(rows, key=lambda row: row["searcher_metric_value"])["id"]


RETRIED = """
import json, os, signal
from ray import tune
from ray_session import connect
from ray_tune import Sample

class FailsOnce(Sample):
    def setup(self, config, search, epochs):
        self.how = config.pop("how")
        super().setup(config, search, epochs)

    def train_epoch(self):
        attempt = self.context.info.trial._trial_run_id
        if self.training.epochs == 2 and attempt == 1 and self.how != "never":
            self.training.train_epoch()  # one that nobody has saved
            if self.how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("once")
        return super().train_epoch()

connect(cpus=3)
results = tune.Tuner(
    tune.with_parameters(FailsOnce, search="retried", epochs=4),
    param_space={"lr": 0.1, "hidden": 16, "how": tune.grid_search(["never", "raises", "killed"])},
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    run_config=tune.RunConfig(
        name="retried",
        failure_config=tune.FailureConfig(max_failures=1),
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        verbose=0,
    ),
).fit()
assert not results.errors, results.errors
print(json.dumps({result.config["how"]: result.metrics["trial_id"] for result in results}))
"""


def test_a_sample_that_ray_tune_starts_again_goes_on(ray_environment: dict[str, str]) -> None:
    """P-70: a sample that failed, or was killed, is the same trial afterwards, with the next attempt; it goes on from
    its newest checkpoint, and every validation is what a sample without a failure has, bit for bit.
    """
    names = json.loads(run(ray_environment, "-c", RETRIED).splitlines()[-1])
    rows, found = trials(), validations()
    assert len(rows) == 3
    whole, raised, killed = (rows[names[how]] for how in ("never", "raises", "killed"))
    assert [row["attempt"] for row in (whole, raised, killed)] == [1, 2, 2]
    assert {row["state"] for row in rows.values()} == {"COMPLETED"}
    assert [steps for steps, _ in found[whole["id"]]] == [BATCHES * epoch for epoch in (1, 2, 3, 4)]
    assert found[raised["id"]] == found[killed["id"]] == found[whole["id"]]
    assert attempts()[raised["id"]] == attempts()[killed["id"]] == [1, 1, 2, 2], "nothing is trained twice"
    ends = {row["allocation_id"].rpartition(".")[2]: row["exit_reason"] for row in records.table("allocations")
            if row["task_id"] == f"{raised['experiment_id']}.{raised['request_id']}"}  # fmt: skip
    assert "once" in ends["1"], "the store knows why the first attempt ended"


BROKEN = """
import sys
import ray_train

whole = ray_train.train

def fails_once(config):
    from training import Training
    train_epoch, is_first = Training.train_epoch, not config["marker"].exists()

    def broken(self, rank, size):
        if is_first and self.epochs == 2 and rank == 1:
            config["marker"].touch()
            raise RuntimeError("once")
        train_epoch(self, rank, size)

    Training.train_epoch = broken
    whole(config)

class Trainer(ray_train.TorchTrainer):
    def __init__(self, train, *, train_loop_config, **more):
        marker = ray_train.Path("failed").absolute()
        super().__init__(fails_once, train_loop_config={**train_loop_config, "marker": marker}, **more)

ray_train.TorchTrainer = Trainer
sys.argv[1:] = ["--name", "mine", "--epochs", "4"]
ray_train.main()
"""


def test_a_run_of_ray_train_goes_on_after_a_worker_has_failed(ray_environment: dict[str, str]) -> None:
    """Platform 9.4: rank 0 of two workers reports; after another rank has failed, new workers go on with the trial."""
    out = run(ray_environment, "-c", BROKEN)
    assert f"COMPLETED after {4 * BATCHES} batches" in out
    [trial] = records.table("trials")
    assert (trial["external_trial_id"], trial["attempt"]) == ("0", 2)
    assert attempts()[trial["id"]] == [1, 1, 2, 2]
    assert [steps for steps, _ in validations()[trial["id"]]] == [BATCHES * epoch for epoch in (1, 2, 3, 4)]


@pytest.fixture
def slurm(home: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a job, with commands that stand in for those of Slurm."""
    commands = tmp_path / "commands"
    commands.mkdir()
    (commands / "srun").write_text('#!/bin/sh\nexec "$@"\n')  # the real one passes signals on to what it starts
    (commands / "scontrol").write_text(
        f'#!/bin/sh\nif [ "$1" = show ]; then echo localhost; else echo "$@" >> {tmp_path}/requeued; fi\n'
    )
    for command in commands.iterdir():
        command.chmod(0o755)
    return {
        **os.environ,
        "DET_HOME": str(home),
        "OMP_NUM_THREADS": "1",
        "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SLURM_ARRAY_JOB_ID": "4000",
        "SLURM_ARRAY_TASK_ID": "1",
        "SLURM_JOB_ID": str(20_000 + os.getpid() % 10_000),
        "SLURM_JOB_NODELIST": "here",
        "SLURM_NNODES": "1",
        "SLURM_SUBMIT_DIR": str(EXAMPLES.parent),
    }


def start_job(slurm: dict[str, str], output: Path, epochs: int) -> subprocess.Popen[bytes]:
    with output.open("wb") as file:
        command = ["bash", str(FOLDER / "slurm.sh"), "--epochs", str(epochs)]
        return subprocess.Popen(command, env=slurm, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)


def wait_for(job: subprocess.Popen[bytes], output: Path) -> None:
    """Until the job has ended, well; nothing of it is left."""
    try:
        assert job.wait(200) == 0, output.read_text()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def test_a_job_whose_time_is_up_is_queued_again_and_goes_on(slurm: dict[str, str], tmp_path: Path) -> None:
    """Platform 9.5: TERM to the batch script means a checkpoint and PAUSED, and the job is to be queued again; with the
    same ids it is then the same trial, at the next epoch. Slurm's own commands are stood in for.
    """
    first, again = tmp_path / "first.txt", tmp_path / "again.txt"
    job = start_job(slurm, first, 1_000_000)
    deadline = time.monotonic() + 200
    while "epoch 3 " not in first.read_text() and job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)  # to the script alone, as Slurm does
    wait_for(job, first)
    assert (tmp_path / "requeued").read_text() == f"requeue {slurm['SLURM_JOB_ID']}\n"
    trained = len(re.findall(r"^epoch \d+", first.read_text(), re.MULTILINE))
    [trial] = records.table("trials")
    assert (trial["state"], trial["total_batches"]) == ("PAUSED", trained * BATCHES)

    wait_for(start_job({**slurm, "SLURM_RESTART_COUNT": "1"}, again, trained + 2), again)
    assert re.findall(r"^epoch (\d+)", again.read_text(), re.MULTILINE) == [str(trained + 1), str(trained + 2)]
    assert len((tmp_path / "requeued").read_text().splitlines()) == 1
    [experiment], [trial] = records.table("experiments"), records.table("trials")
    assert (experiment["external_experiment_id"], trial["external_trial_id"]) == ("slurm-4000", "1")
    assert (trial["state"], trial["attempt"], trial["total_batches"]) == ("COMPLETED", 2, (trained + 2) * BATCHES)
    assert [steps for steps, _ in validations()[trial["id"]]] == [BATCHES * n for n in range(1, trained + 3)]
