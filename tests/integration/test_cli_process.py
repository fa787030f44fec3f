"""det as a real process: readers that leave, Ctrl-C, logs that are followed, TensorBoard."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.history import History
from tests.ranks import free_port

DET = [sys.executable, "-m", "determined.cli"]


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    with History(tmp_path) as made:
        monkeypatch.setenv("DET_STORE", str(made.place))
        yield made


def start(*words: object, **options: Any) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*DET, *map(str, words)], **{**pipes, **options})


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def test_a_reader_may_leave_early(history: History) -> None:
    """`det t logs | head -1` prints one line, nothing on stderr, and does not fail."""
    run = history.run("one", lines=[f"a line that is long enough to fill a pipe {i}" for i in range(5000)])
    command = f"set -o pipefail; {' '.join(DET)} t logs {run.trial_id} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1


def test_ctrl_c_ends_with_3(history: History) -> None:
    """6.1: interrupted is 3, said in one line."""
    history.catch_up()
    run = history.run("going", state="RUNNING", lines=["hello"])
    process = start("t", "logs", "-f", run.trial_id)
    assert process.stdout is not None
    assert "hello" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert (code, err.strip()) == (3, "Interrupted.")


def test_a_log_is_followed_until_its_trial_ends(history: History) -> None:
    """4.11: lines are seen while the trial runs; following ends when it has ended and the log is drained."""
    history.catch_up()
    run = history.run("going", state="RUNNING", lines=["first"])
    process = start("t", "logs", "-f", run.trial_id)
    assert process.stdout is not None
    assert "first" in process.stdout.readline()
    history.log(run, ["second"])
    assert "second" in process.stdout.readline()
    history.log(run, ["last"])
    history.end(run)
    code, out, err = finish(process)
    assert (code, err) == (0, "")
    assert out.rstrip().endswith("|| last")


def test_following_ends_with_a_run_that_was_asked_to_stop(history: History) -> None:
    """A plain run that checkpointed and left is paused: nobody starts it again by itself, so that is all."""
    run = history.run("stopped", state="PAUSED", lines=["saved"])
    code, out, _ = finish(start("t", "logs", "-f", run.trial_id))
    assert code == 0
    assert out.rstrip().endswith("|| saved")


def test_reads_need_nobody_else(history: History) -> None:
    """P-91: with no controller and no server running, `e list`, `t describe`, `t logs` and `j list` work."""
    run = history.run("one", lines=["hello"], validation={10: 0.5})
    trial = run.trial_id
    for words in (("e", "list", "-a"), ("t", "describe", trial), ("t", "logs", trial), ("j", "list", "--csv")):
        code, out, err = finish(start(*words))
        assert (code, err) == (0, "")
        assert out


def test_a_terminal_that_is_not_utf8_gets_ascii(history: History) -> None:
    """Names that the terminal cannot show are replaced, not fatal."""
    history.run("größe-日本")
    code, out, err = finish(start("e", "ls", "-a", env={**os.environ, "PYTHONIOENCODING": "ascii"}))
    assert (code, err) == (0, "")
    assert "gr??e-??" in out


def test_the_machine_is_asked_for_a_terminals_width(history: History) -> None:
    """On a real terminal of 60 columns, no line is longer, and states have colours."""
    import fcntl
    import pty
    import struct
    import termios

    history.run("a name that is much too long for a terminal of sixty columns, really", validation={1: 0.5})
    history.run("two")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")} | {"TERM": "xterm"}
    process = start("e", "ls", "-a", stdout=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other side has closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.wait(timeout=240) == 0
    assert process.stderr is not None
    process.stderr.close()
    text = shown.decode()
    assert "\x1b[32mCOMPLETED\x1b[0m" in text
    plain = text.replace("\x1b[32m", "").replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert max(len(line) for line in plain.splitlines()[:4]) <= 60


@pytest.fixture
def port() -> Iterator[int]:
    """One that nobody else is given meanwhile."""
    with free_port() as held:
        yield held


@pytest.mark.slow
def test_tensorboard_shows_the_runs_that_are_named(history: History, tmp_path: Path, port: int) -> None:
    """6.3: TensorBoard runs on the trials' event files until Ctrl-C, and leaves nothing behind."""
    from determined.core.recording.event_file import EventFile

    files = tmp_path / "events"
    files.mkdir()
    written = EventFile(files)
    written.add_scalar("Determined/loss", 0.5, 1)
    written.flush()
    run = history.run("one", tensorboard=str(files))
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    process = start("tensorboard", run.experiment_id, "--port", port, "--no-browser", env=environment)
    try:
        deadline = time.monotonic() + 200
        shown: list[str] = []
        while not shown and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.3)
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/data/runs", timeout=60) as answer:
                    shown = json.load(answer)
            except OSError:
                continue
        assert shown == [f"exp-{run.experiment_id}-trial-{run.trial_id}"]
    finally:
        process.send_signal(signal.SIGINT)
        code, _, _ = finish(process)
    assert code == 0
    assert not list((tmp_path / "tmp").glob("det-tensorboard-*"))


def test_tensorboard_without_event_files_says_so(history: History) -> None:
    """No event files, no TensorBoard: one line."""
    run = history.run("one")
    code, _, err = finish(start("tensorboard", "start", run.experiment_id))
    assert code == 1
    assert "none has event files" in err
