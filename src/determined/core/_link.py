"""The only door to the platform: where reports go, and where a request to stop comes from.

A link is called from background threads, never from the thread that trains, so it may take its time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from determined import errors
from determined._home import data_directory, make_data_directory
from determined.core._values import json_text
from determined.store.messages import Report, Signal, now


class Link(Protocol):
    """Carries reports out and signals in."""

    place: str
    """Where reports end up, for people."""
    listens: bool
    """Whether `signal()` can ever say more than `Signal.NONE`; if not, nobody asks."""

    def send(self, reports: Sequence[Report]) -> None:
        """Write these, in order, before returning.

        Raises:
            LinkUnavailable: Not now. The same reports are offered again later; training does not notice.
            Exception: Never. The reports are refused, and the training process is told.
        """

    def signal(self) -> Signal:
        """What the outside asks for now."""

    def best_validation(self) -> float | None:
        """The best searcher metric of the whole experiment so far, as far as this link knows."""

    def close(self) -> None:
        """Free what is held. Nothing is sent afterwards."""


class NullLink:
    """Nothing is recorded."""

    place = "nowhere"
    listens = False

    def send(self, reports: Sequence[Report]) -> None:
        pass

    def signal(self) -> Signal:
        return Signal.NONE

    def best_validation(self) -> float | None:
        return None

    def close(self) -> None:
        pass


class JournalLink(NullLink):
    """Appends each report as a line of JSON to a file of the run, which is made with the first report."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = str(path)
        self._whole: int | None = None  # bytes of the file that are whole lines; unknown before the first look

    def send(self, reports: Sequence[Report]) -> None:
        lines = "".join(json_text(_as_json(report)) + "\n" for report in reports).encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                size = file.tell()
                whole = size if self._whole is None else self._whole
                if size > whole:  # an earlier attempt, on a full disk, got only so far
                    file.truncate(whole)
                self._whole = whole
                file.write(lines)
                file.flush()
            self._whole = whole + len(lines)
        except OSError as failed:
            raise errors.LinkUnavailable(f"{self.path}: {failed.strerror or failed}") from failed


def _as_json(report: Report) -> Any:
    fields = {name: value for name, value in vars(report).items() if value is not None}
    stamp: datetime.datetime = fields.pop("time")
    return {"report": type(report).__name__, "time": stamp.isoformat(timespec="milliseconds"), **fields}


@dataclasses.dataclass(frozen=True)
class Run:
    """One life of a training process, and where its traces lie in the data directory."""

    name: str
    home: Path

    @property
    def directory(self) -> Path:
        """The run's own directory."""
        return self.home / "runs" / self.name

    @property
    def tensorboard(self) -> Path:
        """Where the run's event files go."""
        return self.home / "tensorboard" / self.name


def new_run() -> Run:
    """A run that no other has the name of; names sort by time."""
    return Run(f"{now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}", data_directory())


def is_tracking() -> bool:
    """Whether runs are recorded; `DET_TRACKING=off` says no."""
    return os.environ.get("DET_TRACKING", "on").strip().lower() not in ("off", "0", "false", "no")


def choose_link(run: Run) -> Link:
    """The link of this process: the run's journal, unless `DET_TRACKING=off`."""
    if not is_tracking():
        return NullLink()
    with contextlib.suppress(OSError):  # the journal says so itself, and keeps trying
        make_data_directory()
    return JournalLink(run.directory / "reports.jsonl")
