"""torch's launcher for one machine: `python -m determined.launch._on_loopback PORT TORCH_OPTIONS...`.

Left alone, torch listens on every interface for the ranks. Here the store in which they meet is opened first, where
only this machine reaches it; torch finds it in its own process and takes it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from determined import errors
from determined.core.ranks.meeting import serve_for_process


def main(args: Sequence[str]) -> int:
    """Open the store, run torch's launcher to its end, and return the exit code if it has not left with one."""
    port, *rest = args
    try:
        serve_for_process("127.0.0.1", int(port), change="C10D_PORT, or leave it out and a free one is taken")
    except errors.CollectiveError as problem:
        sys.stderr.write(f"determined.launch.torch_distributed: {problem}\n")
        return 1
    from torch.distributed import run

    run.main(rest)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
