"""Connections to the torch store in which ranks meet, which rank 0 or the launcher hosts. What is in it: `session`."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

from determined.core.ranks import launcher
from determined.core.ranks.members import Ranks
from determined.errors import CollectiveError, CollectiveTimeout

logger = logging.getLogger("determined.core")

HANDSHAKE_SECONDS = 10.0
KEEPALIVE_SECONDS = 60
MASTER_PORT = "the launcher's MASTER_PORT (torchrun --master-port)"

T = TypeVar("T")

Store: TypeAlias = Any  # a torch.distributed.Store, whose annotations ask for str where it takes bytes


class ConnectionLost(CollectiveError):
    """The store in which the ranks meet does not answer any more."""


@dataclass(eq=False)
class Connection:
    """A store whose failures are sentences. Closing it drops the store, and with it the socket or server behind it."""

    store: Store  # None once closed
    place: str  # for sentences
    prefix: str = "determined"
    address: tuple[str, int] | None = None  # of the process that hosts it, if that is another one
    ends_with_chief: bool = True  # the chief's process hosts it, not a launcher
    is_ours: bool = True  # made for this context, so that it holds no old sessions of others for long
    keeps: object = None  # what has to live as long as this connection

    def set(self, key: str, value: bytes) -> None:
        """Set a key, without waiting for the server. Two sets by one rank are seen in their order."""
        self._call("set", self._key(key), value)

    def get(self, key: str) -> bytes:
        """Return the value of a key that is known to be there."""
        return bytes(self._call("get", self._key(key)))

    def get_all(self, keys: list[str]) -> list[bytes]:
        """Return the values of keys that are known to be there, in one round trip."""
        return [bytes(value) for value in self._call("multi_get", [self._key(key) for key in keys])]

    def find(self, key: str) -> bytes | None:
        """Return the value of a key, or None if it is not there."""
        return self.get(key) if self.has(key) else None

    def has(self, *keys: str) -> bool:
        """Whether all these keys are there."""
        return bool(self._call("check", [self._key(key) for key in keys]))

    def count(self, key: str) -> int:
        """Add one to a counter and return the sum."""
        return int(self._call("add", self._key(key), 1))

    def replace(self, key: str, expected: bytes, value: bytes) -> bool:
        """Set `key` if its value still is `expected` (empty: not there). Return whether it was."""
        return bytes(self._call("compare_set", self._key(key), expected, value)) == value

    def delete(self, *keys: str) -> None:
        """Delete keys; those that are not there are no error."""
        for key in keys:
            self._call("delete_key", self._key(key))

    def answers(self) -> bool:
        """Whether a process still listens there. torch logs at length when it talks to one that does not."""
        if self.store is None or self.address is None:
            return self.store is not None
        try:
            socket.create_connection(self.address, timeout=1).close()
        except OSError:
            return False
        return True

    def hang_up(self) -> None:
        """Break the connection: a thread that waits in it for an answer gets an error instead."""
        if self.address is not None:
            hosts = {found[4][:2] for found in socket.getaddrinfo(*self.address)}
            shut({found for found in open_sockets() if (found[2].ip.removeprefix("::ffff:"), found[2].port) in hosts})

    def close(self) -> None:
        """Let go of the store."""
        self.store = self.keeps = None

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}"

    def _call(self, method: str, *args: Any) -> Any:
        store = self.store
        if store is None:
            raise CollectiveError("This DistributedContext is closed. Make the call before close(), or make a new one.")
        try:
            return getattr(store, method)(*args)
        except (RuntimeError, ValueError) as error:  # torch's network errors are RuntimeErrors
            raise ConnectionLost(
                f"The connection to {self.place}, where the ranks meet, is lost: its process has ended or closed its "
                f"context ({_first_line(error)})."
            ) from error


def open_own_store(ranks: Ranks, ip: str, port: int, deadline: float) -> Connection:
    """Host the store at this address as rank 0, or connect to it as another rank."""
    if ranks.rank != 0:
        return Connection(_connect(ip, port, deadline), _place(ip, port), address=(ip, port))
    change = f"{launcher.PORT_VARIABLE} or pub_port=, the same on every rank"
    return Connection(_host(ip, port, change, spans_machines=not ranks.on_one_machine), _place(ip, port))


def open_launcher_store(ranks: Ranks, deadline: float) -> Connection:
    """Connect to the store of a job that torchrun or a like launcher started.

    In order: the store of the process group if there is one, the store of torchrun's agent, or one that rank 0 hosts at
    MASTER_PORT, where an init_process_group() that comes later finds it.
    """
    import torch.distributed as dist

    prefix = f"determined/attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    agent_hosts = launcher.agent_hosts_store()
    store: Store
    shared: Store = None
    address = None
    if dist.is_available() and dist.is_initialized():
        place = "the store of the default process group"
        store = shared = dist.distributed_c10d._get_default_store()
        with contextlib.suppress(AttributeError, NotImplementedError, RuntimeError):
            store = shared.clone()  # a connection of our own: the process group may wait long on its one
    else:
        ip, port = launcher.variable("MASTER_ADDR"), launcher.number("MASTER_PORT")
        place = _place(ip, port)
        if ranks.rank != 0 or agent_hosts:
            store, address = _connect(ip, port, deadline), (ip, port)
        else:
            host_for_process(ip, port, spans_machines=not ranks.on_one_machine)
            store = _tcp_store(ip, port, is_master=False)
    return Connection(
        store, place, prefix, address=address, ends_with_chief=not agent_hosts, is_ours=False, keeps=shared
    )


def open_sockets() -> set[tuple[int, Any, Any]]:
    """Return this process's open TCP connections: file descriptor, own address and the other's."""
    import psutil

    try:
        found = psutil.Process().net_connections("tcp")
    except (psutil.Error, OSError):
        return set()
    return {(line.fd, line.laddr, line.raddr) for line in found if line.raddr and line.fd >= 0}


def shut(sockets: set[tuple[int, Any, Any]]) -> None:
    """Shut those of these TCP connections that are still open, in both directions."""
    for fd, _, theirs in sockets & open_sockets():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as line:
            if line.getpeername()[:2] == tuple(theirs):
                line.shutdown(socket.SHUT_RDWR)


# Hosting.

_servers: dict[tuple[str, int], Store] = {}


def host_for_process(ip: str, port: int, *, spans_machines: bool = False, change: str = MASTER_PORT) -> None:
    """Host a store at this port until this process ends; what torch opens there in this process shares it.

    Another rank may be done with its context and connect to it for init_process_group() at any time: taking it down in
    between would cut that connection.
    """
    if (ip, port) not in _servers:
        _servers[ip, port] = _host(ip, port, change, spans_machines=spans_machines, shared=True)


def host_anywhere(ip: str, *, spans_machines: bool) -> tuple[Store, int]:
    """Host a store at a port that is free. Return it and the port."""
    with _listen(ip, 0, spans_machines=spans_machines) as listener:
        port = int(listener.getsockname()[1])
        return _tcp_store(ip, port, is_master=True, master_listen_fd=os.dup(listener.fileno())), port


def _host(ip: str, port: int, change: str, *, spans_machines: bool, shared: bool = False) -> Store:
    """Host a store. `change` names the setting to change if the port is taken."""
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

    return dist.TCPStore(ip, port, wait_for_workers=False, **options)  # type: ignore[attr-defined]  # it is public


def _listen(ip: str, port: int, *, spans_machines: bool) -> socket.socket:
    """Listen on the one interface that is needed, and keep connections alive while no rank writes anything."""
    found = socket.getaddrinfo(ip, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    everywhere = ("::" if family == socket.AF_INET6 else "0.0.0.0", port)
    if spans_machines and ip != address[0] and ipaddress.ip_address(address[0]).is_loopback:
        address = everywhere  # many machines take their own name for 127.0.1.1, where no other machine finds them
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # accepted connections inherit these
    if hasattr(socket, "TCP_KEEPIDLE"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_SECONDS)
    try:
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            logger.warning("%s is not an address of this machine; rank 0 listens on all its interfaces instead.", ip)
            listener.bind(everywhere)
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


# Connecting.


def _connect(ip: str, port: int, deadline: float) -> Store:
    """Connect as soon as a process listens there. torch's own retries would fill the log with stack traces."""
    started, pause = time.monotonic(), 0.01
    while True:
        try:
            socket.create_connection((ip, port), timeout=max(0.1, min(5.0, deadline - time.monotonic()))).close()
            return _open_client(ip, port, deadline)
        except CollectiveError:
            raise
        except (OSError, RuntimeError) as error:
            if time.monotonic() + pause > deadline:
                raise CollectiveTimeout(
                    f"rank 0 could not be reached at {ip}:{port} within {time.monotonic() - started:.0f} s "
                    f"({_first_line(error)}). Check that rank 0 was started and is still running, that its address "
                    "(chief_ip, MASTER_ADDR) is right, and that no firewall is between."
                ) from error
        time.sleep(pause)
        pause = min(pause * 1.5, 0.25)


def _open_client(ip: str, port: int, deadline: float) -> Store:
    """Open the store. In a thread: torch waits for ever for a listener that accepts and never answers."""
    patience = max(0.1, min(HANDSHAKE_SECONDS, deadline - time.monotonic()))
    options = {"is_master": False, "timeout": timedelta(seconds=patience)}
    try:
        return in_thread(lambda: _tcp_store(ip, port, **options), patience)
    except futures.TimeoutError as error:
        raise CollectiveTimeout(
            f"Something listens on {ip}:{port} but it is not rank 0 of a job: it did not answer within "
            f"{patience:.0f} s. Choose another port (INTER_TRAIN_PROCESS_COMM_PORT_1, pub_port=, or "
            "torchrun --master-port)."
        ) from error


def in_thread(work: Callable[[], T], seconds: float) -> T:
    """Return or raise what `work` does, in a thread of its own; raise `futures.TimeoutError` if it takes longer."""
    future: futures.Future[T] = futures.Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001  # for whoever asked
            future.set_exception(error)

    threading.Thread(target=run, name="determined-ask", daemon=True).start()
    return future.result(seconds)


def _place(ip: str, port: int) -> str:
    return f"the store at {ip}:{port}"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
