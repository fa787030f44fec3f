"""Writers that are killed at any instant, and writers that share a root, never leave a torn checkpoint."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from determined.artifacts import Storage, list_tree, open_storage

KILLS = 120
LONGEST_LIFE = 0.06  # seconds: several checkpoints' worth

# One process prepares itself once and forks a writer per line it reads: a fresh interpreter for each of a hundred kills
# would take most of the time. The forked writer is the one that gets killed.
WRITER = textwrap.dedent(
    """
    import os, random, sys, uuid
    from pathlib import Path
    from determined.artifacts import SharedFile, list_tree, open_storage

    def write(root, seed):
        rng, storage, mine = random.Random(seed), open_storage(root), []
        while True:
            storage_id = str(uuid.UUID(int=rng.getrandbits(128), version=4))
            is_sole = rng.random() < 0.5  # as training saves: alone, with files that checkpoints share
            draft = storage.draft(storage_id, is_sole=is_sole)
            other = draft if is_sole else storage.draft(storage_id)
            space = draft.workspace()
            (space / "deep" / "empty").mkdir(parents=True)
            for i in range(3):
                (space / "deep" / f"weights{i}").write_bytes(rng.randbytes(rng.randrange(1, 120_000)))
            entries = draft.put(space, list_tree(space), move=True)
            shared = {"os.py": SharedFile(b"not"), "code/a.py": SharedFile(b"a")}
            entries |= draft.put_shared(shared) if is_sole else other.put(Path(os.__file__).parent, ["os.py"])
            entries |= draft.put_bytes("metadata.json", b'{"steps_completed": 1}')
            if rng.random() < 0.1:
                draft.discard()
                other.discard()
                continue
            draft.publish(entries)
            draft.discard()
            other.discard()
            mine.append(storage_id)
            if rng.random() < 0.4:
                storage.delete(mine.pop(rng.randrange(len(mine))), rng.choice([None, ["deep"], ["**/*0", "os.py"]]))

    root = sys.argv[1]
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.close(0)
            write(root, int(line))
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)
    """
)


class Writers:
    """The prepared process, and the writer that it runs now."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-c", WRITER, str(root)]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, seed: int) -> int:
        self.server.stdin.write(f"{seed}\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def kill(self, pid: int) -> int:
        """Kill the writer and wait for its end; return the signal that ended it."""
        os.kill(pid, signal.SIGKILL)
        return os.WTERMSIG(int(self.server.stdout.readline()))

    def close(self) -> None:
        self.server.stdin.close()
        self.server.wait(120)
        self.server.stdout.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def writers(root: Path) -> Iterator[Writers]:
    writers = Writers(root)
    yield writers
    writers.close()


def check(storage: Storage, known: dict[str, dict[str, int]]) -> None:
    """Every checkpoint has its manifest and is intact."""
    for storage_id in storage.list():
        manifest = storage.manifest(storage_id)
        assert manifest.verified, f"{storage_id} has lost its manifest"
        if known.get(storage_id) != manifest.resources:  # new or partly deleted; hashing all each time would be slow
            assert storage.verify(storage_id) == []
        known[storage_id] = manifest.resources


def test_kill_at_any_instant(root: Path, writers: Writers) -> None:
    """SIGKILL at any instant leaves whole checkpoints only, and a sweep leaves exactly those."""
    storage, rng, known = open_storage(root), random.Random(7), {}
    torn, longest_life = 0, LONGEST_LIFE
    for round_ in range(KILLS):
        pid, before = writers.start(round_), len(known)
        time.sleep(rng.uniform(0, longest_life))
        assert writers.kill(pid) == signal.SIGKILL
        check(storage, known)
        # On a busy machine a writer needs longer to get anywhere.
        longest_life = longest_life * 1.15 if len(known) == before else max(LONGEST_LIFE, longest_life * 0.9)
        listed = storage.list()
        torn += bool(storage.sweep(timedelta(0)))
        assert storage.list() == listed
        assert sorted(path.name for path in root.iterdir() if path.name != ".artifacts") == listed if listed else True
        left = list_tree(root / ".artifacts") if root.exists() else {}
        allowed = {f"manifests/{storage_id}.json" for storage_id in listed}
        assert {path for path in left if not path.endswith("/")} == allowed
        assert {path for path in left if path.endswith("/")} <= {"manifests/", "staging/", "trash/"}
    assert len(known) > 10, "the writers were killed before they finished anything, so nothing was tested"
    assert torn > KILLS / 3, "the writers were killed between two checkpoints, so nothing was tested"
    print(f"{KILLS} kills, {torn} in the middle of something, {len(known)} checkpoints")
    assert all(storage.verify(storage_id) == [] for storage_id in storage.list())


def test_two_processes_share_a_root(root: Path) -> None:
    """Two processes that publish into one root at once, beside one that sweeps, do not disturb each other."""
    pair = [Writers(root), Writers(root)]
    try:
        pids = [writers.start(1000 + i) for i, writers in enumerate(pair)]
        storage, now = open_storage(root), time.monotonic()
        while time.monotonic() < now + 1.5 or (len(storage.list()) < 5 and time.monotonic() < now + 240):
            storage.sweep()
        ends = [writers.kill(pid) for writers, pid in zip(pair, pids, strict=True)]
    finally:
        for writers in pair:
            writers.close()
    assert ends == [signal.SIGKILL, signal.SIGKILL], "a writer failed before it was killed"
    storage.sweep(timedelta(0))
    check(storage, {})
    assert len(storage.list()) > 4
