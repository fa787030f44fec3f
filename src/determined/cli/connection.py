"""Connect a command to the store that it is about."""

from __future__ import annotations

import dataclasses
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


def owners(client: Determined, *, everyone: bool = False) -> list[str] | None:
    """Whose runs a command is about: those of -u, or the user's own, or (None) everyone's."""
    chosen = settings().user
    return [chosen] if chosen else None if everyone else [client.user]
