"""Every test starts clean and has to leave clean: no thread, child process, variable or process group stays behind."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

from tests.ray_cluster import ray_cluster  # noqa: F401
from tests.stores import database, postgres, sqlite_store, store, store_place  # noqa: F401  fixtures for everybody

# Shared helpers explain their failed assertions as tests do.
pytest.register_assert_rewrite("tests.contracts", "tests.lifecycles", "tests.ranks", "tests.trials")

# Tests run beside each other, on as many cores as there are workers: a second thread of torch would be in the way.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# At a desk every run looks for new examples; a landing is judged by the same ones each time.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

# pytest says here which test runs; torch's compiler, which optimizers load, where its cache is.
NOT_OURS = {"PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR"}
LISTS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()  # Linux does
GRACE_SECONDS = 30.0  # for a machine with much else to do; what is over is not waited for


# Under nohup, or in the background of a script, signals are ignored, and processes started by tests inherit that.
for _number, _usual in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


def pytest_collection_finish() -> None:
    """What is imported by now stays: looking for garbage in it took two thirds of the time of some tests."""
    gc.freeze()


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def _children() -> set[psutil.Process]:
    """All processes below this one. Two readings agree, since one may miss a process while another ends."""
    if not LISTS_CHILDREN:
        return set(psutil.Process().children(recursive=True))
    found = _below(os.getpid())
    while found != (again := _below(os.getpid())):
        found = again
    children = set()
    for pid in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            children.add(psutil.Process(pid))
    return children


def _below(pid: int) -> set[int]:
    """Numbers of the processes below another, from the kernel's own lists: psutil reads every process of the machine,
    which took most of the time of a small test."""
    found = set()
    with contextlib.suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  twice as fast
            with open(f"/proc/{pid}/task/{thread}/children") as children:  # noqa: PTH123
                found.update(int(number) for number in children.read().split())
    return found.union(*(_below(number) for number in found))


def _is_a_browsers_own(process: psutil.Process, before: set[psutil.Process]) -> bool:
    """A browser that serves several tests starts and ends processes as it likes."""
    try:
        return any(parent in before and "chrom" in parent.name() for parent in process.parents())
    except psutil.NoSuchProcess:
        return True


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in NOT_OURS}


def _settle(find: Callable[[], object]) -> object:
    """What `find` still finds after things that are just ending had a moment to end."""
    deadline = time.monotonic() + GRACE_SECONDS
    while (found := find()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    threads, children, environment = _threads(), _children(), _environment()
    yield
    problems = []
    if leaked := _settle(lambda: [t for t in _threads() - threads if t.is_alive()]):
        problems.append(f"threads still run: {leaked}")
    if leaked := _settle(
        lambda: [p for p in _children() - children if p.is_running() and not _is_a_browsers_own(p, children)]
    ):
        problems.append(f"child processes still run: {leaked}")
    after = _environment()
    if changed := sorted(k for k in after.keys() | environment.keys() if after.get(k) != environment.get(k)):
        problems.append(f"environment variables changed: {changed}")
        os.environ.clear()
        os.environ.update(environment)
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        problems.append("a process group is still initialised")
        torch.distributed.destroy_process_group()
    if problems:
        pytest.fail("this test leaves something behind: " + "; ".join(problems))


@pytest.fixture(autouse=True)
def home(leaves_nothing_behind: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory of the test's own, so that nothing touches the user's.

    It asks for the guard first, so that monkeypatch has undone its work by the time the guard looks.
    """
    path = tmp_path / "det-home"
    monkeypatch.setenv("DET_HOME", str(path))
    return path


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints copy the code of the current directory; here there is none."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture(scope="session")
def nursery() -> Iterator[Any]:
    """Forks ranks as real processes: see `tests.forks`."""
    from tests.forks import Nursery

    with Nursery() as found:
        yield found
