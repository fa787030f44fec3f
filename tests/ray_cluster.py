"""A real Ray cluster of several nodes on this machine, loopback only, with a token: `ray_cluster`.

    def test_something(ray_cluster):
        with ray_cluster.node("four", cpus=2) as node:
            node.kill()

Nodes are started and ended by a keeper, a process of its own that ends them all when whoever asked for it is gone. It
and `RemoteLauncher`, a launcher in a process of its own, are no children of the tests' process: Ray starts and ends
processes as it likes, and leaves threads behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).parents[1]
MEMORY = 80_000_000  # of each node's object store, which nothing of ours uses
PATIENCE_SECONDS = 120.0
ELSEWHERE = 'hostname "$1" && mount -t tmpfs none "$2" && shift 2 && exec "$@"'
NOT_NICE = {"RAY_worker_niceness": "0", "RAY_worker_oom_score_adjustment": "0"}  # trials inherit both
DRIVERS_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # off, or Ray replaces 127.0.0.1; a node refuses to join with it


class Asked:
    """A process of its own that answers: a line of JSON in, a line of JSON out."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        # The parent ends at once, so that this is no child of ours; the pipes stay.
        command = ["setsid", "--fork", sys.executable, "-m", module]
        inherited = {key: value for key, value in os.environ.items() if key != "DET_HOME"}  # it is nobody's
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**inherited, **environment}, cwd=ROOT
        )
        process.wait()
        assert process.stdin is not None
        assert process.stdout is not None
        self._questions, self._answers = process.stdin, process.stdout
        self.pid = int(json.loads(self._answers.readline()))

    def ask(self, **question: Any) -> Any:
        self._questions.write(json.dumps(question).encode() + b"\n")
        self._questions.flush()
        line = self._answers.readline()
        assert line, f"the process that was asked {question} is gone"
        answer = json.loads(line)
        assert "problem" not in answer, answer["problem"]
        return answer["answer"]

    def close(self) -> None:
        """Have it end, and wait until it has."""
        with contextlib.suppress(BrokenPipeError):
            self._questions.close()
        while self._answers.readline():
            pass
        self._answers.close()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while psutil.pid_exists(self.pid) and psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def answer_questions(answer: Callable[..., Any]) -> None:
    """The other side of `Asked`: answer until nobody asks any more."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anything prints is no answer
    out.write(f"{os.getpid()}\n")
    out.flush()
    for line in sys.stdin:
        question = json.loads(line)
        try:
            found = {"answer": answer(**question)}
        except Exception as failed:
            found = {"problem": f"{type(failed).__name__}: {failed}"}
        out.write(json.dumps(found) + "\n")
        out.flush()


class Node:
    """One node of the cluster."""

    def __init__(self, keeper: Asked, name: str) -> None:
        self._keeper, self.name = keeper, name

    @property
    def pids(self) -> list[int]:
        """What runs on the node now, Ray's own processes and ours."""
        found: list[int] = self._keeper.ask(do="pids", name=self.name)
        return found

    def kill(self) -> None:
        """End everything that runs on the node: the machine is gone."""
        self._keeper.ask(do="signal", name=self.name, what="node", number=signal.SIGKILL)

    def kill_raylet(self) -> None:
        """End Ray's own process of the node; what it started notices by itself."""
        self._keeper.ask(do="signal", name=self.name, what="raylet", number=signal.SIGKILL)


class RayCluster:
    """The cluster. `environment` is what a process needs to find it."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.home = Path(tempfile.mkdtemp(prefix="dr"))  # short: it holds names of sockets
        token = self.home / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        self.port = _free_port()
        self.environment = {
            "RAY_ADDRESS": f"{address}:{self.port}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            DRIVERS_ONLY: "0",
            "RAY_health_check_period_ms": "1000",  # a node that is gone is known to be so after some seconds
            "RAY_health_check_timeout_ms": "3000",
            "RAY_health_check_failure_threshold": "3",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
        }
        self._keeper = Asked("tests.ray_cluster", {**self.environment, "DET_RAY_TEST": str(self.home)})
        self._ask_for("one", cpus=2, head=True)

    @contextlib.contextmanager
    def node(self, name: str, *, cpus: int = 2, **settings: Any) -> Iterator[Node]:
        """A node more, for a while: `gpus`, `resources`, `environment`.

        With `machine` it has another host name, and `hidden` is a directory that is another one there: as far as
        anybody can tell it is another machine. With `network` it lives at an `address` of that network namespace.
        """
        self._ask_for(name, cpus=cpus, **settings)
        try:
            yield Node(self._keeper, name)
        finally:
            self._keeper.ask(do="end", name=name, port=self.port)

    def lasting(self, name: str, *, cpus: int, **settings: Any) -> Node:
        """A node that stays as long as the cluster; one that was killed is started again."""
        if not self._keeper.ask(do="is_up", name=name, port=self.port):
            self._ask_for(name, cpus=cpus, **settings)
        return Node(self._keeper, name)

    def _ask_for(self, name: str, **settings: Any) -> None:
        self._keeper.ask(do="start", name=name, port=self.port, **settings)

    def head(self) -> Node:
        return Node(self._keeper, "one")

    def close(self) -> None:
        self._keeper.close()


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[RayCluster]:
    """A cluster with one node, `one`, that has two CPUs. Not for the session: three idle nodes take 12 % of a core."""
    pytest.importorskip("ray")
    cluster = RayCluster()
    yield cluster
    RemoteLauncher.end()
    cluster.close()


class RemoteLauncher:
    """The Ray launcher in a process of its own, which may be killed; the next question starts another.

    Connecting to Ray takes two seconds, so one process serves the tests of a cluster, one after another.
    """

    _asked: Asked | None = None

    def __init__(self, cluster: RayCluster, store: str, home: Path) -> None:
        self._environment = {**cluster.environment, "DET_LAUNCHER": "ray"}
        self._place = {"store": store, "home": str(home)}
        self._is_open = False

    def start(self, task: Any) -> None:
        self._ask(do="start", task=task.to_json())

    def is_alive(self, attempt: Any) -> bool:
        return bool(self._ask(do="is_alive", allocation_id=attempt.allocation_id))

    def kill(self, attempt: Any) -> None:
        self._ask(do="kill", allocation_id=attempt.allocation_id)

    def wait(self, seconds: float) -> None:
        self._ask(do="wait", seconds=seconds)

    def waiting(self) -> dict[str, str]:
        found: dict[str, str] = self._ask(do="waiting")
        return found

    def slots(self) -> Any:
        from determined.experiment.slots import Slots

        return Slots.from_json(self._ask(do="slots"))

    def abandon(self) -> None:
        """Kill the process."""
        assert self._asked is not None
        os.kill(self._asked.pid, signal.SIGKILL)
        self.end()
        self._is_open = False

    @classmethod
    def end(cls) -> None:
        """End the process that serves the cluster."""
        if cls._asked is not None:
            cls._asked.close()
            cls._asked = None

    def _ask(self, **question: Any) -> Any:
        if RemoteLauncher._asked is None:
            RemoteLauncher._asked = Asked("tests.ray_launcher", self._environment)
        if not self._is_open:
            RemoteLauncher._asked.ask(do="open", **self._place)
            self._is_open = True
        return RemoteLauncher._asked.ask(**question)


# The keeper.


def on_loopback(parameters: Any, _is_head: bool) -> None:
    """Called by `ray start` (RAY_START_HOOK): listen on this machine only, and without a server for remote drivers."""
    address = os.environ["DET_RAY_NODE"]
    sys.modules["ray._private.services"].get_node_ip_address = lambda *_: address
    parameters.node_ip_address = address
    parameters.ray_client_server_port = None


_nodes: dict[str, subprocess.Popen[bytes]] = {}
_seen: dict[str, set[psutil.Process]] = {}


def _start(
    name: str,
    port: int,
    cpus: int,
    gpus: int = 0,
    resources: Mapping[str, float] = {},
    environment: Mapping[str, str] = {},
    machine: str | None = None,
    hidden: str = "/mnt",
    network: str | None = None,
    address: str | None = None,
    head: bool = False,
) -> None:
    home = Path(os.environ["DET_RAY_TEST"])
    first = os.environ["RAY_ADDRESS"].rpartition(":")[0]
    own = ["--head", f"--port={port}", f"--temp-dir={home / 't'}", "--include-dashboard=false", "--no-monitor"]
    where = own if head else [f"--address={first}:{port}"]
    command = [
        *(["ip", "netns", "exec", network] if network else []),
        *(["unshare", "--uts", "--mount", "sh", "-c", ELSEWHERE, "sh", machine, hidden] if machine else []),
        *(str(Path(sys.executable).parent / "ray"), "start", "--block", *where),
        *(f"--node-name={name}", f"--num-cpus={cpus}", f"--num-gpus={gpus}", f"--resources={json.dumps(resources)}"),
        *(f"--object-store-memory={MEMORY}", "--include-log-monitor=false", "--disable-usage-stats"),
    ]
    others = ("DET_HOME", "DET_STORE", "RAY_ADDRESS", DRIVERS_ONLY)
    inherited = {key: value for key, value in os.environ.items() if key not in others}
    hook = {"RAY_START_HOOK": "tests.ray_cluster.on_loopback", "DET_RAY_NODE": address or first}
    ours = {**hook, "DET_CONTROLLER": "off", **NOT_NICE}
    around = {**inherited, **ours, **environment}
    log = (home / f"{name}.log").open("ab")
    _nodes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=around)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while name not in _alive(port):
        if _nodes[name].poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"node {name} does not start: {(home / f'{name}.log').read_text()[-2000:]}")
        time.sleep(0.05)


def _alive(port: int) -> set[str]:
    """The names of the nodes that have joined, as the head knows them."""
    from ray._raylet import GcsClient

    try:
        # Ray's client waits ten seconds for a head that is not there.
        address = os.environ["RAY_ADDRESS"]
        socket.create_connection((address.rpartition(":")[0], port)).close()
        client = GcsClient(address=address)
        return {info.node_name for info in client.get_all_node_info().values() if info.state == 0}
    except Exception:
        return set()


def _is_up(name: str, port: int) -> bool:
    if name in _nodes and (_nodes[name].poll() is not None or name not in _alive(port)):
        _end(name, port)
    return name in _nodes


def _signal(name: str, what: str, number: int) -> None:
    for process in _processes_of(name):
        with contextlib.suppress(psutil.Error):
            if what == "node" or process.name() == "raylet":
                process.send_signal(number)
    if what == "node" and number == signal.SIGKILL:
        _nodes[name].wait()  # or whoever asks next whether it is up is told that it is


def _processes_of(name: str) -> set[psutil.Process]:
    """Everything below the node's first process, also what has lost its parent since it was last seen."""
    found = _seen.setdefault(name, set())
    with contextlib.suppress(psutil.Error):
        first = psutil.Process(_nodes[name].pid)
        found |= {first, *first.children(recursive=True)}
    return found


def _pids(name: str) -> list[int]:
    return sorted(process.pid for process in _processes_of(name) if _runs(process))


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _end(name: str, port: int | None = None) -> None:
    """Kill a node, frozen or not, and wait until nothing of it is left."""
    _signal(name, "node", signal.SIGKILL)
    _nodes[name].wait()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := _pids(name):
        assert time.monotonic() < deadline, f"of node {name} there is left: {left}"
        time.sleep(0.02)
    del _nodes[name], _seen[name]
    while port is not None and name in _alive(port):
        time.sleep(0.05)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def main() -> None:
    answers = {"start": _start, "is_up": _is_up, "signal": _signal, "pids": _pids, "end": _end}
    answer_questions(lambda do, **question: answers[do](**question))
    for name in list(_nodes):
        _end(name)
    shutil.rmtree(os.environ["DET_RAY_TEST"], ignore_errors=True)  # whoever asked for it may be dead


if __name__ == "__main__":
    main()
