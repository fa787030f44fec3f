"""What one server was started for: its token, the names it answers to, and whether it may change anything."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import hmac
import ipaddress
import secrets
import socket
from pathlib import Path

LOOPBACK = ("127.0.0.1", "localhost", "::1")
WEBUI = Path(__file__).parent / "webui"
DEFAULT_PORT = 8111


def new_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_urlsafe(32)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What one server was started for.

    Args:
        token: Whoever has it may use the API.
        host: Where it listens.
        port: The port it listens on.
        read_only: Refuse whatever changes something.
        webui: The directory of the built page.
    """

    token: str = dataclasses.field(default_factory=new_token, repr=False)
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    read_only: bool = False
    webui: Path = WEBUI

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in LOOPBACK or self.host.startswith("127.")

    @property
    def shown_host(self) -> str:
        """The name that the link has: that of the machine if the server listens on all its addresses."""
        name = socket.gethostname() if self.host in ("0.0.0.0", "::", "") else self.host
        return f"[{name}]" if ":" in name else name

    @property
    def link(self) -> str:
        """What to open in a browser, once; the browser then has a cookie."""
        return f"http://{self.shown_host}:{self.port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """What the cookie holds: it follows from the token, and the token does not follow from it."""
        return hmac.new(self.token.encode(), b"cookie", hashlib.sha256).hexdigest()

    def answers_to(self, name: str) -> bool:
        """Return whether a Host header may say this name; another one is a trick of a foreign site (DNS rebinding).

        Ports are not compared, so that a tunnel may use another one. A number is no name that a foreign site could own.
        """
        if name in LOOPBACK or name == self.host.lower():
            return True
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(name).is_loopback or not self.is_loopback
        return not self.is_loopback and name in _names_of_this_machine()


@functools.cache
def _names_of_this_machine() -> frozenset[str]:
    full = socket.getfqdn().lower()
    own = socket.gethostname().lower()
    return frozenset((full, own, own.split(".")[0], f"{own.split('.')[0]}.local"))
