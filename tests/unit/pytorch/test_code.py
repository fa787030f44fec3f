"""The copy of the code: what is in it, and what is not."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from determined.pytorch import _code
from determined.pytorch._code import CodeCopy, IgnoreRules


def fill(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def test_code_is_copied_and_clutter_is_not(tmp_path: Path) -> None:
    """FIX W43, 6.1: caches, editors' and terraform's files, event files, environments and checkpoints stay out."""
    root = fill(
        tmp_path / "work",
        "train.py", "pkg/model.py", "conf/a.yaml", "README.md",
        "__pycache__/train.cpython-311.pyc", ".git/config", ".idea/x.xml", ".vscode/s.json", "train.py~",
        ".train.py.swp",
        ".terraform/x", "infra.tfstate", "runs/events.out.tfevents.123", "env/pyvenv.cfg", "env/lib/x.py", ".env",
        "old/checkpoints/.artifacts/manifests/1.json", "old/checkpoints/1/code/train.py",
    )  # fmt: skip
    assert sorted(CodeCopy(root).read()) == ["README.md", "conf/a.yaml", "pkg/model.py", "train.py"]


def test_the_copy_is_taken_once(tmp_path: Path) -> None:
    """Every checkpoint of a run holds the code as it was first seen, with its modes."""
    root = fill(tmp_path / "work", "train.py", "run.sh")
    (root / "run.sh").chmod(0o755)
    copy = CodeCopy(root)
    copy.write(tmp_path / "one")
    fill(root, "later.py")
    (root / "train.py").write_text("changed")
    copy.write(tmp_path / "two")
    for place in ("one", "two"):
        assert sorted(path.name for path in (tmp_path / place).iterdir()) == ["run.sh", "train.py"]
        assert (tmp_path / place / "train.py").read_text() == "train.py"
        assert (tmp_path / place / "run.sh").stat().st_mode & 0o111
        assert (tmp_path / place).stat().st_mode & 0o777 == 0o755


def test_detignore_is_honoured(tmp_path: Path) -> None:
    """6.1: .detignore, in the language of .gitignore; it may take back what is always left out."""
    root = fill(tmp_path / "work", "train.py", "data/a.csv", "deep/data/b.csv", "notes.txt", "keep.txt", ".env")
    (root / ".detignore").write_text("# mine\n/data/\n*.txt\n!keep.txt\n!.env\n")
    assert sorted(CodeCopy(root).read()) == [".detignore", ".env", "deep/data/b.csv", "keep.txt", "train.py"]


def test_large_files_are_left_out_with_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A data file in the working directory is not code; the log says what is missing and what to do."""
    root = fill(tmp_path / "work", "train.py")
    with (root / "data.bin").open("wb") as file:
        file.truncate(_code.LARGEST_FILE + 1)
    with caplog.at_level(logging.INFO):
        assert list(CodeCopy(root).read()) == ["train.py"]
    assert "left out: data.bin" in caplog.text
    assert ".detignore" in caplog.text


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no file can have such a name")
def test_names_that_no_storage_keeps_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Decision 6: a stray file in the working directory must not cost the checkpoint."""
    root = fill(tmp_path / "work", "train.py", "back\\slash.py", "c:drive.py", "über.py")
    (root / "bad\udcffname.py").touch()
    assert sorted(CodeCopy(root).read()) == ["train.py", "über.py"]
    assert r"'back\\slash.py', 'bad\udcffname.py', 'c:drive.py'" in caplog.text


def test_too_many_files_stop_the_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data set of many files neither fills checkpoints nor holds them up, and code near the top gets in."""
    root = fill(tmp_path / "work", "a/1.png", "a/2.png", "a/3.png", "train.py")
    monkeypatch.setattr(_code, "MOST_FILES", 2)
    assert "train.py" in CodeCopy(root).read()
    assert "only a part" in caplog.text
    monkeypatch.setattr(_code, "MOST_FILES", 100)
    monkeypatch.setattr(_code, "MOST_LOOKED_AT", 1)
    assert list(CodeCopy(root).read()) == ["train.py"]


def test_links_do_not_lead_out_or_in_circles(tmp_path: Path) -> None:
    """A link to a file is the file; a link to a data directory elsewhere, or back up, is left alone."""
    fill(tmp_path / "outside", "big.csv", "shared.py")
    root = fill(tmp_path / "work", "pkg/model.py")
    (root / "data").symlink_to(tmp_path / "outside")
    (root / "shared.py").symlink_to(tmp_path / "outside" / "shared.py")
    (root / "pkg" / "up").symlink_to(root)
    (root / "broken").symlink_to(root / "nothing")
    assert sorted(CodeCopy(root).read()) == ["pkg/model.py", "shared.py"]


def test_our_own_places_are_left_out(tmp_path: Path) -> None:
    """Checkpoints in the working directory do not end up in checkpoints."""
    root = fill(tmp_path / "work", "train.py", "checkpoints/1/code/train.py")
    assert list(CodeCopy(root, without=[root / "checkpoints"]).read()) == ["train.py"]


def test_a_current_directory_that_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """W43: training somewhere that is gone goes on; its checkpoints hold no code, and that is said once."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    copy = CodeCopy()
    assert copy.read() == copy.read() == {}
    assert [record.message for record in caplog.records] == [
        "The current directory has been deleted, so checkpoints hold no copy of the code."
    ]


def test_a_directory_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """A checkpoint is not lost because the working directory is gone."""
    assert CodeCopy(tmp_path / "gone").read() == {}


@pytest.mark.parametrize(
    ("pattern", "path", "is_directory", "expected"),
    [
        ("*.txt", "a/b.txt", False, True),
        ("*.txt", "a/b.txt.py", False, False),
        ("/a.txt", "b/a.txt", False, False),
        ("/a.txt", "a.txt", False, True),
        ("a/b", "x/a/b", False, False),
        ("a/b", "a/b", False, True),
        ("dir/", "dir", False, False),
        ("dir/", "x/dir", True, True),
        ("**/logs", "a/b/logs", True, True),
        ("**/logs", "logs", True, True),
        ("a/**/b", "a/b", False, True),
        ("a/**/b", "a/x/y/b", False, True),
        ("a/**", "a/x/y", False, True),
        ("a/**", "a", True, False),
        ("a?c", "abc", False, True),
        ("a?c", "a/c", False, False),
        ("[a-c].py", "b.py", False, True),
        ("[!a-c].py", "b.py", False, False),
        (r"\#x", "#x", False, True),
        (r"\!x", "!x", False, True),
        ("trailing  ", "trailing", False, True),
        ("a.b", "axb", False, False),
        ("[", "[", False, True),
    ],
)
def test_patterns(pattern: str, path: str, is_directory: bool, expected: bool) -> None:
    """The language of .gitignore."""
    assert IgnoreRules([pattern]).match(path, is_directory) is expected


def test_links_that_lead_nowhere_are_left_out(tmp_path: Path) -> None:
    """A link to itself, to its parent or to nothing does not keep a checkpoint from being saved."""
    root = fill(tmp_path / "work", "train.py")
    (root / "itself").symlink_to(root / "itself")
    (root / "ping").symlink_to(root / "pong")
    (root / "pong").symlink_to(root / "ping")
    (root / "up").symlink_to(root)
    (root / "gone").symlink_to(root / "nothing")
    assert sorted(CodeCopy(root).read()) == ["train.py"]
