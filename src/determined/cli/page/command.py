"""What is typed after `det ui`: start, list, open, logs, kill."""

from __future__ import annotations

import threading

import click

from determined.cli.connection import connect
from determined.cli.groups import Group
from determined.cli.output import terminal
from determined.cli.output.table import Column
from determined.cli.page import detached
from determined.cli.running.background import add_verbs, browse

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class StartsUnlessTold(Group):
    """`det ui` and `det ui --port 9000` mean `start`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the word in where it was left out."""
        if args and args[0] not in ("-h", "--help") and args[0][:1] == "-":
            args = ["start", *args]
        return super().parse_args(ctx, args)


@click.group(cls=StartsUnlessTold, default="start")
def ui() -> None:
    """Every run in a browser, live: `det ui` prints one link and serves the page until Ctrl-C.

    `det ui --port 9000` is short for `det ui start --port 9000`.
    """


@ui.verb("start")
@click.option("--port", type=click.IntRange(1, 65535), help="Default: the first free one from 8111.")
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0 lets other machines look.")
@click.option("--read-only", is_flag=True, help="Let nobody change anything from the page.")
@click.option("--no-open", is_flag=True, help="Only print the link.")
@click.option("-d", "--detach", is_flag=True, help="Leave it running, and return as soon as it answers.")
def start(port: int | None, host: str, read_only: bool, no_open: bool, detach: bool) -> None:
    """Serve the page until Ctrl-C, or without a terminal (-d). The browser keeps the link's token as a cookie."""
    client = connect()
    place = str(client._session.store.place)  # what is wrong with it is said here, not on a page
    shown = not no_open and terminal.is_terminal()
    if detach:
        typed = [*(["--port", str(port)] if port else []), "--host", host, *(["--read-only"] if read_only else [])]
        number, record = detached.start(typed, {"store": place, "read_only": read_only})
        _say_link(record.address, host, shown=shown)
        terminal.say(f"Page {number} runs on its own. End it with: det ui kill {number}")
        return
    from determined.server import serve  # FastAPI takes its time

    with serve.bind(host, port) as listening:
        from determined.server.app import make_app
        from determined.server.settings import Settings

        settings = Settings(host=host, port=listening.getsockname()[1], read_only=read_only)
        app = make_app(client._session, settings)
        serve.run(app, listening, lambda: _say_link(settings.link, host, shown=shown))


add_verbs(
    ui, detached.REGISTER, {"store": Column("Store"), "read_only": Column("Read only")}, stays="No run is touched."
)


def _say_link(link: str, host: str, *, shown: bool) -> None:
    terminal.write(f"{link}\n")
    terminal.flush()
    if host not in LOOPBACK and not host.startswith("127."):
        terminal.say(
            "Whoever reaches this machine and has the link can see all runs, and change them unless --read-only."
        )
    if shown:
        threading.Thread(target=browse, args=(link,), daemon=True).start()  # some browsers take their time
