"""What routes are given: the client of the store that this server shows, and what the server was started for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import Depends, FastAPI, Request

from determined.client import Determined
from determined.client._session import Session
from determined.errors import StoreUnavailable
from determined.server.changes import Watcher
from determined.server.settings import Settings

if TYPE_CHECKING:
    from determined.server.run_index.index import RunIndex

_making = threading.Lock()


def client_of(request: Request) -> Determined:
    """Return the client that `make_app` was given."""
    return cast(Determined, request.app.state.client)


def session_of(request: Request) -> Session:
    """Return the session below the client."""
    return cast(Session, request.app.state.session)


def settings_of(request: Request) -> Settings:
    """Return what the server was started for."""
    return cast(Settings, request.app.state.settings)


def watcher_of(request: Request) -> Watcher:
    """Return who watches the store for changes."""
    return cast(Watcher, request.app.state.watcher)


def index_of(request: Request) -> RunIndex:
    """Return the index of all runs."""
    return index_for(request.app)


def index_for(app: FastAPI) -> RunIndex:
    """Return the index of all runs. It is made when it is first asked for, because it loads numpy."""
    with _making:
        if getattr(app.state, "is_over", False):
            raise StoreUnavailable("The server is ending. Start it again with: det ui")
        if made_index(app) is None:
            from determined.server.run_index.index import RunIndex

            app.state.run_index = RunIndex(app.state.client._session, app.state.traffic.wait_for_calm)
        return cast("RunIndex", app.state.run_index)


def made_index(app: FastAPI) -> RunIndex | None:
    """Return the index of all runs, if it was made."""
    return cast("RunIndex | None", getattr(app.state, "run_index", None))


def close_index(app: FastAPI) -> None:
    """Close the index of all runs, and make none any more."""
    with _making:
        app.state.is_over = True
        if (index := made_index(app)) is not None:
            index.close()


Client = Annotated[Determined, Depends(client_of)]
StoreSession = Annotated[Session, Depends(session_of)]  # for routes that read rows of the store themselves
ServerSettings = Annotated[Settings, Depends(settings_of)]
Changes = Annotated[Watcher, Depends(watcher_of)]
if TYPE_CHECKING:
    Index = Annotated[RunIndex, Depends(index_of)]
else:
    Index = Annotated[Any, Depends(index_of)]  # its module is not loaded yet
