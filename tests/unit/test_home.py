"""The data directory: who may look into it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from determined import core

if os.name != "posix":
    pytest.skip("modes are a matter of POSIX", allow_module_level=True)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "data directory" in record.getMessage()]


def run() -> None:
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})


def make_open(home: Path, mode: int = 0o755) -> None:
    """A data directory as an ordinary umask makes it, with a store that has been used."""
    for name in ("checkpoints", "pages", "tensorboards"):
        (home / name).mkdir(parents=True)
    (home / "determined.db").touch()
    (home / "determined.db").chmod(0o644)
    home.chmod(mode)


def test_an_open_directory_is_closed(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Issue 11: one that everybody could look into is this user's alone after a run, with its store, in one line."""
    make_open(home)
    with caplog.at_level(logging.WARNING, "determined"):
        run()
        run()
    assert (mode(home), mode(home / "determined.db")) == (0o700, 0o600)
    (line,) = said(caplog)
    assert f"{home} (mode 755)" in line


@pytest.mark.parametrize("shared", [0o775, 0o2755, 0o1777])
def test_a_shared_directory_is_told(home: Path, caplog: pytest.LogCaptureFixture, shared: int) -> None:
    """Issue 11: where others may write, somebody meant it: nothing is changed, and the line to type is said."""
    make_open(home, shared)
    with caplog.at_level(logging.WARNING, "determined"):
        run()
    assert (mode(home), mode(home / "determined.db")) == (shared, 0o644)
    (line,) = said(caplog)
    assert f"chmod o-rwx {home}" in line


def test_a_directory_with_other_things_is_told(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Issue 11: DET_HOME may be the directory of a project, which is not ours to close."""
    make_open(home)
    (home / "train.py").touch()
    with caplog.at_level(logging.WARNING, "determined"):
        run()
    assert mode(home) == 0o755
    assert len(said(caplog)) == 1


@pytest.mark.parametrize("private", [0o700, 0o750, 0o2770])
def test_a_group_is_let_in_on_purpose(home: Path, caplog: pytest.LogCaptureFixture, private: int) -> None:
    """Issue 11: a directory that strangers cannot look into stays as it is, without a word."""
    make_open(home, private)
    with caplog.at_level(logging.WARNING, "determined"):
        run()
    assert mode(home) == private
    assert said(caplog) == []
