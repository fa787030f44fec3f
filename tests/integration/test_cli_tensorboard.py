"""det tensorboard: what is started with -d goes on, is listed, opened, read and ended; 6.3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner, Result

from determined.cli.main import main
from determined.client.background import board_process, records
from determined.client.background.boards import REGISTER
from determined.core.recording.event_file import EventFile
from tests.history import History, Run
from tests.ranks import free_port
from tests.tensorboards import in_place_of_tensorboard, reaped

Det = Callable[..., Result]


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    with History(tmp_path) as made:
        monkeypatch.setenv("DET_STORE", str(made.place))
        yield made


@pytest.fixture
def run(history: History, tmp_path: Path) -> Run:
    files = tmp_path / "events"
    files.mkdir()
    written = EventFile(files)
    written.add_scalar("Determined/loss", 0.5, 1)
    written.flush()
    return history.run("one", tensorboard=str(files))


@pytest.fixture
def port() -> Iterator[int]:
    """One that nobody else is given meanwhile."""
    with free_port() as held:
        yield held


@pytest.fixture
def det(run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Det]:
    """Runs `det tensorboard`, with a process in place of TensorBoard; it has to end with `code`."""
    monkeypatch.setattr(board_process, "command", in_place_of_tensorboard)

    def type_in(*words: object, code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["tensorboard", *map(str, words)])
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    with reaped():
        yield type_in


def listed(det: Det) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(det("list", "--json").stdout)
    return found


@pytest.mark.slow
def test_a_detached_tensorboard_outlives_the_command(run: Run, home: Path, port: int) -> None:
    """6.3: start -d returns when TensorBoard answers; it shows the runs until it is killed, and leaves nothing."""

    def type_in(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "determined.cli", "tensorboard", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    started = type_in("start", run.experiment_id, "-d", "--port", port, "--no-browser")
    try:
        assert (started.returncode, started.stdout) == (0, f"http://127.0.0.1:{port}/\n"), started.stderr
        assert "det tensorboard kill 1" in started.stderr
        process = psutil.Process(REGISTER.get(1).pid)
        shown: list[str] = []
        deadline = time.monotonic() + 200
        while not shown and time.monotonic() < deadline:  # it answers before it has read all
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/data/runs", timeout=60) as answer:
                shown = json.load(answer)
        assert shown == [f"exp-{run.experiment_id}-trial-{run.trial_id}"]
        assert os.getsid(process.pid) == process.pid  # the end of a terminal is not its end
        assert f":{port}/" in type_in("logs", 1).stdout
    finally:
        killed = type_in("kill", "--all")
    assert (killed.returncode, killed.stderr) == (0, "TensorBoard 1 is ended.\n")
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert list((home / "tensorboards").iterdir()) == []


def test_those_that_run_are_listed(det: Det, run: Run, port: int) -> None:
    """6.3: list says where each is and what it shows; the next one gets the next number."""
    det("start", run.experiment_id, "-d", "--port", port)
    with free_port() as another:
        det("-t", run.trial_id, "--detach", "--port", another)
        first, second = listed(det)
        assert (first["id"], first["address"]) == (1, f"http://127.0.0.1:{port}/")
        assert (first["experiments"], first["trials"]) == ([run.experiment_id], [])
        assert (second["id"], second["experiments"], second["trials"]) == (2, [], [run.trial_id])
        assert det("ls", "--csv").stdout.startswith("ID,Address,Experiments,Trials,Started,PID\n1,http://127.0.0.1:")
        det("kill", "1,2")
    assert listed(det) == []


def test_what_has_ended_is_cleared_away(det: Det, run: Run, home: Path, port: int) -> None:
    """6.3: one that died is read about and not opened; list removes what is left of it."""
    det(run.experiment_id, "-d", "--port", port)
    process = psutil.Process(REGISTER.get(1).pid)
    process.kill()
    process.wait(60)
    assert det("logs", 1).stdout.startswith("it answers\n")
    assert "has ended" in det("open", 1, code=1).stderr
    result = det("list", "--json")
    assert (json.loads(result.stdout), result.stderr) == ([], "TensorBoard 1 had ended, and is cleared away.\n")
    assert list((home / "tensorboards").iterdir()) == []


def test_a_process_that_inherited_the_number_is_left_alone(det: Det, run: Run, port: int) -> None:
    """A record whose process number was given to another process ends nobody: here, this test."""
    det(run.experiment_id, "-d", "--port", port)
    record = REGISTER.get(1)
    det("kill", 1)
    REGISTER.place(1).mkdir()
    record.of_process(os.getpid(), record.address).write(REGISTER.place(1))
    text = (REGISTER.place(1) / records.RECORD).read_text()
    stale = {**json.loads(text), "process_started": 1000.0}
    (REGISTER.place(1) / records.RECORD).write_text(json.dumps(stale))
    assert det("kill", 1).stderr == "TensorBoard 1 had ended already.\n"
    assert REGISTER.found() == {}


def test_one_that_ends_at_once_says_why(
    det: Det, run: Run, home: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """6.3: its last lines are shown, the command fails, and nothing is left."""
    script = "print('\\n'.join(f'line {i}' for i in range(50)) + '\\nno such plugin'); raise SystemExit(3)"
    monkeypatch.setattr(board_process, "command", lambda *_: [sys.executable, "-c", script])
    result = det(run.experiment_id, "-d", "--port", port, code=1)
    assert "no such plugin\nTensorBoard ended before it answered" in result.stderr
    assert "line 10\n" not in result.stderr
    assert list((home / "tensorboards").iterdir()) == []


def test_a_port_that_was_taken_meanwhile_is_not_mistaken(
    det: Det, run: Run, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another TensorBoard that answers there is not ours: the next free port is tried."""
    det(run.experiment_id, "-d", "--port", port)
    with free_port() as another:
        offered = iter([port, another, another])
        monkeypatch.setattr(board_process, "free_port", lambda host: next(offered))
        assert det(run.experiment_id, "-d").stdout == f"http://127.0.0.1:{another}/\n"
        det("kill", "--all")


def test_one_is_opened_by_its_number(det: Det, run: Run, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """6.3: open prints the address and shows it in the browser; where there is none, it says so."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: bool(opened.append(address)))
    det(run.experiment_id, "-d", "--port", port)
    assert opened == []  # nobody looks at a pipe
    result = det("open", 1)
    assert opened == [f"http://127.0.0.1:{port}/"]
    assert result.stdout == f"http://127.0.0.1:{port}/\n"
    assert "no browser" in result.stderr


@pytest.mark.parametrize(
    ("words", "experiments", "trials"),
    [
        ("1 2", [1, 2], []),
        ("start 1,2 3", [1, 2, 3], []),
        ("-t 1 2 3", [], [1, 2, 3]),
        ("start 5 -t 1 2 --no-browser 6", [5, 6], [1, 2]),
        ("--no-browser -t 1 -t 2,3", [], [1, 2, 3]),
    ],
)
def test_ids_are_taken_as_they_are_typed(
    words: str, experiments: list[int], trials: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """6.3: `start [EXP...]` and `-t TRIAL...`; `start` may be left out."""
    asked: list[tuple[list[int], list[int]]] = []
    monkeypatch.setattr("determined.client.background.event_files.find_trials", lambda _, *ids: asked.append(ids))
    CliRunner().invoke(main, ["tensorboard", *words.split()])
    assert asked == [(experiments, trials)]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ("", 2, "Name an experiment, or a trial with -t."),
        ("lst", 2, "Did you mean 'list' or 'ls'?"),
        ("1 two", 2, "'two' is not an id"),
        ("kill", 2, "Name them, or give --all"),
        ("kill 1 --all", 2, "Name them, or give --all"),
        ("kill 7", 1, "There is no TensorBoard 7."),
        ("logs 7", 1, "There is no TensorBoard 7."),
        ("open 7", 1, "There is no TensorBoard 7."),
    ],
)
def test_a_slip_is_one_sentence(words: str, code: int, sentence: str) -> None:
    """2: misuse; 1: nothing of that number."""
    result = CliRunner().invoke(main, ["tensorboard", *words.split()])
    assert result.exit_code == code
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1
