"""The page of promises is made from the docstrings of tests, and its check notices what is missing from either."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "promises.py"))
run: Callable[..., int] = TOOL["main"]
TESTS = '''
class TestSaving:
    def test_whole(self) -> None:
        """C-22, T9: a checkpoint that was
        interrupted is not listed.
        """

def test_later() -> None:
    """FIX W10 (T101). Asking [early] is refused."""

def test_first() -> None:
    """Decision 6 and 3.9 Better: `a[0]` is kept (C-3)."""

def test_plain() -> None:
    """fit() without a number in front."""

def helper() -> None:
    """T1: no test, so no promise."""
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests" / "unit" / "test_it.py").write_text(TESTS)
    return tmp_path


def lines(tree: Path) -> list[str]:
    return [line for line in (tree / "docs" / "promises.md").read_text().splitlines() if line.startswith(("- ", "## "))]


def test_every_promise_is_listed_under_each_of_its_numbers(tree: Path) -> None:
    """A promise stands once under each number, by subject, numbers in order; without one, under its file."""
    assert run([], root=tree) == 0
    whole = "A checkpoint that was interrupted is not listed. [test_whole](../tests/unit/test_it.py)"
    later = r"Asking \[early\] is refused. [test_later](../tests/unit/test_it.py)"
    first = "`a[0]` is kept (C-3). [test_first](../tests/unit/test_it.py)"
    assert lines(tree) == [
        "## Training",
        *(f"- **T9** {whole}", f"- **T101** {later}", f"- **W10** {later}"),
        "## Core",
        *(f"- **C-3** {first}", f"- **C-22** {whole}"),
        "## Data and reducers",
        "## Platform",
        "## Decisions",
        f"- **Decision 6** {first}",
        "## Promises without a number",
        "- fit() without a number in front. (`test_plain`)",
    ]


def test_a_stale_page_fails_the_check(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--check` writes nothing, and fails with the command to type until the page is what the tests say."""
    assert run(["--check"], root=tree) == 1
    assert not (tree / "docs" / "promises.md").exists()
    assert "make promises" in capsys.readouterr().err
    run([], root=tree)
    assert run(["--check"], root=tree) == 0
    changed = tree / "tests" / "unit" / "test_it.py"
    changed.write_text(changed.read_text().replace("is refused", "is an error"))
    assert run(["--check"], root=tree) == 1


@pytest.mark.parametrize("docstring", ["", "C-10.", "W36: as before.", "4.8, T2."])
def test_a_number_is_no_promise(tree: Path, capsys: pytest.CaptureFixture[str], docstring: str) -> None:
    """A test without a docstring, or with little more than a number, is named."""
    (tree / "tests" / "test_more.py").write_text(f'def test_it() -> None:\n    """{docstring}"""\n')
    assert run([], root=tree) == 1
    assert "tests/test_more.py: the docstring of test_it" in capsys.readouterr().err


def test_a_number_of_things_is_text(tree: Path) -> None:
    """A docstring that begins with a number of things keeps it."""
    (tree / "tests" / "test_more.py").write_text('def test_it() -> None:\n    """64 levels are enough."""\n')
    run([], root=tree)
    assert "- 64 levels are enough. (`test_it`)" in lines(tree)
