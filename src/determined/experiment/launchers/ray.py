"""The Ray launcher: attempts on the nodes of a Ray cluster. The only file that imports Ray.

    controller             asks for a placement group, then for one detached, named actor; may die at any instant
      actor, first node    starts the actors of the other nodes, and ends all nodes when one fails or is lost
        agent              as on one machine: captures output, records the end
          guard, entry point, ranks
      actor, other nodes   each with an agent of its own; Ray ends them with the actor of the first node

A later controller finds actors by their names. Ray retries nothing: what is lost is judged by the controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import secrets
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
import ray.exceptions
import ray.util
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from determined import _process, errors
from determined.experiment.launchers import placement
from determined.experiment.launchers.agent_process import AgentProcess
from determined.experiment.launchers.base import Place, TaskSpec
from determined.experiment.slots import Slots, from_environment, pool_of

if TYPE_CHECKING:  # an actor needs nothing of the store, and starts the sooner
    from determined.store.attempts import AttemptRow
    from determined.store.database.connection import Store

logger = logging.getLogger("determined.experiment")

NAMESPACE = "resolute"
LOOK_SECONDS = 1.0
"""How long what is known about the cluster's nodes is good for."""
STEP_SECONDS = 0.02
REACH_SECONDS = 10.0
HEAD_SECONDS = 20
"""How long Ray tries to reach a head that is gone, before it ends this process: then another controller takes over."""
TASK_SECONDS = 120.0
"""How long an actor waits for its task: whoever made it may have died before handing it over."""
LEAVE_SECONDS = 5.0
"""How long the other nodes have to end by themselves after the first has."""
SECRET = ("RAY_AUTH_TOKEN", "RAY_REDIS_PASSWORD")
NO_AGENT = "its agent could not start; the file logs/agents.log in the data directory of its node says why"
RAY_SETS = ("RAY_", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHONBREAKPOINT", "SPT_NOENV")
"""How the variables begin that Ray sets for its own workers."""


class RayLauncher:
    """Starts attempts on the cluster that `RAY_ADDRESS` names, by default the one on this machine.

    Args:
        store: Where attempts are recorded.
        home: The data directory of this machine, and of nodes that set no `DET_HOME`.
    """

    name = "ray"

    def __init__(self, store: Store, home: str | os.PathLike[str]) -> None:
        self._store = store
        self._home = Path(home)
        self._unplaced: dict[str, _Unplaced] = {}  # attempts that wait for nodes
        self._actors: dict[str, Any] = {}
        self._ends: dict[str, Any] = {}  # what becomes ready when the actor of an attempt has ended
        self._lost: dict[str, str] = {}  # why an actor has not ended by itself, until somebody asks
        self._marks: dict[str, dict[str, str]] = {}
        self._looked_at, self._nodes, self._slots = 0.0, list[placement.RayNode](), Slots("cpu", ())
        connect()
        self._refuse_a_file()

    def slots(self) -> Slots:
        """Return the slots of the cluster as it is now. `DET_SLOTS` says how many it grows to, if it does."""
        self._look()
        return self._slots

    def settings(self) -> dict[str, str]:
        """Return the environment variables that another controller needs to find the same cluster; no token."""
        names = [name for name in os.environ if name.startswith("RAY_") and name not in SECRET]
        ours = {name: os.environ[name] for name in names}
        return {"DET_LAUNCHER": self.name, **ours, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}

    def start(self, task: TaskSpec) -> None:
        """Ask Ray for the nodes of an attempt; its agents start once Ray has them. Returns at once."""
        self._unplaced[task.allocation_id] = self._ask(task)

    def is_alive(self, attempt: AttemptRow) -> bool:
        """Return whether an attempt waits for its nodes or its first actor runs, whoever started it."""
        ident = attempt.allocation_id
        if ident in self._unplaced:
            return True
        if ident not in self._lost and (ident in self._ends or self._find(ident)):
            ended, _ = ray.wait([self._ends[ident]], timeout=0, fetch_local=False)
            if not ended or not self._is_over(ident):
                return True
        if ident in self._lost:
            self._judge(attempt, self._lost.pop(ident))
        return False

    def kill(self, attempt: AttemptRow) -> None:
        """End all processes of an attempt now. The agent, if it lives, records the end; otherwise nobody does."""
        from determined.experiment.attempt import exit_record
        from determined.experiment.controller import start

        ident = attempt.allocation_id
        if self.is_alive(attempt) and ident not in self._unplaced:
            self._actors[ident].kill.remote()
        else:
            self._give_back(ident)
            exit_record.settle(self._store, str(self._home), start.address(self._store), ident)

    def wait(self, seconds: float) -> None:
        """Wait until an attempt has ended, or for so long; attempts that waited for nodes start meanwhile."""
        deadline = time.monotonic() + seconds
        while True:
            for ident in list(self._unplaced):
                self._place(ident)
            left = deadline - time.monotonic()
            step = min(left, STEP_SECONDS) if self._unplaced else left
            if self._wait_for_an_end(max(0.0, step)) or time.monotonic() >= deadline:
                return

    def _wait_for_an_end(self, seconds: float) -> bool:
        of = {ref: ident for ident, ref in self._ends.items()}
        if not of:
            time.sleep(seconds)
            return False
        ended, _ = ray.wait(list(of), timeout=seconds, fetch_local=False)
        over = [self._is_over(of[ref]) for ref in ended]
        return any(over)

    def waiting(self) -> dict[str, str]:
        """Return why attempts wait for nodes, by allocation."""
        return {ident: unplaced.reason() for ident, unplaced in self._unplaced.items() if unplaced.state}

    def close(self) -> None:
        """Leave the cluster. Agents go on."""
        ray.shutdown()

    def _look(self) -> None:
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        rows = ray.nodes()
        self._nodes = placement.nodes_of(rows, _available())
        kind = placement.kind_of(row for row in rows if row["Alive"])
        usable = [node.shown() for node in self._nodes if node not in self._unusable()]
        self._slots = Slots.of_nodes(kind, usable, from_environment() or 0)
        self._looked_at = time.monotonic()

    def _unusable(self) -> list[placement.RayNode]:
        """Return the nodes on other machines, if the store is a file on this one."""
        return [node for node in self._nodes if self._store.is_sqlite and node.machine != _process.this_node()]

    def _refuse_a_file(self) -> None:
        self._look()
        if others := self._unusable():
            raise errors.ConfigError(
                f"The store is the file {self._store.path}, and the Ray cluster has nodes on other machines "
                f"({', '.join(node.name for node in others)}), which cannot write to it. "
                "Set DET_STORE=postgresql://user:password@host/name"
            )

    # From a task to its actor.

    def _ask(self, task: TaskSpec) -> _Unplaced:
        asked = self._request(task)
        group = ray.util.placement_group(
            asked.bundles,
            strategy=asked.strategy,
            name=self._name(task.allocation_id),
            lifetime="detached",
            bundle_label_selector=asked.selectors() or None,
        )
        return _Unplaced(task, asked, group)

    def _request(self, task: TaskSpec) -> placement.Request:
        self._look()
        resources = task.config.get("resources") or {}
        return placement.request(
            self._nodes,
            task.slots,
            task.slot_kind,
            pool=pool_of(resources),
            is_single_node=bool(resources.get("is_single_node")),
            excluded=[*task.excluded_nodes, *(node.name for node in self._unusable())],
        )

    def _place(self, ident: str) -> None:
        """Start the first actor of an attempt if Ray has its nodes; ask anew if other nodes would do now."""
        unplaced = self._unplaced[ident]
        table = ray.util.placement_group_table(unplaced.group)
        if table.get("state") == "CREATED":
            del self._unplaced[ident]
            self._hand_over(unplaced, list(table["bundles_to_node_id"].values()))
        elif time.monotonic() - unplaced.since > LOOK_SECONDS:
            unplaced.state = str(table.get("stats", {}).get("scheduling_state", ""))
            unplaced.since = time.monotonic()
            if self._is_better(unplaced) or table.get("state") == "REMOVED":
                ray.util.remove_placement_group(unplaced.group)
                self._unplaced[ident] = self._ask(unplaced.task)

    def _is_better(self, unplaced: _Unplaced) -> bool:
        """Return whether nodes as they are now would be asked for in other shares."""
        return self._request(unplaced.task).sizes != unplaced.request.sizes

    def _hand_over(self, unplaced: _Unplaced, node_ids: list[str]) -> None:
        task, ident = unplaced.task, unplaced.task.allocation_id
        if not {node.id for node in self._nodes}.issuperset(node_ids):  # one has just come
            self._looked_at = 0.0
            self._look()
        known = {node.id: node for node in self._nodes}
        if not known.keys() >= set(node_ids):  # one has just gone
            ray.util.remove_placement_group(unplaced.group)
            self._unplaced[ident] = self._ask(task)
            return
        found = [known[node_id] for node_id in node_ids]
        place = Place(
            rank=0,
            nodes=[node.name for node in found],
            addresses=["127.0.0.1"] if len(found) == 1 else [node.address for node in found],
            slot_ids=[[""] * size for size in unplaced.request.sizes],
            secret=secrets.token_hex(32) if len(found) > 1 else "",
            marks=self._marks_of(task),
            controller=_process.this_node(),
            settings=self.settings(),
        )
        told = dataclasses.replace(task, place=place, config=self._config_of(task))
        name = self._name(ident)
        actor = _options(name, unplaced.group, unplaced.request, 0, lifetime="detached").remote()
        self._actors[ident] = actor
        self._ends[ident] = actor.run.remote(told.to_json(), unplaced.group, unplaced.request, name)

    def _marks_of(self, task: TaskSpec) -> dict[str, str]:
        from determined.experiment.attempt import probe

        storage = task.config.get("checkpoint_storage") or {}
        key = json.dumps(storage, sort_keys=True)
        if key not in self._marks:
            self._marks[key] = probe.mark(storage, self._home, task.store_id)
        return self._marks[key]

    def _config_of(self, task: TaskSpec) -> dict[str, Any]:
        """Return the config with the place of checkpoints: on a node the default would be in its own data directory."""
        from determined.experiment.attempt import probe

        storage = task.config.get("checkpoint_storage") or {}
        if not probe.is_directory(storage) or storage.get("container_path") or storage.get("host_path"):
            return task.config
        where = {"type": "directory", "container_path": str(self._home / "checkpoints")}
        return {**task.config, "checkpoint_storage": {**storage, **where}}

    # What became of it.

    def _find(self, ident: str) -> bool:
        """Find the actor of an attempt that an earlier controller started; return whether it lives."""
        try:
            actor = ray.get_actor(self._name(ident), namespace=NAMESPACE)
        except ValueError:
            return False
        self._actors[ident], self._ends[ident] = actor, actor.wait.remote()
        return True

    def _is_over(self, ident: str) -> bool:
        """Return whether an actor that has answered is gone. One that Ray cannot reach may still be there."""
        try:
            if ray.get(self._ends[ident]):
                self._lost[ident] = NO_AGENT
        except ray.exceptions.ActorUnavailableError:
            self._ends[ident] = self._actors[ident].wait.remote()
            return False
        except ray.exceptions.RayError as lost:
            self._lost[ident] = str(lost).strip()
        self._give_back(ident)
        return True

    def _judge(self, attempt: AttemptRow, why: str) -> None:
        """Record an attempt that could not even start as failed: it is no lost node, and must not be tried for ever."""
        from determined.experiment.attempt import exit_record
        from determined.store import attempts

        with self._store.read() as conn:
            row = attempts.get(conn, attempt.allocation_id)
        if row.state == "TERMINATED":
            return
        if row.pid is not None:
            logger.warning("%s: %s", row.allocation_id, "its agent is gone" if why == NO_AGENT else why.splitlines()[0])
        elif "creation task" in why or why == NO_AGENT:
            cause = why.splitlines()[-1].strip().rstrip(".")
            exit_record.refuse(self._store, row, f"{cause}. Install the same resolute on every node")

    def _give_back(self, ident: str) -> None:
        """Have Ray end the actors of an attempt, and free its nodes."""
        self._unplaced.pop(ident, None)
        self._ends.pop(ident, None)
        self._actors.pop(ident, None)
        with contextlib.suppress(ValueError, ray.exceptions.RayError):
            ray.util.remove_placement_group(ray.util.get_placement_group(self._name(ident)))

    def _name(self, ident: str) -> str:
        return f"{self._store.id[:8]}-{ident}"


@dataclasses.dataclass
class _Unplaced:
    """An attempt that waits for nodes."""

    task: TaskSpec
    request: placement.Request
    group: Any
    since: float = dataclasses.field(default_factory=time.monotonic)
    state: str = ""

    def reason(self) -> str:
        noun = placement.KIND_OF[self.task.slot_kind] + (" slot" if self.task.slots == 1 else " slots")
        where = " on one node" if self.request.strategy == "STRICT_PACK" else ""
        pool = pool_of(self.task.config.get("resources") or {})
        which = f" of the resource pool {pool}" if pool else ""
        why = "no node of the cluster has as many" if self.state == "INFEASIBLE" else "others use them"
        return f"It waits for {self.task.slots} {noun}{which}{where}: {why}."


class NodeActor:
    """Runs the agent of one node, and on the first node of an attempt directs the others. An asynchronous Ray actor."""

    def __init__(self) -> None:
        self._agent = AgentProcess(self._lost_node)
        self._others: dict[str, Any] = {}  # the actors of the other nodes, by the names of those
        self._is_over: asyncio.Event | None = None
        self._orphaned = threading.Timer(TASK_SECONDS, os._exit, (1,))
        self._orphaned.daemon = True
        self._orphaned.start()

    async def devices(self, slots: int, kind: str) -> list[str]:
        """Return the devices that Ray has given to this node's part of an attempt."""
        if kind == "cuda" and slots:
            return [str(ident) for ident in ray.get_gpu_ids()]
        return [str(number) for number in range(slots)]

    async def run(self, text: str, group: Any, request: placement.Request, name: str) -> int:
        """Run an attempt, of which this is the first node, to its end; return 0 if its agent has recorded that."""
        self._orphaned.cancel()
        self._is_over = asyncio.Event()
        try:
            task = TaskSpec.from_json(text)
            assert task.place is not None
            self._others = {
                node: _options(f"{name}.{rank}", group, request, rank).remote()
                for rank, node in enumerate(task.place.nodes[1:], 1)
            }
            given = [
                actor.devices.remote(size, task.slot_kind)
                for actor, size in zip(self._others.values(), request.sizes[1:], strict=True)
            ]
            ids = [await self.devices(request.sizes[0], task.slot_kind), *[await ref for ref in given]]
            place = dataclasses.replace(task.place, slot_ids=ids, port=_free_port())
            return await self._run_all(dataclasses.replace(task, place=place))
        finally:
            self._is_over.set()
            threading.Timer(1.0, ray.util.remove_placement_group, (group,)).start()  # which ends this process, too

    async def run_part(self, text: str) -> int:
        """Run this node's part of an attempt, of which it is not the first node; return the exit code."""
        self._orphaned.cancel()
        return await self._run_agent(TaskSpec.from_json(text))

    async def wait(self) -> None:
        """Return when the attempt has ended; at once if this actor was never given any."""
        if self._is_over is not None:
            await self._is_over.wait()

    async def is_well(self) -> bool:
        """Answer, which a node that is lost does not; and return whether the agent was not killed."""
        return self._agent.is_well

    async def kill(self) -> None:
        """End the processes of all nodes now; the agent of the first records the end."""
        for actor in self._others.values():
            actor.kill.remote()
        self._agent.kill()

    async def _run_all(self, task: TaskSpec) -> int:
        assert task.place is not None
        places = [dataclasses.replace(task.place, rank=rank) for rank in range(len(task.place.nodes))]
        own = asyncio.ensure_future(self._run_agent(dataclasses.replace(task, place=places[0])))
        parts: dict[asyncio.Future[int], Place] = {
            asyncio.ensure_future(
                _answer(actor.run_part.remote(dataclasses.replace(task, place=place).to_json()))
            ): place
            for actor, place in zip(self._others.values(), places[1:], strict=True)
        }
        going: set[asyncio.Future[int]] = {own, *parts}
        while not own.done():
            ended, going = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
            for part in ended - {own}:
                await self._judge(part, parts[part].node)
        if parts:
            await asyncio.wait(parts, timeout=LEAVE_SECONDS)
            for actor in self._others.values():
                actor.kill.remote()
            await asyncio.wait(parts, timeout=LEAVE_SECONDS)
        return own.result()

    async def _judge(self, part: asyncio.Future[int], node: str) -> None:
        """End the attempt if another node has failed, or is lost."""
        if (failed := part.exception()) is not None:
            logger.warning("%s: %s", node, failed)
            self._agent.tell({"reason": f"node {node} is lost"})
        elif code := part.result():
            lost = await self._lost_node()
            self._agent.tell(lost or {"reason": f"node {node} ended with exit code {code}", "code": code})

    async def _lost_node(self) -> dict[str, Any]:
        """Return the order to end the attempt if another node is lost: ranks may notice that long before Ray does."""
        for node, actor in self._others.items():
            try:
                is_well = await actor.is_well.remote()
            except ray.exceptions.RayError:
                is_well = False
            if not is_well:
                return {"reason": f"node {node} is lost"}
        return {}

    async def _run_agent(self, task: TaskSpec) -> int:
        assert task.place is not None
        threads = _threads(task, len(task.place.slot_ids[task.place.rank]))
        around = {name: value for name, value in os.environ.items() if not name.startswith(RAY_SETS)}
        return await self._agent.run(task, threads, around)


def connect() -> None:
    """Connect this process to the cluster that `RAY_ADDRESS` names, by default the one on this machine."""
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS") or "auto"
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(HEAD_SECONDS))
    try:
        _reach(address)
        # The last lines of a raylet that died are in Ray's own log.
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.CRITICAL)
    except ray.exceptions.AuthenticationError as failed:
        raise errors.ConfigError(
            "Ray needs a token, and none was found here. Copy ~/.ray/auth_token from another node; or make the first "
            "with `ray get-auth-token --generate` and start Ray with RAY_AUTH_MODE=token. RAY_AUTH_MODE=disabled goes "
            "without: then anybody who reaches the cluster can run code on it."
        ) from failed
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as failed:
        place = "on this machine" if address == "auto" else f"at RAY_ADDRESS={address}"
        cause = str(failed).strip().splitlines()[0]
        raise errors.ConfigError(
            f"No Ray cluster was found {place} ({cause}). Start one with: ray start --head"
        ) from failed


def _reach(address: str) -> None:
    """Fail soon if nobody listens there; Ray itself would try for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if port.isdigit():
        socket.create_connection((host, int(port)), timeout=REACH_SECONDS).close()


def _options(name: str, group: Any, request: placement.Request, rank: int, **options: Any) -> Any:
    """Return the actor of one node, to be started with what its bundle of the placement group holds."""
    resources = dict(request.bundles[rank])
    return ray.remote(NodeActor).options(
        name=name,
        namespace=NAMESPACE,
        num_cpus=resources.pop("CPU", 0),
        num_gpus=resources.pop("GPU", 0),
        resources=resources,
        max_restarts=0,
        max_task_retries=0,
        scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank),
        **options,
    )


async def _answer(ref: Any) -> int:
    return int(await ref)


def _available() -> dict[str, dict[str, float]]:
    from ray._private.state import available_resources_per_node  # there is no public way that needs no dashboard

    return dict(available_resources_per_node())


def _threads(task: TaskSpec, slots: int) -> int:
    """Return how many CPU threads the trial may use on this node: its CPUs, or its share of them for its GPUs."""
    if task.slot_kind == "cpu":
        return max(1, slots)
    return max(1, (os.cpu_count() or 1) * slots // max(1, len(ray.get_gpu_ids()) or slots))


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])
