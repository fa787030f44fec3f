"""Who may ask what: pure ASGI around the whole app, by the rule that each route names (`rules`).

`reads` and `changes` want the token (a cookie, or `Authorization: Bearer`), `changes` also a server that may write;
whatever is not a plain GET has to come from the page itself. A route without a rule is refused when the app is made,
and a request to the API that no rule covers never reaches the app.
"""

from __future__ import annotations

import hmac
import logging
import re
import urllib.parse
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from determined.server.failures import answer
from determined.server.rules import RULE
from determined.server.settings import Settings
from determined.server.traffic import Traffic

logger = logging.getLogger("determined.server")

API = "/api/v1"
MOST_BODY_BYTES = 1 << 20
SAFE_METHODS = ("GET", "HEAD")
CONTENT_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
USE_THE_LINK = "Open the link that det ui printed (det ui list shows those that run on their own)"

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\[\]:@/]+)(?::(?P<port>[0-9]{1,5}))?")
_OPEN, _READS, _CHANGES = _STRICTER = ("open", "reads", "changes")


class Rules:
    """The rule of each path and method, from what the routes declare.

    Raises:
        TypeError: A route names no rule, or one that only reads could change something by its method.
    """

    def __init__(self, routers: Iterable[APIRouter]) -> None:
        self._rows: list[tuple[re.Pattern[str], frozenset[str], str]] = []
        for router in routers:
            for route in router.routes:
                self._rows.append(self._row(route))

    def _row(self, route: object) -> tuple[re.Pattern[str], frozenset[str], str]:
        if not isinstance(route, APIRoute):
            raise TypeError(f"{route!r} is no plain route of a router, so no rule can be read from it.")
        rule = (route.openapi_extra or {}).get(RULE)
        if rule not in _STRICTER:
            raise TypeError(
                f"The route {route.path} names no rule. Add **READS, **CHANGES or **OPEN of server/rules.py."
            )
        methods = frozenset(route.methods or ())
        if rule == _CHANGES and methods & set(SAFE_METHODS):
            raise TypeError(f"The route {route.path} changes something by GET, which any link could do. Use POST.")
        return compile_path(API + route.path)[0], methods, rule

    def find(self, method: str, path: str) -> str | None:
        """Return the rule for a request; None if no route takes it."""
        found = [rule for pattern, methods, rule in self._rows if method in methods and pattern.match(path)]
        return max(found, key=_STRICTER.index, default=None)  # of two routes we need not know which comes first


class TooLarge(HTTPException):
    """A body is larger than anybody needs. FastAPI lets errors of this sort through while it reads a body."""

    def __init__(self) -> None:
        super().__init__(413, f"The request is larger than {MOST_BODY_BYTES} bytes, which no request of the page is.")


class Guard:
    """The outermost part of the app.

    Args:
        app: What is guarded.
        settings: What the server was started for.
        rules: The rule of each route.
        on_change: Called when a request has changed something.
        traffic: Is told which requests are being answered.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        rules: Rules,
        on_change: Callable[[], None] = lambda: None,
        traffic: Traffic | None = None,
    ) -> None:
        self._traffic = traffic or Traffic()
        self._app = app
        self._settings = settings
        self._rules = rules
        self._on_change = on_change
        self._token, self._cookie = settings.token.encode(), settings.cookie.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        reply = _Reply(send, self._traffic)
        rule = self._rules.find(scope["method"], scope["path"])
        refusal = self._refusal(scope, Headers(scope=scope), rule)
        if refusal is not None:
            await refusal(scope, receive, reply.send)
            return
        self._traffic.begin(reply)
        try:
            await self._pass(scope, receive, reply)
        finally:
            self._traffic.end(reply)
        if rule == _CHANGES and reply.status < 400:
            self._on_change()

    async def _pass(self, scope: Scope, receive: Receive, reply: _Reply) -> None:
        try:
            await self._app(scope, _counted(receive), reply.send)
        except Exception:
            logger.exception("%s %s failed.", scope["method"], scope["path"])
            if reply.status:
                raise  # the answer has begun: all that is left is to cut it off
            sentence = "The server has a bug here. What it printed says more: see its terminal, or det ui logs."
            await answer(500, sentence)(scope, receive, reply.send)

    def _refusal(self, scope: Scope, headers: Headers, rule: str | None) -> Response | None:
        """Return why a request is not let through, as a response; None if it is."""
        path, method = scope["path"], scope["method"]
        host = headers.get("host", "")
        if not self._settings.answers_to(_name_of(host)):
            return self._say(path, 421, f"This server does not answer to {host!r}. {USE_THE_LINK}.")
        if not _is_api(path):
            return self._page_refusal(scope, headers, host)
        if rule != _OPEN and not self._is_known(headers, host):
            return answer(401, f"The token is missing or not the one of this server. {USE_THE_LINK}.")
        if rule is None:
            return answer(404, f"There is no {method} {path}. The page asks only for what there is: reload it.")
        if (refusal := self._foreign(method, headers, host)) is not None:
            return refusal
        if rule == _CHANGES and self._settings.read_only:
            return answer(403, "This page was started with --read-only, so nothing was changed.")
        if _declared_length(headers) > MOST_BODY_BYTES:
            return answer(413, TooLarge().detail)
        return None

    def _page_refusal(self, scope: Scope, headers: Headers, host: str) -> Response | None:
        """The page itself holds nothing of the store and is open; the link's token becomes a cookie here."""
        if scope["method"] not in SAFE_METHODS:
            return self._say(scope["path"], 405, "The page can only be read. The API is below /api/v1.")
        query = urllib.parse.parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = next((value for name, value in query if name == "token"), None)
        if token is None:
            return None
        is_right = hmac.compare_digest(token.encode(), self._token)
        if not is_right and not self._is_known(headers, host):
            return self._say(
                scope["path"], 401, f"The token of this link is not the one of this server. {USE_THE_LINK}."
            )
        rest = urllib.parse.urlencode([(name, value) for name, value in query if name != "token"])
        # One slash: a second one would make it the address of another host.
        place = "/" + urllib.parse.quote(scope["path"].lstrip("/\\"))
        response = RedirectResponse(f"{place}?{rest}" if rest else place, 303)
        if is_right:
            response.set_cookie(_cookie_name(host), self._settings.cookie, httponly=True, samesite="strict", path="/")
        response.headers["Cache-Control"] = "no-store"
        return response

    def _is_known(self, headers: Headers, host: str) -> bool:
        """Return whether a request carries the cookie or the token."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return hmac.compare_digest(given.strip().encode(), self._token)
        return any(hmac.compare_digest(value.encode(), self._cookie) for value in _cookies(headers, _cookie_name(host)))

    def _foreign(self, method: str, headers: Headers, host: str) -> Response | None:
        """Return the refusal of a request that a page of another origin has made in the user's name."""
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        is_foreign = site not in (None, "same-origin", "none")
        if origin is not None:
            is_foreign = is_foreign or origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower())
        elif method not in SAFE_METHODS and site is None:  # no browser that says who asks
            is_foreign = not headers.get("authorization")
        if not is_foreign:
            return None
        return answer(403, f"The request comes from {origin or 'nowhere'}, not from this page, and was refused.")

    def _say(self, path: str, status: int, sentence: str) -> Response:
        return answer(status, sentence) if _is_api(path) else PlainTextResponse(sentence + "\n", status)


class _Reply:
    """Sends an answer with the headers that every answer has, and remembers its status."""

    def __init__(self, send: Send, traffic: Traffic) -> None:
        self._send = send
        self._traffic = traffic
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._traffic.end(self)  # a stream may go on for days
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)


def _counted(receive: Receive) -> Receive:
    """Return a `receive` that ends a body which is too large, however it arrives."""
    taken = 0

    async def count() -> MutableMapping[str, Any]:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MOST_BODY_BYTES:
            raise TooLarge
        return message

    return count


def _is_api(path: str) -> bool:
    return path == "/api" or path.startswith("/api/")


def _declared_length(headers: Headers) -> int:
    said = headers.get("content-length", "0")
    return int(said) if said.isascii() and said.isdigit() else 0


def _name_of(host: str) -> str:
    """Return the name in a Host header, without its port, in small letters; "" for what is no such header."""
    found = _HOST.fullmatch(host.lower())
    return found["name"].strip("[]") if found else ""


def _cookie_name(host: str) -> str:
    """Cookies of one machine are shared by all its ports; the port in the name keeps two servers apart."""
    found = _HOST.fullmatch(host.lower())
    return f"det-ui-{(found and found['port']) or 80}"


def _cookies(headers: Headers, name: str) -> list[str]:
    found = []
    for line in headers.getlist("cookie"):
        for part in line.split(";"):
            key, _, value = part.strip().partition("=")
            if key == name:
                found.append(value)
    return found
