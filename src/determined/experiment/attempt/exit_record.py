"""Record how an attempt ended: its allocation, and the event that tells the controller, in one transaction.

While the store cannot be written to, the ending is kept in a file beside the working directory, so that neither a full
disk nor the agent's own death loses it.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from determined import errors
from determined.core.recording.journal import UNSENT
from determined.experiment.attempt import policies, working_directory
from determined.store import attempts, logs
from determined.store.attempts import AttemptRow
from determined.store.control import pending
from determined.store.database.connection import Store
from determined.store.database.waiting import when_available
from determined.store.messages import LogLine, now

logger = logging.getLogger("determined.experiment")

PATIENCE_SECONDS = 3600.0
REPORTS_SECONDS = 5.0
RETRY_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0)
SUFFIX = ".exit.json"


@dataclass(frozen=True)
class Ending:
    """How an attempt ended.

    Attributes:
        code: The exit code, 128 + n for signal n; None if nothing was started.
        reason: The same in words.
        time: When, as text.
    """

    allocation_id: str
    task_id: str
    experiment_id: int
    trial_id: int
    attempt: int
    code: int | None
    reason: str
    time: str


def record(store: Store, ending: Ending) -> bool:
    """Record an ending unless the attempt is known to have ended; return whether it was not."""
    with store.write() as conn:
        try:
            if attempts.get(conn, ending.allocation_id).state == "TERMINATED":
                return False
        except errors.NotFound:  # its experiment was deleted
            return False
        moment = datetime.fromisoformat(ending.time)
        attempts.end(conn, ending.allocation_id, exit_code=ending.code, reason=ending.reason, time=moment)
        body = {"code": ending.code, "matched_policy": policies.that_cancels_retries(conn, ending.task_id)}
        pending.append(
            conn, ending.experiment_id, "ATTEMPT_ENDED", body, trial_id=ending.trial_id, attempt=ending.attempt
        )
        return True


def deliver(store: Store, home: str, ending: Ending, patience: float = PATIENCE_SECONDS) -> bool:
    """Record an ending, again and again while the store is unavailable. Return False if it stays in its file."""
    path = _path(store, home, ending.allocation_id)
    deadline = time.monotonic() + patience
    tries = 0
    while True:
        try:
            record(store, ending)
            if tries:
                path.unlink(missing_ok=True)
            return True
        except (errors.StoreUnavailable, errors.StoreError) as failed:
            if not tries:
                logger.warning("%s: its end waits in %s: %s", ending.allocation_id, path, failed)
                _keep(path, ending)
            if time.monotonic() > deadline:
                return False
        time.sleep(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
        tries += 1


def refuse(store: Store, attempt: AttemptRow, reason: str) -> None:
    """Record that an attempt failed before it had an agent, and say why in its log."""
    who = attempts.Attempt(
        attempt.allocation_id, attempt.task_id, attempt.trial_id, attempt.experiment_id, attempt.attempt, None
    )
    with store.write() as conn:
        logs.append(
            conn, who, [LogLine(f"ERROR: The attempt failed: {reason}.", "stdout", rank=None)], source="controller"
        )
    ids = (attempt.allocation_id, attempt.task_id, attempt.experiment_id, attempt.trial_id, attempt.attempt)
    record(store, Ending(*ids, 1, reason, now().isoformat()))


def deliver_reports(
    store: Store, home: str, address: str, *, ended_well: bool = False, patience: float = REPORTS_SECONDS
) -> bool:
    """Deliver the reports that training processes have left on disk: their last checkpoint may be among them.

    To be done before the end is recorded: the next attempt goes on from the newest checkpoint that the store knows.

    Args:
        store: Where.
        home: The data directory.
        address: What `DET_STORE` is for the trials of this store.
        ended_well: The processes left nothing but what they could not report because the store was unavailable.
        patience: How many seconds to wait for the store.

    Returns:
        False if some stay on disk: the next run delivers them.
    """
    if not any((Path(home) / "runs").glob(f"*/{UNSENT}" if ended_well else "*")):
        return True
    from determined.core.recording import recovery, run_description  # seldom needed

    known_as = run_description.store_hash(address)
    try:
        when_available(lambda: recovery.recover_runs(store, Path(home), known_as), patience)
    except errors.StoreUnavailable as failed:
        logger.warning("Reports of trials stay in %s: %s", Path(home) / "runs", failed)
        return False
    return True


def settle(store: Store, home: str, address: str, allocation_id: str) -> None:
    """Record what an attempt has left on this machine whose agent is dead, and remove its directories."""
    working_directory.remove_abandoned(home)
    deliver_reports(store, home, address)
    recover(store, home, allocation_id)


def recover(store: Store, home: str, allocation_id: str) -> bool:
    """Record the ending that a dead agent left in a file; return whether there was one."""
    path = _path(store, home, allocation_id)
    try:
        ending = Ending(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return False
    record(store, ending)
    path.unlink(missing_ok=True)
    return True


def _keep(path: Path, ending: Ending) -> None:
    draft = path.with_name(f"{path.name}.draft")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with draft.open("w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(ending), file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:  # the same full disk; it is still in memory
        logger.warning("%s cannot be written", path)


def _path(store: Store, home: str, allocation_id: str) -> Path:
    return Path(home) / "work" / f"{working_directory.name_of(store.id, allocation_id)}{SUFFIX}"
