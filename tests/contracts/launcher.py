"""What every launcher promises. Suites inherit `LauncherContract` and supply `launcher` and `bench`.

`launcher` has, besides what `Launcher` says, `abandon()`: whatever started the attempts dies.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from determined.store import attempts, schema, trials
from determined.store.control import log_policies
from tests.launching import Bench, all_gone, until

INFO = """
import json, os
import determined
info = determined.get_cluster_info()
told = {name: getattr(info, name) for name in (
    "task_id", "task_type", "allocation_id", "slot_ids", "container_addrs", "container_rank", "container_slot_counts",
    "gpu_uuids", "cluster_id", "master_url", "latest_checkpoint", "user_data")}
trial = {name: getattr(info.trial, name) for name in ("trial_id", "experiment_id", "trial_seed", "hparams")}
print("TOLD " + json.dumps({**told, **trial}))
names = ("DET_", "CUDA_", "OMP_", "PYTHONUNBUFFERED")
print("VARIABLES " + json.dumps({name: value for name, value in os.environ.items() if name.startswith(names)}))
"""
TREE = """
import os, signal, subprocess, sys, time
subprocess.Popen(["sleep", "1000"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("grandchild is there", flush=True)
        time.sleep(1000)
    os._exit(0)
time.sleep(1000)
"""


def said(bench: Bench, task: Any, word: str) -> Any:
    """What the script printed after this word, as JSON."""
    line = next(row.text for row in bench.lines(task) if row.text.startswith(word))
    return json.loads(line.removeprefix(word))


class LauncherContract:
    # Ends.

    def test_reports_the_exit_code(self, launcher: Any, bench: Bench) -> None:
        """A trial that exits with 3 is seen to have exited with 3, in its allocation and in the event."""
        task = bench.task({"train.py": "import sys; sys.exit(3)"})
        launcher.start(task)
        assert bench.end(task).exit_code == 3
        [event] = bench.events(task)
        assert (event.kind, event.trial_id, event.attempt) == ("ATTEMPT_ENDED", task.trial_id, 1)
        assert event.body == {"code": 3, "matched_policy": None}

    def test_reports_death_by_a_signal(self, launcher: Any, bench: Bench) -> None:
        """A trial that signal 9 ended has the code 137, as in a shell."""
        task = bench.task({"train.py": "import os; os.kill(os.getpid(), 9)"}, entrypoint=["python3", "train.py"])
        launcher.start(task)
        row = bench.end(task)
        assert row.exit_code == 137
        assert "SIGKILL" in (row.exit_reason or "")

    def test_a_program_that_is_not_there(self, launcher: Any, bench: Bench) -> None:
        """An entry point that cannot be started is a failure with code 127, and one line says what was not found."""
        for entrypoint in (["nonsuch", "train.py"], "nonsuch train.py"):
            task = bench.task({"train.py": ""}, entrypoint=entrypoint)
            launcher.start(task)
            assert bench.end(task).exit_code == 127
            problems = [row for row in bench.lines(task, "controller") if row.level == "ERROR"]
            assert len(problems) == 1
            assert "nonsuch" in problems[0].text
            assert "entrypoint" in problems[0].text

    def test_runs_lists_without_a_shell(self, launcher: Any, bench: Bench) -> None:
        """A list is executed as it is; a string is a line for sh, in the working directory."""
        script = "import sys; print('ARGUMENTS', sys.argv[1:])"
        for entrypoint, arguments in (
            (["python3", "train.py", "$HOME", "a b"], ["$HOME", "a b"]),
            ("X=7; python3 train.py $X 'a b'", ["7", "a b"]),
        ):
            task = bench.task({"train.py": script}, entrypoint=entrypoint)
            launcher.start(task)
            bench.end(task)
            assert f"ARGUMENTS {arguments}" in bench.text(task)

    # Output.

    def test_output_of_all_processes_arrives(self, launcher: Any, bench: Bench) -> None:
        """What a script, its child processes and C libraries print is stored in order, with its stream."""
        script = """
import os, subprocess, sys
print("from python")
subprocess.run("echo from a child; echo from its stderr >&2", shell=True)
os.write(1, b"from below python\\n")
print("no end of line", end="")
"""
        task = bench.task({"train.py": script})
        launcher.start(task)
        bench.end(task)
        out = [row.text for row in bench.lines(task) if row.stdtype == "stdout"]
        assert out == ["from python", "from a child", "from below python", "no end of line"]
        assert [row.text for row in bench.lines(task) if row.stdtype == "stderr"] == ["from its stderr"]

    def test_a_progress_bar_is_a_line_per_refresh(self, launcher: Any, bench: Bench) -> None:
        """P-77: A carriage return ends a line; the blanks that wipe a bar are none."""
        script = r"print('\r 10%\r 20%', end='', flush=True); print('\r     \rdone')"
        task = bench.task({"train.py": script})
        launcher.start(task)
        bench.end(task)
        assert [row.text for row in bench.lines(task)] == [" 10%", " 20%", "done"]

    def test_ranks_and_levels_are_fields(self, launcher: Any, bench: Bench) -> None:
        """P-78: `[rank=1] WARNING: hot` has rank 1, level WARNING and the text `hot`; a plain line has neither."""
        task = bench.task({"train.py": "print('[rank=1] WARNING: hot'); print('plain')"})
        launcher.start(task)
        bench.end(task)
        assert [(row.rank, row.level, row.text) for row in bench.lines(task)] == [
            (1, "WARNING", "hot"),
            (None, None, "plain"),
        ]

    def test_lines_arrive_while_a_trial_runs(self, launcher: Any, bench: Bench) -> None:
        """Nobody waits for the end of a trial to read its lines, and a script that sleeps is no reason to wait."""
        task = bench.task({"train.py": "import time; print('early'); time.sleep(1000)"})
        launcher.start(task)
        bench.printed(task, "early")
        assert bench.row(task).state != "TERMINATED"
        launcher.kill(bench.row(task))
        bench.end(task)

    def test_the_config_is_logged_without_its_secrets(self, launcher: Any, bench: Bench) -> None:
        """P-09: One line of the log is the effective config, masked; the trial has the secret itself."""
        script = "import determined; print(determined.get_cluster_info().user_data['secrets']['t'] == 'ab' + 'c123')"
        task = bench.task({"train.py": script}, data={"secrets": {"t": "abc123"}})
        launcher.start(task)
        bench.end(task)
        assert bench.text(task, "trial") == "True"
        [line] = [text for text in bench.text(task, "controller").splitlines() if "python3 train.py" in text]
        assert "********" in line
        assert "abc123" not in bench.text(task)

    def test_log_policies_match_lines(self, launcher: Any, bench: Bench) -> None:
        """P-48: A matching line labels the trial, is named with its pattern in the log and cancels retries.

        The line that echoes the config holds every pattern, and matches none.
        """
        policies = [
            {"name": "boom", "pattern": ".*went off.*", "action": "cancel_retries"},
            {"name": "never", "pattern": "checkpoint_storage"},
            {"name": "off"},
        ]
        script = "import sys; print('bomb 7 went off'); print('bomb 8 went off'); sys.exit(1)"
        task = bench.task({"train.py": script}, log_policies=policies)
        launcher.start(task)
        bench.end(task)
        with bench.store.read() as conn:
            hits = log_policies.of_task(conn, task.task_id)
            assert trials.get(conn, task.trial_id).log_policy_matched == "boom"
        assert [(hit.name, hit.pattern, hit.line) for hit in hits] == [("boom", ".*went off.*", "bomb 7 went off")]
        [event] = bench.events(task)
        for text in (bench.text(task, "controller"), event.body["matched_policy"]):
            assert "'.*went off.*'" in text
            assert "'bomb 7 went off'" in text

    # What a script finds.

    def test_environment_and_cluster_info(self, launcher: Any, bench: Bench) -> None:
        """Hyperparameters, seed, config, checkpoint, steps and ids are what a script expects, in both places."""
        steps = {"latest_checkpoint": "4f1c22d0-0000-4000-8000-000000000000", "steps_completed": 12}
        task = bench.task({"train.py": INFO}, slots=2, task=steps, data={"path": "/data"})
        launcher.start(task)
        assert bench.end(task).exit_code == 0, bench.text(task)
        told, found = said(bench, task, "TOLD "), said(bench, task, "VARIABLES ")
        assert told == {
            "task_id": task.task_id,
            "task_type": "TRIAL",
            "allocation_id": task.allocation_id,
            "slot_ids": [0, 1],
            "container_addrs": ["127.0.0.1"],
            "container_rank": 0,
            "container_slot_counts": [2],
            "gpu_uuids": [],
            "cluster_id": bench.store.id,
            "master_url": told["master_url"],
            "latest_checkpoint": task.latest_checkpoint,
            "user_data": {"path": "/data"},
            "trial_id": task.trial_id,
            "experiment_id": task.experiment_id,
            "trial_seed": 7,
            "hparams": {"lr": 0.1},
        }
        assert {name: found[name] for name in found.keys() & EXPECTED.keys()} == EXPECTED
        assert found["DET_EXPERIMENT_ID"] == str(task.experiment_id)
        assert found["DET_TRIAL_ID"] == str(task.trial_id)
        assert found["DET_TASK_ID"] == task.task_id
        assert found["DET_ALLOCATION_ID"] == task.allocation_id
        assert found["DET_CLUSTER_ID"] == bench.store.id
        assert found["DET_LATEST_CHECKPOINT"] == task.latest_checkpoint
        assert json.loads(found["DET_EXPERIMENT_CONFIG"]) == task.config
        assert found["DET_MASTER"]

    def test_config_variables_of_the_slot_kind(self, launcher: Any, bench: Bench) -> None:
        """The config's variables for this kind of slot are set before the hook and the entry point."""
        chosen = {"cpu": ["A=1", "OMP_NUM_THREADS=9", "EMPTY="], "cuda": ["A=2"]}
        hook = "export FROM_HOOK=$A"
        script = "import os; print([os.environ.get(n) for n in ('A', 'OMP_NUM_THREADS', 'EMPTY', 'FROM_HOOK')])"
        task = bench.task({"train.py": script, "startup-hook.sh": hook}, environment={"environment_variables": chosen})
        launcher.start(task)
        bench.end(task)
        assert bench.text(task, "trial") == "['1', '9', '', '1']"

    def test_a_fresh_working_directory(self, launcher: Any, bench: Bench) -> None:
        """P-69: Each attempt has the snapshot's files, whatever an earlier one has done to its own; then they go."""
        script = """
import os, pathlib
print("FOUND", sorted(map(str, pathlib.Path(".").rglob("*.*"))), pathlib.Path("a/data.txt").read_text(), os.getcwd())
pathlib.Path("a/data.txt").write_text("changed")
pathlib.Path("left.over").touch()
"""
        files = {"train.py": script, "a/data.txt": "as submitted"}
        first, second = bench.task(files), bench.task(files)
        for task in (first, second):
            launcher.start(task)
            assert bench.end(task).exit_code == 0, bench.text(task)
            [line] = bench.text(task, "trial").splitlines()
            *found, place = line.split()
            assert " ".join(found) == "FOUND ['a/data.txt', 'train.py'] as submitted"
            until(lambda place=place: not Path(place).exists(), lambda: "the directory is still there")

    def test_bind_mounts_are_links(self, launcher: Any, bench: Bench, tmp_path: Path) -> None:
        """A relative container_path is a link in the working directory; an absolute one that differs is a warning."""
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "x.txt").write_text("mounted")
        mounts = [
            {"host_path": str(tmp_path / "data"), "container_path": "./in/data"},
            {"host_path": str(tmp_path / "data"), "container_path": str(tmp_path / "data")},
            {"host_path": str(tmp_path / "data"), "container_path": "/elsewhere"},
        ]
        task = bench.task({"train.py": "print(open('in/data/x.txt').read())"}, bind_mounts=mounts)
        launcher.start(task)
        bench.end(task)
        assert bench.text(task, "trial") == "mounted"
        [warning] = [row.text for row in bench.lines(task, "controller") if row.level == "WARNING"]
        assert "/elsewhere" in warning
        assert (tmp_path / "data" / "x.txt").exists()

    # Before user code.

    def test_the_hook_is_sourced(self, launcher: Any, bench: Bench) -> None:
        """P-68: What startup-hook.sh exports, and its directory, is there in the entry point; its lines are logged."""
        script = "import os; print(os.environ['A'], os.path.basename(os.getcwd()))"
        hook = "echo from the hook; export A=1; set -- lost; mkdir deeper; cp train.py deeper; cd deeper"
        task = bench.task({"train.py": script, "startup-hook.sh": hook})
        launcher.start(task)
        assert bench.end(task).exit_code == 0, bench.text(task)
        assert bench.text(task, "trial").splitlines() == ["from the hook", "1 deeper"]

    @pytest.mark.parametrize(("hook", "code"), [("return 4", 4), ("exit 5", 5), ("set -e; false", 1), ("exit 0", 1)])
    def test_a_hook_that_fails(self, launcher: Any, bench: Bench, hook: str, code: int) -> None:
        """P-68: A hook that fails, or leaves before the entry point, fails the attempt, and one line says so."""
        task = bench.task({"train.py": "print('user code')", "startup-hook.sh": hook})
        launcher.start(task)
        assert bench.end(task).exit_code == code
        assert "user code" not in bench.text(task, "trial")
        assert "startup-hook.sh ended with exit code" in bench.text(task)

    @pytest.mark.parametrize("files", [{}, {"startup-hook.sh": "true"}], ids=["without hook", "with hook"])
    def test_storage_is_probed(self, launcher: Any, bench: Bench, tmp_path: Path, files: dict[str, str]) -> None:
        """P-67: Without a place for checkpoints an attempt fails before user code, naming backend, place and cause."""
        (tmp_path / "a file").touch()
        storage = {"type": "directory", "container_path": str(tmp_path / "a file" / "checkpoints")}
        task = bench.task({"train.py": "print('user code')", **files}, checkpoint_storage=storage)
        launcher.start(task)
        assert bench.end(task).exit_code == 1
        assert "user code" not in bench.text(task, "trial")
        [line] = [row.text for row in bench.lines(task, None) if "(directory)" in row.text]
        assert storage["container_path"] in line
        assert "Not a directory" in line

    # Kills.

    def test_kill_ends_the_whole_tree(self, launcher: Any, bench: Bench) -> None:
        """P-54: Killed, all processes of a trial are gone, one that left its group and session too; it is recorded."""
        task = bench.task({"train.py": TREE})
        launcher.start(task)
        bench.printed(task, "grandchild is there")
        processes = bench.processes(task)
        launcher.kill(bench.row(task))
        assert bench.end(task).exit_code == 137
        assert all_gone(processes)
        assert [event.body["code"] for event in bench.events(task)] == [137]

    def test_what_a_trial_leaves_behind_is_ended(self, launcher: Any, bench: Bench) -> None:
        """When the entry point has ended, processes that it left running are ended too; its own code counts."""
        task = bench.task({"train.py": TREE.replace("\ntime.sleep(1000)", "\ntime.sleep(1); sys.exit(3)")})
        launcher.start(task)
        bench.printed(task, "grandchild is there")
        processes = bench.processes(task)
        assert bench.end(task).exit_code == 3
        assert all_gone(processes)

    def test_it_survives_whoever_started_it(self, launcher: Any, bench: Bench, tmp_path: Path) -> None:
        """P-66: A trial goes on, and its end is recorded, when the process that started it is killed."""
        script = (
            f"import os, time\nprint('going')\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.05)"
        )
        task = bench.task({"train.py": script + "\nprint('on'); exit(3)"})
        launcher.start(task)
        bench.printed(task, "going")
        launcher.abandon()
        assert launcher.is_alive(bench.row(task))
        (tmp_path / "go").touch()
        assert bench.end(task).exit_code == 3
        assert bench.text(task, "trial") == "going\non"
        until(lambda: not launcher.is_alive(bench.row(task)), lambda: "the agent is still there")

    def test_no_orphans_when_the_agent_is_killed(self, launcher: Any, bench: Bench) -> None:
        """All processes of a trial die with their agent; it is seen to be dead, and no end is recorded."""
        task = bench.task({"train.py": TREE})
        launcher.start(task)
        bench.printed(task, "grandchild is there")
        agent, *below = bench.processes(task)
        agent.kill()
        assert all_gone(below)
        assert all_gone([agent])
        assert not launcher.is_alive(bench.row(task))
        launcher.kill(bench.row(task))
        assert bench.row(task).state != "TERMINATED"

    def test_an_ended_attempt_starts_nothing(self, launcher: Any, bench: Bench) -> None:
        """An agent that comes too late, for an attempt that was ended meanwhile, runs no user code and says nothing."""
        task = bench.task({"train.py": "print('user code')"})
        with bench.store.write() as conn:
            attempts.end(conn, task.allocation_id, reason="given up")
        launcher.start(task)
        after = bench.task({"train.py": ""})
        launcher.start(after)
        bench.end(after)
        launcher.wait(0.5)
        assert bench.text(task) == ""
        assert bench.events(task) == []
        assert bench.row(task).pid is None

    def test_an_attempt_killed_before_it_starts(self, launcher: Any, bench: Bench) -> None:
        """An attempt that was killed before its agent came up ends without user code, and its end is recorded."""
        task = bench.task({"train.py": "print('user code')"})
        with bench.store.write() as conn:
            one = schema.allocations.c.allocation_id == task.allocation_id
            conn.execute(schema.allocations.update().where(one).values(killed=True))
        launcher.start(task)
        assert bench.end(task).exit_code is None
        assert bench.text(task, "trial") == ""
        assert [event.body["code"] for event in bench.events(task)] == [None]

    def test_signals_reach_the_entry_point(self, launcher: Any, bench: Bench) -> None:
        """SIGTERM to an agent arrives in the script, which may finish its work, also below a shell that dies of it."""
        script = """
import signal, sys, time
def leave(*_):
    time.sleep(3)
    print("saved", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(1000)
"""
        for entrypoint, code in ((["python3", "train.py"], 3), ("python3 train.py; true", 143)):
            task = bench.task({"train.py": script}, entrypoint=entrypoint)
            launcher.start(task)
            bench.printed(task, "ready")
            os.kill(bench.row(task).pid or 0, signal.SIGTERM)
            assert bench.end(task).exit_code == code
            assert "saved" in bench.text(task)

    # Slots.

    def test_slots_have_names(self, launcher: Any) -> None:
        """There is at least one slot, each has a name, and asking again gives the same."""
        assert len(launcher.slots()) >= 1
        assert len(set(launcher.slots().devices)) == len(launcher.slots())
        assert launcher.slots() == launcher.slots()

    def test_only_own_gpus_are_seen(self, launcher: Any, bench: Bench) -> None:
        """A trial sees the GPUs of its slots and no others; on CPU slots it sees none."""
        script = "import os; print(repr(os.environ['CUDA_VISIBLE_DEVICES']))"
        for kind, shown in (("cpu", "''"), ("cuda", "'2,5'")):
            task = bench.task({"train.py": script}, slots=2, slot_kind=kind, task={"slot_ids": ["2", "5"]})
            launcher.start(task)
            bench.end(task)
            assert bench.text(task, "trial") == shown

    def test_the_agent_is_known(self, launcher: Any, bench: Bench) -> None:
        """While it runs, an attempt's agent is recorded with process id, start time and machine, and is alive."""
        task = bench.task({"train.py": "import time; print('there'); time.sleep(1000)"})
        launcher.start(task)
        bench.printed(task, "there")
        row = bench.row(task)
        assert row.state == "STARTING"
        assert psutil.pid_exists(row.pid or 0)
        assert row.process_started
        assert row.node
        assert launcher.is_alive(row)
        launcher.kill(row)
        bench.end(task)


EXPECTED = {
    "DET_TRIAL_RUN_ID": "1",
    "DET_TRIAL_SEED": "7",
    "DET_HPARAMS": '{"lr": 0.1}',
    "DET_STEPS_COMPLETED": "12",
    "DET_TASK_TYPE": "TRIAL",
    "DET_SLOT_IDS": "[0, 1]",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}
