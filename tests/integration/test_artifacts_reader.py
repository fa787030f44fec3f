"""A process that reads a checkpoint keeps it from being cleared away; a process that was killed does not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from determined.artifacts import open_storage

ID = "0c5d1b9e-5d1f-4a38-9a4e-1d6a0a3f3c11"


def test_a_reader_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    """The lock goes with the process, however it goes."""
    storage = open_storage(tmp_path)
    draft = storage.draft(ID)
    draft.publish(draft.put_bytes("weights", b"w"))
    program = (
        "import sys, time; from determined.artifacts import open_storage\n"
        "with open_storage(sys.argv[1]).reading(sys.argv[2]):\n"
        "    print('reading', flush=True); time.sleep(600)\n"
    )
    reader = subprocess.Popen([sys.executable, "-c", program, str(tmp_path), ID], stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    with reader, reader.stdout:
        assert reader.stdout.readline() == "reading\n"
        assert not storage.delete_unread(ID)
        reader.send_signal(signal.SIGKILL)
    assert storage.delete_unread(ID)
