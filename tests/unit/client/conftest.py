"""A store with a past, and a client that looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.client import Determined
from tests.history import History


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path) as made:
        yield made


@pytest.fixture
def runs(history: History) -> Iterator[Determined]:
    with Determined(store=history.place) as client:
        yield client
