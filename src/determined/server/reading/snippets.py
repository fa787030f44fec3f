"""Lines of Python and commands that people copy from the page."""

from __future__ import annotations

from collections.abc import Container

OF_A_TRIAL = "load_data.json"
"""A checkpoint with this file was saved by `Trainer.fit()`, and its trial can be built again."""


def load_line(uuid: str, files: Container[str]) -> str:
    """Return the line of Python that loads a checkpoint.

    Example::

        load_line("4f1c22", [])  # from determined import client; path = client.get_checkpoint("4f1c22").download()
    """
    return _written(f'client.get_checkpoint("{uuid}")', files, "; ")


def use_lines(model: str, files: Container[str]) -> str:
    """Return the lines of Python that load the newest version of a model."""
    return _written(f"client.get_model({model!r}).get_version().checkpoint", files, "\n")


def _written(checkpoint: str, files: Container[str], end: str) -> str:
    if OF_A_TRIAL not in files:
        return f"from determined import client{end}path = {checkpoint}.download()"
    loaded = f"pytorch.load_trial_from_checkpoint_path({checkpoint}.download())"
    return f"from determined import client, pytorch{end}trial = {loaded}"


def download_command(uuid: str) -> str:
    """Return the command that downloads a checkpoint."""
    return f"det checkpoint download {uuid}"
