"""`python -m determined.launch.torch_distributed` with real processes. Workers import no torch; its launcher does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.ranks import free_port

LAUNCH = [sys.executable, "-m", "determined.launch.torch_distributed"]
MARK = "DET_TEST_LAUNCH_MARK"
TORCH_VARIABLES = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"]
TORCH_VARIABLES += ["MASTER_ADDR", "MASTER_PORT"]
OUR_VARIABLES = ["USE_TORCH_DISTRIBUTED", "DET_CHIEF_IP", "DET_JOB_SECRET", "DET_LAUNCH_DIR", "PET_LOG_DIR"]


class Launches:
    """Starts launchers whose descendants can all be found again by a mark in their environment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mark = str(uuid.uuid4())
        self.temporary = directory / "tmp"
        self.temporary.mkdir()

    def environment(self, **more: str) -> dict[str, str]:
        ours = {"RANK", "WORLD_SIZE", "DET_JOB_SECRET", "C10D_PORT"}
        kept = {name: value for name, value in os.environ.items() if name not in ours}
        return {**kept, MARK: self.mark, "TMPDIR": str(self.temporary), **more}

    def script(self, code: str) -> list[str]:
        path = self.directory / f"{uuid.uuid4()}.py"
        path.write_text(code)
        return [sys.executable, str(path)]

    def run(self, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = self.environment(**variables)
        return subprocess.run(
            [*LAUNCH, *args], capture_output=True, text=True, env=environment, timeout=240, check=False
        )

    @contextlib.contextmanager
    def start(self, *args: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
        environment = self.environment(**variables)
        process = subprocess.Popen(
            [*LAUNCH, *args], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def survivors(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == self.mark:
                    found.append(process)
        return found


@pytest.fixture
def launches(tmp_path: Path) -> Iterator[Launches]:
    launches = Launches(tmp_path)
    yield launches
    with contextlib.suppress(AssertionError):
        wait_for(lambda: not launches.survivors(), 30)  # who was killed needs a moment, or more on a busy machine
    left = launches.survivors()
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    assert not left, f"these outlived their launcher: {left}"
    stale = [path.name for path in launches.temporary.iterdir() if path.name.startswith(("det-launch", "torchelastic"))]
    assert not stale, f"left in the temporary directory: {stale}"


def wait_for(what: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def read_ready(process: subprocess.Popen[str], ranks: int) -> list[int]:
    """Wait until each rank has printed `ready <pid>`, and return the pids by rank."""
    pids: dict[int, int] = {}
    assert process.stdout is not None
    while len(pids) < ranks:
        line = process.stdout.readline()
        assert line, "the launcher ended before its workers were ready"
        if found := re.fullmatch(r"\[rank=(\d+)\] ready (\d+)\n", line):
            pids[int(found[1])] = int(found[2])
    return [pids[rank] for rank in range(ranks)]


SLEEPER = "import os, time; print('ready', os.getpid()); time.sleep(600)"
SHOW = f"""
import json, os, sys
names = {TORCH_VARIABLES + OUR_VARIABLES!r}
print(json.dumps({{name: os.environ.get(name) for name in names}} | {{"argv": sys.argv[1:]}}))
"""


def shown(output: str) -> dict[int, dict[str, str]]:
    """What the workers of `SHOW` have printed, by rank."""
    by_rank = {}
    for line in output.splitlines():
        prefix, _, said = line.partition(" ")
        by_rank[int(prefix.removeprefix("[rank=").removesuffix("]"))] = json.loads(said)
    return by_rank


def test_two_local_processes_see_what_the_contract_says(launches: Launches):
    """12.2, off-cluster: prefixed lines, the variables, one secret, a free port, arguments with `--` intact."""
    done = launches.run("--nproc_per_node", "2", "--", *launches.script(SHOW), "a b", "--", "--trial")
    assert done.returncode == 0, done.stderr
    ranks = shown(done.stdout)
    assert sorted(ranks) == [0, 1]
    for rank, saw in ranks.items():
        assert (saw["RANK"], saw["LOCAL_RANK"], saw["GROUP_RANK"]) == (str(rank), str(rank), "0")
        assert (saw["WORLD_SIZE"], saw["LOCAL_WORLD_SIZE"], saw["GROUP_WORLD_SIZE"]) == ("2", "2", "1")
        assert (saw["MASTER_ADDR"], saw["DET_CHIEF_IP"]) == ("localhost", "127.0.0.1")
        assert saw["USE_TORCH_DISTRIBUTED"] == "True"
        assert saw["argv"] == ["a b", "--", "--trial"]
        assert saw["DET_LAUNCH_DIR"] is None
        assert saw["PET_LOG_DIR"] is None
    assert ranks[0]["DET_JOB_SECRET"] == ranks[1]["DET_JOB_SECRET"]
    assert len(ranks[0]["DET_JOB_SECRET"]) == 64
    assert ranks[0]["MASTER_PORT"] == ranks[1]["MASTER_PORT"] != "29400"
    assert "failed first" not in done.stderr


LISTENERS = """
import os, psutil
found = [line.laddr for process in psutil.Process().parents()[:2] for line in process.net_connections("tcp")
         if line.status == psutil.CONN_LISTEN and line.laddr.port == int(os.environ["MASTER_PORT"])]
print([address.ip for address in found])
"""


def test_the_meeting_of_one_machine_listens_on_loopback(launches: Launches):
    """Issue 11, 10: no other machine can reach the store in which the ranks of this one meet."""
    done = launches.run("--nproc_per_node", "1", "--", *launches.script(LISTENERS))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[rank=0] ['127.0.0.1']\n"


def test_a_port_that_is_taken_is_a_sentence(launches: Launches):
    """The port that was asked for with C10D_PORT is named if something else has it."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = launches.run(*launches.script(SHOW), C10D_PORT=port)
    assert done.returncode == 1
    assert f"Port {port} on 127.0.0.1" in done.stderr
    assert "Change C10D_PORT" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_task_without_slots_runs_one_process(launches: Launches, tmp_path: Path):
    """C-76, and Better: one container with zero slots runs one process, with master_addr `localhost`."""
    info = tmp_path / "info"
    info.mkdir()
    (info / "cluster.json").write_text(json.dumps({"task_type": "COMMAND", "slot_ids": []}))
    done = launches.run(*launches.script(SHOW), "--", "x", DET_INFO_DIR=str(info), DET_JOB_SECRET="given")
    assert done.returncode == 0, done.stderr
    saw = shown(done.stdout)[0]
    assert (saw["WORLD_SIZE"], saw["MASTER_ADDR"], saw["DET_CHIEF_IP"]) == ("1", "localhost", "127.0.0.1")
    assert (saw["USE_TORCH_DISTRIBUTED"], saw["DET_JOB_SECRET"]) == ("True", "given")
    assert saw["argv"] == ["--", "x"]


def test_two_containers_make_one_world(launches: Launches, tmp_path: Path):
    """C-77: two launchers with 2 slots and 1 make three ranks that share first address, port and inherited secret."""
    with contextlib.ExitStack() as stack:
        port = str(stack.enter_context(free_port()))
        processes = []
        for rank in range(2):
            info = tmp_path / f"info-{rank}"
            info.mkdir()
            (info / "cluster.json").write_text(json.dumps({"task_type": "TRIAL"}))
            told = {"container_addrs": ["127.0.0.1"] * 2, "container_rank": rank, "container_slot_counts": [2, 1]}
            (info / "rendezvous.json").write_text(json.dumps(told))
            variables = {"DET_INFO_DIR": str(info), "DET_JOB_SECRET": "given", "C10D_PORT": port}
            processes.append(stack.enter_context(launches.start(*launches.script(SHOW), **variables)))
        output = ""
        for process in processes:
            out, err = process.communicate(timeout=240)
            assert process.returncode == 0, err
            output += out
    ranks = shown(output)
    assert [ranks[rank]["GROUP_RANK"] for rank in range(3)] == ["0", "0", "1"]
    assert {saw["WORLD_SIZE"] for saw in ranks.values()} == {"3"}
    assert {saw["MASTER_ADDR"] for saw in ranks.values()} == {"127.0.0.1"}
    assert {saw["MASTER_PORT"] for saw in ranks.values()} == {port}
    assert {saw["DET_JOB_SECRET"] for saw in ranks.values()} == {"given"}


def test_one_failing_rank_ends_all_and_has_the_last_word(launches: Launches):
    """C-78: non-zero at once, nobody survives, and that rank's traceback comes last under a heading."""
    script = launches.script("""
import os, subprocess, sys, time
subprocess.Popen(["sleep", "600"])  # a loader worker, say
if os.environ["RANK"] == "1":
    print("some progress", file=sys.stderr)
    try:
        {}["lr"]
    except KeyError:
        sys.excepthook(*sys.exc_info())
        os._exit(3)
time.sleep(600)
""")
    done = launches.run("--nproc_per_node", "2", *script)
    assert done.returncode == 3
    last = done.stderr.partition("\nrank 1 failed first (exit code 3):\n")[2].splitlines()
    assert last[0] == "Traceback (most recent call last):"
    assert last[-1] == "KeyError: 'lr'"
    assert "[rank=1] KeyError: 'lr'" in done.stderr.splitlines()
    wait_for(lambda: not launches.survivors())


def test_the_rank_that_failed_is_told_from_those_that_lost_it(launches: Launches):
    """Of two gloo ranks, one fails and closes its connections first, so the other fails too, often before it."""
    script = launches.script("""
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
try:
    for batch in range(1000):
        if batch == 20 and dist.get_rank() == 1:
            raise ValueError("bad batch")
        dist.all_reduce(torch.ones(1))
finally:
    dist.destroy_process_group()
""")
    done = launches.run("--nproc_per_node", "2", "--", *script)
    assert done.returncode == 1
    assert "[rank=0] " in done.stderr
    last = done.stderr.partition("\nrank 1 failed first (exit code 1):\n")[2].splitlines()
    assert last[-1] == "ValueError: bad batch"


@pytest.mark.slow
def test_a_rank_that_will_not_stop_is_killed(launches: Launches, tmp_path: Path):
    """12.2: when a rank ignores SIGTERM after another has failed, all is over 3 + 10 s later."""
    script = launches.script(f"""
import os, pathlib, signal, sys, time
stubborn = pathlib.Path({str(tmp_path / "stubborn")!r})
if os.environ["RANK"] == "0":
    while not stubborn.exists(): time.sleep(0.01)
    sys.exit(1)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
stubborn.touch()
time.sleep(600)
""")
    begin = time.monotonic()
    done = launches.run("--nproc_per_node", "2", *script)
    assert time.monotonic() - begin > 13
    assert done.returncode == 1
    assert "rank 0 failed first (exit code 1):\n(it wrote nothing to stderr)" in done.stderr
    wait_for(lambda: not launches.survivors())


def test_signals_reach_every_rank_and_a_clean_end_stays_clean(launches: Launches):
    """INT, HUP, USR1, USR2, WINCH, then TERM: each rank has each once, takes its time to save, and all ends with 0."""
    names = ["SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTERM"]
    script = launches.script(f"""
import os, signal, time
got = []
def hear(number, frame):
    got.append(signal.Signals(number).name)
    print("heard", got[-1])
for name in {names!r}:
    signal.signal(getattr(signal, name), hear)
print("ready", os.getpid())
while "SIGTERM" not in got: time.sleep(0.01)
time.sleep(0.5)  # the checkpoint
print(*got)
""")
    with launches.start("--nproc_per_node", "2", *script) as process:
        read_ready(process, 2)
        for name in names:
            process.send_signal(getattr(signal, name))
            said = sorted(process.stdout.readline() for _ in range(2))  # those sent at once may arrive in any order
            assert said == [f"[rank={rank}] heard {name}\n" for rank in range(2)]
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert sorted(out.splitlines()) == [f"[rank={rank}] {' '.join(names)}" for rank in range(2)]


def test_ctrl_c_ends_all_with_130_and_blames_nobody(launches: Launches):
    """SIGINT with no handler of the user's: every rank ends, the exit code says so, no rank is said to have failed."""
    with launches.start("--nproc_per_node", "2", *launches.script(SLEEPER)) as process:
        read_ready(process, 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 128 + signal.SIGINT
        assert "failed first" not in err


def test_a_signal_before_there_are_workers_ends_the_launch(launches: Launches):
    """SIGTERM while torch is still being imported."""
    with launches.start("--nproc_per_node", "2", *launches.script(SLEEPER)) as process:
        wait_for(lambda: psutil.Process(process.pid).children())
        process.terminate()
        process.communicate(timeout=120)
        assert process.returncode == 128 + signal.SIGTERM


def test_nobody_outlives_a_launcher_that_is_killed(launches: Launches):
    """SIGKILL leaves the launcher no time for anything; the workers, and torch's launcher, notice and end."""
    with launches.start("--nproc_per_node", "2", *launches.script(SLEEPER)) as process:
        read_ready(process, 2)
        process.kill()
        wait_for(lambda: not launches.survivors())


def test_a_killed_wrapper_or_agent_takes_the_rest_along(launches: Launches):
    """No part of the chain can be killed without the whole ending: the wrapper of a rank, or torch's launcher."""
    with launches.start("--nproc_per_node", "2", *launches.script(SLEEPER)) as process:
        workers = read_ready(process, 2)
        wrapper = psutil.Process(workers[1]).parent()
        assert wrapper is not None
        wrapper.kill()
        _, err = process.communicate(timeout=120)
        assert process.returncode == 128 + signal.SIGKILL
        assert "\nrank 1 failed first (killed by SIGKILL" in err
        wait_for(lambda: not launches.survivors())

    with launches.start("--nproc_per_node", "2", *launches.script(SLEEPER)) as process:
        read_ready(process, 2)
        (agent,) = psutil.Process(process.pid).children()
        agent.kill()
        _, err = process.communicate(timeout=120)
        assert process.returncode == 128 + signal.SIGKILL
        assert re.search("^torch.distributed.run itself was killed by SIGKILL", err, re.MULTILINE)
        assert "failed first" not in err
        wait_for(lambda: not launches.survivors())


def test_restarts_that_were_asked_for_happen(launches: Launches, tmp_path: Path):
    """`--max_restarts 1` overrides the automatic 0: the first failure is not the end."""
    script = launches.script(f"""
import pathlib, sys
mark = pathlib.Path({str(tmp_path / "tried")!r})
if not mark.exists():
    mark.touch()
    sys.exit(1)
print("second try")
""")
    done = launches.run("--max_restarts", "1", "--nproc_per_node", "1", "--", *script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[rank=0] second try\n"
    assert "failed first" not in done.stderr


def test_misuse_is_instant(launches: Launches):
    """Usage errors need no torch: nothing or too much to run, a misspelt option, a missing program."""
    code = """
import sys
from determined.launch import torch_distributed
for args, status in [([], 1), (["--asdf", "1", "script"], 2), (["--trial", "m:C", "x"], 1), (["no-such-program"], 2)]:
    try:
        left = torch_distributed.main(args)
    except SystemExit as leaving:
        left = leaving.code
    assert left == status, (args, left)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], env=launches.environment(), timeout=120, check=True)
