"""What a process that reads experiment files and counts slots loads."""

from __future__ import annotations

import subprocess
import sys


def test_no_torch_is_loaded() -> None:
    """decision 8: a controller or command that reads a configuration and counts slots never loads torch."""
    code = "import sys; from determined.experiment import slots; slots.detect(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
