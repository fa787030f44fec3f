"""Ask the server's app without a port: requests go in and answers come out in this process.

page = PageApp(history.place)
page.get("/api/v1/about").json()
page.ask("GET", "/api/v1/about", token=None).status_code   # 401
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from determined.client._session import Session
from determined.server.app import make_app
from determined.server.depends import close_index
from determined.server.settings import Settings

TOKEN = "the-token-of-this-test"
HOST = "127.0.0.1:8111"


class PageApp:
    """The app on a store, asked as a program with the token would ask it.

    Args:
        place: The store.
        settings: Other settings than the usual ones.
    """

    def __init__(self, place: str | Path, **settings: Any) -> None:
        self.session = Session(place)
        self.settings = Settings(token=TOKEN, **settings)
        self.app = make_app(self.session, self.settings)

    def close(self) -> None:
        close_index(self.app)
        self.session.close()

    def ask(
        self, method: str, path: str, *, token: str | None = TOKEN, headers: dict[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        """Send one request and return the answer; `headers` replace the usual ones."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            usual = {"host": HOST, **({"authorization": f"Bearer {token}"} if token else {})}
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                return await client.request(method, path, headers={**usual, **(headers or {})}, **more)

        return asyncio.run(send())

    def get(self, path: str, **more: Any) -> httpx.Response:
        """Ask with the token."""
        return self.ask("GET", path, **more)
