"""Turns the `entrypoint` of an experiment into a command; the caller starts it."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from determined import errors

TRIAL_CLASS = re.compile(r"[A-Za-z0-9_.]+:[A-Za-z0-9_]+")


def command_for(entrypoint: str | Sequence[str]) -> list[str]:
    """Return the command of an entrypoint.

    A list runs as it is. A string of the form `module:Class` runs that trial class under the torch launcher.
    Any other string is a line for `sh`.

    Example::

        subprocess.run(command_for("python3 train.py --lr 0.1"))
    """
    if isinstance(entrypoint, str):
        if not entrypoint.strip():
            raise errors.InvalidConfigurationException(
                'entrypoint is empty. Name what to run, for example "python3 train.py" or "model_def:MyTrial".'
            )
        if TRIAL_CLASS.fullmatch(entrypoint):
            return [sys.executable, "-m", "determined.launch.torch_distributed", "--trial", entrypoint]
        return ["sh", "-c", entrypoint]
    if not isinstance(entrypoint, Sequence) or not all(isinstance(word, str) for word in entrypoint) or not entrypoint:
        raise errors.InvalidConfigurationException(
            f"entrypoint is {entrypoint!r}, and has to be a string or a list of strings with at least one word."
        )
    return list(entrypoint)
