"""A store with a past, and the det command on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from determined.cli.main import main
from tests.history import History

Det = Callable[..., Result]


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path) as made:
        yield made


@pytest.fixture
def det(history: History) -> Det:
    """Runs a command on the store; it has to end with `code`."""

    def run(*words: object, code: int = 0, typed: str | None = None) -> Result:
        result = CliRunner().invoke(main, ["--store", str(history.place), *map(str, words)], input=typed)
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return run
