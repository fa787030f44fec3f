"""`det experiment create` as a real process, with no controller: what it prints, what it writes, what it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from determined.store import experiments
from determined.store.control import pending
from determined.store.database.connection import Store, open_store

DET = [sys.executable, "-m", "determined.cli"]
FILE = "entrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n"
HEAVY = ("torch", "numpy", "alembic", "pandas", "fsspec", "rich", "psutil", "optuna")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an experiment in it; the store is made when it is first needed."""
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DET_CONTROLLER", "off")
    monkeypatch.delenv("DET_STORE", raising=False)
    monkeypatch.delenv("DET_SLOTS", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "train.py").write_text("print('hello')\n")
    (tmp_path / "e.yaml").write_text(FILE)
    return tmp_path


def det(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*DET, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **options)


def opened(root: Path) -> Store:
    return open_store(root / "home" / "determined.db", create=False)


def test_the_id_comes_first(root: Path) -> None:
    """6.2, P-05, P-07: `Created experiment <id>` on stdout, then warnings and what to type next on stderr."""
    (root / "e.yaml").write_text(FILE + "environment: {image: x}\n")
    done = det("e", "create", "e.yaml", "model")
    assert (done.returncode, done.stdout) == (0, "Created experiment 1\n")
    warning, after = done.stderr.splitlines()
    assert "environment.image" in warning
    assert after.endswith("det experiment watch 1")
    store = opened(root)
    with store.read() as conn:
        row = experiments.get(conn, 1)
        waiting = [event.kind for event in pending.read(conn)]
    store.close()
    assert row.name.startswith("Experiment (")
    assert (row.state, waiting) == ("PAUSED", ["STARTED", "REQUEST"])


def test_paused_and_overridden(root: Path) -> None:
    """P-08, P-53: --config values of their types; --paused leaves it so; fork and the code work on it."""
    done = det("e", "create", "e.yaml", "model", "--paused", "--config", "max_restarts=0", "--config", "labels=a,b")
    assert (done.returncode, done.stdout) == (0, "Created experiment 1\n")
    assert "det experiment activate 1" in done.stderr
    config = json.loads(det("e", "describe", "1", "--json").stdout)
    assert "b" in json.dumps(config)
    assert "max_restarts: 0" in det("e", "config", "1").stdout
    forked = det("e", "fork", "1", "--paused", "--config", "name=second")
    assert (forked.returncode, forked.stdout) == (0, "Created experiment 2\n")
    fetched = det("e", "download-model-def", "2", "--output-dir", "out")
    assert fetched.stdout.strip() == "out/experiment_2_model_def.tgz"
    again = det("e", "continue", "1")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.strip() == "Experiment 1 is PAUSED; only one that has ended can be continued."


def test_nothing_heavy_is_loaded(root: Path) -> None:
    """Issue 14: `det e create` never imports torch, nor anything else that it does not need."""
    code = (
        "import sys\nfrom determined.cli.main import main\n"
        "try:\n    main(['e', 'create', 'e.yaml', 'model'])\n"
        "except SystemExit as left:\n    assert not left.code, left\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    for _ in range(2):  # the first makes the store
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
        assert done.stdout.splitlines()[1:] == ["[]"], done.stderr


THREE = "searchr: 1\nentrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\nresources: {slots: 2}\n"


def test_three_mistakes_with_line_and_column(root: Path) -> None:
    """P-02, P-03, P-04, issue 14: all are named with their places, exit code 1, and not even a store is made."""
    (root / "e.yaml").write_text(THREE + "max_restarts: -1\n")
    done = det("e", "create", "e.yaml", "model")
    assert (done.returncode, done.stdout) == (1, "")
    heading, *problems = done.stderr.strip().splitlines()
    assert heading == "e.yaml: invalid experiment configuration"
    assert {line.split(":")[0]: line[line.rindex("(") :] for line in problems} == {
        "<config>.searchr": "(line 1, column 1)",
        "<config>.resources.slots": "(line 4, column 13)",
        "<config>.max_restarts": "(line 5, column 1)",
    }
    assert not (root / "home").exists()


def test_misuse_and_failure(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """6.1: 2 for what cannot be meant, 1 for what cannot be done; one line on stderr, nothing on stdout."""
    misused = det("e", "create", "e.yaml", "model", "--paused", "-f")
    assert (misused.returncode, misused.stdout, misused.stderr.count("\n")) == (2, "", 1)
    (root / "model" / "data.bin").write_bytes(b"x" * 100_000)
    monkeypatch.setenv("DET_CODE_LIMIT_MB", "0.05")
    failed = det("e", "create", "e.yaml", "model")
    assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (1, "", 1)
    assert "Largest: data.bin (0.1 MiB)" in failed.stderr
    assert ".detignore" in failed.stderr
