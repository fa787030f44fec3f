"""Puts the server together: routes, the page, errors, the watcher of the store, and the guard around it all."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator

import anyio.to_thread
from fastapi import FastAPI

from determined._version import __version__
from determined.client import Determined
from determined.client._session import Session
from determined.errors import DeterminedError
from determined.server import failures
from determined.server.changes import Watcher
from determined.server.depends import close_index, index_for, made_index
from determined.server.guard import API, Guard, Rules
from determined.server.routes import ROUTERS
from determined.server.settings import Settings
from determined.server.static import Page
from determined.server.traffic import Traffic

END_SECONDS = 0.3
MOST_THREADS = 12  # requests that read the store at once; its pool has 15 connections


def make_app(session: Session, settings: Settings) -> FastAPI:
    """Return the app that serves one store.

    Args:
        session: The store. Who made it closes it.
        settings: What the server was started for.

    Raises:
        TypeError: A route names no rule; see `guard`.
    """
    app = FastAPI(
        title="Resolute", version=__version__, openapi_url=None, docs_url=None, redoc_url=None, lifespan=_lifespan
    )
    app.state.settings = settings
    app.state.session = session
    app.state.client = Determined._over(session)
    app.state.watcher = Watcher(session)
    app.state.traffic = traffic = Traffic()
    failures.install(app)
    for router in ROUTERS:
        app.include_router(router, prefix=API)
    app.mount("/", Page(settings.webui), name="page")
    app.add_middleware(
        Guard, settings=settings, rules=Rules(ROUTERS), on_change=lambda: _tell_edit(app), traffic=traffic
    )
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = MOST_THREADS
    watcher: Watcher = app.state.watcher
    watcher.start()
    reading = threading.Thread(target=_read_runs, args=(app,), name="det-ui-index", daemon=True)
    reading.start()
    try:
        yield
    finally:
        watcher.stop()
        # Whoever waits for a database that does not answer holds the index; the end does not wait for that.
        closing = threading.Thread(target=close_index, args=(app,), name="det-ui-closing", daemon=True)
        closing.start()
        for thread in (closing, reading):
            thread.join(timeout=END_SECONDS)


def _read_runs(app: FastAPI) -> None:
    """Read all runs before somebody asks for a table of them; not in the event loop, because numpy is loaded first."""
    with contextlib.suppress(DeterminedError):  # the server ends already
        index_for(app).start()


def _tell_edit(app: FastAPI) -> None:
    """Let those who remember rows know that this server has changed something itself."""
    app.state.watcher.tell_edit()
    if (index := made_index(app)) is not None:
        index.tell_edit()
