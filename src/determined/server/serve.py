"""Runs the server: a port that is known to be free, uvicorn on it, and an end that nobody has to wait for."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from determined.errors import InvalidValue, Refused
from determined.server.settings import DEFAULT_PORT

if TYPE_CHECKING:
    from fastapi import FastAPI

PORTS = 100
MOST_CONNECTIONS = 256
GRACE_SECONDS = 1  # for requests that go on when the server is asked to end
THREAD_SECONDS = 0.5
MOST_HEADER_BYTES = 32 << 10


def bind(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens on a port; without one, on the first free one from 8111.

    Raises:
        Refused: The port is in use, or may not be used.
        InvalidValue: The host is no address of this machine.
    """
    for number in [port] if port else range(DEFAULT_PORT, DEFAULT_PORT + PORTS):
        try:
            return _bound(host, number)
        except OSError as failed:
            if failed.errno == errno.EADDRINUSE and port is None:
                continue
            raise _explained(host, number, failed) from failed
    raise Refused(f"Ports {DEFAULT_PORT} to {DEFAULT_PORT + PORTS - 1} are all in use. Name one: det ui --port N")


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # By its protocol asyncio knows that it may turn off Nagle's delay, which costs every small answer 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)  # from here on nobody else gets the port
    except BaseException:
        listening.close()
        raise
    return listening


def _explained(host: str, port: int, failed: OSError) -> Exception:
    if failed.errno == errno.EADDRINUSE:
        return Refused(
            f"Port {port} is in use. Take the next free one: det ui, or name another: det ui --port {port + 1}"
        )
    if failed.errno in (errno.EACCES, errno.EPERM):
        return Refused(f"Port {port} may not be used by you. Name one above 1023: det ui --port {DEFAULT_PORT}")
    return InvalidValue(
        f"{host!r} is no address of this machine ({failed}). Use 127.0.0.1, or 0.0.0.0 for all of them."
    )


def run(app: FastAPI, listening: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM. `on_ready` is called as soon as the server answers."""
    config = uvicorn.Config(
        app,
        access_log=False,  # it would hold the token
        log_config=None,
        log_level="critical",  # the guard logs what fails
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
    )
    _Server(config, on_ready, app.state.watcher.end_streams_soon).run(sockets=[listening])
    _leave_waiting_threads_behind()


def _leave_waiting_threads_behind() -> None:
    """End the process if a thread still waits for a database that does not answer: Python would wait for the thread."""
    deadline = time.monotonic() + THREAD_SECONDS
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None], on_exit: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_exit = on_exit

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            gc.freeze()  # what was imported stays; looking through all of it took 90 ms in the middle of an answer
            self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_exit()  # streams would go on for ever, and uvicorn waits for them
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals as a wish to end; unlike uvicorn, without dying of them when all is done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
