"""The way from a command to the store: which one is meant, and the client that speaks for it."""

from __future__ import annotations

import dataclasses
import getpass
from typing import TYPE_CHECKING

import click

from determined.errors import DeterminedError

if TYPE_CHECKING:
    from determined.client import Determined


class NoMaster(DeterminedError, ValueError):
    """An address of a server was given, and there is none to talk to."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What was typed before the noun."""

    store: str | None = None
    user: str | None = None


def settings() -> Settings:
    """What was typed before the noun of the running command."""
    context = click.get_current_context(silent=True)
    found = context.find_object(Settings) if context else None
    return found or Settings()


def connect() -> Determined:
    """A client of the store that this command is about."""
    from determined.client import Determined

    store = settings().store
    if store and store.startswith(("http://", "https://")):
        raise NoMaster(
            f"{store} is the address of a server, and this version reads the store itself. "
            "Name a file or postgresql://... with --store, or unset DET_MASTER to use your own store."
        )
    return Determined(store=store)


def user() -> str:
    """Whose runs are meant when nothing else is said."""
    return settings().user or getpass.getuser()
