"""det ui as a real process: its link and its port, streams that tell of changes, a lost store, and how it ends."""

# ruff: noqa: F811  `page_server` is a fixture

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from determined import _process
from tests.browsers import Server, page_server  # noqa: F401  a fixture
from tests.history import History, Run
from tests.ranks import free_port

Start = Callable[..., Server]
PATIENCE_SECONDS = 60.0


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    place = tmp_path / "place"
    place.mkdir()
    with History(tmp_path, place / "runs.db") as made:
        monkeypatch.setenv("DET_STORE", str(made.place))
        yield made


@pytest.fixture
def run(history: History) -> Run:
    return history.run("digits", state="RUNNING", training={1: 0.5})


def det(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "determined.cli", "ui", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == code, ended.stderr
    return ended


def client(server: Server, **more: Any) -> httpx.Client:
    headers = {"authorization": f"Bearer {server.token}"}
    return httpx.Client(base_url=server.address, headers=headers, timeout=PATIENCE_SECONDS, **more)


class Stream:
    """One open stream of events."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()

    def next(self) -> tuple[str, dict[str, Any]]:
        """The name and the body of the next event."""
        for line in self._lines:
            if line.startswith("event: "):
                return line.removeprefix("event: "), json.loads(next(self._lines).removeprefix("data: "))
        raise EOFError

    def until(self, name: str, **parts: Any) -> dict[str, Any]:
        """The body of the first event of this name that says at least this."""
        while True:
            found, body = self.next()
            if found == name and all(body[key] == value for key, value in parts.items()):
                return body


@contextlib.contextmanager
def stream(server: Server) -> Iterator[Stream]:
    with client(server) as asking, asking.stream("GET", "/api/v1/events") as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        opened = Stream(response)
        assert opened.next()[0] == "hello"
        yield opened


def test_one_link_is_printed(run: Run, page_server: Start) -> None:
    """One line on stdout, which a browser follows to the page and to the API; nothing else is said."""
    server = page_server()
    with httpx.Client(follow_redirects=True) as browser:
        page = browser.get(server.link)
        assert (page.status_code, "token" in str(page.url)) == (200, False)
        assert browser.get(f"{server.address}/api/v1/experiments/{run.experiment_id}").json()["name"] == "digits"
    assert httpx.get(f"{server.address}/api/v1/tensorboards").status_code == 401
    server.process.send_signal(signal.SIGINT)
    out, err = server.process.communicate(timeout=PATIENCE_SECONDS)
    assert (out, err, server.process.returncode) == ("", "", 0)


def test_a_taken_port_is_a_sentence(history: History, page_server: Start) -> None:
    """The port is named, and what to type next; nothing was started."""
    server = page_server()
    port = server.address.rpartition(":")[2]
    refused = det("--no-open", "--port", port, code=1)
    assert refused.stdout == ""
    assert refused.stderr == (
        f"Port {port} is in use. Take the next free one: det ui, or name another: det ui --port {int(port) + 1}\n"
    )


def test_the_next_free_port_is_taken(history: History, page_server: Start) -> None:
    """Two pages at once need no --port."""
    first, second = page_server(), page_server()
    assert first.address != second.address
    for server in (first, second):
        with client(server) as asking:
            assert asking.get("/api/v1/tensorboards").status_code == 200


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "203.0.113.9"], "is no address of this machine"),
        (["--host", "no.such.name.example"], "is no address of this machine"),
        (["--port", "70000"], "70000"),
    ],
)
def test_a_slip_is_one_sentence(history: History, words: list[str], said: str) -> None:
    """A host that is not this machine, a port that is none."""
    refused = det("--no-open", *words, code=2 if "--port" in words else 1)
    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_store_that_is_not_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with the store is said before anything is served."""
    monkeypatch.setenv("DET_STORE", str(tmp_path / "none.db"))
    assert "There is no store at" in det("--no-open", code=1).stderr
    assert "There is no store at" in det("-d", code=1).stderr


def test_other_machines_need_the_link_too(history: History, page_server: Start) -> None:
    """--host 0.0.0.0: the link has the machine's name and the token, and a sentence says what that means."""
    server = page_server("--host", "0.0.0.0")
    assert server.address.startswith(f"http://{socket.gethostname()}:")
    local = f"http://127.0.0.1:{server.address.rpartition(':')[2]}"
    assert httpx.get(f"{local}/api/v1/tensorboards").status_code == 401
    server.process.send_signal(signal.SIGINT)
    said = server.process.communicate(timeout=PATIENCE_SECONDS)[1]
    assert "Whoever reaches this machine and has the link" in said
    assert server.token not in said


def test_changes_are_told_as_they_happen(history: History, run: Run, page_server: Start) -> None:
    """A report, a log line and an edit reach every open stream, with the ids to ask for again."""
    server = page_server()
    with stream(server) as one, stream(server) as two:
        history.report(run, "training", {2: 0.4})
        for each in (one, two):
            assert each.until("change", trials=[run.trial_id])["experiments"] == [run.experiment_id]
        history.log(run, ["hello"])
        assert one.until("change", logs=[run.trial_id])["trials"] == []
        with client(server) as asking:
            asking.patch(f"/api/v1/experiments/{run.experiment_id}", json={"name": "another"}).raise_for_status()
        for each in (one, two):
            each.until("change", other=True)


def test_changes_before_anybody_listens_are_told(history: History, run: Run, page_server: Start) -> None:
    """The watcher sleeps without a stream; what was stored meanwhile is told to the first that comes."""
    server = page_server()
    with stream(server) as first:
        history.report(run, "training", {2: 0.4})
        first.until("change", trials=[run.trial_id])
    other = history.run("other", state="RUNNING")
    with stream(server) as second:
        while other.experiment_id not in second.until("change")["experiments"]:
            pass


def test_changes_of_a_server_are_told(postgres: Any, tmp_path: Path, page_server: Start, monkeypatch: Any) -> None:
    """The same on PostgreSQL; a connection that is cut is a moment without the store, and heals."""
    url = postgres.database()
    monkeypatch.setenv("DET_STORE", url)
    with History(tmp_path, url) as history:
        run = history.run(state="RUNNING")
        server = page_server()
        with stream(server) as opened:
            history.report(run, "training", {1: 0.5})
            assert opened.until("change", trials=[run.trial_id])["experiments"] == [run.experiment_id]
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'resolute'"
            postgres.execute(cut)
            history.report(run, "training", {2: 0.5})
            opened.until("change", trials=[run.trial_id])
            with client(server) as asking:
                assert asking.get(f"/api/v1/experiments/{run.experiment_id}").status_code == 200
        server.stop()
    postgres.empty(url)


def test_a_lost_store_heals_by_itself(history: History, run: Run, page_server: Start) -> None:
    """The database goes away and comes back: streams say both, requests are 503 in between, nothing is restarted."""
    server = page_server()
    place = Path(history.place).parent
    with stream(server) as opened, client(server) as asking:
        assert asking.get(f"/api/v1/experiments/{run.experiment_id}").status_code == 200
        history.close()
        place.rename(place.with_name("elsewhere"))
        lost = opened.until("store", available=False)
        assert "runs.db" in lost["reason"]
        refused = asking.get(f"/api/v1/experiments/{run.experiment_id}")
        assert (refused.status_code, "runs.db" in refused.json()["detail"]) == (503, True)
        with stream(server) as late:
            assert late.until("store", available=False)["reason"] == lost["reason"]
        place.with_name("elsewhere").rename(place)
        opened.until("store", available=True)
        opened.until("change", other=True)
        assert asking.get(f"/api/v1/experiments/{run.experiment_id}").status_code == 200
        history.report(run, "training", {2: 0.1})
        opened.until("change", trials=[run.trial_id])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_streams_open(history: History, page_server: Start, number: signal.Signals) -> None:
    """SIGTERM and Ctrl-C: open streams end, the process leaves with 0 and says nothing."""
    server = page_server()
    with stream(server) as one, stream(server) as two:
        server.process.send_signal(number)
        for each in (one, two):
            with pytest.raises((EOFError, httpx.HTTPError)):
                each.until("never")
        out, err = server.process.communicate(timeout=PATIENCE_SECONDS)
    assert (server.process.returncode, out, err) == (0, "", "")


def test_a_request_that_waits_does_not_hold_up_the_end(history: History, run: Run, page_server: Start) -> None:
    """Asked to end while a request waits for the store, it leaves with 0 long before the store would give up."""
    server = page_server()
    host, _, port = server.address.removeprefix("http://").partition(":")
    request = (
        f"PATCH /api/v1/experiments/{run.experiment_id} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 13\r\n"
        f'Content-Type: application/json\r\nAuthorization: Bearer {server.token}\r\n\r\n{{"name": "x"}}\n'
    )
    with (
        contextlib.closing(sqlite3.connect(history.place, isolation_level=None)) as other,
        socket.create_connection((host, int(port))) as asking,
        client(server) as later,
    ):
        other.execute(
            "BEGIN IMMEDIATE"
        )  # each who wants to write waits for ten seconds, and this request does so twice
        asking.sendall(request.encode())
        assert later.get("/api/v1/tensorboards").status_code == 200  # so the first one has begun
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(15) == 0


def test_streams_that_were_closed_are_forgotten(history: History, page_server: Start) -> None:
    """Reloading a page a hundred times leaves nothing behind: there is room for the next one."""
    server = page_server()
    for _ in range(100):
        with stream(server):
            pass


def test_too_many_streams_are_refused(history: History, page_server: Start) -> None:
    """The 65th page gets a sentence; when one is closed, there is room again."""
    server = page_server()
    with contextlib.ExitStack() as stack:
        for _ in range(63):
            stack.enter_context(stream(server))
        last = stack.enter_context(contextlib.ExitStack())
        last.enter_context(stream(server))
        with client(server) as asking:
            refused = asking.get("/api/v1/events")
            assert (refused.status_code, "Close some" in refused.json()["detail"]) == (503, True)
            last.close()
            while (answer := next(_statuses(asking))) == 503:
                pass
            assert answer == 200


def _statuses(asking: httpx.Client) -> Iterator[int]:
    with asking.stream("GET", "/api/v1/events") as response:
        yield response.status_code


def test_a_detached_page_outlives_the_command(history: History, run: Run, home: Path) -> None:
    """-d returns when the page answers; list, open and kill as for det tensorboard, and nothing is left."""
    with free_port() as port:
        link, said = (started := det("-d", "--port", str(port), "--read-only")).stdout, started.stderr
        try:
            assert link.startswith(f"http://127.0.0.1:{port}/?token=")
            assert "det ui kill 1" in said
            (listed,) = json.loads(det("list", "--json").stdout)
            assert (listed["id"], listed["address"], listed["read_only"]) == (1, link.strip(), True)
            process = psutil.Process(listed["pid"])
            assert os.getsid(process.pid) == process.pid  # the end of a terminal is not its end
            assert listed["address"].split("token=")[1] not in " ".join(process.cmdline())
            server = Server(None, link.strip())  # type: ignore[arg-type]  # it is not ours
            with client(server) as asking:
                assert asking.get(f"/api/v1/experiments/{run.experiment_id}").json()["name"] == "digits"
                refused = asking.patch(f"/api/v1/experiments/{run.experiment_id}", json={"name": "x"})
                assert (refused.status_code, "--read-only" in refused.json()["detail"]) == (403, True)
            assert (home / "pages" / "1").stat().st_mode & 0o077 == 0  # the link is in it
        finally:
            killed = det("kill", "--all")
        assert killed.stderr == "Page 1 is ended.\n"
        assert not _process.is_alive(process.pid)
        assert list((home / "pages").iterdir()) == []


def test_a_detached_page_that_cannot_start_says_why(history: History, home: Path, page_server: Start) -> None:
    """-d on a taken port: the same sentence as without, and nothing is left."""
    port = page_server().address.rpartition(":")[2]
    assert det("-d", "--port", port, code=1).stderr.startswith(f"Port {port} is in use.")
    assert json.loads(det("list", "--json").stdout) == []
    assert list((home / "pages").iterdir()) == []


def test_an_oversized_request_line_is_refused(history: History, page_server: Start) -> None:
    """Headers are bounded: what is longer than anybody needs is cut off, and the server goes on."""
    server = page_server()
    with client(server) as asking:
        with contextlib.suppress(httpx.HTTPError):  # it may be cut off before it was sent
            assert asking.get("/api/v1/tensorboards", headers={"x-long": "x" * 4_000_000}).status_code == 400
        assert asking.get("/api/v1/tensorboards").status_code == 200


def test_the_server_needs_neither_torch_nor_numpy() -> None:
    """No torch in the process, ever, and no numpy at the start; `det ui -h` loads neither the server nor FastAPI."""
    script = "import sys; {}; print([m for m in ('torch', 'numpy', 'pandas', 'rich', 'alembic') if m in sys.modules])"
    loaded = [sys.executable, "-c", script.format("import determined.server.app, determined.server.serve")]
    assert subprocess.run(loaded, capture_output=True, text=True, check=True).stdout.strip() == "[]"
    script = "import sys; from determined.cli.main import main; main(['ui', '-h'], standalone_mode=False); {}"
    check = "assert not {'fastapi', 'uvicorn', 'pydantic', 'determined.server'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script.format(check)], capture_output=True, check=True)
