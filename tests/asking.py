"""Ask an app of the server what a browser would, without a port: `Asker(app).get("/trials/1")`."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from fastapi import FastAPI

API = "/api/v1"


class Asker:
    """A client of an app. Errors that nobody handles are raised here, as a test wants it."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    def ask(self, method: str, path: str, **what: Any) -> httpx.Response:
        """Ask a route below `/api/v1`."""
        return asyncio.run(self._ask(method, path, what))

    async def _ask(self, method: str, path: str, what: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, API + path, **what)

    def get(self, path: str, /, **parameters: Any) -> Any:
        """Return the JSON that a GET answers; parameters that are None are left out."""
        given = {name: value for name, value in parameters.items() if value is not None}
        response = self.ask("GET", path, params=given)
        assert response.status_code == 200, response.text
        return response.json()

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON that a change answers."""
        response = self.ask(method, path, json=body)
        assert response.status_code == 200, response.text
        return response.json()
