"""Ranks and sizes, and the constructors that learn them from a launcher. How messages travel is in `_collective`."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import pickle
import time
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from determined.core.ranks import meeting, signing
from determined.core.ranks.collective import Channel
from determined.core.ranks.participant import Participant
from determined.core.ranks.peers import Member, Ranks
from determined.core.ranks.rollcall import Invitation, meet
from determined.errors import CollectiveError

T = TypeVar("T")

DEFAULT_PORT = 12360
DEFAULT_TIMEOUT_SECONDS = 600.0
DEFAULT_NOTICE_SECONDS = 60.0
PORT_VARIABLE = "INTER_TRAIN_PROCESS_COMM_PORT_1"


class DistributedContext:
    """Every rank of a job knows its place and can exchange small Python objects with the others.

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
        ranks = _checked(
            rank=rank,
            size=size,
            local_rank=local_rank,
            local_size=local_size,
            cross_rank=cross_rank,
            cross_size=cross_size,
        )
        if ranks.local_size == ranks.size:
            chief_ip = "127.0.0.1"
        elif chief_ip is None:
            raise AssertionError(
                f"This job has several machines ({ranks.size} ranks, {ranks.local_size} of them here), so every rank "
                "needs the address of rank 0. Pass chief_ip=, or set DET_CHIEF_IP."
            )
        port = (_port() if pub_port is None else pub_port) + port_offset
        self._enter(ranks, functools.partial(_own_store, ranks, chief_ip, port), timeout)

    def _enter(self, ranks: Ranks, connect: Callable[[float], meeting.Connection], timeout: float | None) -> None:
        """Take this place in the job; `connect(deadline)` reaches the store where its ranks meet."""
        self.rank, self.size = ranks.rank, ranks.size
        self.local_rank, self.local_size = ranks.local_rank, ranks.local_size
        self.cross_rank, self.cross_size = ranks.cross_rank, ranks.cross_size
        self._channel: Channel | None = None
        self._local_channel: Channel | None = None
        self._leave: Callable[[], object] = _nothing
        if ranks.size == 1:
            return
        import torch.distributed  # noqa: F401  # takes seconds, which are not to count as waiting for others

        seconds = _timeout() if timeout is None else float(timeout)
        deadline = time.monotonic() + seconds
        me = Member(**vars(ranks))
        notice = min(_notice(), seconds / 2)  # who is late is named before the time is up
        secret = signing.job_secret(one_machine=me.local_size == me.size)
        invitation = Invitation(me, secret, seconds, deadline, notice)
        connection, session = meet(lambda: connect(deadline), invitation)
        participant = Participant(connection, session, me, seconds, notice)
        self._channel = Channel(participant, "job")
        if me.local_size > 1:
            self._local_channel = Channel(participant, f"machine-{me.cross_rank}")
        # Also at exit: others may still read what was broadcast last, and must not wait for a rank that has ended.
        self._leave = weakref.finalize(self, participant.leave)

    @classmethod
    def _at(
        cls, ranks: Ranks, connect: Callable[[float], meeting.Connection], timeout: float | None
    ) -> DistributedContext:
        context = cls.__new__(cls)
        context._enter(ranks, connect, timeout)
        return context

    # Constructors that ask a launcher.

    @classmethod
    def from_torch_distributed(
        cls,
        chief_ip: str | None = None,  # noqa: ARG003  # the contract's
        *,
        timeout: float | None = None,
    ) -> DistributedContext:
        """The place that torchrun gave this process.

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
        ranks = _from_environment(
            "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"
        )
        return cls._at(ranks, functools.partial(_launcher_store, ranks), timeout)

    @classmethod
    def from_deepspeed(cls, chief_ip: str | None = None, *, timeout: float | None = None) -> DistributedContext:
        """The place that DeepSpeed's launcher gave this process.

        Args:
            chief_ip: Address of rank 0, if neither DET_CHIEF_IP nor MASTER_ADDR and MASTER_PORT say it.
            timeout: Seconds to wait for other ranks, as in the constructor.

        Raises:
            LauncherError: A variable that the launcher sets is missing (a `KeyError`).

        Example::

            # RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_SIZE, CROSS_RANK and CROSS_SIZE are set
            distributed = DistributedContext.from_deepspeed()
        """
        ranks = _from_environment(
            "A launcher for DeepSpeed", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"
        )
        if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
            return cls._at(ranks, functools.partial(_launcher_store, ranks), timeout)
        return cls(**vars(ranks), chief_ip=chief_ip or os.environ.get("DET_CHIEF_IP"), timeout=timeout)

    @classmethod
    def from_horovod(cls, hvd: Any, chief_ip: str | None = None, *, timeout: float | None = None) -> DistributedContext:
        """The place that `hvd` tells, which may be any object with Horovod's six methods.

        Args:
            hvd: An initialised `horovod.torch`, or anything like it.
            chief_ip: Address of rank 0. By default DET_CHIEF_IP.
            timeout: Seconds to wait for other ranks, as in the constructor.

        Example::

            distributed = DistributedContext.from_horovod(hvd)
        """
        return cls(
            rank=hvd.rank(),
            size=hvd.size(),
            local_rank=hvd.local_rank(),
            local_size=hvd.local_size(),
            cross_rank=hvd.cross_rank(),
            cross_size=hvd.cross_size(),
            chief_ip=chief_ip or os.environ.get("DET_CHIEF_IP"),
            timeout=timeout,
        )

    @classmethod
    def from_tf_config(cls) -> tuple[DistributedContext, Any]:
        """The place that TF_CONFIG gives this process, and the TensorFlow strategy for it.

        Raises:
            RuntimeError: This task is not a worker.
            ImportError: TensorFlow is not installed.

        Example::

            distributed, strategy = DistributedContext.from_tf_config()
        """
        ranks, chief_ip = parse_tf_config(os.environ.get("TF_CONFIG", ""))
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
        """The rank in the job."""
        return self.rank

    def get_local_rank(self) -> int:
        """The rank on this machine."""
        return self.local_rank

    def get_size(self) -> int:
        """The number of processes in the job."""
        return self.size

    def get_num_agents(self) -> int:
        """The number of machines."""
        return self.cross_size

    # Collective calls.

    def gather(self, stuff: Any) -> list[Any] | None:
        """On the chief, every rank's object in order of rank; elsewhere None. No rank returns before all have called.

        Example::

            losses = distributed.gather(loss)
            if losses is not None:
                print(max(losses))
        """
        return [stuff] if self._channel is None else self._channel.gather("gather", stuff)

    def allgather(self, stuff: Any) -> list[Any]:
        """On every rank, every rank's object in order of rank. No rank returns before all have called.

        Example::

            total = sum(distributed.allgather(len(records)))
        """
        return [stuff] if self._channel is None else self._channel.allgather("allgather", stuff)

    def broadcast(self, stuff: Any) -> Any:
        """The chief's object, on every rank. What the others pass is ignored; the chief does not wait for them.

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
        """What `function` returns or raises on the chief, on every rank. It runs on the chief only.

        Raises:
            Exception: What `function` raised. On the other ranks, if that cannot be sent, a `CollectiveError` that
            says it.

        Example::

            names = distributed.run_on_chief(lambda: sorted(os.listdir(directory)))
        """
        return _run_on_first(self._channel, "run_on_chief", function)

    def run_on_local_chief(self, function: Callable[[], T]) -> T:
        """Like `run_on_chief()`, among the ranks of this machine: its first runs `function`."""
        return _run_on_first(self._local_channel, "run_on_local_chief", function)

    def agree(self, error: BaseException | None) -> None:
        """Go on only if no rank failed: each passes its error or None, and if there is one, all raise.

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
        said = [] if channel is None else channel.allgather(operation, mine)
        if error is not None:
            raise error
        if failures := [text.rstrip(".") for text in said if text is not None]:
            raise CollectiveError(f"{'; '.join(failures)}. See the output of that rank.")

    def wait_for_all(self, operation: str, seconds: float) -> None:
        """Wait until every rank is at this same point, which has a name of its own in errors. Collective."""
        if self._channel is not None:
            self._channel.meet(operation, seconds)

    def _absent(self, patience: float) -> list[str]:
        """Which ranks have left or ended, in words; waits up to `patience` seconds for the first of them."""
        return [] if self._channel is None else self._channel.absent(patience)

    def _stuck(self) -> str:
        """Where those ranks are that neither wait for others nor get on, in sentences."""
        return "" if self._channel is None else self._channel.watch.stuck()

    def _everyone(self) -> str:
        """Where the other ranks are, in sentences."""
        return "" if self._channel is None else self._channel.watch.everyone()

    @contextlib.contextmanager
    def showing_progress(self, batches: Callable[[], int], steps: Callable[[], object]) -> Iterator[None]:
        """Inside, others learn how many batches this rank has trained, and whether it gets on at all.

        Both are asked now and then from another thread.
        """
        if self._channel is None:
            yield
            return
        with self._channel.watch.showing(batches, steps):
            yield

    def _say_why(self, error: BaseException, *, always: bool = False) -> None:
        """What the others are told when this rank leaves, unless one of them was the reason."""
        if self._channel is not None and (always or not isinstance(error, CollectiveError)):
            self._channel.say_why(error)

    def wait_for_chief(self, work: str) -> None:
        """Wait until the chief is done with something that it does alone and that may take long. Collective."""
        if self._channel is not None:
            self._channel.broadcast(work, None, patient=True)

    def close(self) -> None:
        """Leave the job. Ranks that wait for this one are told; calling it twice is harmless.

        The rank that hosts the meeting point stays until the others have read what they were sent, ten seconds at most.
        """
        self._leave()

    def __enter__(self) -> DistributedContext:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


DummyDistributedContext = DistributedContext


def parse_tf_config(text: str) -> tuple[Ranks, str | None]:
    """The place that TF_CONFIG describes and the chief's address; a single process if it names fewer than two workers.

    Example::

        config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
        ranks, chief_ip = parse_tf_config(json.dumps(config))
        assert (ranks.rank, ranks.size, chief_ip) == (1, 2, "a")
    """
    config = json.loads(text) if text.strip() else {}
    workers = config.get("cluster", {}).get("worker", [])
    if len(workers) < 2:
        return Ranks(), None
    task = config.get("task", {})
    if task.get("type") != "worker":
        raise RuntimeError(f"TF_CONFIG gives this process the task {task.get('type')!r}; only 'worker' is supported.")
    index = int(task["index"])
    ranks = _checked(
        rank=index, size=len(workers), local_rank=0, local_size=1, cross_rank=index, cross_size=len(workers)
    )
    return ranks, workers[0].rpartition(":")[0].strip("[]")


def _checked(**numbers: int | None) -> Ranks:
    given = {name: int(number) for name, number in numbers.items() if number is not None}
    if not given:
        return Ranks()
    if len(given) < len(numbers):
        missing = ", ".join(name for name in numbers if name not in given)
        raise ValueError(f"{missing} missing: pass all six numbers, or none of them for a single process.")
    ranks = Ranks(**given)
    for kind in ("", "local_", "cross_"):
        rank, size = given[f"{kind}rank"], given[f"{kind}size"]
        if not 0 <= rank < size:
            raise ValueError(f"{kind}rank={rank} must be at least 0 and below {kind}size={size}.")
    if ranks.local_size > ranks.size:
        raise ValueError(f"local_size={ranks.local_size} must not exceed size={ranks.size}.")
    return ranks


def _from_environment(launcher: str, *names: str) -> Ranks:
    fields = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    return _checked(**{field: meeting.number(name, launcher) for field, name in zip(fields, names, strict=True)})


def _own_store(ranks: Ranks, chief_ip: str, port: int, deadline: float) -> meeting.Connection:
    if ranks.rank == 0:
        return meeting.host(
            chief_ip,
            port,
            spans_machines=ranks.local_size != ranks.size,
            change=f"{PORT_VARIABLE} or pub_port=, the same on every rank",
        )
    return meeting.connect(chief_ip, port, deadline=deadline)


def _launcher_store(ranks: Ranks, deadline: float) -> meeting.Connection:
    return meeting.launcher_store(ranks.rank, deadline=deadline, spans_machines=ranks.local_size != ranks.size)


def _port() -> int:
    return int(os.environ.get(PORT_VARIABLE) or DEFAULT_PORT)


def _timeout() -> float:
    return _seconds("DET_COLLECTIVE_TIMEOUT", DEFAULT_TIMEOUT_SECONDS)


def _notice() -> float:
    return _seconds("DET_SLOW_RANK_SECONDS", DEFAULT_NOTICE_SECONDS)


def _seconds(name: str, default: float) -> float:
    told = os.environ.get(name)
    try:
        return float(told) if told else default
    except ValueError:
        raise ValueError(f"{name} is {told!r}; expected seconds, for example {name}={default:g}.") from None


def _run_on_first(channel: Channel | None, call: str, function: Callable[[], T]) -> T:
    if channel is None:
        return function()
    if not channel.is_chief:
        value, failure = channel.broadcast(call, None, patient=True)
        if failure is not None:
            raise failure
        return value  # type: ignore[no-any-return]  # it was a T on the chief
    try:
        value = function()
    except BaseException as error:
        with contextlib.suppress(CollectiveError):
            channel.broadcast(call, (None, _sendable(error, f"rank {channel.chief.rank} failed in {call}()")))
        raise
    channel.broadcast(call, (value, None))
    return value


def _sendable(error: BaseException, where: str) -> Exception:
    """The error itself if it survives the journey, else one that tells it."""
    if isinstance(error, Exception):
        try:
            copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
        except Exception:  # noqa: BLE001  # users' exceptions may raise anything here
            copy = None
        if type(copy) is type(error):
            return error
    return CollectiveError(f"{where} with {type(error).__name__}: {error}")


def _nothing() -> None:
    """What leaving takes for a single process."""
