"""Who may ask what: token and cookie, names and origins, rules of routes, bounds."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pydantic
import pytest
from fastapi import APIRouter, FastAPI
from starlette.types import Message, Receive, Scope, Send

from determined.errors import ConfigError, InvalidValue, NotFound, Refused, StoreUnavailable
from determined.server import app as server_app
from determined.server import failures, guard, routes, traffic
from determined.server.guard import Guard, Rules
from determined.server.rules import CHANGES, OPEN, READS
from determined.server.settings import Settings
from determined.server.traffic import Traffic
from tests.history import History
from tests.pages import HOST, TOKEN, PageApp

ORIGIN = f"http://{HOST}"
router = APIRouter()


@router.get("/readable", **READS)
def readable() -> str:
    return "read"


@router.post("/changeable", **CHANGES)
def changeable(body: dict[str, str]) -> str:
    return f"changed by {len(body)}"


@router.post("/asked", **READS)
def asked(body: dict[str, str]) -> str:
    return f"{len(body)}"


@router.get("/free", **OPEN)
def free() -> str:
    return "for all"


FAILURES: dict[str, Exception] = {
    "lost": NotFound("There is no experiment 7."),
    "refused": Refused("It is not managed."),
    "invalid": InvalidValue("A name cannot be blank."),
    "value": ValueError("'x' is no order."),
    "gone": StoreUnavailable("The store is busy."),
    "bug": RuntimeError("the secret inside"),
}


@router.get("/fails/{how}", **READS)
def fails(how: str) -> str:
    raise FAILURES[how]


@router.get("/config", **READS)
def config() -> str:
    error = ConfigError("Two things are wrong.")
    error.problems = (("name", "is missing"), ("searcher", "is unknown"))
    raise error


class Strict(pydantic.BaseModel):
    number: int


@router.get("/broken", **READS)
def broken() -> Strict:
    return Strict(number="none")  # type: ignore[arg-type]


@router.get("/odd", **READS)
def odd() -> int:
    return "not a number"  # type: ignore[return-value]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageApp]:
    """The app with the routes above."""
    monkeypatch.setattr(server_app, "ROUTERS", [router])
    made = _app(tmp_path)
    yield made
    made.close()


def _app(tmp_path: Path, **settings: object) -> PageApp:
    webui = tmp_path / "webui"
    (webui / "assets").mkdir(parents=True, exist_ok=True)
    (webui / "index.html").write_text("<!doctype html><p>the page</p>")
    (webui / "assets" / "index-1a2b.js").write_text("export const answer = 42;\n" * 100)
    return PageApp(tmp_path / "runs.db", webui=webui, **settings)


def cookie_of(page: PageApp) -> str:
    """What a browser has after it followed the link."""
    said = page.ask("GET", f"/?token={TOKEN}", token=None).headers["set-cookie"]
    return said.split(";")[0]


def test_the_link_becomes_a_cookie(page: PageApp) -> None:
    """The token is exchanged once for a cookie that no script and no other site can use, and leaves the address."""
    answer = page.ask("GET", f"/experiments?sort=id&token={TOKEN}&x=1", token=None)
    assert (answer.status_code, answer.headers["location"]) == (303, "/experiments?sort=id&x=1")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("det-ui-8111=")
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    assert page.get("/api/v1/readable", token=None, headers={"cookie": cookie.split(";")[0]}).json() == "read"


def test_a_wrong_token_opens_nothing(page: PageApp) -> None:
    """A link with another token gets a sentence and no cookie; with a cookie it just leads to the page."""
    answer = page.get("/?token=guess", token=None)
    assert (answer.status_code, answer.headers.get("set-cookie")) == (401, None)
    assert "det ui" in answer.text
    assert page.get("/?token=guess", token=None, headers={"cookie": cookie_of(page)}).status_code == 303


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example", "//evil.example%2f..", "/%5C%5Cevil.example"])
def test_the_link_leads_nowhere_else(page: PageApp, path: str) -> None:
    """The address that remains is one of this server, whatever the path."""
    transported = page.ask("GET", f"http://{HOST}{path}?token={TOKEN}", token=None)
    place = transported.headers["location"]
    assert place.startswith("/")
    assert not place.startswith(("//", "/\\"))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer guess"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer \u00fc".encode("latin-1").decode("latin-1")},
        {"cookie": "det-ui-8111=guess"},
        {"cookie": f"det-ui-8111={TOKEN}"},
        {"cookie": "det-ui-8111="},
    ],
)
def test_the_api_wants_the_token(page: PageApp, headers: dict[str, str]) -> None:
    """Without the token or its cookie the API says nothing but what to do; the token itself is no cookie."""
    raw = {name: value.encode("latin-1") for name, value in headers.items()}
    answer = page.get("/api/v1/readable", token=None, headers=raw)  # type: ignore[arg-type]
    assert answer.status_code == 401
    assert "det ui" in answer.json()["detail"]


def test_a_cookie_of_another_server_does_no_harm(page: PageApp) -> None:
    """Ports of one machine share cookies: each server looks for its own, and for the right one among several."""
    own = cookie_of(page)
    value = own.partition("=")[2]
    mixed = f"det-ui-9000={value}; det-ui-8111=old; {own}; other=1"
    assert page.get("/api/v1/readable", token=None, headers={"cookie": mixed}).status_code == 200
    assert page.get("/api/v1/readable", token=None, headers={"cookie": f"det-ui-9000={value}"}).status_code == 401


def test_a_tunnel_may_use_another_port(page: PageApp) -> None:
    """`ssh -L 9000:localhost:8111` works: the cookie has the port that the browser sees."""
    answer = page.get(f"/?token={TOKEN}", token=None, headers={"host": "localhost:9000"})
    cookie = answer.headers["set-cookie"].split(";")[0]
    assert cookie.startswith("det-ui-9000=")
    headers = {"host": "localhost:9000", "origin": "http://localhost:9000", "cookie": cookie}
    assert page.ask("POST", "/api/v1/changeable", token=None, headers=headers, json={}).status_code == 200


@pytest.mark.parametrize(
    ("host", "name", "is_answered"),
    [
        ("127.0.0.1", "127.0.0.1:8111", True),
        ("127.0.0.1", "localhost:8111", True),
        ("127.0.0.1", "LOCALHOST", True),
        ("127.0.0.1", "[::1]:8111", True),
        ("127.0.0.1", "evil.example:8111", False),
        ("127.0.0.1", "127.0.0.1.evil.example:8111", False),
        ("127.0.0.1", "127.0.0.1:8111@evil.example", False),
        ("127.0.0.1", "192.168.1.7:8111", False),
        ("127.0.0.1", "", False),
        ("0.0.0.0", "192.168.1.7:8111", True),
        ("0.0.0.0", "evil.example:8111", False),
        ("0.0.0.0", "localhost:8111", True),
        ("lab7", "lab7:8111", True),
        ("lab7", "lab8:8111", False),
    ],
)
def test_only_own_names_are_answered(tmp_path: Path, host: str, name: str, is_answered: bool) -> None:
    """A foreign name that points here (DNS rebinding) gets a sentence, for the page and for the API alike."""
    page = _app(tmp_path, host=host)
    for path in ("/", "/api/v1/about"):
        answer = page.get(path, headers={"host": name})
        assert (answer.status_code != 421) is is_answered
        assert is_answered or "does not answer to" in answer.text
    page.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": ORIGIN}, 200),
        ({"origin": ORIGIN, "sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:6006"}, 403),
        ({"origin": "http://localhost:8111"}, 403),
        ({"origin": ORIGIN, "sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/changeable", "/api/v1/asked"])
def test_other_pages_change_nothing(page: PageApp, path: str, headers: dict[str, str], status: int) -> None:
    """Whatever is sent with the cookie has to come from the page itself: origin by origin, port by port."""
    answer = page.ask("POST", path, token=None, headers={"cookie": cookie_of(page), **headers}, json={})
    assert answer.status_code == status
    assert status == 200 or "refused" in answer.json()["detail"]


def test_other_pages_read_nothing(page: PageApp) -> None:
    """A page on another port of this machine has the cookie too; its requests are refused, as far as browsers say."""
    headers = {"cookie": cookie_of(page), "sec-fetch-site": "same-site"}
    assert page.get("/api/v1/readable", token=None, headers=headers).status_code == 403
    typed = {"cookie": cookie_of(page), "sec-fetch-site": "none"}
    assert page.get("/api/v1/readable", token=None, headers=typed).status_code == 200


def test_a_program_needs_only_the_token(page: PageApp) -> None:
    """`Authorization: Bearer` is nothing that a foreign page could make a browser send."""
    assert page.ask("POST", "/api/v1/changeable", json={"a": "b"}).json() == "changed by 1"


def test_open_routes_ask_for_nothing(page: PageApp) -> None:
    """A route may say that anybody may ask; own names only, all the same."""
    assert page.get("/api/v1/free", token=None).json() == "for all"
    assert page.get("/api/v1/free", token=None, headers={"host": "evil.example"}).status_code == 421


def test_read_only_refuses_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--read-only: what changes something is refused with a sentence; questions are answered, those with a body too."""
    monkeypatch.setattr(server_app, "ROUTERS", [router])
    page = _app(tmp_path, read_only=True)
    refused = page.ask("POST", "/api/v1/changeable", json={})
    assert (refused.status_code, refused.json()["detail"].count("--read-only")) == (403, 1)
    assert page.ask("POST", "/api/v1/asked", json={"a": "b"}).json() == "1"
    page.close()


def test_a_route_without_a_rule_is_refused() -> None:
    """Default deny: an app with a route that names no rule, or an unknown one, is not made."""
    for extra in ({}, {"openapi_extra": {"x-rule": "everybody"}}, {"openapi_extra": {}}):
        careless = APIRouter()
        careless.get("/all", **extra)(lambda: None)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="/all names no rule"):
            Rules([careless])


def test_a_get_that_changes_something_is_refused() -> None:
    """A link on any page could call it."""
    careless = APIRouter()
    careless.get("/delete", **CHANGES)(lambda: None)
    with pytest.raises(TypeError, match="changes something by GET"):
        Rules([careless])


def test_routes_in_routes_are_refused() -> None:
    """What is no plain route has no rule that we could read."""
    outer = APIRouter()
    outer.mount("/inner", FastAPI())
    with pytest.raises(TypeError, match="no plain route"):
        Rules([outer])


def test_every_route_of_the_server_names_a_rule() -> None:
    """The real routes make an app; none but `open` ones answers without the token."""
    assert routes.ROUTERS
    Rules(routes.ROUTERS)


def test_what_no_rule_covers_never_reaches_the_app(page: PageApp) -> None:
    """Unknown paths and methods below /api are refused by the guard: without the token 401, with it 404."""
    for method, path in (
        ("GET", "/api/v1/nothing"),
        ("DELETE", "/api/v1/readable"),
        ("GET", "/api"),
        ("GET", "/api/v2"),
    ):
        assert page.ask(method, path, token=None).status_code == 401
        answer = page.ask(method, path)
        assert answer.status_code == 404
        assert path in answer.json()["detail"]


def test_the_stricter_rule_wins() -> None:
    """If two routes fit a request, the stricter rule is kept, whichever comes first."""
    loose, strict = APIRouter(), APIRouter()
    loose.post("/things/{name}", **OPEN)(lambda: None)
    strict.post("/things/all", **CHANGES)(lambda: None)
    for order in ([loose, strict], [strict, loose]):
        assert Rules(order).find("POST", "/api/v1/things/all") == "changes"
        assert Rules(order).find("POST", "/api/v1/things/one") == "open"


@pytest.mark.parametrize(
    "path", ["/", "/experiments/7", "/assets/index-1a2b.js", "/assets/none.js", "/api/v1/readable"]
)
def test_every_answer_is_fenced_in(page: PageApp, path: str) -> None:
    """Content-Security-Policy without inline script, no sniffing, no referrer, no frame, no other origin."""
    for token in (TOKEN, None):
        headers = page.get(path, token=token).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        for part in ("script-src 'self'", "object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"):
            assert part in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in headers


def test_the_page_is_served(page: PageApp) -> None:
    """Files with a hash in their names are kept for ever, the page itself never; a missing file is missing."""
    for path in ("/", "/experiments/7/overview", "/index.html", "/nothing.txt"):
        answer = page.get(path, token=None)
        assert (answer.text, answer.headers["cache-control"]) == ("<!doctype html><p>the page</p>", "no-store")
        assert answer.headers["content-type"].startswith("text/html")
    script = page.get("/assets/index-1a2b.js", token=None, headers={"accept-encoding": "gzip"})
    assert script.headers["content-type"].startswith("text/javascript")
    assert (script.headers["content-encoding"], "immutable" in script.headers["cache-control"]) == ("gzip", True)
    assert int(script.headers["content-length"]) < len(script.text)
    plain = page.get("/assets/index-1a2b.js", token=None, headers={"accept-encoding": "identity"})
    assert (plain.text, plain.headers.get("content-encoding")) == (script.text, None)
    assert page.get("/assets/none.js", token=None).status_code == 404
    assert page.ask("HEAD", "/", token=None).status_code == 200
    assert page.ask("POST", "/experiments", json={}).status_code == 405


@pytest.mark.parametrize(
    "path",
    ["/../runs.db", "/%2e%2e/runs.db", "/assets/%2e%2e/%2e%2e/runs.db", "/..%2fruns.db", "/assets/..\\runs.db", "/%00"],
)
def test_no_path_leaves_the_page(page: PageApp, path: str) -> None:
    """Only files of the built page are served; links in it lead nowhere else."""
    secret = page.settings.webui.parent / "runs.db"
    secret.write_text("SQLite")
    (page.settings.webui / "leak.txt").symlink_to(secret)
    for tried in (path, "/leak.txt"):
        assert b"SQLite" not in page.get(tried, token=None).content


def test_a_page_that_is_not_built_says_what_to_type(tmp_path: Path) -> None:
    """A checkout without the bundle: the server works, and the page says `make ui`."""
    page = PageApp(tmp_path / "runs.db", webui=tmp_path / "nothing")
    assert "make ui" in page.get("/", token=None).text
    page.close()


def test_bodies_are_bounded(page: PageApp) -> None:
    """1 MiB, whether the length is said before or the body just goes on."""
    large = b'{"a": "' + b"x" * guard.MOST_BODY_BYTES + b'"}'

    async def pieces():  # type: ignore[no-untyped-def]
        for start in range(0, len(large), 60_000):
            yield large[start : start + 60_000]

    for content in (large, pieces()):
        answer = page.ask("POST", "/api/v1/changeable", content=content, headers={"content-type": "application/json"})
        assert (answer.status_code, "larger" in answer.json()["detail"]) == (413, True)
    said = {"content-type": "application/json", "content-length": str(len(large))}
    assert page.ask("POST", "/api/v1/changeable", content=b"{}", headers=said).status_code == 413  # before it is read


@pytest.mark.parametrize(
    ("how", "status"), [("lost", 404), ("refused", 409), ("invalid", 422), ("value", 422), ("gone", 503)]
)
def test_expected_errors_are_sentences(page: PageApp, how: str, status: int) -> None:
    """What went wrong is JSON with one sentence, the one that `det` would print, and a fitting status."""
    answer = page.get(f"/api/v1/fails/{how}")
    assert (answer.status_code, answer.json()) == (status, {"detail": str(FAILURES[how])})
    assert ("retry-after" in answer.headers) is (status == 503)


def test_several_problems_are_listed(page: PageApp) -> None:
    """A configuration with several mistakes says each with its place; so does a request with wrong fields."""
    problems = page.get("/api/v1/config").json()["problems"]
    assert problems == [{"where": "name", "reason": "is missing"}, {"where": "searcher", "reason": "is unknown"}]
    wrong = page.ask("POST", "/api/v1/changeable", json={"a": 1})
    assert (wrong.status_code, wrong.json()["problems"][0]["where"]) == (422, "a")


def test_a_bug_is_one_sentence(page: PageApp, caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected error is logged with its traceback, and the page is told nothing about the inside."""
    with caplog.at_level(logging.ERROR, "determined.server"):
        for path in ("/api/v1/fails/bug", "/api/v1/odd", "/api/v1/broken"):
            answer = page.get(path)
            assert (answer.status_code, set(answer.json())) == (500, {"detail"})
            assert "secret" not in answer.text
    assert "the secret inside" in caplog.text
    assert TOKEN not in caplog.text


def test_changes_are_told_to_other_pages(page: PageApp) -> None:
    """After a request that changed something the watcher knows; after a refused one, or a question, it does not."""
    told: list[str] = []
    app = FastAPI()
    failures.install(app)
    app.include_router(router, prefix=guard.API)
    guarded = Guard(app, page.settings, Rules([router]), lambda: told.append("edit"))
    watched = copy.copy(page)  # the page itself is closed with its own app
    watched.app = guarded  # type: ignore[assignment]  # asked as an app is
    watched.ask("POST", "/api/v1/asked", json={})
    watched.ask("POST", "/api/v1/changeable", json=[])
    assert told == []
    watched.ask("POST", "/api/v1/changeable", json={})
    assert told == ["edit"]


def test_settings_hide_the_token() -> None:
    """The token is in the link and nowhere else: not in what a log or a traceback would show."""
    settings = Settings()
    assert settings.token in settings.link
    assert settings.token not in repr(settings)
    assert len({Settings().token for _ in range(10)}) == 10


def test_pausing_what_nobody_manages_is_refused(tmp_path: Path) -> None:
    """P-98: pause of an unmanaged experiment is refused with a reason, and nothing changes."""
    with History(tmp_path) as history:
        run = history.run(state="RUNNING")
        page = PageApp(history.place)
        asked = {"action": "pause", "ids": [run.experiment_id]}
        (outcome,) = page.ask("POST", "/api/v1/experiments/actions", json=asked).json()["outcomes"]
        assert (outcome["id"], outcome["is_done"]) == (run.experiment_id, False)
        assert "controller" in outcome["said"]
        page.close()


def test_work_in_the_background_waits_for_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 16: it waits while a request has no answer yet, not while a stream goes on, and never for ever."""
    monkeypatch.setattr(traffic, "BUSY_SECONDS", 60.0)
    waiting, order = Traffic(), list[str]()

    def work() -> None:
        waiting.wait_for_calm(lambda: False)
        order.append("work")

    working = threading.Thread(target=work)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        working.start()
        await anyio.sleep(0.2)
        order.append("the answer begins")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await anyio.to_thread.run_sync(working.join, 10.0)
        order.append("the answer ends")

    async def ask() -> None:
        request = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }
        await Guard(app, Settings(), Rules([]), traffic=waiting)(request, nothing, nothing)

    async def nothing(*_: Message) -> Message:
        return {"type": "http.disconnect"}

    anyio.run(ask)
    working.join()
    assert order == ["the answer begins", "work", "the answer ends"]
    waiting.begin("one that never ends")
    waiting.wait_for_calm(lambda: True)
    monkeypatch.setattr(traffic, "BUSY_SECONDS", 0.01)
    waiting.wait_for_calm(lambda: False)
