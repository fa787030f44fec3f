"""What is remembered about a process, and what is not: secrets."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from determined import artifacts, errors
from determined._redact import MASK
from determined.core.recording import run_description
from determined.core.recording.heartbeat import end_state
from determined.core.recording.run_description import describe, find_environment, run_name, storage_config, store_hash


def test_a_config_is_recorded_plain_and_without_secrets() -> None:
    """Issues 6 and 11: secrets are masked at any depth; numbers stay, odd objects become text, masked too."""

    class Odd:
        def __repr__(self) -> str:
            return "Odd(api_key='hunter2')"

    config = {
        "name": "postgresql://me:hunter2@host/db",
        "data": {"url": "postgresql://me:hunter2@host/db", "api_key": b"hunter2", "sizes": (1, 2)},
        "environment": {"environment_variables": ["A=hunter2"], "image": Odd()},
        "access_token": 5,
    }
    found = describe(config=config, hparams={"password": "hunter2", "lr": 0.1}, storage={"type": "s3", "bucket": "b"})
    assert "hunter2" not in repr(found)
    assert found.config["data"] == {"url": f"postgresql://me:{MASK}@host/db", "api_key": MASK, "sizes": [1, 2]}
    assert found.config["environment"] == {"environment_variables": [f"A={MASK}"], "image": f"Odd(api_key='{MASK}')"}
    assert (found.config["access_token"], found.hparams) == (5, {"password": MASK, "lr": 0.1})


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (None, {"type": "directory", "container_path": "/default"}),
        ("/some/where", {"type": "directory", "container_path": "/some/where"}),
        ("file:///some/where", {"type": "directory", "container_path": "/some/where"}),
        ("file:/some/where", {"type": "directory", "container_path": "/some/where"}),
        (Path("/p"), {"type": "directory", "container_path": "/p"}),
        (
            {"type": "directory", "container_path": "here"},
            {"type": "directory", "container_path": str(Path("here").absolute())},
        ),
        ("s3://bucket/a/b", {"type": "s3", "bucket": "bucket", "prefix": "a/b"}),
        ("gs://bucket", {"type": "gcs", "bucket": "bucket", "prefix": ""}),
        ("memory://x", None),
        (
            {"type": "s3", "bucket": "b", "access_key": "x", "secret_key": "y", "save_trial_best": 1},
            {"type": "s3", "bucket": "b"},
        ),
        (
            {"type": "azure", "container": "c", "connection_string": "x", "credential": "y"},
            {"type": "azure", "container": "c"},
        ),
        ({"type": "shared_fs", "host_path": "/h"}, {"type": "shared_fs", "host_path": "/h"}),
    ],
)
def test_a_storage_can_be_opened_again(chosen: Any, expected: dict[str, Any] | None) -> None:
    """5.1 storage_backends: what is recorded opens the same place; credentials are not in it."""
    found = storage_config(chosen, Path("/default"))
    assert found == expected
    if found is not None and found["type"] in ("directory", "shared_fs"):
        assert artifacts.open_storage(found).url


def test_a_process_describes_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 6: the config's name, else the script's; without git and with a strange script, less is known."""
    assert describe(config={"name": "mine"}).name == "mine"
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "train.py"), raising=False)
    found = describe(hparams={"lr": 0.1}, seed=3)
    assert (found.name, found.script, found.seed) == (tmp_path.name, str(tmp_path / "train.py"), 3)
    monkeypatch.setenv("PATH", "")
    environment = find_environment(found)
    assert "git" not in environment
    assert environment["torch"]


def test_a_git_that_hangs_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 6: git gets a bounded time, and then there is none."""
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(run_description, "GIT_SECONDS", 0.2)
    assert run_description._git(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("error", "asked", "state", "reason"),
    [
        (None, False, "COMPLETED", ""),
        (None, True, "PAUSED", "asked to stop"),
        (SystemExit(0), False, "COMPLETED", ""),
        (SystemExit(3), False, "ERROR", "exited with status 3"),
        (SystemExit(3), True, "PAUSED", "asked to stop"),
        (KeyboardInterrupt(), True, "CANCELED", "interrupted"),
        (ValueError("one\ntwo"), True, "ERROR", "ValueError: one"),
        (
            OSError("ftp://me:x@h token=x refused"),
            False,
            "ERROR",
            "OSError: ftp://me:********@h token=******** refused",
        ),
        (SystemExit("--password x"), False, "ERROR", "exited with status --password ********"),
        (ValueError(), False, "ERROR", "ValueError"),
        (errors.InvalidHP("too big"), False, "COMPLETED", "invalid hyperparameters: too big"),
    ],
)
def test_how_an_end_is_judged(error: BaseException | None, asked: bool, state: str, reason: str) -> None:
    """C-70, 4.5: what a run that ends so is called, and why in one line."""
    report = end_state(error, asked)
    assert (report.state, report.reason) == (state, reason)


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("/lab/examples/digits/train.py", "digits"),
        ("/lab/digits/main.py", "digits"),
        ("/lab/digits/__main__.py", "digits"),
        ("/lab/digits/ablation.py", "digits/ablation"),
        ("/lab/digits/src/train.py", "digits"),
        ("/lab/digits/scripts/ablation.py", "digits/ablation"),
        ("{home}/train.py", "train"),
        ("{home}/src/train.py", "train"),
        ("{home}/digits.py", "digits"),
        ("{temp}/train.py", "train"),
        ("/train.py", "train"),
        ("/src/train.py", "train"),
        ("/lab/digits/ablation.ipynb", "digits/ablation"),
        ("/lab/digits/notebook.ipynb", "digits"),
        (None, "python"),
    ],
)
def test_a_run_is_named_after_its_project(script: str | None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are called after the script's directory, with the script where it says more; never `train.py`."""
    monkeypatch.setenv("HOME", "/home/ada")
    place = script and script.format(home="/home/ada", temp=tempfile.gettempdir())
    assert run_name(place) == name


def test_a_new_password_makes_no_other_store() -> None:
    """What a run left on disk is delivered after its store's password was changed, and to no other store."""
    before, after, other = (f"postgresql://ada:{word}/runs" for word in ("old@db", "new@db", "old@elsewhere"))
    assert store_hash(before) == store_hash(after) != store_hash(other)
