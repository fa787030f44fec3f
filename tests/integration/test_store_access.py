"""Who gets into a store on PostgreSQL: passwords where libpq looks, TLS, and no password where others look."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from determined import errors
from determined.store.database.connection import open_store
from tests import tls
from tests.experiments import processes
from tests.lifecycles import Lab
from tests.stores import PostgresServer, started_postgres

PASSWORD = "correct-horse"
RULES = "local all postgres trust\nlocal runs ada scram-sha-256\n"


@pytest.fixture(scope="module")
def administrator() -> Iterator[PostgresServer]:
    """A PostgreSQL with a database `runs`, into which `ada` comes with her password only."""
    with started_postgres() as running:
        server = PostgresServer(running)
        server.execute(f"CREATE ROLE ada LOGIN PASSWORD '{PASSWORD}'")
        server.execute("CREATE DATABASE runs OWNER ada")
        (running.pgdata / "pg_hba.conf").write_text(RULES)
        server.execute("SELECT pg_reload_conf()")
        yield server


@pytest.fixture
def socket(administrator: PostgresServer) -> Path:
    """Where it listens."""
    ((directory,),) = administrator.execute("SHOW unix_socket_directories")
    return Path(directory) / ".s.PGSQL.5432"


@pytest.fixture
def address(socket: Path) -> str:
    """Her store, without the password."""
    return f"postgresql://ada@/runs?host={socket.parent}"


def secret_file(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def test_without_a_password(address: str) -> None:
    """Nobody is let in, and waiting would not help: the sentence says where a password may be."""
    with pytest.raises(errors.StoreError, match=r"no password supplied.*PGPASSWORD or ~/\.pgpass"):
        open_store(address)


@pytest.mark.parametrize("way", ["address", "file", "PGPASSWORD", "PGPASSFILE", "~/.pgpass", "passfile", "service"])
def test_where_a_password_may_be(
    way: str, address: str, socket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 16: in the address, in a file that holds the address, and wherever libpq looks."""
    passwords = secret_file(tmp_path / ".pgpass", f"*:*:*:ada:{PASSWORD}\n")
    with_password = address.replace("ada@", f"ada:{PASSWORD}@")
    if way == "address":
        address = with_password
    elif way == "file":
        address = f"file:{secret_file(tmp_path / 'address', with_password)}"
    elif way == "PGPASSWORD":
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
    elif way == "PGPASSFILE":
        monkeypatch.setenv("PGPASSFILE", str(passwords))
    elif way == "~/.pgpass":
        monkeypatch.setenv("HOME", str(tmp_path))
    elif way == "passfile":
        address = f"{address}&passfile={passwords}"
    else:
        told = {"host": socket.parent, "dbname": "runs", "user": "ada", "password": PASSWORD}
        lines = "".join(f"{name}={value}\n" for name, value in told.items())
        monkeypatch.setenv("PGSERVICEFILE", str(secret_file(tmp_path / "services", f"[lab]\n{lines}")))
        address = "postgresql:///?service=lab"
    store = open_store(address)
    with store.read() as conn:
        assert conn.exec_driver_sql("SELECT current_user").scalar() == "ada"
    store.close()
    assert PASSWORD not in f"{store.url} {store.place!r}"


def test_no_connection_is_left(address: str, administrator: PostgresServer) -> None:
    """A server that has no connection left may have one later; the sentence says what to raise."""
    address = address.replace("ada@", f"ada:{PASSWORD}@")
    administrator.execute("ALTER ROLE ada CONNECTION LIMIT 1")
    try:
        store = open_store(address)
        with store.read(), pytest.raises(errors.StoreUnavailable, match=r"no more connections; raise its max_connect"):
            open_store(address)
        store.close()
    finally:
        administrator.execute("ALTER ROLE ada CONNECTION LIMIT -1")


def test_tls(socket: Path, tmp_path: Path) -> None:
    """Issue 16: `sslmode` and `sslrootcert` reach libpq. A server that it cannot trust is refused, in a sentence."""
    pytest.importorskip("cryptography")
    ours = tls.make_certificate(tmp_path / "ours", "localhost")
    others = tls.make_certificate(tmp_path / "others", "localhost")
    with tls.proxy(socket, *ours) as port:
        at = f"postgresql://ada:{PASSWORD}@localhost:{port}/runs?hostaddr=127.0.0.1&sslmode"
        for options in ("require", f"verify-full&sslrootcert={ours[0]}"):
            store = open_store(f"{at}={options}")
            with store.read() as conn:
                assert conn.connection.driver_connection.pgconn.ssl_in_use  # type: ignore[union-attr]
            store.close()
        with pytest.raises(errors.StoreError, match=r"certificate verify failed.*Check sslmode and sslrootcert"):
            open_store(f"{at}=verify-full&sslrootcert={others[0]}")
        elsewhere = at.replace("localhost", "127.0.0.1", 1)
        with pytest.raises(errors.StoreError, match="does not match host name"):
            open_store(f"{elsewhere}=verify-full&sslrootcert={ours[0]}")


@pytest.fixture
def home(leaves_nothing_behind: None, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A data directory; for tests with a lab, beside the store of `ada`, whose address is in a file."""
    monkeypatch = request.getfixturevalue("monkeypatch")
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    if "lab" in request.fixturenames:
        address = request.getfixturevalue("address").replace("ada@", f"ada:{PASSWORD}@")
        monkeypatch.setenv("DET_STORE", f"file:{secret_file(tmp_path / 'address', address)}")
    return tmp_path / "home"


def test_nobody_else_sees_the_password(lab: Lab, home: Path) -> None:
    """Issue 16: with the address in a file, an experiment runs, and the password is in no argument of any process, in
    no log, in nothing that is stored or printed.
    """
    script = """
    note(start=0)
    print("the store is", os.environ["DET_STORE"])
    wait_for("go")
    with core.init() as context:
        context.train.report_validation_metrics(1, {"loss": 0.5})
    """
    experiment = lab.submit(script)
    lab.noted(experiment, "start")
    running = [process.cmdline() for process in processes()]
    assert len(running) >= 3, "controller, agent, trial"
    lab.tell("go")
    assert lab.end(experiment) == "COMPLETED"
    said = [str(running), lab.log(experiment), str(psutil.Process().cmdline())]
    assert "the store is postgresql+psycopg://ada:********@" in said[1]
    for words in (["store", "info"], ["experiment", "list"], ["trial", "describe", str(lab.only_trial(experiment).id)]):
        told = subprocess.run([sys.executable, "-m", "determined.cli", *words], capture_output=True, text=True)
        assert told.returncode == 0, told.stderr
        said.append(told.stdout + told.stderr)
    said += [path.read_text(errors="replace") for path in home.rglob("*") if path.is_file()]
    assert not [text for text in said if PASSWORD in text]
    assert PASSWORD not in os.environ["DET_STORE"]
