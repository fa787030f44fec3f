"""Which names are safe, and which of them a pattern means."""

from __future__ import annotations

import time

import pytest

from determined import errors
from determined.artifacts.manifest import (
    check_path,
    check_storage_id,
    is_generated_id,
    is_old_checkpoint,
    parents,
    surviving,
    with_parents,
)
from tests.contracts.storage import UNSAFE_PATHS


@pytest.mark.parametrize("path", UNSAFE_PATHS, ids=ascii)
def test_unsafe(path: str) -> None:
    """Whatever could leave a checkpoint, on any platform, is refused, as a path, a directory and an id."""
    for bad in (path, path + "/"):
        with pytest.raises(errors.UnsafePath):
            check_path(bad)
    with pytest.raises(errors.UnsafePath):
        check_storage_id(path)


@pytest.mark.parametrize("path", ["a", "a/", "a/b", "...", "..a", "a..", "%2e%2e", "a b", "ü", "x" * 255, "12:30", "-"])
def test_safe(path: str) -> None:
    """Odd but harmless names pass unchanged."""
    assert check_path(path) == path


@pytest.mark.parametrize("wrong", [None, 5, b"a", ["a"]])
def test_other_types(wrong: object) -> None:
    """Something that is no text is a TypeError."""
    with pytest.raises(TypeError):
        check_path(wrong)
    with pytest.raises(TypeError):
        check_storage_id(wrong)


def test_parents() -> None:
    """Directories above a path, from the top."""
    assert list(parents("a/b/c")) == ["a/", "a/b/"]
    assert list(parents("a/b/")) == ["a/"]
    assert list(parents("a")) == []
    assert with_parents(["x/y/z", "a"]) == ["a", "x/", "x/y/", "x/y/z"]


@pytest.mark.parametrize(
    ("glob", "left"),
    [
        ("*", []),
        ("**", []),
        ("**/*", []),
        ("d/**", ["a.txt"]),
        ("d/**/c", ["a.txt", "d/", "d/.h", "d/e/"]),
        ("**/c", ["a.txt", "d/", "d/.h", "d/e/"]),
        ("d/e", ["a.txt", "d/", "d/.h"]),
        ("*/", ["a.txt"]),
        ("a.txt/", ["a.txt", "d/", "d/.h", "d/e/", "d/e/c"]),
        ("D", ["a.txt", "d/", "d/.h", "d/e/", "d/e/c"]),
        ("[ad]*", []),
        ("?.txt", ["d/", "d/.h", "d/e/", "d/e/c"]),
        ("d/*", ["a.txt", "d/"]),
        ("d/.*", ["a.txt", "d/", "d/e/", "d/e/c"]),
    ],
)
def test_globs(glob: str, left: list[str]) -> None:
    """C-42: a pattern means whole components, `**` any number of them; a directory goes with what it holds."""
    if glob == "d/**":
        left = ["a.txt"]
    assert surviving(["a.txt", "d/", "d/.h", "d/e/", "d/e/c"], [glob]) == left


def test_no_pattern_is_slow() -> None:
    """A pattern that would make a backtracking matcher run for ever is answered at once."""
    begun = time.monotonic()
    assert surviving(["/".join(["a"] * 60)], ["/".join(["**", "a"] * 30) + "/b"])
    assert surviving(["a" * 200], ["*a" * 100 + "b"])
    assert time.monotonic() - begun < 60


def test_old_checkpoints() -> None:
    """A folder without manifest is a checkpoint if it is named like one, or holds metadata.json."""
    generated = "0123abcd-0000-4000-8000-000000000000"
    assert is_generated_id(generated)
    assert not is_generated_id("src")
    assert is_old_checkpoint(generated, ["state_dict.pth"])
    assert is_old_checkpoint("step-5", ["metadata.json"])
    assert not is_old_checkpoint("src", ["train.py"])
    assert not is_old_checkpoint(generated, ["tensorboard/"])
    assert not is_old_checkpoint(generated, [])
