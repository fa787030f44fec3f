"""The agent: runs one attempt of a trial, from the first line of its log to its recorded end.

It is one process for each attempt, forked by the local launcher or started as a program with the task on its standard
input. It needs no controller: if it finds none alive at the end, it starts one. On a cluster there is one on each node
of the attempt; that of the first node records the end, the others only report theirs by their exit code. Signals:

    INT, TERM, HUP, USR1, USR2    are forwarded to the entry point
    QUIT                          ends all processes of the attempt now; the agent goes on and records the end
"""

from __future__ import annotations

import datetime
import itertools
import json
import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from determined import _process, errors
from determined._redact import redacted
from determined.experiment.attempt import environment, exit_record, guard, policies, probe, working_directory
from determined.experiment.attempt.log_writer import LogWriter
from determined.experiment.attempt.output import KILL, Lifeline, Signals, capture
from determined.experiment.controller import start as controller
from determined.experiment.launchers.base import Place, TaskSpec
from determined.launch import _processes, entrypoint
from determined.store import attempts
from determined.store.attempts import Attempt, AttemptRow
from determined.store.database.connection import Store, open_store

logger = logging.getLogger("determined.experiment")

HOOK = "startup-hook.sh"
CLAIM_SECONDS = 300.0
# The hook runs in the shell that becomes the entry point, so that its exports, limits and directory stay.
SOURCE_HOOK = """det_command=("$@"); set --
trap 'det_code=$?
      echo "ERROR: startup-hook.sh ended with exit code $det_code, so the entry point was not started." >&2
      exit $((det_code == 0 ? 1 : det_code))' EXIT
source ./startup-hook.sh || exit $?
trap - EXIT
set -- "${det_command[@]}"
"""
PROBE = f"(cd / && exec {shlex.quote(sys.executable)} -m determined.experiment.attempt.probe) || exit 1\n"
BECOME = 'exec "$@"\n'


@dataclass(frozen=True)
class Exit:
    """How the processes of an attempt ended: the code as a shell has it, None if none was started, and in words."""

    code: int | None
    reason: str


def run(
    task: TaskSpec, store: Store, ended: Callable[[], None] = lambda: None, lifeline: Lifeline | None = None
) -> int:
    """Run an attempt to its end. Call it in a process of its own, and end that with the code that is returned.

    That is 0 once the end is recorded; on a node that records none it is the exit code of its processes.

    Args:
        task: The attempt.
        store: Where it is recorded.
        ended: Called once the end is recorded; cleaning up comes after it.
        lifeline: Where orders come from, and which whoever started the agent holds.
    """
    signals = Signals(lifeline)
    records = task.place is None or task.place.is_first
    if records:
        claimed = claim(store, task, lifeline)
        if claimed is None:
            logger.info("%s: it has ended already, so nothing is started", task.allocation_id)
            return 0
        signals.was_killed = signals.was_killed or claimed.killed
    try:
        found = _run(task, store, signals)
    except Exception as failed:  # a mistake of ours counts as a failure of the trial, which is not tried for ever
        logger.exception("%s: the agent failed", task.allocation_id)
        guard.end_descendants()
        found = Exit(1, f"its agent failed: {failed!r}")
    is_lost = signals.order is not None and signals.order.code is None
    exit_record.deliver_reports(
        store, task.home, task.store, ended_well=found.code == 0, patience=exit_record.PATIENCE_SECONDS
    )
    if records and not is_lost:
        _record(task, store, found)
    ended()
    working_directory.remove(task.home, work_name(task))
    if records and (task.place is None or task.place.controller == _process.this_node()):
        _see_to_a_controller(task, store)
    if records and not is_lost:
        return 0
    return 1 if found.code is None else found.code


def work_name(task: TaskSpec) -> str:
    """Return the name of the attempt's directories: nodes of one attempt may share a data directory."""
    rank = 0 if task.place is None else task.place.rank
    name = working_directory.name_of(task.store_id, task.allocation_id)
    return f"{name}.node{rank}" if rank else name


def _record(task: TaskSpec, store: Store, found: Exit) -> None:
    moment = datetime.datetime.now(datetime.timezone.utc).isoformat()
    who = (task.allocation_id, task.task_id, task.experiment_id, task.trial_id, task.attempt)
    exit_record.deliver(store, task.home, exit_record.Ending(*who, found.code, found.reason, moment))


def _see_to_a_controller(task: TaskSpec, store: Store) -> None:
    if task.place is not None:
        os.environ.update(task.place.settings)
    try:
        controller.ensure(store)
    except errors.DeterminedError as failed:
        logger.warning("%s: %s", task.allocation_id, failed)


def claim(store: Store, task: TaskSpec, lifeline: Lifeline | None = None) -> AttemptRow | None:
    """Record this process as the agent of its attempt; return None if the attempt has ended meanwhile."""
    deadline = time.monotonic() + CLAIM_SECONDS
    while True:
        try:
            with store.write() as conn:
                return attempts.claim(
                    conn,
                    task.allocation_id,
                    node=_process.this_node(),
                    pid=os.getpid(),
                    process_started=_process.started(),
                    slot_ids=None if task.place is None else slot_names(task.place, task, attempts.of_controller(conn)),
                )
        except errors.StoreUnavailable:
            if time.monotonic() > deadline or (lifeline is not None and lifeline.is_cut()):
                raise
            time.sleep(0.2)


def slot_names(place: Place, task: TaskSpec, running: Sequence[AttemptRow]) -> list[str]:
    """Return the slots that an attempt holds on its nodes, as people see them; those of a CPU get the next free number.

    Example::

        slot_names(Place(0, ["a"], ["10.0.0.1"], [["3"]]), task, [])  # ["a/3"]
    """
    others = [row for row in running if row.pid is not None and row.allocation_id != task.allocation_id]
    taken = {slot for row in others for slot in row.slot_ids}  # those that still wait may get slots elsewhere
    names: list[str] = []
    for node, ids in zip(place.nodes, place.slot_ids, strict=True):
        if task.slot_kind == "cuda":
            names += [f"{node}/{ident}" for ident in ids]
        else:
            free = (name for name in (f"{node}/{number}" for number in itertools.count()) if name not in taken)
            names += itertools.islice(free, len(ids))
    return names


def _run(task: TaskSpec, store: Store, signals: Signals) -> Exit:
    """Prepare and run the processes, with their lines going to the log."""
    attempt = Attempt(task.allocation_id, task.task_id, task.trial_id, task.experiment_id, task.attempt, None)
    info = working_directory.make_info(task.home, work_name(task))
    lines = LogWriter(
        store,
        attempt,
        policies.Policies(task.config.get("log_policies") or []),
        info / "lines",
        fenced=lambda: os.kill(os.getpid(), KILL),
        node=None if task.place is None else task.place.node,
    )
    lines.say(_first_line(task))
    try:
        directory = None if signals.was_killed else _prepare(task, store, info, lines)
        if signals.was_killed:
            found = Exit(None, "killed before it started")
        elif directory is None:
            found = Exit(1, "it cannot run here")
        else:
            found = _run_entrypoint(task, directory, info, lines, signals)
    except (OSError, errors.DeterminedError) as failed:
        lines.say(f"The attempt cannot be started: {failed}", "ERROR")
        found = Exit(1, f"cannot be started: {failed}")
    if found.code and signals.order is None and not signals.was_killed and _has_other_nodes(task):
        assert signals.lifeline is not None
        signals.lifeline.ask_for_loss()  # ranks that lose a node fail before anybody else knows of it
    if signals.order is not None:
        found = Exit(signals.order.code, signals.order.reason)
    lines.say(f"{_what(task)} ended: {found.reason}.")
    lines.close(exit_record.PATIENCE_SECONDS)
    return found


def _has_other_nodes(task: TaskSpec) -> bool:
    """Return whether this is the first of several nodes."""
    return task.place is not None and task.place.is_first and len(task.place.nodes) > 1


def _prepare(task: TaskSpec, store: Store, info: Path, lines: LogWriter) -> Path | None:
    """Make the working directory and the info files; None if checkpoints cannot be stored, or packages differ."""
    storage = task.config.get("checkpoint_storage") or {}
    if task.place is not None and (found := probe.node_problem(task.place, task.versions, storage, Path(task.home))):
        lines.say(found, "ERROR")
        return None
    directory = working_directory.of(task.home, work_name(task))
    working_directory.fill(directory, task.home, store, task.code_snapshot_id)
    for sentence in working_directory.mount(directory, task.config.get("bind_mounts") or []):
        lines.say(sentence, "WARNING")
    environment.write_info(task, info)
    if not _probes_later(directory, storage) and (found := probe.problem(storage, Path(task.home))):
        lines.say(found, "ERROR")
        return None
    lines.say(f"Experiment config: {json.dumps(redacted(task.config))}")
    return directory


def _run_entrypoint(task: TaskSpec, directory: Path, info: Path, lines: LogWriter, signals: Signals) -> Exit:
    command = entrypoint.command_for(task.config["entrypoint"])
    around = environment.variables(task, info, os.environ)
    stdout, stdout_write = os.pipe()
    stderr, stderr_write = os.pipe()
    wrapped = _wrapped(command, directory, task.config.get("checkpoint_storage") or {})
    watched = guard.start(guard.Order(wrapped, around, directory, stdout_write, stderr_write))
    os.close(stdout_write)
    os.close(stderr_write)
    lines.start()  # a thread, so after the fork
    report = capture(watched, {stdout: "stdout", stderr: "stderr"}, lines, signals)
    if report.problem:
        shown = command[0] if wrapped is command else wrapped[0]
        lines.say(f"The entry point cannot be started: {shown!r}: {report.problem}. Check entrypoint.", "ERROR")
        return Exit(report.code, f"cannot run {shown!r}: {report.problem}")
    code = -signal.SIGKILL if report.code is None else report.code
    if code == guard.NOT_FOUND:
        lines.say(f"A program was not found. Check entrypoint: {redacted(task.config['entrypoint'])!r}", "ERROR")
    reason = "killed" if signals.was_killed else _processes.describe(code)
    return Exit(_processes.exit_status(code), reason)


def _wrapped(command: list[str], directory: Path, storage: dict[str, object]) -> list[str]:
    """Return the command, after the startup hook and the probe of a storage that the hook may have to do with."""
    if not _probes_later(directory, storage):
        return command
    if (directory / HOOK).is_file():
        return ["bash", "-c", SOURCE_HOOK + PROBE + BECOME, "bash", *command]
    return ["sh", "-c", PROBE + BECOME, "sh", *command]


def _probes_later(directory: Path, storage: dict[str, object]) -> bool:
    """Return whether the storage is probed with the trial's environment, in the shell that becomes the entry point."""
    return (directory / HOOK).is_file() or not probe.is_directory(storage)


def _first_line(task: TaskSpec) -> str:
    noun = "slot" if task.slots == 1 else "slots"
    slots = f"{task.slots} {task.slot_kind} {noun} ({', '.join(task.slot_ids)})" if task.slots else "no slots"
    origin = f", from checkpoint {task.latest_checkpoint}" if task.latest_checkpoint else ""
    node = _process.this_node() if task.place is None else task.place.node
    return f"{_what(task)} starts on {node} with {slots}{origin}."


def _what(task: TaskSpec) -> str:
    what = f"Attempt {task.attempt} of trial {task.trial_id}"
    if task.place is None or len(task.place.nodes) == 1:
        return what
    return f"{what} (node {task.place.rank + 1} of {len(task.place.nodes)}, {task.place.node})"


def main() -> int:
    """Run the attempt that the standard input describes."""
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s: %(message)s", level=logging.INFO)
    lifeline = Lifeline(questions=os.dup(1))
    os.dup2(2, 1)  # what anybody prints is no question
    task = TaskSpec.from_json(lifeline.line())
    guard.set_name("det-agent")
    working_directory.remove_abandoned(task.home)  # on this node nobody else does
    store = open_store(task.store, create=False)
    code = run(task, store, lifeline=None if task.place is None else lifeline)
    store.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
