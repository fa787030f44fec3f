"""torch's launcher for one machine: `python -m determined.launch._on_loopback PORT TORCH_OPTIONS...`.

By default torch listens for the ranks on every interface. Here its store is opened first, on loopback only; torch finds
it in its own process and uses it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from determined import errors
from determined.core.ranks.connection import host_for_process


def main(args: Sequence[str]) -> int:
    """Open the store, run torch's launcher to its end, and return the exit code."""
    port, *rest = args
    try:
        host_for_process("127.0.0.1", int(port), change="C10D_PORT, or leave it out and a free one is taken")
    except errors.CollectiveError as problem:
        sys.stderr.write(f"determined.launch.torch_distributed: {problem}\n")
        return 1
    from torch.distributed import run

    run.main(rest)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
