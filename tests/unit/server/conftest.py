"""A store with a past, and the routes over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from determined.client import Determined
from determined.server.depends import close_index
from determined.server.routes import ROUTERS
from determined.server.traffic import Traffic
from tests.asking import API, Asker
from tests.history import History


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path) as made:
        yield made


@pytest.fixture
def runs(history: History) -> Iterator[Determined]:
    with Determined(store=history.place) as client:
        yield client


@pytest.fixture
def page(runs: Determined) -> Iterator[Asker]:
    """The routes without their guard: errors come out as they were raised."""
    app = FastAPI()
    app.state.client, app.state.session, app.state.traffic = runs, runs._session, Traffic()
    for router in ROUTERS:
        app.include_router(router, prefix=API)
    yield Asker(app)
    close_index(app)
