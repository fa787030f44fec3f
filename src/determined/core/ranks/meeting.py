"""Where ranks meet: a torch store that rank 0 or the launcher hosts. What they say there is in `_collective`."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import os
import socket
import threading
import time
from datetime import timedelta
from typing import Any, NoReturn, Protocol, cast

from determined.errors import CollectiveError, CollectiveTimeout, LauncherError

logger = logging.getLogger("determined.core")

HANDSHAKE_SECONDS = 10.0
KEEPALIVE_SECONDS = 60


class Store(Protocol):
    """The part of a torch store that we use."""

    def set(self, key: str, value: bytes) -> None: ...
    def get(self, key: str) -> bytes: ...
    def multi_get(self, keys: list[str]) -> list[bytes]: ...
    def check(self, keys: list[str]) -> bool: ...
    def add(self, key: str, amount: int) -> int: ...
    def compare_set(self, key: str, expected: str, desired: bytes) -> bytes: ...
    def delete_key(self, key: str) -> bool: ...
    def clone(self) -> Store: ...


class Connection:
    """A store whose failures are sentences. Closing it drops the store, and with it the socket or server behind it."""

    def __init__(
        self,
        store: Store,
        *,
        prefix: str,
        place: str,
        probe: tuple[str, int] | None,
        ends_with_chief: bool,
        is_ours: bool,
    ) -> None:
        self._store: Store | None = store
        self._prefix = prefix + "/"
        self.place = place
        self.ends_with_chief = ends_with_chief  # the chief's process hosts it, not a launcher
        self.is_ours = is_ours  # made for this context, so that nobody else's old sessions are in it for long
        self._probe = probe
        self.keeps: object = None  # what has to live as long as this connection

    def set(self, key: str, value: bytes) -> None:
        """Set, without waiting for the server. Two sets by one rank are seen in their order."""
        self._use("set", self._prefix + key, value)

    def get(self, key: str) -> bytes:
        """The value of a key that is known to be there."""
        return bytes(self._use("get", self._prefix + key))

    def get_all(self, keys: list[str]) -> list[bytes]:
        """The values of keys that are known to be there, in one round trip."""
        return [bytes(value) for value in self._use("multi_get", [self._prefix + key for key in keys])]

    def find(self, key: str) -> bytes | None:
        """The value if the key is there."""
        return self.get(key) if self.has(key) else None

    def has(self, *keys: str) -> bool:
        """Whether all these keys are there."""
        return bool(self._use("check", [self._prefix + key for key in keys]))

    def count(self, key: str) -> int:
        """Add one and return the sum."""
        return int(self._use("add", self._prefix + key, 1))

    def replace(self, key: str, expected: bytes, value: bytes) -> bool:
        """Set `key` if it still is what was `expected` (empty: not there). Whether it was."""
        return bytes(self._use("compare_set", self._prefix + key, expected, value)) == value

    def delete(self, *keys: str) -> None:
        """Delete keys; those that are not there are no error."""
        for key in keys:
            self._use("delete_key", self._prefix + key)

    def answers(self) -> bool:
        """Whether somebody still listens there. torch complains at length when asked to talk to nobody."""
        if self._store is None:
            return False
        if self._probe is None:
            return True
        try:
            socket.create_connection(self._probe, timeout=1).close()
        except OSError:
            return False
        return True

    def hang_up(self) -> None:
        """Break the connection: whoever waits in it for an answer gets an error instead."""
        if self._probe is not None:
            places = {found[4][:2] for found in socket.getaddrinfo(*self._probe)}
            shut({line for line in connections() if (line[2].ip.removeprefix("::ffff:"), line[2].port) in places})

    def close(self) -> None:
        """Let go of the store."""
        self._store = self.keeps = None

    def _use(self, method: str, *args: Any) -> Any:
        store = self._store
        if store is None:
            raise CollectiveError("This DistributedContext is closed. Make the call before close(), or make a new one.")
        try:
            return getattr(store, method)(*args)
        except (RuntimeError, ValueError) as error:  # torch's network errors are RuntimeErrors
            raise ConnectionLost(
                f"The connection to {self.place}, where the ranks meet, is lost: its process has ended or closed its "
                f"context ({_first_line(error)})."
            ) from error


class ConnectionLost(CollectiveError):
    """Nobody answers where the ranks meet."""


def host(ip: str, port: int, *, spans_machines: bool, change: str) -> Connection:
    """Host the store at one address of this machine. `change` says what to change if the port is taken."""
    return Connection(
        _serve(ip, port, change, spans_machines=spans_machines),
        prefix="determined",
        place=_place(ip, port),
        probe=None,
        ends_with_chief=True,
        is_ours=True,
    )


def connect(
    ip: str,
    port: int,
    *,
    deadline: float,
    prefix: str = "determined",
    ends_with_chief: bool = True,
    is_ours: bool = True,
) -> Connection:
    """Connect to a store that another process hosts, or is about to host."""
    store = _reach(ip, port, deadline)
    return Connection(
        store, prefix=prefix, place=_place(ip, port), probe=(ip, port), ends_with_chief=ends_with_chief, is_ours=is_ours
    )


def launcher_store(rank: int, *, deadline: float, spans_machines: bool) -> Connection:
    """The store of a job that torchrun or a like launcher started.

    In order: the store of the process group if there is one, the store of torchrun's agent, or one that rank 0 hosts at
    MASTER_PORT, where an init_process_group() that comes later finds it.
    """
    import torch.distributed as dist

    prefix = f"determined/attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    if dist.is_available() and dist.is_initialized():
        return _process_group_store(prefix)
    ip, port = variable("MASTER_ADDR"), int(variable("MASTER_PORT"))
    if rank != 0 or agent_hosts():
        return connect(ip, port, deadline=deadline, prefix=prefix, ends_with_chief=not agent_hosts(), is_ours=False)
    serve_for_process(ip, port, spans_machines=spans_machines)
    return Connection(
        _tcp_store(ip, port, is_master=False),
        prefix=prefix,
        place=_place(ip, port),
        probe=None,
        ends_with_chief=True,
        is_ours=False,
    )


def connections() -> set[tuple[int, Any, Any]]:
    """This process's open TCP connections: file descriptor, own address and the other's."""
    import psutil

    try:
        found = psutil.Process().net_connections("tcp")
    except (psutil.Error, OSError):
        return set()
    return {(line.fd, line.laddr, line.raddr) for line in found if line.raddr and line.fd >= 0}


def shut(lines: set[tuple[int, Any, Any]]) -> None:
    """Shut those of these connections that are still open, at both ends."""
    for fd, _, theirs in lines & connections():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as line:
            if line.getpeername()[:2] == tuple(theirs):
                line.shutdown(socket.SHUT_RDWR)


def variable(name: str, launcher: str = "torchrun") -> str:
    """What the launcher said."""
    value = os.environ.get(name)
    if value is None:
        start = "Start this script with `torchrun --nproc_per_node 2 train.py`"
        use = start if launcher == "torchrun" else "Under torchrun use DistributedContext.from_torch_distributed()"
        raise LauncherError(
            f"{name} is not set. {launcher} sets it for every process it starts. {use}; a single process needs no more "
            "than DistributedContext()."
        )
    return value


def number(name: str, launcher: str = "torchrun") -> int:
    """What the launcher said, as a number."""
    value = variable(name, launcher)
    try:
        return int(value)
    except ValueError:
        raise LauncherError(f"{name}={value!r} is not a number; {launcher} sets it to one.") from None


def agent_hosts() -> bool:
    """Whether torchrun's agent, which outlives the ranks, hosts the store."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _process_group_store(prefix: str) -> Connection:
    import torch.distributed as dist

    shared = dist.distributed_c10d._get_default_store()
    try:
        # A connection of our own: the process group may sit in a long wait on its one.
        own = cast(Store, shared).clone()
    except (AttributeError, NotImplementedError, RuntimeError):
        own = cast(Store, shared)
    connection = Connection(
        own,
        prefix=prefix,
        place="the store of the default process group",
        probe=None,
        ends_with_chief=not agent_hosts(),
        is_ours=False,
    )
    connection.keeps = shared  # the server lives as long as this
    return connection


_servers: dict[tuple[str, int], Store] = {}


def serve_for_process(
    ip: str,
    port: int,
    *,
    spans_machines: bool = False,
    change: str = "the launcher's MASTER_PORT (torchrun --master-port)",
) -> None:
    """Have a server at this port until this process ends; what torch opens there in this process shares it.

    Another rank may be done with its context and connect to it for init_process_group() at any time: taking it down in
    between would cut that connection.
    """
    if (ip, port) not in _servers:
        _servers[ip, port] = _serve(ip, port, change, spans_machines=spans_machines, shared=True)


def free_server(ip: str, *, spans_machines: bool) -> tuple[Store, int]:
    """A store hosted here at a port that is free, and that port."""
    with _listen(ip, 0, spans_machines=spans_machines) as listener:
        port = int(listener.getsockname()[1])
        return _tcp_store(ip, port, is_master=True, master_listen_fd=os.dup(listener.fileno())), port


def _serve(ip: str, port: int, change: str, *, spans_machines: bool, shared: bool = False) -> Store:
    options: dict[str, Any] = {"is_master": True, "multi_tenant": shared}
    try:
        listener = _listen(ip, port, spans_machines=spans_machines)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise CollectiveError(f"rank 0 cannot listen on {ip}:{port}: {error}. Check chief_ip.") from error
        if shared:  # perhaps it is this process itself that has a store for init_process_group() there
            with contextlib.suppress(RuntimeError):
                return _tcp_store(ip, port, **options)
        raise CollectiveError(
            f"Port {port} on {ip}, where the ranks of this job are to meet, is taken: by another job, another "
            f"program, or a second process that was told it is rank 0. Change {change}."
        ) from error
    return _tcp_store(ip, port, master_listen_fd=listener.detach(), **options)


def _tcp_store(ip: str, port: int, **options: Any) -> Store:
    import torch.distributed as dist

    store = dist.TCPStore(ip, port, wait_for_workers=False, **options)  # type: ignore[attr-defined]  # it is public
    return cast(Store, store)  # whose annotations ask for str where it takes bytes


def _listen(ip: str, port: int, *, spans_machines: bool) -> socket.socket:
    """A socket on the one interface needed, which keeps its connections alive while no rank has anything to say."""
    found = socket.getaddrinfo(ip, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    everywhere = ("::" if family == socket.AF_INET6 else "0.0.0.0", port)
    if spans_machines and ip != address[0] and ipaddress.ip_address(address[0]).is_loopback:
        address = everywhere  # many machines take their own name for 127.0.1.1, where no other machine finds them
    listener = _socket(family, kind, protocol)
    try:
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            logger.warning("%s is not an address of this machine; rank 0 listens on all its interfaces instead.", ip)
            listener.bind(everywhere)
    except OSError:
        listener.close()
        raise
    listener.listen(1024)
    return listener


def _socket(family: int, kind: int, protocol: int) -> socket.socket:
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # accepted connections inherit these
    if hasattr(socket, "TCP_KEEPIDLE"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_SECONDS)
    return listener


def _reach(ip: str, port: int, deadline: float) -> Store:
    """Connect as soon as somebody listens. torch's own retries would fill the log with stack traces."""
    started, pause = time.monotonic(), 0.01
    while True:
        try:
            socket.create_connection((ip, port), timeout=max(0.1, min(5.0, deadline - time.monotonic()))).close()
            return _handshake(ip, port, deadline)
        except (OSError, RuntimeError) as error:
            if isinstance(error, CollectiveError):
                raise
            if time.monotonic() + pause > deadline:
                _unreached(ip, port, time.monotonic() - started, error)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.25)


def _unreached(ip: str, port: int, waited: float, error: Exception) -> NoReturn:
    raise CollectiveTimeout(
        f"rank 0 could not be reached at {ip}:{port} within {waited:.0f} s ({_first_line(error)}). Check that rank 0 "
        "was started and is still running, that its address (chief_ip, MASTER_ADDR) is right, and that no "
        "firewall is between."
    ) from error


def _handshake(ip: str, port: int, deadline: float) -> Store:
    """Open the store. In a thread: torch waits for ever for a listener that accepts and says nothing."""
    outcome: list[Any] = []
    patience = max(0.1, min(HANDSHAKE_SECONDS, deadline - time.monotonic()))

    def open_store() -> None:
        try:
            outcome.append(_tcp_store(ip, port, is_master=False, timeout=timedelta(seconds=patience)))
        except RuntimeError as error:
            outcome.append(error)

    thread = threading.Thread(target=open_store, name="determined-connect", daemon=True)
    thread.start()
    thread.join(patience)
    if not outcome:
        raise CollectiveTimeout(
            f"Something listens on {ip}:{port} but it is not rank 0 of a job: it did not answer within "
            f"{patience:.0f} s. Choose another port (INTER_TRAIN_PROCESS_COMM_PORT_1, pub_port=, or "
            "torchrun --master-port)."
        )
    if isinstance(outcome[0], RuntimeError):
        raise outcome[0]
    return outcome[0]  # type: ignore[no-any-return]  # a TCPStore, which takes bytes


def _place(ip: str, port: int) -> str:
    return f"the store at {ip}:{port}"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
