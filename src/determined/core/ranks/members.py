"""The ranks of a job: their six numbers, what each tells the others about itself, and contradictions between them."""

from __future__ import annotations

import functools
import os
import secrets
import socket
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from determined._process import start_mark


@functools.cache
def machine_id() -> str:
    """Return a name that two processes share exactly if a pid means the same process to both."""
    parts = [socket.gethostname()]
    try:
        parts += [
            Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            str(Path("/proc/self/ns/pid").readlink()),
        ]
    except OSError:
        parts.append(f"{uuid.getnode():x}")
    return " ".join(parts)


NUMBERS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")


@dataclass(frozen=True)
class Ranks:
    """The six numbers of one process in a job."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1

    @property
    def on_one_machine(self) -> bool:
        """Whether the whole job runs on one machine."""
        return self.local_size == self.size

    @classmethod
    def checked(cls, **numbers: int | None) -> Ranks:
        """Return these numbers if they can belong to a job; a single process if none is given."""
        given = {name: int(number) for name, number in numbers.items() if number is not None}
        if not given:
            return Ranks()
        if len(given) < len(numbers):
            missing = ", ".join(name for name in numbers if name not in given)
            raise ValueError(f"{missing} missing: pass all six numbers, or none of them for a single process.")
        for kind in ("", "local_", "cross_"):
            rank, size = given[f"{kind}rank"], given[f"{kind}size"]
            if not 0 <= rank < size:
                raise ValueError(f"{kind}rank={rank} must be at least 0 and below {kind}size={size}.")
        if given["local_size"] > given["size"]:
            raise ValueError(f"local_size={given['local_size']} must not exceed size={given['size']}.")
        return Ranks(**given)


@dataclass(frozen=True)
class Member(Ranks):
    """What the ranks of a job know about one of them."""

    host: str = field(default_factory=socket.gethostname)
    machine: str = field(default_factory=machine_id)
    pid: int = field(default_factory=os.getpid)
    started: float | None = field(default_factory=lambda: start_mark(os.getpid()))
    thread: str = field(default_factory=lambda: threading.current_thread().name)
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid} on {self.host}, {self.thread})"

    def is_gone(self, seen_from: Member) -> bool:
        """Whether its process has ended; False if it runs on another machine than `seen_from`."""
        if self.machine != seen_from.machine or self.started is None or self.pid == os.getpid():
            return False
        started = start_mark(self.pid)
        return started is None or abs(started - self.started) > 2  # without /proc, start times are only about right

    def is_stopped(self, seen_from: Member) -> bool:
        """Whether its process was stopped by a signal; False if it runs on another machine than `seen_from`."""
        import psutil

        if self.machine != seen_from.machine:
            return False
        try:
            return psutil.Process(self.pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        except psutil.Error:
            return False


def find_contradictions(members: Iterable[Member]) -> list[str]:
    """Return how the numbers of these members contradict each other, in words. The list may be incomplete."""
    members = sorted(members, key=lambda member: member.rank)
    problems = []
    sizes = _grouped(members, lambda member: member.size)
    if len(sizes) > 1:
        problems.append("; ".join(f"{name_members(who)} was told size={size}" for size, who in sizes.items()))
    machines = _grouped(members, lambda member: member.cross_rank)
    for machine, who in machines.items():
        if len({member.local_size for member in who}) > 1:
            told = ", ".join(f"rank {member.rank} local_size={member.local_size}" for member in who)
            problems.append(f"on machine {machine} (cross_rank) the ranks were told different numbers: {told}")
        for local_rank, twins in _grouped(who, lambda member: member.local_rank).items():
            if len(twins) > 1:
                problems.append(f"{name_members(twins)} all have cross_rank={machine} and local_rank={local_rank}")
    complete = len(sizes) == 1 and len(members) == members[0].size
    if complete and not problems:
        problems += [
            f"machine {machine} (cross_rank) has {name_members(who)}, but they were told local_size={who[0].local_size}"
            for machine, who in machines.items()
            if len(who) != who[0].local_size
        ]
    return problems


def _grouped(members: Iterable[Member], key: Callable[[Member], int]) -> dict[int, list[Member]]:
    groups: dict[int, list[Member]] = defaultdict(list)
    for member in members:
        groups[key(member)].append(member)
    return groups


def name_members(members: Iterable[Member]) -> str:
    return name_ranks(member.rank for member in members)


def name_ranks(ranks: Iterable[int]) -> str:
    """Return `rank 1`, `ranks 1 and 2`, or `ranks 1, 2, 3 and 96 more`."""
    listed = sorted(ranks)
    if len(listed) > 8:
        return f"ranks {', '.join(map(str, listed[:7]))} and {len(listed) - 7} more"
    names = " and ".join(filter(None, [", ".join(map(str, listed[:-1])), *map(str, listed[-1:])]))
    return f"{'rank' if len(listed) == 1 else 'ranks'} {names}"
