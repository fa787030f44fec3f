"""What is remembered about a process, and what is not: secrets."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from determined import artifacts, errors
from determined.core import _record
from determined.core._heartbeat import judge
from determined.core._record import (
    MASK,
    describe,
    find_environment,
    is_secret,
    run_name,
    storage_config,
    without_secret_arguments,
    without_secrets,
)


@pytest.mark.parametrize(
    "name",
    ["password", "db_password", "apiKey", "api-key", "AWS_SECRET_ACCESS_KEY", "hf_token", "token", "credentials"],
)
def test_secret_names(name: str) -> None:
    """Issue 6: values under such names are not recorded."""
    assert is_secret(name)


@pytest.mark.parametrize("name", ["tokenizer", "pad_token", "max_tokens", "keys", "num_keys", "secretary", "lr", "key"])
def test_names_that_only_look_like_it(name: str) -> None:
    """Hyperparameters of language models are no secrets."""
    assert not is_secret(name)


def test_a_config_is_masked_and_plain() -> None:
    """Issue 6: secrets in the config are masked at any depth; numbers stay, odd objects become text."""
    config = {
        "data": {"url": "postgresql://me:hunter2@host/db", "api_key": "hunter2", "sizes": (1, 2)},
        "environment": {"environment_variables": ["A=hunter2"], "image": object},
        "access_token": 5,
    }
    shown: Any = without_secrets(config)
    assert "hunter2" not in str(shown)
    assert shown["data"]["url"] == f"postgresql://me:{MASK}@host/db"
    assert shown["data"]["sizes"] == [1, 2]
    assert shown["environment"]["environment_variables"] == [f"A={MASK}"]
    assert shown["access_token"] == 5
    assert isinstance(shown["environment"]["image"], str)


def test_everything_below_secrets_is_masked() -> None:
    """P-09: values under data.secrets are not written down, whatever they are called and whatever they are."""
    shown: Any = without_secrets({"data": {"secrets": {"t": "hunter2", "pin": 1234, "more": {"x": ["hunter2"]}}}})
    assert shown == {"data": {"secrets": {"t": MASK, "pin": MASK, "more": MASK}}}


def test_arguments_are_masked() -> None:
    """Issue 6: `--password x`, `--token=x` and logins in URLs are masked, the rest is as it was typed."""
    given = [
        "--lr",
        "0.1",
        "--password",
        "x",
        "--token=x",
        "--verbose",
        "s3://u:x@b",
        "--api-key",
        "--flag",
        "api_key=x",
    ]
    assert without_secret_arguments(given) == [
        "--lr", "0.1", "--password", MASK, f"--token={MASK}", "--verbose", f"s3://u:{MASK}@b", "--api-key", "--flag",
        f"api_key={MASK}",
    ]  # fmt: skip


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
    monkeypatch.setattr(_record, "GIT_SECONDS", 0.2)
    assert _record._git(str(tmp_path)) is None


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
        (ValueError(), False, "ERROR", "ValueError"),
        (errors.InvalidHP("too big"), False, "COMPLETED", "invalid hyperparameters: too big"),
    ],
)
def test_how_an_end_is_judged(error: BaseException | None, asked: bool, state: str, reason: str) -> None:
    """C-70, 4.5: what a run that ends so is called, and why in one line."""
    report = judge(error, asked)
    assert (report.state, report.reason) == (state, reason)


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("/work/examples/digits/train.py", "digits"),
        ("/work/digits/main.py", "digits"),
        ("/work/digits/__main__.py", "digits"),
        ("/work/digits/ablation.py", "digits/ablation"),
        ("/work/digits/src/train.py", "digits"),
        ("/work/digits/scripts/ablation.py", "digits/ablation"),
        ("{home}/train.py", "train"),
        ("{home}/src/train.py", "train"),
        ("{home}/digits.py", "digits"),
        ("{temp}/train.py", "train"),
        ("/train.py", "train"),
        ("/src/train.py", "train"),
        (None, "python"),
    ],
)
def test_a_run_is_named_after_its_project(script: str | None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are called after the script's directory, with the script where it says more; never `train.py`."""
    monkeypatch.setenv("HOME", "/home/ada")
    place = script and script.format(home="/home/ada", temp=tempfile.gettempdir())
    assert run_name(place) == name
