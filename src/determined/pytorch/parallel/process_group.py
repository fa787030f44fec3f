"""The process group in which ranks exchange gradients: how it is opened and closed, and errors that name ranks."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from determined import core, errors
from determined.core.ranks import connection, launcher
from determined.pytorch.parallel.ddp import leave_process_group

ABSENCE_SECONDS = 3.0
# Words in backend errors that mean that another rank has left; these errors have no type of their own.
_BROKEN = ("gloo", "nccl", "connection closed", "connection reset", "connection refused", "broken pipe", "socket")
_LATE = ("timed out", "timeout")


@contextlib.contextmanager
def process_group(ranks: core.DistributedContext) -> Iterator[None]:
    """Use the process group that the script has made, or open one for the length of the block."""
    if ranks.size == 1:
        yield
        return
    if dist.is_initialized():
        _check(ranks)
        yield
        return
    before, hook = connection.open_sockets(), sys.excepthook
    with named_ranks(ranks):
        _join(ranks)
    lines = connection.open_sockets() - before
    if getattr(hook, "__name__", "") == "_distributed_excepthook":  # torch's, installed before: once is enough
        sys.excepthook = hook
    try:
        yield
    except BaseException:
        # Tell ranks that wait for this one in an exchange of tensors. gloo keeps its connections open as long as
        # anything refers to a model, as the traceback of an error does.
        connection.shut(lines)
        raise
    finally:
        if dist.is_initialized():
            leave_process_group()


@contextlib.contextmanager
def named_ranks(ranks: core.DistributedContext) -> Iterator[None]:
    """Name the absent rank in torch errors such as "connection closed", and tell other ranks of any error."""
    try:
        yield
    except BaseException as failed:
        ranks._set_leave_reason(failed)
        if not isinstance(failed, RuntimeError):
            raise
        text = str(failed).lower()
        is_late = any(word in text for word in _LATE)
        is_theirs = is_late or isinstance(failed, dist.DistError) or any(word in text for word in _BROKEN)
        if isinstance(failed, errors.DeterminedError) or not is_theirs:
            raise
        # Others may have left by now, for having waited too.
        stuck = ranks._describe_others(stuck=True) if is_late else ""
        absent = [] if stuck else ranks._find_absent(ABSENCE_SECONDS)
        if absent:
            raise errors.CollectiveError(
                f"{'; '.join(absent)}. Rank {ranks.rank} was exchanging tensors with it. See its own output for the "
                "reason."
            ) from failed
        if is_late:
            late = errors.CollectiveTimeout(
                f"Rank {ranks.rank} was exchanging tensors, and not every rank came to it within "
                f"{launcher.timeout_seconds():g} s, though all {ranks.size} still run. Every rank has to train the "
                "same batches through the same models; if one needs longer, raise DET_COLLECTIVE_TIMEOUT, in seconds. "
                f"{stuck or ranks._describe_others()}"
            )
            ranks._set_leave_reason(late, always=True)
            raise late from failed
        raise


def _check(ranks: core.DistributedContext) -> None:
    """Raise if the script's own process group has other ranks."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if (rank, size) != (ranks.rank, ranks.size):
        raise RuntimeError(
            f"In the process group that the script has initialised this is rank {rank} of {size}, but to the launcher "
            f"or to init(distributed=...) it is rank {ranks.rank} of {ranks.size}. Leave init_process_group() out, or "
            "pass the same numbers to both."
        )


def _join(ranks: core.DistributedContext) -> None:
    """Open the process group. All ranks have connected before, so this does not wait for one that never comes."""
    timeout = timedelta(seconds=launcher.timeout_seconds())
    # Each group has its own prefix: a second init() must not find keys of the first in the launcher's store.
    name = ranks.broadcast(uuid.uuid4().hex)
    if launcher.has_master():
        if ranks.rank == 0 and not launcher.agent_hosts_store():  # torch would listen on every interface; it takes ours
            place = launcher.variable("MASTER_ADDR"), launcher.number("MASTER_PORT")
            connection.host_for_process(*place, spans_machines=ranks.local_size != ranks.size)
        url = f"env://?rank={ranks.rank}&world_size={ranks.size}"
        store, _, _ = next(iter(dist.rendezvous(url, timeout=timeout)))  # type: ignore[attr-defined]  # public, as are those below
    else:
        store = _own_store(ranks, timeout)
    dist.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo",
        store=dist.PrefixStore(f"determined/{name}", store),  # type: ignore[attr-defined]
        rank=ranks.rank,
        world_size=ranks.size,
        timeout=timeout,
    )


def _own_store(ranks: core.DistributedContext, timeout: timedelta) -> Any:
    """Return a store that the chief hosts at a free port, for ranks without MASTER_ADDR and MASTER_PORT."""
    store: Any = None
    place: tuple[str, int] | None = None
    if ranks.rank == 0:
        on_one_machine = ranks.local_size == ranks.size
        host = "127.0.0.1" if on_one_machine else os.environ.get("DET_CHIEF_IP") or socket.gethostname()
        store, port = connection.host_anywhere(host, spans_machines=not on_one_machine)
        store.set_timeout(timeout)
        place = (host, port)
    host, port = ranks.broadcast(place)
    if store is None:
        store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timeout)  # type: ignore[attr-defined]
    return store
