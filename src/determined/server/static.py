"""The built page: files of `webui`, compressed once, and `index.html` for every path of the page's own making."""

from __future__ import annotations

import functools
import gzip
import mimetypes
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

ASSETS = "/assets/"
FOREVER = "public, max-age=31536000, immutable"  # a name with a hash never means other bytes
COMPRESSED = (".js", ".css", ".html", ".svg", ".json", ".map", ".txt", ".ico")
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
NOT_BUILT = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Resolute</title>
<p>The server runs, but the page is not built. Type <code>make ui</code> in the checkout, then reload.</p></html>
"""


class Page:
    """The page as an ASGI app.

    Args:
        directory: Where the built files are.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a GET or HEAD."""
        takes_gzip = "gzip" in Headers(scope=scope).get("accept-encoding", "")
        await self.answer(scope["path"], takes_gzip=takes_gzip)(scope, receive, send)

    def answer(self, path: str, *, takes_gzip: bool) -> Response:
        """Return the file of a path, or the page itself; a missing asset is missing."""
        file = self._find(path)
        if file is not None and file.name != "index.html":
            caching = FOREVER if path.startswith(ASSETS) else "no-cache"
            return _file(file, caching, takes_gzip=takes_gzip)
        if path.startswith(ASSETS):
            return PlainTextResponse(f"There is no file {path} in the built page. Reload the page.\n", 404)
        index = self._directory / "index.html"
        if not index.is_file():
            return HTMLResponse(NOT_BUILT, headers={"Cache-Control": "no-store"})
        return _file(index, "no-store", takes_gzip=takes_gzip)

    def _find(self, path: str) -> Path | None:
        """Return the file, if there is one below the directory and nothing leads out of it."""
        parts = [part for part in path.split("/") if part]
        if not parts or any(part.startswith(".") or "\\" in part or "\0" in part for part in parts):
            return None
        file = self._directory.joinpath(*parts)
        try:
            is_inside = file.is_file() and file.resolve().is_relative_to(self._directory.resolve())
        except OSError:  # a name that is too long, for example
            return None
        return file if is_inside else None


def _file(file: Path, caching: str, *, takes_gzip: bool) -> Response:
    headers = {"Cache-Control": caching}
    takes_gzip = takes_gzip and file.suffix in COMPRESSED
    if file.suffix in COMPRESSED:
        headers["Vary"] = "Accept-Encoding"
    if takes_gzip:
        headers["Content-Encoding"] = "gzip"
    kind = TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    body = _content(file, file.stat().st_mtime_ns, takes_gzip)
    return Response(body, media_type="text/html" if file.suffix == ".html" else kind, headers=headers)


@functools.lru_cache(maxsize=128)
def _content(file: Path, changed: int, compressed: bool) -> bytes:
    """Return the bytes of a file; `changed` tells a rebuilt one from the one that was read before."""
    del changed
    content = file.read_bytes()
    return gzip.compress(content, 6, mtime=0) if compressed else content
