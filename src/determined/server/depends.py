"""What routes are given: the client of the store that this server shows."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from determined.client import Determined


def client_of(request: Request) -> Determined:
    """Return the client that `make_app` was given."""
    return cast(Determined, request.app.state.client)


Client = Annotated[Determined, Depends(client_of)]
