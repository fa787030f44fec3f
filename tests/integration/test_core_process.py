"""A whole training process from the outside: signals, kills, restarts, several ranks."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import records
from tests.forks import Nursery

EXAMPLE = Path(__file__).parents[2] / "examples" / "core_api" / "train.py"


@contextmanager
def running(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    while word not in (line := process.stdout.readline()):
        assert line, "the process ended too early"


LOOP = """
import sys, time
from determined import core
with core.init(checkpoint_storage=sys.argv[1]) as context:
    print("ready", flush=True)
    for step in range(100_000):
        time.sleep(0.005)
        if context.preempt.should_preempt():
            with context.checkpoint.store_path({"steps_completed": step}) as (path, storage_id):
                (path / "step").write_text(str(step))
            print("saved", storage_id, flush=True)
            break
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2, signal.SIGINT])
def test_a_signal_means_save_and_leave(number: int, tmp_path: Path) -> None:
    """Decision 3, C-82: the process saves, exits with 0, and a later process finds the checkpoint."""
    with running(LOOP, str(tmp_path)) as process:
        wait_for(process, "ready")
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "next safe point" in err
    restore = (
        "import sys\nfrom determined import core\n"
        "with core.init(checkpoint_storage=sys.argv[1]) as context:\n"
        "    with context.checkpoint.restore_path(sys.argv[2]) as path: print((path / 'step').read_text())\n"
    )
    with running(restore, str(tmp_path), out.split()[-1]) as later:
        step, err = later.communicate(timeout=120)
    assert int(step) >= 0, err


THREAD = """
import sys, threading, time
from determined.experimental import core_v2

def train():
    with core_v2.init_context(config=core_v2.Config(name="thread")) as context:
        context.train.report_validation_metrics(1, {"loss": 1.0})
        started.set()
        time.sleep(float(sys.argv[1]))
        context.train.report_validation_metrics(2, {"loss": 0.5})
        sys.exit(0)

started = threading.Event()
threading.Thread(target=train, daemon=True).start()
started.wait()
"""


@pytest.mark.parametrize(("seconds", "state", "steps"), [("0.2", "COMPLETED", 2), ("600", "ERROR", 1)])
def test_a_process_that_ends_closes_what_its_thread_has_open(seconds: str, state: str, steps: int) -> None:
    """A thread that leaves its block as the process ends, as in Ray's workers, is recorded to its end; one that goes
    on training is cut off, and that is said.
    """
    with running(THREAD, seconds) as process:
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    [trial] = records.table("trials")
    assert (trial["state"], trial["total_batches"]) == (state, steps)
    assert ("before the training in it did" in trial["state_reason"]) is (state == "ERROR")


SLEEPER = "import time\nfrom determined import core\nwith core.init():\n    print('ready')\n    time.sleep(600)\n"


def test_a_script_that_never_asks_ends_at_a_repeated_sigterm() -> None:
    """A plain `kill`, typed again because nothing happened, has its ordinary effect where nobody listens."""
    with running(SLEEPER) as process:
        wait_for(process, "ready")
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
    assert process.returncode == -signal.SIGTERM


def test_ctrl_c_twice_interrupts() -> None:
    """The second Ctrl-C ends a process that does not ask, as Ctrl-C always did."""
    program = "import time\nfrom determined import core\nwith core.init():\n    print('ready')\n    time.sleep(600)\n"
    with running(program) as process:
        wait_for(process, "ready")
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.readline() == "\n"
        assert "Ctrl-C again" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert "KeyboardInterrupt" in err
    assert process.returncode != 0


LATE = """
import os, signal, sys
from determined import core
from determined.core.recording import shipper
close = shipper.Shipper.close
def interrupted_close(shipper):
    os.kill(os.getpid(), int(sys.argv[1]))
    close(shipper)
shipper.Shipper.close = interrupted_close
with core.init() as context:
    context.train.report_training_metrics(1, {"loss": 0.5})
print("unreached")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_closing_waits_until_everything_is_written(number: int) -> None:
    """Decision 3: a process that is about to end writes what it has, and then does what the signal says."""
    with running(LATE, str(int(number))) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == -number
    assert "Leaving once everything is written." in err
    assert out == ""
    assert [row["state"] for row in records.table("trials")] == ["COMPLETED"]
    assert len(records.table("metrics")) == 1


@pytest.mark.parametrize("has_handler", [False, True])
def test_sigusr1_shows_the_stacks(has_handler: bool) -> None:
    """C-09: SIGUSR1 prints the stacks of all threads to stderr, calls the previous handler, and the process goes on."""
    program = (
        "import signal, sys, threading, time\n"
        f"if {has_handler}: signal.signal(signal.SIGUSR1, lambda *_: print('mine', flush=True))\n"
        "from determined import core\n"
        "def waiting_thread(): done.wait()\n"
        "done = threading.Event(); threading.Thread(target=waiting_thread).start()\n"
        "with core.init():\n    print('ready')\n    sys.stdin.readline()\n    print('still here')\ndone.set()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for(process, "ready")
        process.send_signal(signal.SIGUSR1)  # it has it before it can read what is sent later
        out, err = process.communicate("\n", timeout=120)
    assert process.returncode == 0
    assert "waiting_thread" in err
    assert "most recent call first" in err
    assert "still here" in out
    assert ("mine" in out) == has_handler


RANKS = """
import os, sys
from determined import core
distributed = core.DistributedContext.from_torch_distributed() if "RANK" in os.environ else None
with core.init(distributed=distributed, checkpoint_storage=sys.argv[1]) as context:
    d = context.distributed
    print(f"rank {d.rank} gathered {d.allgather(d.rank)}")  # one piece: the ranks share a pipe
    for step in range(3):
        assert context.preempt.should_preempt() is False
    with context.checkpoint.store_path({"steps_completed": 3}, shard=True) as (path, storage_id):
        (path / f"part{d.rank}").write_text("x")
    with context.checkpoint.restore_path(storage_id) as path:
        print(f"rank {d.rank} sees {sorted(p.name for p in path.iterdir())}")
    context.train.report_validation_metrics(3, {"loss": 1.0})
"""


def test_the_same_script_on_one_and_on_two_processes(tmp_path: Path) -> None:
    """C-81: one script, alone and under torch's launcher; the same calls work and are sync points in both."""
    script = tmp_path / "script.py"
    script.write_text(RANKS)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    alone = run([sys.executable, str(script), str(tmp_path / "c")])
    assert alone.returncode == 0, alone.stderr
    assert "gathered [0]" in alone.stdout
    assert "sees ['metadata.json', 'part0']" in alone.stdout
    both = run([*launcher, str(script), str(tmp_path / "c")])
    assert both.returncode == 0, both.stderr
    assert both.stdout.count("gathered [0, 1]") == 2
    assert both.stdout.count("sees ['metadata.json', 'part0', 'part1']") == 2
    validations = [row["trial_id"] for row in records.table("metrics") if row["metric_group"] == "validation"]
    assert validations == [1, 2], "one report per run, from the chief"
    said = [(row["rank"], row["text"]) for row in records.table("logs") if "gathered" in row["text"]]
    assert sorted(said) == [(0, "rank 0 gathered [0, 1]"), (0, "rank 0 gathered [0]"), (1, "rank 1 gathered [0, 1]")]


EPOCHS = "12"
STOPPED_AT = 100  # of 264 batches, within an epoch and after its first checkpoint
INTERRUPTED = f"""
import os, runpy, signal, sys
from torch.optim.optimizer import register_optimizer_step_post_hook
steps = []
def count(*_):
    steps.append(0)
    if len(steps) == {STOPPED_AT}:
        os.kill(os.getpid(), signal.SIGTERM)
register_optimizer_step_post_hook(count)
sys.argv[0] = {str(EXAMPLE)!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


def state(storage: Path) -> dict[str, object]:
    import torch

    saved = [torch.load(path, weights_only=True) for path in storage.glob("*/state.pt")]
    return max(saved, key=lambda one: one["batches_trained"])  # type: ignore[no-any-return]


def test_the_example_resumes_bit_for_bit(tmp_path: Path, nursery: Nursery) -> None:
    """Decision 5: training in one go equals training, a stop somewhere in the middle, and a resumed rest."""
    import torch

    straight, pieces, interrupted = tmp_path / "straight", tmp_path / "pieces", tmp_path / "interrupted.py"
    interrupted.write_text(INTERRUPTED)

    def example(script: Path, storage: Path, *arguments: str) -> str:
        words = ["--batch-size", "64", "--epochs", EPOCHS, "--storage", str(storage), *arguments]
        done = nursery.run_script(script, *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    out = example(EXAMPLE, straight)
    assert "validation accuracy" in out
    assert str(straight) in out.replace("\n", "")
    example(interrupted, pieces)
    assert state(pieces)["batches_trained"] == STOPPED_AT
    out = example(EXAMPLE, pieces, "--resume", "latest")
    assert f"Resumed after batch {STOPPED_AT}." in out
    first, second = state(straight), state(pieces)
    assert first["batches_trained"] == second["batches_trained"]
    flat_first, flat_second = json_shape(first), json_shape(second)
    assert flat_first.keys() == flat_second.keys()
    for name, value in flat_first.items():
        assert torch.equal(value, flat_second[name]) if isinstance(value, torch.Tensor) else value == flat_second[name]


def json_shape(value: object, name: str = "") -> dict[str, object]:
    """Every leaf of nested dicts and lists, by its path."""
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in json_shape(item, f"{name}/{key}").items()}
    if isinstance(value, list):
        return {k: v for i, item in enumerate(value) for k, v in json_shape(item, f"{name}/{i}").items()}
    return {name: value}
