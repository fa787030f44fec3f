"""What is typed after `det ui`: start, list, kill."""

from __future__ import annotations

import click

from determined.cli.connection import connect
from determined.cli.groups import Group
from determined.cli.output import terminal


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
def start(port: int | None, host: str, read_only: bool, no_open: bool) -> None:
    """Serve the page until Ctrl-C. The link carries a token, which the browser keeps as a cookie."""
    from determined.server import serve
    from determined.server.settings import Settings

    client = connect()
    listening = serve.bind(host, port)
    settings = Settings(host=host, port=listening.getsockname()[1], read_only=read_only)
    from determined.server.app import make_app

    def say_link() -> None:
        terminal.write(f"{settings.link}\n")
        terminal.flush()
        if not settings.is_loopback:
            terminal.say(
                f"Who reaches port {settings.port} of this machine and has this link sees and changes all runs."
            )
        if not no_open and terminal.is_terminal():
            _browse(settings.link)

    serve.run(make_app(client._session, settings), listening, say_link)
    client.close()
    serve.leave_now()


def _browse(address: str) -> None:
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()  # some browsers take their time
