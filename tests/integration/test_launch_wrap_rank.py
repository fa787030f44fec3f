"""`python -m determined.launch.wrap_rank` with real processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from determined.launch import _roster

WRAP = [sys.executable, "-m", "determined.launch.wrap_rank"]


def wrap(*args: str, **options) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*WRAP, *args], capture_output=True, timeout=240, check=False, **options)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def wait_for(what: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_each_line_has_its_rank_and_streams_stay_apart():
    """C-79: `a\\rb\\n` is two prefixed lines; stderr stays stderr; the exit code passes through."""
    code = r"import sys; sys.stdout.write('a\rb\n'); sys.stderr.write('oh\nno end'); sys.exit(5)"
    done = wrap("3", *python(code))
    assert done.stdout == b"[rank=3] a\n[rank=3] b\n"
    assert done.stderr == b"[rank=3] oh\n[rank=3] no end\n"
    assert done.returncode == 5


def test_the_rank_comes_from_the_first_variable_and_old_options_are_taken():
    """12.3: names of variables; `--no-redirect-stdio` is accepted; a `--` of the script stays."""
    code = "import sys; print(sys.argv[1:])"
    environment = {**os.environ, "B_RANK": "7"}
    done = wrap("--no-redirect-stdio", "A_RANK,B_RANK", *python(code), "--", "--trial", "-x", env=environment)
    assert done.stdout == b"[rank=7] ['--', '--trial', '-x']\n"


def test_any_bytes_pass_and_nothing_is_lost():
    """Better: invalid UTF-8 is replaced, long lines keep their characters whole, and 100 000 lines all arrive."""
    code = r"""
import os
os.write(1, b"bad \xff\xe2 end\n")
os.write(1, "€".encode() * 20000 + b"\n")
for i in range(100):
    data = b"".join(b"%d\n" % (1000 * i + j) for j in range(1000))
    while data: data = data[os.write(1, data):]
os.write(1, b"cut \xe2\x82")
"""
    done = wrap("0", *python(code))
    lines = done.stdout.decode().splitlines()  # raises on anything that is not UTF-8
    assert lines[0] == "[rank=0] bad \ufffd\ufffd end"
    assert lines[1] == "[rank=0] " + "€" * 20000
    assert lines[2:-1] == [f"[rank=0] {i}" for i in range(100000)]
    assert lines[-1] == "[rank=0] cut \ufffd"
    assert done.returncode == 0


def test_a_reader_that_leaves_does_not_stop_the_worker(tmp_path: Path):
    """`... | head -1`: the worker goes on to its end and its exit code passes through."""
    mark = tmp_path / "done"
    code = f"import pathlib\nfor i in range(50000): print('line', i)\npathlib.Path({str(mark)!r}).touch(); exit(4)"
    with subprocess.Popen([*WRAP, "0", *python(code)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"[rank=0] line 0\n"
        process.stdout.close()
        assert process.wait(120) == 4
    assert mark.exists()


def test_lines_arrive_while_the_worker_runs():
    """Python workers are unbuffered, so a line is seen when it is printed."""
    code = "import time; print('now'); time.sleep(600)"
    with subprocess.Popen([*WRAP, "0", *python(code)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"[rank=0] now\n"
        process.terminate()
        assert process.wait(120) == 128 + signal.SIGTERM


def test_signals_reach_the_worker_once():
    """INT, TERM, HUP, USR1, USR2 and WINCH are forwarded, each as often as it was sent."""
    names = ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH"]
    code = f"""
import signal, time
for name in {names!r}:
    signal.signal(getattr(signal, name), lambda number, frame: print(signal.Signals(number).name))
print("ready")
while True: time.sleep(0.01)
"""
    with subprocess.Popen([*WRAP, "0", *python(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"[rank=0] ready\n"
        worker = psutil.Process(process.pid).children()[0]
        try:
            for name in names:
                process.send_signal(getattr(signal, name))
                assert process.stdout.readline().decode() == f"[rank=0] {name}\n"
        finally:
            worker.kill()  # or a test that fails would wait for it for ever
        assert process.wait(120) == 128 + signal.SIGKILL
        assert process.stdout.read() == b""


def test_what_a_worker_leaves_running_is_ended():
    """No orphans: a child in the background ends with the worker, also one that ignores SIGTERM."""
    code = """
import subprocess, sys
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(99)"
child = subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid)
child.returncode = 0  # or Python would warn
"""
    done = wrap("0", *python(code))
    assert done.returncode == 0
    wait_for(lambda: is_gone(int(done.stdout.split()[1])))


def test_a_daemon_that_escaped_does_not_keep_us(tmp_path: Path):
    """A process in a session of its own that holds our pipe open does not make the wrapper wait for ever."""
    pid = tmp_path / "pid"
    code = f"""
import pathlib, subprocess
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path({str(pid)!r}).write_text(str(child.pid))
print("bye")
child.returncode = 0
"""
    try:
        with subprocess.Popen([*WRAP, "0", *python(code)], stdout=subprocess.PIPE) as process:
            assert process.wait(120) == 0
            assert process.stdout is not None
            assert process.stdout.read() == b"[rank=0] bye\n"
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the launcher ends the worker of a killed wrapper")
def test_a_worker_does_not_outlive_a_wrapper_that_is_killed():
    """SIGKILL of the wrapper alone takes the worker with it."""
    code = "import os, time; print(os.getpid()); time.sleep(600)"
    with subprocess.Popen([*WRAP, "0", *python(code)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline().split()[1])
        process.kill()
        wait_for(lambda: is_gone(worker))


def test_the_pipe_alone_tells_of_the_launchers_death():
    """Without help from the kernel, as on macOS: the wrappers notice, end their workers, and tidy up."""
    launcher = f"""
import os, subprocess, sys, time
from determined.launch import _roster
roster = _roster.Roster()
wrapped = {[*WRAP, "0", *python("import os, time; print(os.getpid()); time.sleep(600)")]!r}
subprocess.Popen(wrapped, env={{**os.environ, **roster.variables(for_torch_logs=True)}}, start_new_session=True)
print(roster.directory, flush=True)
time.sleep(600)
"""
    with subprocess.Popen(python(launcher), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        directory = Path(process.stdout.readline().strip())
        worker = int(process.stdout.readline().split()[1])
        assert (directory / "0.0.in").exists()
        process.kill()
        wait_for(lambda: is_gone(worker))
        wait_for(lambda: not directory.exists())


def test_a_run_that_was_killed_whole_is_tidied_up_by_the_next():
    """What nobody has open is removed, unless it is new. A run that goes on keeps its own, and so does a worker whose
    launcher has died.
    """
    launcher = "from determined.launch._roster import Roster; print(Roster().directory, flush=True); input()"
    directories = {}
    with contextlib.ExitStack() as stack:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        names = ("killed", "new", "alive", "outlived")
        processes = {name: stack.enter_context(subprocess.Popen(python(launcher), **pipes)) for name in names}
        for name, process in processes.items():
            directories[name] = Path(process.stdout.readline().strip())
        worker = _roster.Entry(directories["outlived"], "0", 0, last_try=True)
        for name in ("killed", "new", "outlived"):
            processes[name].kill()
            processes[name].wait()
        for name in ("killed", "alive", "outlived"):
            os.utime(directories[name], (0, 0))
        with _roster.Roster():
            left = [name for name, directory in directories.items() if directory.exists()]
        worker.clean_up()
        os.close(worker._alive)
        shutil.rmtree(directories["new"])
        processes["alive"].communicate("\n")
        shutil.rmtree(directories["alive"])
    assert left == ["new", "alive", "outlived"]


def test_what_cannot_be_started_is_one_sentence():
    """A missing program is named; no traceback."""
    done = wrap("0", "/no/such/program")
    assert done.returncode == 127
    assert done.stderr == b"wrap_rank: cannot run '/no/such/program': No such file or directory.\n"
    assert wrap("0").returncode == 2
