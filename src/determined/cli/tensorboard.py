"""`det tensorboard`: TensorBoard on the event files of runs, in the foreground until Ctrl-C."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from determined.cli import terminal
from determined.cli.connection import connect
from determined.cli.groups import HELP_NAMES
from determined.cli.options import Ids, experiment_ids, trial_ids
from determined.errors import MissingPackage, NotFound

if TYPE_CHECKING:
    from determined.client import Trial

MOST_TRIALS = 100
FIRST_PORT, PORTS = 6006, 50


@click.command(context_settings=HELP_NAMES)
@click.argument("words", metavar="[start] [ID]...", nargs=-1, shell_complete=experiment_ids)
@click.option("-t", "--trial", "trials", type=Ids(), multiple=True, metavar="ID", shell_complete=trial_ids)
@click.option("--port", type=int, help=f"Default: the first free one from {FIRST_PORT}.")
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0 lets other machines look.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def tensorboard(
    words: tuple[str, ...], trials: tuple[list[int], ...], port: int | None, host: str, no_browser: bool
) -> None:
    """Start TensorBoard on experiments ID... or on trials (-t ID). Ctrl-C ends it."""
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingPackage("TensorBoard is not installed. Type: pip install 'resolute[tensorboard]'")
    words = words[1:] if words[:1] == ("start",) else words
    chosen = find_trials([i for word in words for i in Ids()(word)], [i for part in trials for i in part])
    port = port or free_port(host)
    with event_files(chosen) as directory:
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(directory), "--host", host]
        serve([*command, "--port", str(port)], f"http://{host}:{port}/", open_browser=not no_browser)


def find_trials(experiments: Sequence[int], trials: Sequence[int]) -> list[Trial]:
    """The trials that are meant: at most a hundred, the best ones of larger experiments."""
    if not experiments and not trials:
        raise click.UsageError("Name an experiment, or a trial with -t.", click.get_current_context())
    client = connect()
    chosen = [client.get_trial(number) for number in trials]
    for number in experiments:
        room = MOST_TRIALS - len(chosen)
        found = client.get_experiment(number).best_trials(room + 1)
        if len(found) > room:
            terminal.say(
                f"Experiment {number} has more trials than TensorBoard can show well: these are its best {room}."
            )
        chosen += found[:room]
    return chosen[:MOST_TRIALS]


@contextlib.contextmanager
def event_files(trials: Sequence[Trial]) -> Iterator[Path]:
    """A directory in which each trial's event files have the trial's name."""
    with tempfile.TemporaryDirectory(prefix="det-tensorboard-") as name:
        linked = 0
        for trial in trials:
            sources = [Path(path).absolute() for path in trial.tensorboard_paths() if Path(path).is_dir()]
            place = Path(name) / f"exp-{trial.experiment_id}-trial-{trial.id}"
            if len(sources) > 1:
                place.mkdir()
            for attempt, source in enumerate(sources, start=1):
                link = place / f"attempt-{attempt}" if len(sources) > 1 else place
                link.symlink_to(source, target_is_directory=True)
            linked += len(sources)
        if not linked:
            raise NotFound(
                f"Of the {len(trials)} trials named, none has event files on this machine. "
                "They are written while a run reports metrics, unless it was started with tensorboard_mode=None."
            )
        yield Path(name)


def serve(command: list[str], address: str, *, open_browser: bool) -> None:
    """Run TensorBoard until it ends or Ctrl-C is pressed."""
    process = subprocess.Popen(command)
    if open_browser and terminal.is_terminal():
        threading.Thread(target=_open_when_up, args=(process, address), daemon=True).start()
    try:
        status = process.wait()
    except KeyboardInterrupt:  # the way to end it
        status = 0
        terminal.say("")
    finally:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if status:
        raise click.ClickException(f"TensorBoard ended with status {status}.")


def _open_when_up(process: subprocess.Popen[bytes], address: str) -> None:
    import webbrowser

    host, port = address.removeprefix("http://").rstrip("/").rsplit(":", 1)
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            webbrowser.open(address)
            return
        time.sleep(0.2)


def free_port(host: str) -> int:
    """The first port from 6006 that nobody listens on."""
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return port
    raise click.ClickException(f"Ports {FIRST_PORT} to {FIRST_PORT + PORTS - 1} are all in use. Name one with --port.")
