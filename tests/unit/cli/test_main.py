"""The det command's door."""

from __future__ import annotations

import subprocess
import sys

from click.testing import CliRunner

import determined
from determined.cli.main import main


def test_it_says_its_version() -> None:
    """`det --version` prints the version of the package."""
    result = CliRunner().invoke(main, ["--version"])
    assert (result.exit_code, result.output) == (0, f"det {determined.__version__}\n")


def test_misuse_exits_with_2() -> None:
    """style.md 9: exit 2 is misuse, and the message goes to stderr."""
    result = CliRunner().invoke(main, ["no-such-noun"])
    assert result.exit_code == 2
    assert "No such command" in result.stderr


def test_the_command_loads_nothing_heavy() -> None:
    """Decision 8: the command line starts without torch, numpy or SQL."""
    code = (
        "import sys; from determined.cli.main import main\n"
        "print([m for m in ('torch', 'numpy', 'sqlite3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
