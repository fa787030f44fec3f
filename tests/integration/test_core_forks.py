"""Processes that a script forks, and scripts of core_v2 that just end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest

from determined.core import PreemptContext
from tests import records


@pytest.fixture
def preempt() -> Iterator[PreemptContext]:
    context = PreemptContext().start()
    yield context
    context.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is inherited where nothing is forked")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_forked_process_can_be_ended(number: int, preempt: PreemptContext, capfd: pytest.CaptureFixture[str]) -> None:
    """Issue: what a script forks, such as a multiprocessing.Pool, ends when told to, without a word about it."""
    assert ended(number) == -number
    assert preempt.should_preempt() is False
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is inherited where nothing is forked")
def test_the_first_ctrl_c_is_not_for_forked_processes(
    preempt: PreemptContext, capfd: pytest.CaptureFixture[str]
) -> None:
    """Decision 3: a terminal sends Ctrl-C to loader workers too; the batch that is due still comes."""
    assert ended(signal.SIGINT, signal.SIGTERM) == -signal.SIGTERM
    assert capfd.readouterr().err == ""


def ended(*numbers: int) -> int:
    """How a forked process ends that sends itself these signals: 0 if it outlives them, -n by signal n."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about forking beside threads: the child does nothing that would need them
        pid = os.fork()
    if pid == 0:
        try:
            for number in numbers:
                os.kill(os.getpid(), number)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize(
    ("ending", "code", "state"),
    [
        ("", 0, "COMPLETED"),
        ("raise KeyError", 1, "ERROR"),
        ("sys.exit(3)", 3, "ERROR"),
        ("sys.exit(0)", 0, "COMPLETED"),
    ],
)
def test_the_process_may_just_end(ending: str, code: int, state: str) -> None:
    """C-70: without close(), an uncaught exception or a failing sys.exit is ERROR, anything else COMPLETED."""
    program = (
        "import sys\nfrom determined.experimental import core_v2\n"
        f"core_v2.init(config=core_v2.Config(name='x'))\nprint('hello')\n{ending}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code
    assert done.stdout == "hello\n"
    assert [(row["state"], row["name"]) for row in records.table("experiments")] == [(state, "x")]
    assert "hello" in records.lines()
