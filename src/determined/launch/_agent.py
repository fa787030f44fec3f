"""Runs torch's launcher (the agent) and watches its workers: forwards signals, returns one exit code and the reason."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from determined import _process
from determined.launch import _processes, _roster

POLL_SECONDS = 0.05
# After a worker has failed, the agent ends the others by itself; this is for when it does not.
GRACE_SECONDS = 3.0
KILL_SECONDS = 10.0
# Exit codes for an agent that says all went well when it did not.
ENDED_EARLY, ENDED_WHEN_ASKED, ENDED_OTHERWISE = 77, 78, 79


@dataclasses.dataclass
class Watch:
    """What has happened so far in one run of the agent."""

    roster: _roster.Roster
    received: list[int] = dataclasses.field(default_factory=list)
    delivered: dict[str, int] = dataclasses.field(default_factory=dict)  # how many of those received, by worker
    seen: int = 0  # how many of those received deliver() has handled
    stopped_since: float | None = None  # a signal to stop came while there was no worker
    failed_since: float | None = None
    was_asked: bool = False
    was_killed: bool = False


def run(command: Sequence[str], environment: Mapping[str, str], keep_torch_logs: bool = False) -> int:
    """Run the agent to its end and return the exit code. No process of it is left when this returns."""
    with _roster.Roster() as roster:
        watch = Watch(roster)
        with _processes.forwarding(watch.received.append):
            variables = roster.variables(for_torch_logs=not keep_torch_logs)
            agent = _processes.start(command, {**environment, **variables}, death_signal=signal.SIGTERM)
            while agent.poll() is None:
                look(watch)
                deliver(watch, time.monotonic())
                escalate(watch, agent, time.monotonic())
                time.sleep(POLL_SECONDS)
            look(watch)
            failure = roster.first_failure(include_lost=agent.returncode != 0)
            left_running = end_leftovers(watch)

        if failure is not None:
            if -failure.code not in watch.received:  # otherwise it ended because it was asked to
                say(report(failure))
        elif agent.returncode < 0 and not watch.was_asked:
            say(f"torch.distributed.run itself was {_processes.describe(agent.returncode)}.\n")
        return exit_code(agent.returncode, watch, left_running, failure)


def look(watch: Watch) -> None:
    """Read which workers have started and ended. A wrapper that was killed cannot write its end, so we record it."""
    gone = [key for key, worker in watch.roster.present().items() if not _process.is_alive(worker.wrapper_pid)]
    watch.roster.refresh()  # after asking which are alive: one that has just ended wrote its end before
    present = watch.roster.present()
    for key in gone:
        if key in present:
            worker = present[key]
            _processes.end_group(worker.worker_pid, 0)
            end = _roster.WorkerEnd(worker.rank, -signal.SIGKILL, time.monotonic(), False, False, [], worker.last_try)
            watch.roster.mark_lost(key, end)


def deliver(watch: Watch, now: float) -> None:
    """Send each worker the signals that it has not received yet.

    Not through the agent: it would kill the workers 30 s after the first, in the middle of a checkpoint, and SIGUSR1
    would kill it.
    """
    present = watch.roster.present()
    received = tuple(watch.received)  # one that arrives while this runs is handled by the next call
    for key, worker in present.items():
        if key in watch.delivered:
            numbers = received[watch.delivered[key] :]
        else:  # it started later: of the earlier signals only those to stop concern it
            numbers = tuple(number for number in received if number in _processes.STOPPING)
        for number in numbers:
            _processes.send(worker.wrapper_pid, number)
        watch.delivered[key] = len(received)
    new, watch.seen = received[watch.seen :], len(received)
    if not present and watch.stopped_since is None and any(number in _processes.STOPPING for number in new):
        watch.stopped_since = now


def escalate(watch: Watch, agent: subprocess.Popen[bytes], now: float) -> None:
    """After a failure, or a signal to stop while there is no worker, terminate the agent; after a while kill it."""
    if watch.failed_since is None and watch.roster.first_failure() is not None:
        watch.failed_since = now
    due = []
    if watch.failed_since is not None:
        due.append(watch.failed_since + GRACE_SECONDS)
    if watch.stopped_since is not None:
        # Before the first worker, as in a rendezvous that waits for other machines, there is nothing to wait for.
        # When all workers have ended, the agent is about to end by itself.
        due.append(watch.stopped_since + (0 if watch.roster.is_empty() else GRACE_SECONDS))

    if due and now > min(due) + KILL_SECONDS:
        agent.kill()
        watch.was_killed = True
    elif due and now >= min(due) and not watch.was_asked:
        agent.terminate()
        watch.was_asked = True


def end_leftovers(watch: Watch) -> bool:
    """End the workers that the agent left running; return whether there were any."""
    left = watch.roster.present()
    if left and not watch.was_killed:  # if it was killed, they have had time to end
        for worker in left.values():
            _processes.send(worker.wrapper_pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while watch.roster.present() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            look(watch)
    for worker in watch.roster.present().values():
        _processes.send(worker.wrapper_pid, signal.SIGKILL)
        _processes.send_group(worker.worker_pid, signal.SIGKILL)
    return bool(left)


def exit_code(code: int, watch: Watch, left_running: bool, failure: _roster.WorkerEnd | None) -> int:
    """Return the exit code of the first worker that failed, else the agent's; never 0 for a run that failed."""
    if code != 0:
        return _processes.exit_status(code if failure is None else failure.code)
    if watch.was_killed:
        return ENDED_OTHERWISE
    if failure is not None and watch.was_asked:
        return ENDED_WHEN_ASKED
    return ENDED_EARLY if failure is not None or left_running else 0


def report(failure: _roster.WorkerEnd) -> str:
    """Return the last message: which rank failed first, and the end of its error output."""
    last_lines = failure.last_lines or ["(it wrote nothing to stderr)"]
    heading = f"rank {failure.rank} failed first ({_processes.describe(failure.code)}):"
    return "\n".join(["", heading, *last_lines, ""])


def say(what: str) -> None:
    with contextlib.suppress(OSError):  # the exit code counts even if stderr is closed
        os.write(2, what.encode())
