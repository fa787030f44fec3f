"""Whether a process still runs is asked of real processes: running, stopped, ended and not yet waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from determined import _process


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "print(); input()"], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_running_process_is_alive(child: subprocess.Popen[bytes]) -> None:
    """A process is alive by its number, and by its number together with when it began."""
    assert _process.is_alive(child.pid)
    assert _process.is_alive(child.pid, _process.started(child.pid))
    assert _process.start_mark(child.pid) == _process.start_mark(child.pid) is not None
    assert _process.is_alive(os.getpid(), _process.started())


def test_a_stopped_process_is_alive(child: subprocess.Popen[bytes]) -> None:
    """A process that SIGSTOP has stopped may go on, so it counts as alive."""
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    assert _process.is_alive(child.pid)
    assert _process.start_mark(child.pid) is not None


def test_an_ended_process_is_not_alive(child: subprocess.Popen[bytes]) -> None:
    """A killed process has ended, before its parent waits for it and after."""
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not _process.is_alive(child.pid)
    assert _process.start_mark(child.pid) is None
    child.wait()
    assert not _process.is_alive(child.pid)
    assert _process.start_mark(child.pid) is None
    assert _process.started(child.pid) is None


def test_a_reused_number_is_another_process(child: subprocess.Popen[bytes]) -> None:
    """A process that began at another time is not the one that was recorded."""
    began = _process.started(child.pid)
    assert began is not None
    assert not _process.is_alive(child.pid, began - 60)
    assert _process.start_mark(child.pid) != _process.start_mark(os.getpid())


def test_a_process_of_another_user_is_alive() -> None:
    """A process that is not ours to signal, such as the first of the system, is alive."""
    assert _process.is_alive(1)
