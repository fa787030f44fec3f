"""TensorBoard in this terminal, until Ctrl-C."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import click

from determined.cli.output import terminal
from determined.client.background.board_process import address, command, wait_until_up


def serve(directory: Path, host: str, port: int, *, open_browser: bool) -> None:
    """Run TensorBoard until it ends or Ctrl-C is pressed."""
    process = subprocess.Popen(command(directory, host, port))
    if open_browser and terminal.is_terminal():
        threading.Thread(target=_open_when_up, args=(process, directory, host, port), daemon=True).start()
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


def _open_when_up(process: subprocess.Popen[bytes], directory: Path, host: str, port: int) -> None:
    import webbrowser

    if wait_until_up(process, directory, host, port):
        webbrowser.open(address(host, port))
