"""`DistributedContext`: the rank of this process, constructors for each launcher, and collective calls."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from determined.core.ranks import launcher, signing
from determined.core.ranks.collective import CHIEF_FACTOR, Channel
from determined.core.ranks.connection import Connection, open_launcher_store, open_own_store
from determined.core.ranks.members import NUMBERS, Member, Ranks
from determined.core.ranks.participant import Participant
from determined.core.ranks.session import Registration, describe
from determined.errors import CollectiveError

T = TypeVar("T")


class DistributedContext:
    """The rank of this process in a job, and calls that exchange small Python objects with the other ranks.

    Without arguments it is a single process, and every call returns at once. With them, construction waits until all
    ranks have arrived and agree on who is who. The calls are for control data, not for tensors; every rank makes the
    same calls in the same order, and one that does not is named in the error that all of them get. No call waits
    longer than `timeout`, and none waits for a process that has ended. A rank that keeps others waiting is named in a
    warning, with its last call and its stack, before DET_SLOW_RANK_SECONDS (60; 0 for never) are over.

    Objects travel pickled, signed with `DET_JOB_SECRET` (or, on one machine, with a key file of this user's) and
    unpickled only if the signature holds. Several machines need `DET_JOB_SECRET`, the same on each.

    Args:
        rank: Number of this process in the job. All six numbers are given, or none.
        size: Number of processes in the job.
        local_rank: Number of this process on its machine.
        local_size: Number of processes on its machine. Machines may differ.
        cross_rank: Number of this machine.
        cross_size: Number of machines.
        chief_ip: Address of the machine of rank 0; needed with several machines only.
        pub_port: Port at which rank 0 listens. By default INTER_TRAIN_PROCESS_COMM_PORT_1, else 12360.
        pull_port: Accepted for older code; one port is enough.
        port_offset: Added to the port.
        force_tcp: Accepted for older code; everything is TCP.
        timeout: Seconds to wait for other ranks. By default DET_COLLECTIVE_TIMEOUT, else 600. For
            what the chief does alone, as storing a checkpoint, they wait six times as long.

    Raises:
        ValueError: Some but not all six numbers are None, or a rank is not below its size.
        AssertionError: There are several machines and no `chief_ip`.
        CollectiveTimeout: A rank did not arrive.
        CollectiveError: The ranks do not describe one job, the port is taken, or there is no secret to sign with.

    Example::

        with DistributedContext() as distributed:
            assert distributed.allgather("ready") == ["ready"]
    """

    def __init__(
        self,
        *,
        rank: int | None = None,
        size: int | None = None,
        local_rank: int | None = None,
        local_size: int | None = None,
        cross_rank: int | None = None,
        cross_size: int | None = None,
        chief_ip: str | None = None,
        pub_port: int | None = None,
        pull_port: int | None = None,  # noqa: ARG002  # the contract's; so is the next but one
        port_offset: int = 0,
        force_tcp: bool = False,  # noqa: ARG002
        timeout: float | None = None,
    ) -> None:
        numbers = rank, size, local_rank, local_size, cross_rank, cross_size
        ranks = Ranks.checked(**dict(zip(NUMBERS, numbers, strict=True)))
        if ranks.on_one_machine:
            chief_ip = "127.0.0.1"
        elif chief_ip is None:
            raise AssertionError(
                f"This job has several machines ({ranks.size} ranks, {ranks.local_size} of them here), so every rank "
                "needs the address of rank 0. Pass chief_ip=, or set DET_CHIEF_IP."
            )
        port = (launcher.port() if pub_port is None else pub_port) + port_offset
        self._join(ranks, functools.partial(open_own_store, ranks, chief_ip, port), timeout)

    def _join(self, ranks: Ranks, connect: Callable[[float], Connection], timeout: float | None) -> DistributedContext:
        """Register with the other ranks; `connect(deadline)` connects to the store in which they meet."""
        self.rank, self.size = ranks.rank, ranks.size
        self.local_rank, self.local_size = ranks.local_rank, ranks.local_size
        self.cross_rank, self.cross_size = ranks.cross_rank, ranks.cross_size
        self._channel: Channel | None = None
        self._local_channel: Channel | None = None
        if ranks.size == 1:
            return self
        import torch.distributed  # noqa: F401  # takes seconds, which are not to count as waiting for others

        seconds = launcher.timeout_seconds() if timeout is None else float(timeout)
        deadline = time.monotonic() + seconds
        me = Member(**vars(ranks))
        notice = min(launcher.notice_seconds(), seconds / 2)  # who is late is named before the time is up
        secret = signing.job_secret(one_machine=me.on_one_machine)
        session = Registration(lambda: connect(deadline), me, secret, seconds, deadline, notice).run()
        # A launcher may not have said how many machines there are.
        self.cross_size = max(self.cross_size, *(member.cross_rank + 1 for member in session.members))
        participant = Participant(session, me, seconds, notice)
        self._channel = Channel(participant, "job")
        if me.local_size > 1:
            self._local_channel = Channel(participant, f"machine-{me.cross_rank}")
        # Also at exit: others may still read what was broadcast last, and must not wait for a rank that has ended.
        self._leave = weakref.finalize(self, participant.leave)
        return self

    # Constructors that ask a launcher.

    @classmethod
    def from_torch_distributed(
        cls,
        chief_ip: str | None = None,  # noqa: ARG003  # the contract's
        *,
        timeout: float | None = None,
    ) -> DistributedContext:
        """Take the rank that torchrun or Ray Train gave this process.

        The ranks meet in the store of the default process group if there is one, else where the launcher said
        (MASTER_ADDR, MASTER_PORT); `init_process_group()` works before and after.

        Args:
            chief_ip: Accepted for older code; the launcher's address is used.
            timeout: Seconds to wait for other ranks, as in the constructor.

        Raises:
            LauncherError: A variable that torchrun sets is missing (a `KeyError`).

        Example::

            # torchrun --nproc_per_node 2 train.py
            distributed = DistributedContext.from_torch_distributed()
            print(f"rank {distributed.rank} of {distributed.size}")
        """
        ranks = launcher.torch_ranks()
        return cls.__new__(cls)._join(ranks, functools.partial(open_launcher_store, ranks), timeout)

    @classmethod
    def from_deepspeed(cls, chief_ip: str | None = None, *, timeout: float | None = None) -> DistributedContext:
        """Take the rank that DeepSpeed's launcher gave this process.

        Args:
            chief_ip: Address of rank 0, if neither DET_CHIEF_IP nor MASTER_ADDR and MASTER_PORT say it.
            timeout: Seconds to wait for other ranks, as in the constructor.

        Raises:
            LauncherError: A variable that the launcher sets is missing (a `KeyError`).

        Example::

            # RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_SIZE, CROSS_RANK and CROSS_SIZE are set
            distributed = DistributedContext.from_deepspeed()
        """
        ranks = launcher.ranks_from_environment(
            "A launcher for DeepSpeed", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"
        )
        if launcher.has_master():
            return cls.__new__(cls)._join(ranks, functools.partial(open_launcher_store, ranks), timeout)
        return cls(**vars(ranks), chief_ip=chief_ip or os.environ.get("DET_CHIEF_IP"), timeout=timeout)

    @classmethod
    def from_horovod(cls, hvd: Any, chief_ip: str | None = None, *, timeout: float | None = None) -> DistributedContext:
        """Take the rank that `hvd` returns, which may be any object with Horovod's six methods.

        Args:
            hvd: An initialised `horovod.torch`, or anything like it.
            chief_ip: Address of rank 0. By default DET_CHIEF_IP.
            timeout: Seconds to wait for other ranks, as in the constructor.

        Example::

            distributed = DistributedContext.from_horovod(hvd)
        """
        ranks = {name: getattr(hvd, name)() for name in NUMBERS}
        return cls(**ranks, chief_ip=chief_ip or os.environ.get("DET_CHIEF_IP"), timeout=timeout)

    @classmethod
    def from_tf_config(cls) -> tuple[DistributedContext, Any]:
        """Take the rank that TF_CONFIG gives this process. Return it with the TensorFlow strategy for it.

        Raises:
            RuntimeError: This task is not a worker.
            ImportError: TensorFlow is not installed.

        Example::

            distributed, strategy = DistributedContext.from_tf_config()
        """
        ranks, chief_ip = launcher.parse_tf_config(os.environ.get("TF_CONFIG", ""))
        if importlib.util.find_spec("tensorflow") is None:
            raise ImportError(
                "from_tf_config() returns a TensorFlow strategy, and tensorflow is not installed. For PyTorch use "
                "DistributedContext.from_torch_distributed() under torchrun; for ranks alone, "
                "DistributedContext(rank=...)."
            )
        tensorflow = importlib.import_module("tensorflow")
        if ranks.size > 1:
            strategy = tensorflow.distribute.MultiWorkerMirroredStrategy()
        elif len(tensorflow.config.list_physical_devices("GPU")) > 1:
            strategy = tensorflow.distribute.MirroredStrategy()
        else:
            strategy = tensorflow.distribute.get_strategy()
        return cls(**vars(ranks), chief_ip=chief_ip), strategy

    # Who am I.

    @property
    def is_chief(self) -> bool:
        """Whether this is rank 0 of the job."""
        return self.rank == 0

    @property
    def is_local_chief(self) -> bool:
        """Whether this is rank 0 of its machine."""
        return self.local_rank == 0

    def get_rank(self) -> int:
        """Return the rank in the job."""
        return self.rank

    def get_local_rank(self) -> int:
        """Return the rank on this machine."""
        return self.local_rank

    def get_size(self) -> int:
        """Return the number of processes in the job."""
        return self.size

    def get_num_agents(self) -> int:
        """Return the number of machines."""
        return self.cross_size

    # Collective calls.

    def gather(self, stuff: Any) -> list[Any] | None:
        """Return every rank's object on the chief, in order of rank; None elsewhere. No rank returns before all called.

        Example::

            losses = distributed.gather(loss)
            if losses is not None:
                print(max(losses))
        """
        return [stuff] if self._channel is None else self._channel.gather("gather", stuff)

    def allgather(self, stuff: Any) -> list[Any]:
        """Return every rank's object on every rank, in order of rank. No rank returns before all called.

        Example::

            total = sum(distributed.allgather(len(records)))
        """
        return [stuff] if self._channel is None else self._channel.allgather("allgather", stuff)

    def broadcast(self, stuff: Any) -> Any:
        """Return the chief's object on every rank. What the others pass is ignored; the chief does not wait for them.

        Example::

            run_id = distributed.broadcast(uuid.uuid4().hex if distributed.is_chief else None)
        """
        return stuff if self._channel is None else self._channel.broadcast("broadcast", stuff)

    def gather_local(self, stuff: Any) -> list[Any] | None:
        """Like `gather()`, among the ranks of this machine, to its first."""
        return [stuff] if self._local_channel is None else self._local_channel.gather("gather_local", stuff)

    def allgather_local(self, stuff: Any) -> list[Any]:
        """Like `allgather()`, among the ranks of this machine."""
        return [stuff] if self._local_channel is None else self._local_channel.allgather("allgather_local", stuff)

    def broadcast_local(self, stuff: Any = None) -> Any:
        """Like `broadcast()`, among the ranks of this machine, from its first."""
        return stuff if self._local_channel is None else self._local_channel.broadcast("broadcast_local", stuff)

    def run_on_chief(self, function: Callable[[], T]) -> T:
        """Run `function` on the chief only. Return or raise on every rank what it returns or raises there.

        Raises:
            Exception: What `function` raised. On the other ranks, if that cannot be pickled, a `CollectiveError` with
            its text.

        Example::

            names = distributed.run_on_chief(lambda: sorted(os.listdir(directory)))
        """
        return function() if self._channel is None else self._channel.run_on_chief("run_on_chief", function)

    def run_on_local_chief(self, function: Callable[[], T]) -> T:
        """Like `run_on_chief()`, among the ranks of this machine: its first runs `function`."""
        if self._local_channel is None:
            return function()
        return self._local_channel.run_on_chief("run_on_local_chief", function)

    def agree(self, error: BaseException | None) -> None:
        """Raise on every rank if one failed: each passes its error or None.

        Raises:
            BaseException: `error`, on the rank that passed it.
            CollectiveError: On the other ranks, with the ranks that failed and why.

        Example::

            error = None
            try:
                write_my_files()
            except OSError as failed:
                error = failed
            distributed.agree(error)
        """
        self._agree(self._channel, "agree", error)

    def agree_local(self, error: BaseException | None) -> None:
        """Like `agree()`, among the ranks of this machine."""
        self._agree(self._local_channel, "agree_local", error)

    def _agree(self, channel: Channel | None, operation: str, error: BaseException | None) -> None:
        mine = None if error is None else f"rank {self.rank} failed with {type(error).__name__}: {error}"
        everyone = [] if channel is None else channel.allgather(operation, mine)
        if error is not None:
            raise error
        if failures := [text.rstrip(".") for text in everyone if text is not None]:
            raise CollectiveError(f"{'; '.join(failures)}. See the output of that rank.")

    def wait_for_all(self, operation: str, seconds: float) -> None:
        """Wait until every rank is at this point, which errors call `operation`. Collective."""
        if self._channel is not None:
            self._channel.allgather(operation, None, min(seconds, self._channel.participant.timeout))

    def wait_for_chief(self, operation: str) -> None:
        """Wait until the chief is done with something that it does alone and that may take long. Collective."""
        if self._channel is not None:
            self._channel.broadcast(operation, None, CHIEF_FACTOR * self._channel.participant.timeout)

    def showing_progress(
        self, batches: Callable[[], int], steps: Callable[[], object]
    ) -> contextlib.AbstractContextManager[None]:
        """Inside, others learn how many batches this rank has trained, and whether it moves at all.

        Both are called now and then from another thread.
        """
        if self._channel is None:
            return contextlib.nullcontext()
        return self._channel.participant.watch.showing(batches, steps)

    def _find_absent(self, patience: float) -> list[str]:
        """Return which ranks have left or ended, in words; wait up to `patience` seconds for the first of them."""
        return [] if self._channel is None else self._channel.participant.find_absent(patience)

    def _describe_others(self, *, stuck: bool = False) -> str:
        """Return where the other ranks are, in sentences; with `stuck`, only those that neither wait nor move."""
        return "" if self._channel is None else self._channel.participant.watch.describe_others(stuck=stuck)

    def _set_leave_reason(self, error: BaseException, *, always: bool = False) -> None:
        """Set what the others are told when this rank leaves, unless one of them was the reason."""
        if self._channel is not None and (always or not isinstance(error, CollectiveError)):
            self._channel.participant.leave_reason = describe(error).splitlines()[0]

    def close(self) -> None:
        """Leave the job. Ranks that wait for this one are told; calling it twice is harmless.

        The rank that hosts the store stays until the others have read what they were sent, ten seconds at most.
        """
        if self._channel is not None:
            self._leave()

    def __enter__(self) -> DistributedContext:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_on_chief(distributed: DistributedContext, work: Callable[[], T]) -> T:
    """Return the chief's result of `work` on every rank; raise its error there too. Collective."""
    return distributed.run_on_chief(work)
