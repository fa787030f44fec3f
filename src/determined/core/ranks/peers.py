"""Who takes part: what each rank tells the others about itself, and what can be wrong with the whole list."""

from __future__ import annotations

import functools
import os
import secrets
import socket
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from determined._process import start_mark


@functools.cache
def machine_id() -> str:
    """Equal for two processes exactly if process numbers mean the same to both."""
    parts = [socket.gethostname()]
    try:
        parts += [
            Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            str(Path("/proc/self/ns/pid").readlink()),
        ]
    except OSError:
        parts.append(f"{uuid.getnode():x}")
    return " ".join(parts)


@dataclass(frozen=True)
class Ranks:
    """The six numbers that place one process in a job."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1


@dataclass(frozen=True)
class Member(Ranks):
    """One rank, as the others know it."""

    host: str = field(default_factory=socket.gethostname)
    machine: str = field(default_factory=machine_id)
    pid: int = field(default_factory=os.getpid)
    started: float | None = field(default_factory=lambda: start_mark(os.getpid()))
    thread: str = field(default_factory=lambda: threading.current_thread().name)
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid} on {self.host}, {self.thread})"

    def is_gone(self, seen_from: Member) -> bool:
        """Whether its process has ended. Only known for processes of the same machine as `seen_from`."""
        if self.machine != seen_from.machine or self.started is None or self.pid == os.getpid():
            return False
        started = start_mark(self.pid)
        return started is None or abs(started - self.started) > 2  # without /proc, start times are only about right

    def is_stopped(self, seen_from: Member) -> bool:
        """Whether its process was stopped by a signal. Only known for processes of the same machine as `seen_from`."""
        import psutil

        if self.machine != seen_from.machine:
            return False
        try:
            return psutil.Process(self.pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        except psutil.Error:
            return False


def disagreements(members: Iterable[Member]) -> list[str]:
    """What is wrong between these members, in words; an incomplete list is judged as far as it goes."""
    members = sorted(members, key=lambda member: member.rank)
    problems = []
    sizes = _grouped(members, lambda member: member.size)
    if len(sizes) > 1:
        problems.append("; ".join(f"{_ranks(who)} was told size={size}" for size, who in sizes.items()))
    machines = _grouped(members, lambda member: member.cross_rank)
    for machine, who in machines.items():
        if len({member.local_size for member in who}) > 1:
            told = ", ".join(f"rank {member.rank} local_size={member.local_size}" for member in who)
            problems.append(f"on machine {machine} (cross_rank) the ranks were told different numbers: {told}")
        for local_rank, twins in _grouped(who, lambda member: member.local_rank).items():
            if len(twins) > 1:
                problems.append(f"{_ranks(twins)} all have cross_rank={machine} and local_rank={local_rank}")
    complete = len(sizes) == 1 and len(members) == members[0].size
    if complete and not problems:
        problems += [
            f"machine {machine} (cross_rank) has {_ranks(who)}, but they were told local_size={who[0].local_size}"
            for machine, who in machines.items()
            if len(who) != who[0].local_size
        ]
    return problems


def _grouped(members: Iterable[Member], key: Callable[[Member], int]) -> dict[int, list[Member]]:
    groups: dict[int, list[Member]] = defaultdict(list)
    for member in members:
        groups[key(member)].append(member)
    return groups


def _ranks(members: Sequence[Member]) -> str:
    return ("rank " if len(members) == 1 else "ranks ") + name_ranks(member.rank for member in members)


def name_ranks(ranks: Iterable[int]) -> str:
    """`1`, `1 and 2`, or `1, 2, 3 and 96 more`."""
    listed = sorted(ranks)
    if len(listed) > 8:
        return f"{', '.join(map(str, listed[:7]))} and {len(listed) - 7} more"
    return " and ".join(filter(None, [", ".join(map(str, listed[:-1])), *map(str, listed[-1:])]))
