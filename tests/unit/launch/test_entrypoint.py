from __future__ import annotations

import sys

import pytest

from determined import errors
from determined.launch import entrypoint


@pytest.mark.parametrize(
    ("given", "command"),
    [
        (
            "model_def:Trial",
            [sys.executable, "-m", "determined.launch.torch_distributed", "--trial", "model_def:Trial"],
        ),
        ("a.b_2:T_1", [sys.executable, "-m", "determined.launch.torch_distributed", "--trial", "a.b_2:T_1"]),
        ("a b c", ["sh", "-c", "a b c"]),
        ("python3 train.py --url http://x:80", ["sh", "-c", "python3 train.py --url http://x:80"]),
        ("model-def:Trial", ["sh", "-c", "model-def:Trial"]),
        ("model:a.b", ["sh", "-c", "model:a.b"]),
        (["a", "b"], ["a", "b"]),
        (("model_def:Trial",), ["model_def:Trial"]),
    ],
)
def test_the_form_of_an_entrypoint_decides_how_it_runs(given, command):
    """C-80: `model_def:Trial` runs under the torch launcher, another string through `sh -c`, a list as it is."""
    assert entrypoint.command_for(given) == command


@pytest.mark.parametrize("given", ["", "  ", [], None, 3, ["a", 1], {"a": 1}, b"a"])
def test_what_cannot_be_run_is_refused_by_name(given):
    """An entrypoint that is empty or of another type is a configuration error that says so."""
    with pytest.raises(errors.InvalidConfigurationException, match="entrypoint is"):
        entrypoint.command_for(given)
