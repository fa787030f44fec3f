"""What a plain `python train.py` leaves behind, and what the next one makes of it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from determined import core
from determined.store.upkeep import checks
from tests import records
from tests.forks import Nursery

Run = Callable[..., subprocess.CompletedProcess[str]]
TRIAL = """
import argparse, json, logging, sys, time
import torch
from torch.utils.data import TensorDataset
from determined import pytorch

logging.basicConfig(level=logging.INFO)  # before init(): its handler holds on to the stream of then

class LineTrial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr")))

    def train_batch(self, batch, epoch_idx, batch_idx):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        if args.fails_at == batch_idx:
            raise ValueError("the loss has left us\\nand more")
        if args.slow and batch_idx > 20:
            print("here", flush=True)
            time.sleep(0.05)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        x, y = batch
        return {"error": torch.nn.functional.mse_loss(self.model(x), y)}

    def build_training_data_loader(self):
        return pytorch.DataLoader(points(), batch_size=8, shuffle=True)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(points(), batch_size=32)

def points():
    x = torch.linspace(-1, 1, 64).unsqueeze(1)
    return TensorDataset(x, 3 * x + 1)

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--batches", type=int, default=40)
parser.add_argument("--latest")
parser.add_argument("--metric", default="error")
parser.add_argument("--policy", default="best")
parser.add_argument("--fails-at", type=int)
parser.add_argument("--slow", action="store_true")
parser.add_argument("--api-key")
parser.add_argument("--keep", type=int)
parser.add_argument("--keep-plainly", type=int)
parser.add_argument("--fit", type=json.loads, default={})
args = parser.parse_args()
config = {"searcher": {"name": "single", "metric": args.metric}, "labels": ["line"]} if args.metric else {}
if args.keep is not None:
    config["checkpoint_storage"] = {"type": "directory", "container_path": "kept", "save_trial_best": args.keep}
if args.keep_plainly is not None:
    config["checkpoint_storage"] = {"save_trial_best": args.keep_plainly}
with pytorch.init(hparams={"lr": args.lr}, exp_conf={"name": "a line", **config}, seed=5) as context:
    trainer = pytorch.Trainer(LineTrial(context), context)
    trainer.fit(
        max_length=pytorch.Batch(args.batches), validation_period=pytorch.Batch(10), reporting_period=pytorch.Batch(5),
        checkpoint_period=pytorch.Batch(10), checkpoint_policy=args.policy, latest_checkpoint=args.latest,
        **args.fit,
    )
    print("done")
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = directory / "train.py"
    path.write_text(TRIAL)
    return path


@pytest.fixture
def run(nursery: Nursery) -> Run:
    """Runs a script to its end: `run(script, "--lr", "0.1", DET_TRACKING="off")`.

    Forked, since a fresh Python spends four of five seconds importing; those that are stopped or killed here are fresh.
    """
    return nursery.run_script


def well(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert done.returncode == 0, done.stderr
    return done


def is_whole() -> bool:
    """The store passes its own check, and no step is told twice."""
    with records.opened() as store:
        problems = checks.check(store)
    seen = [
        (row["trial_id"], row["metric_group"], row["steps"])
        for row in records.table("metrics")
        if not row["archived"] and row["steps"] is not None
    ]
    return not problems and len(seen) == len(set(seen))


def test_a_plain_run_clears_up_when_asked_to(script: Path, run: Run) -> None:
    """4.9, issue 6: `save_trial_best` in a local run's checkpoint_storage is kept to when the run ends."""
    well(run(script, "--policy", "all"))
    assert [row["state"] for row in records.table("checkpoints")] == ["COMPLETED"] * 4
    well(run(script, "--policy", "all", "--keep", "0"))
    left = {row["uuid"]: row["state"] for row in records.table("checkpoints") if row["trial_id"] == 2}
    assert sorted(left.values()) == ["COMPLETED", "DELETED", "DELETED", "DELETED"]
    there = {path.parent.name for path in (script.parent / "kept").glob("*/metadata.json")}
    assert there == {uuid for uuid, state in left.items() if state == "COMPLETED"}
    assert is_whole()


@pytest.mark.parametrize("way", [["--keep-plainly", "1"], ["--fit", '{"keep_best": 1, "keep_latest": 1}']], ids=str)
def test_keeping_one_checkpoint_takes_one_line(script: Path, home: Path, way: list[str], run: Run) -> None:
    """`checkpoint_storage: {save_trial_best: 1}` needs no type, and fit(keep_best=1, keep_latest=1) does the same: of
    four checkpoints the best and the newest are left, which are one here; what is left is what the store lists."""
    well(run(script, "--policy", "all", *way))
    left = {row["uuid"]: row["state"] for row in records.table("checkpoints")}
    assert sorted(left.values()) == ["COMPLETED", "DELETED", "DELETED", "DELETED"]
    there = {path.parent.name for path in (home / "checkpoints").glob("*/metadata.json")}
    assert there == {uuid for uuid, state in left.items() if state == "COMPLETED"}
    assert is_whole()


def test_checkpoints_are_removed_while_training_goes_on(script: Path, home: Path) -> None:
    """A run that is still training, and then killed, has removed all but the best and the newest as it went on."""
    keeps_one = ["--policy", "all", "--fit", '{"keep_best": 1, "keep_latest": 1}']
    command = [sys.executable, str(script), "--slow", "--batches", "100000", *keeps_one]
    gone: set[str] = set()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=script.parent) as process:
        deadline = time.monotonic() + 120
        while len(gone) < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
            gone = {row["uuid"] for row in records.table("checkpoints") if row["state"] == "DELETED"}
        process.kill()
    assert len(gone) >= 3
    assert not gone & {path.parent.name for path in (home / "checkpoints").glob("*/metadata.json")}
    assert is_whole()


def test_everything_about_a_run_is_remembered(script: Path) -> None:
    """Issue 6: script, arguments, git, versions, host, seed, hparams, config, metrics, checkpoints and output; no
    secrets."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], cwd=script.parent, check=True, capture_output=True)
    script.write_text(TRIAL + "\n# changed\n")
    command = [sys.executable, str(script), "--api-key", "hunter2", "--lr=0.2"]
    environment = {**os.environ, "AWS_SECRET_ACCESS_KEY": "hunter2"}
    well(subprocess.run(command, cwd=script.parent, env=environment, capture_output=True, text=True, check=False))
    (experiment,) = records.table("experiments")
    assert (experiment["name"], experiment["script"], experiment["state"]) == ("a line", str(script), "COMPLETED")
    assert (experiment["searcher_metric"], experiment["unmanaged"]) == ("error", True)
    assert experiment["config"]["labels"] == ["line"]
    assert [row["label"] for row in records.table("experiment_labels")] == ["line"]
    (trial,) = records.table("trials")
    assert (trial["hparams"], trial["seed"], trial["total_batches"], trial["progress"]) == ({"lr": 0.2}, 5, 40, 1.0)
    assert trial["searcher_metric_value"] is not None
    (allocation,) = records.table("allocations")
    environment = allocation["environment"]
    assert environment["arguments"] == ["--api-key", "********", "--lr=0.2"]
    assert (environment["directory"], environment["git"]["dirty"]) == (str(script.parent), True)
    assert len(environment["git"]["commit"]) == 40
    assert environment["torch"] == environment["packages"]["torch"]
    assert {"python", "numpy", "resolute", "host", "user"} <= environment.keys()
    assert Path(allocation["tensorboard"]).is_dir()
    assert [steps for steps, _ in records.reported("validation")] == [10, 20, 30, 40]
    checkpoints = records.table("checkpoints")
    assert [row["steps"] for row in sorted(checkpoints, key=lambda row: row["steps"])] == [10, 20, 30, 40]
    assert "done" in records.lines()
    assert any("Training to 40 batches" in line for line in records.lines()), "a handler from before is heard too"
    home = Path(os.environ["DET_HOME"])
    assert b"hunter2" not in b"".join(path.read_bytes() for path in home.glob("determined.db*"))
    assert is_whole()


@pytest.mark.parametrize("way", ["variable", "argument"])
def test_tracking_can_be_turned_off(way: str, script: Path, home: Path, run: Run) -> None:
    """Decision 4: DET_TRACKING=off, or init(tracking=False), records nothing; "latest" works all the same."""
    if way == "argument":
        script.write_text(TRIAL.replace("seed=5)", "seed=5, tracking=False)"))
    environment = {"DET_TRACKING": "off"} if way == "variable" else {}
    well(run(script, "--batches", "20", **environment))
    resumed = well(run(script, "--latest", "latest", **environment))
    assert "at batch 20" in resumed.stderr
    assert sorted(path.name for path in home.iterdir() if path.name != "tensorboard") == ["checkpoints"]


def test_a_stopped_run_goes_on_as_the_same_trial(script: Path, run: Run) -> None:
    """P-49, decision 3: SIGTERM leaves it PAUSED with a checkpoint; "latest" goes on as attempt 2 of the same trial."""
    with subprocess.Popen(
        [sys.executable, str(script), "--slow", "--batches", "100000"], stdout=subprocess.PIPE, cwd=script.parent
    ) as process:
        assert process.stdout is not None
        while b"here" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    (trial,) = records.table("trials")
    stopped_at = trial["total_batches"]
    assert (trial["state"], trial["state_reason"]) == ("PAUSED", f"asked to stop by SIGTERM, after batch {stopped_at}")
    well(run(script, "--batches", str(stopped_at + 10), "--latest", "latest"))
    (experiment,) = records.table("experiments")
    (trial,) = records.table("trials")
    assert (experiment["state"], trial["attempt"], trial["total_batches"]) == ("COMPLETED", 2, stopped_at + 10)
    well(run(script, "--batches", "10"))
    assert [row["id"] for row in records.table("experiments")] == [1, 2], "the ids of resumed runs leave no gap"
    assert [row["id"] for row in records.table("trials")] == [1, 2]
    assert is_whole()


def test_a_failure_is_remembered_with_its_reason(script: Path, run: Run) -> None:
    """C-70: ERROR, with the exception in one line; the next run repeats what was lost, and no step is told twice."""
    assert run(script, "--fails-at", "27").returncode == 1
    (trial,) = records.table("trials")
    assert (trial["state"], trial["state_reason"]) == ("ERROR", "ValueError: the loss has left us")
    well(run(script, "--latest", "latest"))
    (trial,) = records.table("trials")
    assert (trial["state"], trial["attempt"]) == ("COMPLETED", 2)
    steps = [steps for steps, _ in records.reported("training")]
    assert steps == list(range(5, 41, 5))
    assert is_whole()


@pytest.mark.parametrize("tracking", ["on", "off"])
def test_each_of_several_hyperparameters_trains_on_its_own(tracking: str, script: Path, home: Path, run: Run) -> None:
    """Issue 12: `for lr in ...` with "latest" in the script trains a run for each, and says why it starts afresh; the
    same value again has nothing left to train."""
    environment = {"DET_TRACKING": tracking}
    first, second, third, again = (
        well(run(script, "--batches", "20", "--policy", "none", "--latest", "latest", "--lr", lr, **environment))
        for lr in ("0.1", "0.05", "0.2", "0.05")
    )
    weights = [path.read_bytes() for path in sorted(home.glob("checkpoints/*/state_dict.pth"))]
    assert len(weights) == 6, "each saved at 10 and at 20, and the last one nothing"
    assert "starts afresh" in first.stderr
    assert "lr was 0.1 and is 0.05" in second.stderr
    assert "lr was 0.05 and is 0.2" in third.stderr
    assert "Trained" not in again.stderr
    if tracking == "on":
        assert [row["hparams"]["lr"] for row in records.table("trials")] == [0.1, 0.05, 0.2]
        assert [row["total_batches"] for row in records.table("trials")] == [20] * 3
        assert [row["attempt"] for row in records.table("trials")] == [1, 2, 1]


def test_a_named_checkpoint_always_goes_on(script: Path, run: Run) -> None:
    """Issue 12, P-62: an id goes on with other hyperparameters too, as a new experiment whose parent is recorded; one
    warning names the difference with both values, and says that the optimizer's saved state wins."""
    well(run(script, "--batches", "20"))
    newest = next(row["uuid"] for row in records.table("checkpoints") if row["steps"] == 20)
    done = well(run(script, "--latest", newest, "--lr", "0.05"))
    (warning,) = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert "lr was 0.1 and is 0.05" in warning
    assert "optimizers and schedulers saved wins" in warning
    done = well(run(script, "--latest", newest))
    assert "WARNING" not in done.stderr
    one, *others = records.table("trials")
    assert one["total_batches"] == 20
    assert [(row["attempt"], row["warm_start_checkpoint_uuid"], row["total_batches"]) for row in others] == [
        (1, newest, 40),
        (1, newest, 40),
    ]
    assert [row["parent_id"] for row in records.table("experiments")] == [None, 1, 1]


def test_test_mode_never_counts(script: Path, run: Run) -> None:
    """Issue 12: a run in test mode goes on from nothing, and nothing goes on from it."""
    trial = script.with_name("trial.py")
    trial.write_text(TRIAL.replace("latest_checkpoint=args.latest", "latest_checkpoint='latest', test_mode=args.slow"))
    for arguments in (["--slow"], ["--batches", "20"], ["--slow"], ["--batches", "30"]):
        well(run(trial, *arguments))
    assert [(row["attempt"], row["total_batches"]) for row in records.table("trials")] == [(1, 1), (2, 30), (1, 1)]


def test_another_script_does_not_take_over(script: Path, run: Run) -> None:
    """Issue 6: the same class in another script begins afresh: "latest" means one's own."""
    well(run(script, "--batches", "20"))
    other = script.with_name("other.py")
    other.write_text(TRIAL)
    done = well(run(other, "--batches", "10", "--latest", "latest"))
    assert "starts afresh" in done.stderr
    assert [row["attempt"] for row in records.table("trials")] == [1, 1]


def test_the_best_so_far_survives_a_restart(script: Path, run: Run) -> None:
    """Issue 6, P-65: a run saved without a metric is continued with the policy "best": only better ones are saved."""
    well(run(script, "--batches", "20", "--metric", "", "--policy", "none"))
    best = min(metrics["error"] for _, metrics in records.reported("validation"))
    script.write_text(TRIAL.replace('{"error": ', '{"error": 9 + '))  # nothing gets better now
    well(run(script, "--batches", "40", "--latest", "latest"))
    worse = [metrics["error"] for steps, metrics in records.reported("validation") if steps > 20]
    assert worse
    assert min(worse) > best
    saved = [row["metadata"] for row in records.table("checkpoints") if row["steps"] > 20]
    assert saved
    assert all(metadata["best_validation"] == best for metadata in saved)


def test_a_killed_run_is_settled_by_the_next(script: Path) -> None:
    """P-70: a run that was killed -9 is an ERROR as soon as anybody on its machine opens the store."""
    with subprocess.Popen(
        [sys.executable, str(script), "--slow", "--batches", "100000"], stdout=subprocess.PIPE, cwd=script.parent
    ) as process:
        assert process.stdout is not None
        while b"here" not in process.stdout.readline():
            pass
        while not (trials := records.table("trials")):
            time.sleep(0.05)
        process.kill()
        process.stdout.read()
    assert [row["state"] for row in trials] == ["RUNNING"]
    assert [row["state"] for row in records.table("trials")] == ["RUNNING"]
    with core.init():
        pass
    first, second = records.table("trials")
    assert (first["state"], second["state"]) == ("ERROR", "COMPLETED")
    assert first["end_time"] is not None


def test_two_ranks_are_one_run(script: Path) -> None:
    """Issue 6: under torchrun there is one experiment, and the output of both ranks is in it."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    done = subprocess.run(launcher, capture_output=True, text=True, timeout=300, cwd=script.parent, check=False)
    assert done.returncode == 0, done.stderr
    (experiment,) = records.table("experiments")
    (allocation,) = records.table("allocations")
    assert (experiment["state"], allocation["slots"]) == ("COMPLETED", 2)
    said = {row["rank"] for row in records.table("logs") if row["text"] == "done"}
    assert said == {0, 1}


# Console output.

PRINTS = """
import logging, os, sys
log = logging.StreamHandler()  # holds on to the stream of now
streams = (sys.stdout, sys.stderr)
from determined import core
facts = lambda: (sys.stdout.isatty(), sys.stdout.fileno(), sys.stdout.encoding, sys.stdout.buffer is not None)
before = facts()
with core.init() as context:
    assert facts() == before and (sys.stdout, sys.stderr) == streams
    print("plain", flush=True)
    print("\\x1b[31mred\\x1b[0m")
    for percent in (10, 50, 100):
        sys.stderr.write(f"\\r{percent}%")
    sys.stderr.write("\\n")
    log.emit(logging.makeLogRecord({"msg": "logged"}))
    if os.fork() == 0:
        print("child", flush=True)
        os._exit(0)
    os.wait()
    print("x" * 10000)
    print("no end", end="")
assert "write" not in vars(sys.stdout)
"""


@pytest.fixture(params=["pipe", "terminal"])
def output_of(request: pytest.FixtureRequest) -> Iterator[Callable[[str], str]]:
    """Runs a program with its output going to a pipe or to a terminal, and gives back what was seen there."""
    near, far = pty.openpty() if request.param == "terminal" else os.pipe()

    def look(program: str) -> str:
        with subprocess.Popen(
            [sys.executable, "-c", program], stdout=far, stderr=far, stdin=subprocess.DEVNULL
        ) as process:
            os.close(far)
            seen = b""
            while chunk := _read(near):
                seen += chunk
            assert process.wait(240) == 0, seen
        return seen.decode().replace("\r\n", "\n")

    yield look
    os.close(near)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except OSError:  # what a terminal says when the other side is gone
        return b""


def test_output_is_kept_and_nothing_changes(output_of: Callable[[str], str]) -> None:
    """4.11, P-77: what is printed is seen as ever, terminal or not, and kept line by line: a refresh is a line."""
    if sys.platform == "darwin":
        pytest.skip("forks")
    seen = output_of(PRINTS)
    assert "plain\n" in seen
    assert "\x1b[31mred\x1b[0m\n" in seen
    assert "child" in seen
    kept = records.lines()
    assert [line for line in kept if line.endswith("%")] == ["10%", "50%", "100%"]
    assert {"plain", "\x1b[31mred\x1b[0m", "logged", "no end"} <= set(kept)
    assert "child" not in kept, "a forked child has our memory but not our threads"
    assert max(len(line) for line in kept) == 8191


def test_debugging_works(tmp_path: Path) -> None:
    """Issue 6: pdb in a recorded run talks to the terminal as ever."""
    program = "from determined import core\nwith core.init():\n    breakpoint()\n    value = 42\n    print('out')\n"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="n\nn\np value\nc\n",
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "42" in done.stdout
    assert any("out" in line for line in records.lines())


# Many at once.

REPORTS = """
import sys, time
from determined import core
from determined.core.recording import shipper
from determined.store.database import connection
connection.BUSY_SECONDS = shipper.LAST_CHANCE_SECONDS = 200.0  # whatever the machine has to do besides
with core.init() as context:
    for step in range(200):
        context.train.report_training_metrics(step, {"loss": step * 0.5, "who": int(sys.argv[1])})
        if step % 50 == 0:
            with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                (path / "f").write_text("x")
        time.sleep(0.002)
    context.train.report_validation_metrics(200, {"loss": 1.0})
"""


def test_many_processes_write_at_once(home: Path) -> None:
    """Decision 4: six processes that make, and write to, one store at the same time all arrive whole."""
    processes: list[subprocess.Popen[Any]] = [
        subprocess.Popen([sys.executable, "-c", REPORTS, str(number)], stderr=subprocess.PIPE, text=True)
        for number in range(6)
    ]
    for process in processes:
        _, err = process.communicate(timeout=280)
        assert process.returncode == 0, err
        assert err == "", "nobody is turned away"
    assert [row["state"] for row in records.table("experiments")] == ["COMPLETED"] * 6
    by_trial: dict[int, list[int]] = {}
    for row in records.table("metrics"):
        if row["metric_group"] == "training":
            by_trial.setdefault(row["trial_id"], []).append(row["steps"])
    assert [sorted(steps) for steps in by_trial.values()] == [list(range(200))] * 6
    assert len(records.table("checkpoints")) == 24
    assert list((home / "runs").iterdir()) == []
    assert is_whole()
