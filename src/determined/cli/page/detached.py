"""Pages that go on without a terminal: `det ui -d` starts one, and waits until it answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import click

from determined._home import data_directory
from determined.cli.connection import connect, settings
from determined.client.background import ending
from determined.client.background.records import Record, Register

REGISTER = Register("pages", "page", "det ui")


def start(options: Sequence[str], about: dict[str, object]) -> tuple[int, Record]:
    """Start a page that outlives this process; return its number and record, whose address is the link.

    Args:
        options: What is typed after `det ui start`.
        about: What the record says of it.
    """
    with REGISTER.claimed(about) as (number, record):
        process = REGISTER.spawn(number, _command(options), stdout=subprocess.PIPE, env=_environment())
        try:
            assert process.stdout is not None
            with process.stdout:
                link = process.stdout.readline().decode().strip()  # nothing, if it ends instead
            record = record.of_process(process.pid, link)
            if link:
                record.write(REGISTER.place(number))
        except BaseException:
            ending.end_family(process.pid)
            process.wait()
            raise
        if not link:
            process.wait()
            said = "".join(REGISTER.log_lines(number)).strip().splitlines()
            raise click.ClickException(said[-1] if said else f"The page ended with status {process.returncode}.")
    process.returncode = 0  # it outlives us on purpose, so Popen has nothing to warn of
    return number, record


def _command(options: Sequence[str]) -> list[str]:
    user = ["-u", chosen] if (chosen := settings().user) else []
    return [sys.executable, "-m", "determined.cli", *user, "ui", "start", "--no-open", *options]


def _environment() -> dict[str, str]:
    """Return an environment that names the same store from another directory; a password in it is typed nowhere."""
    env = {**os.environ, "DET_HOME": str(data_directory())}
    if settings().store is not None or settings().master is not None:
        env["DET_STORE"] = connect()._session.place.address
    return env
