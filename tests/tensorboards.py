"""A process in place of TensorBoard that starts at once: it says what it is asked to show, as TensorBoard does."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from determined.client.background.boards import REGISTER

SCRIPT = """
import http.server, json, socketserver, sys
directory, host, port = sys.argv[1:]

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"data_location": directory}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

socketserver.TCPServer.allow_reuse_address = True
server = socketserver.TCPServer((host, int(port)), Answer)
print("it answers", flush=True)
server.serve_forever()
"""


def in_place_of_tensorboard(directory: Path, host: str, port: int) -> list[str]:
    """For `board_process.command`."""
    return [sys.executable, "-c", SCRIPT, str(directory), host, str(port)]


@contextlib.contextmanager
def reaped() -> Iterator[None]:
    """What was started with -d in this process has ended, and its end is noticed, when this is over."""
    before = set(psutil.Process().children())
    try:
        yield
    finally:
        for number, record in REGISTER.found().items():
            REGISTER.end(number, record)
        for child in set(psutil.Process().children()) - before:
            child.wait(60)
