"""Write to the terminal: data to stdout, messages to stderr, colours and bars only where they are shown.

All that a command prints leaves through here, and nothing that a terminal would obey instead of show gets through.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

import click

from determined._wording import visible


class ReaderGone(Exception):
    """Nobody reads our output any more: `det ... | head` has seen enough."""


def write(text: str, *, colours: bool = False) -> None:
    """Write data to stdout. Control characters are made visible; with `colours`, colours in the text stay."""
    text = visible(text, lines=True, colours=colours)
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        raise ReaderGone from None
    except UnicodeEncodeError:  # a terminal or pipe that is not UTF-8 gets what it can show
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


def flush() -> None:
    """Flush stdout."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None


def say(text: str, *, colour: str = "", lines: bool = False) -> None:
    """Write a message to stderr: one line unless `lines` is set, in a colour where the stream shows any."""
    click.echo(paint(visible(text, lines=lines), colour, sys.stderr), err=True)


def hint(text: str) -> None:
    """Write a message that a script does not want to see: only on a terminal, in green."""
    if sys.stderr.isatty():
        say(text, colour="32")


def complain(text: str, *, lines: bool = False) -> None:
    """Write an error to stderr; red on a terminal."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    say(text, colour="31", lines=lines)


def ask(question: str, *, yes: bool) -> None:
    """Ask, and go on only if the user agrees; `yes` means they did already.

    Example::

        ask("Delete experiment 3 and its 4 checkpoints?", yes=False)
    """
    if yes:
        return
    click.echo(visible(f"{question} [y/n]: "), nl=False, err=True)
    answer = sys.stdin.readline().strip().lower()
    if answer not in ("y", "yes"):
        if not answer and not sys.stdin.isatty():
            say("")
        raise click.ClickException("Nothing was done. Answer y, or add --yes.")


def is_terminal(stream: TextIO | None = None) -> bool:
    """Return whether this stream (stdout) is a terminal."""
    return (stream or sys.stdout).isatty()


def has_colour(stream: TextIO | None = None) -> bool:
    """Return whether this stream shows colours and the user wants them (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def has_unicode(stream: TextIO | None = None) -> bool:
    """Return whether this stream takes block and braille characters."""
    return ((stream or sys.stdout).encoding or "").lower().replace("-", "") in ("utf8", "utf8sig")


def paint(text: str, code: str, stream: TextIO | None = None) -> str:
    """Return the text in a colour, if the stream shows colours."""
    return f"\x1b[{code}m{text}\x1b[0m" if text and code and has_colour(stream) else text


def width() -> int:
    """Return the number of columns of the terminal."""
    return shutil.get_terminal_size((80, 24)).columns


def height() -> int:
    """Return the number of lines of the terminal."""
    return shutil.get_terminal_size((80, 24)).lines


@contextlib.contextmanager
def bar(text: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr, if it is a terminal: call the yielded function with (done, total).

    Example::

        with bar("Exporting") as progress:
            export(path, progress=progress)
    """
    if quiet or not is_terminal(sys.stderr):
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(escape(visible(text)), total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)
