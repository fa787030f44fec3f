"""What routes are given: the client of the store that this server shows, and what the server was started for."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from determined.client import Determined
from determined.client._session import Session
from determined.server.changes import Watcher
from determined.server.settings import Settings


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


Client = Annotated[Determined, Depends(client_of)]
StoreSession = Annotated[Session, Depends(session_of)]  # for routes that read rows of the store themselves
ServerSettings = Annotated[Settings, Depends(settings_of)]
Changes = Annotated[Watcher, Depends(watcher_of)]
