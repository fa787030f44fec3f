"""Where the workers of one launcher on one machine sign in and out: a private directory for the time of the run.

Torch's launcher stands between us and the workers and hands on no open files, so they meet by name:

    alive       a pipe whose writing end only the launcher holds: however the launcher dies, readers see the end
    0.0.in      rank 0, restart 0 has started: its process ids
    0.0.out     ... has ended: its code, and the last lines of its error output
    torch/      what torch's launcher wants to write, which otherwise stays in /tmp for ever
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import shutil
import tempfile
import threading
from collections.abc import Callable, MutableMapping
from pathlib import Path
from types import TracebackType

DIRECTORY_VARIABLE = "DET_LAUNCH_DIR"
TORCH_LOG_VARIABLE = "PET_LOG_DIR"


@dataclasses.dataclass(frozen=True)
class SignIn:
    """A worker that has started."""

    rank: str
    wrapper_pid: int
    worker_pid: int
    last_try: bool  # torch's launcher will not start it again


@dataclasses.dataclass(frozen=True)
class SignOut:
    """A worker that has ended."""

    rank: str
    code: int
    failed_at: float  # on the monotonic clock, which all processes of a machine share
    was_told: bool  # it had been told to stop before, so its end may be obedience
    blames_another: bool  # what it says is about another rank that has gone
    last_lines: list[str]
    last_try: bool = True

    @property
    def is_failure(self) -> bool:
        return self.code != 0 and self.last_try

    @property
    def obeyed(self) -> bool:
        """It ended by the signal it was sent. With a code of its own it may have been on its way out before."""
        return self.was_told and (self.code < 0 or self.code > 128)  # the latter is a shell's word for it


class Roster:
    """The launcher's side: who has started, and how did they end."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="det-launch-"))
        pipe = self.directory / "alive"
        os.mkfifo(pipe, 0o600)
        # A pipe cannot be opened for writing before it has a reader.
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self._alive = os.open(pipe, os.O_WRONLY)
        os.close(reader)
        self._in: dict[str, SignIn] = {}
        self._out: dict[str, SignOut] = {}
        self._struck: dict[str, SignOut] = {}

    def __enter__(self) -> Roster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._alive)
        shutil.rmtree(self.directory, ignore_errors=True)

    def variables(self, for_torch_logs: bool) -> dict[str, str]:
        """How the workers find the directory, and torch's launcher too if nobody wants to keep what it writes."""
        logs = {TORCH_LOG_VARIABLE: str(self.directory / "torch")} if for_torch_logs else {}
        return {DIRECTORY_VARIABLE: str(self.directory), **logs}

    def refresh(self) -> None:
        """Read what was signed since the last time."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self.directory):  # noqa: PTH208 - twenty times a second, for days
                key, _, kind = name.rpartition(".")
                if kind == "in" and key not in self._in:
                    self._in[key] = SignIn(**json.loads((self.directory / name).read_text("utf-8")))
                elif kind == "out" and key not in self._out:
                    self._out[key] = SignOut(**json.loads((self.directory / name).read_text("utf-8")))

    def present(self) -> dict[str, SignIn]:
        """Workers that have signed in and not out."""
        return {key: worker for key, worker in self._in.items() if key not in self._out and key not in self._struck}

    def is_blank(self) -> bool:
        """Whether nobody has signed in yet."""
        return not self._in

    def strike_out(self, key: str, end: SignOut) -> None:
        """Note the end of a worker that did not sign out. It was killed, or it ended well and the disk was full."""
        self._struck[key] = end

    def first_failure(self, signed: bool = True) -> SignOut | None:
        """The worker whose failure came first: one that is not a consequence, if there is one.

        Of those who signed out, or also of those who were struck out, when it is known from elsewhere that one failed.
        """
        ends = self._out if signed else {**self._struck, **self._out}
        failures = [end for end in ends.values() if end.is_failure]
        return min(
            failures, key=lambda end: (end.obeyed, end.blames_another, end.was_told, end.failed_at), default=None
        )


class Seat:
    """A worker's side of the roster."""

    def __init__(self, directory: Path, rank: str, restart: int, last_try: bool) -> None:
        self.rank = rank
        self.last_try = last_try
        self._directory = directory
        self._key = f"{rank}.{restart}"
        try:
            # With a writer there, a read waits; without one, it ends at once. Opening never waits.
            self._alive = os.open(directory / "alive", os.O_RDONLY | os.O_NONBLOCK)
            os.set_blocking(self._alive, True)
        except OSError:  # the launcher, or another worker after the launcher's death, has cleaned up
            self._alive = os.open(os.devnull, os.O_RDONLY)

    @classmethod
    def take(cls, rank: str, environment: MutableMapping[str, str]) -> Seat | None:
        """The seat our launcher has for this rank, or None without a launcher. Workers do not see its variables."""
        directory = environment.pop(DIRECTORY_VARIABLE, "")
        if not directory:
            return None
        if environment.get(TORCH_LOG_VARIABLE, "").startswith(directory):
            del environment[TORCH_LOG_VARIABLE]
        restart = int(environment.get("TORCHELASTIC_RESTART_COUNT", "0"))
        last_try = restart >= int(environment.get("TORCHELASTIC_MAX_RESTARTS", "0"))
        return cls(Path(directory), rank, restart, last_try)

    def launcher_is_gone(self) -> bool:
        return bool(select.select([self._alive], [], [], 0)[0])

    def when_launcher_dies(self, act: Callable[[], None]) -> None:
        """Call `act` from a thread of its own if the launcher dies before us."""

        def wait() -> None:
            os.read(self._alive, 1)  # nobody ever writes: it returns at the end of the pipe
            act()

        threading.Thread(target=wait, name="launcher watch", daemon=True).start()

    def sign_in(self, worker_pid: int) -> None:
        self._write("in", SignIn(self.rank, os.getpid(), worker_pid, self.last_try))

    def sign_out(self, end: SignOut) -> None:
        if self.launcher_is_gone():
            self.clean_up()
        else:
            self._write("out", dataclasses.replace(end, last_try=self.last_try))

    def clean_up(self) -> None:
        """Remove the directory of a launcher that could not do it. All who leave try, so the last one succeeds."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def _write(self, kind: str, what: SignIn | SignOut) -> None:
        draft = self._directory / f"{self._key}.draft"
        # A full disk costs the report about a failure; it must not cost the run.
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, exist_ok=True)  # who tidies /tmp every ten days may have removed it
            draft.write_text(json.dumps(dataclasses.asdict(what)), "utf-8")
            draft.replace(self._directory / f"{self._key}.{kind}")
