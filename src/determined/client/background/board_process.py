"""TensorBoard as a process: the command, a port for it, and whether it answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

from determined.errors import Refused

FIRST_PORT, PORTS = 6006, 50
ANSWER_SECONDS = 10.0
EVERYWHERE = {"0.0.0.0": "127.0.0.1"}  # one listens on all addresses, and asks at one


def command(directory: Path, host: str, port: int) -> list[str]:
    """Return the command that starts TensorBoard on a directory."""
    place = ["--host", host, "--port", str(port)]
    return [sys.executable, "-m", "tensorboard.main", "--logdir", str(directory), *place]


def address(host: str, port: int) -> str:
    """Return the address for a browser."""
    return f"http://{host}:{port}/"


def wait_until_up(process: subprocess.Popen[bytes], directory: Path, host: str, port: int) -> bool:
    """Wait until it answers; return False if it ended instead."""
    while process.poll() is None:
        if answers(directory, host, port):
            return True
        time.sleep(0.1)
    return False


def answers(directory: Path, host: str, port: int) -> bool:
    """Return whether the TensorBoard of this directory answers on a port."""
    connection = http.client.HTTPConnection(EVERYWHERE.get(host, host), port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/data/environment")
        found = json.loads(connection.getresponse().read())
        return isinstance(found, dict) and found.get("data_location") == str(directory)
    except (OSError, ValueError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def free_port(host: str) -> int:
    """Return the first free port from 6006."""
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return port
    raise Refused(f"Ports {FIRST_PORT} to {FIRST_PORT + PORTS - 1} are all in use. Name one with --port.")
