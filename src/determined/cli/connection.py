"""Connect a command to the store that it is about."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from determined.client import Determined


@dataclasses.dataclass(frozen=True)
class Settings:
    """What was typed before the noun."""

    store: str | None = None
    master: str | None = None
    user: str | None = None


def settings() -> Settings:
    """Return the options before the noun of the running command."""
    context = click.get_current_context(silent=True)
    found = context.find_object(Settings) if context else None
    return found or Settings()


def connect() -> Determined:
    """Return a client of the store that this command is about. It is closed with the command."""
    from determined.client import Determined

    chosen = settings()
    client = Determined(master=chosen.master, store=chosen.store, user=chosen.user)
    if context := click.get_current_context(silent=True):  # there is none while a shell asks for completions
        context.call_on_close(client.close)
    return client


def use_launcher(name: str | None) -> None:
    """Have this command, and a controller that it starts, use a launcher. None changes nothing."""
    if name is None:
        return
    before = os.environ.get("DET_LAUNCHER")
    os.environ["DET_LAUNCHER"] = name

    def restore() -> None:
        os.environ.pop("DET_LAUNCHER", None)
        if before is not None:
            os.environ["DET_LAUNCHER"] = before

    click.get_current_context().call_on_close(restore)


def owners(client: Determined, *, everyone: bool = False) -> list[str] | None:
    """Whose runs a command is about: those of -u, or the user's own, or (None) everyone's."""
    chosen = settings().user
    return [chosen] if chosen else None if everyone else [client.user]
