"""The slots that trials are given, of this machine or of a cluster, and whether an experiment fits.

Nothing here loads torch or Ray.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from determined.errors import ConfigError
from determined.experiment.config.problems import Problem, refusal

if TYPE_CHECKING:
    from determined.experiment.config.experiment_config import ExperimentConfig

logger = logging.getLogger("determined.experiment")
MOST_CPU_SLOTS = 4
DEFAULT_POOL = "default"
NEW_NODE = "a new node"
"""Stands for the nodes that a cluster may grow by."""


@dataclass(frozen=True)
class Node:
    """One node of a cluster.

    Attributes:
        name: What people call it.
        address: How others reach it.
        slots: How many slots it has.
        pools: The resource pools that it belongs to.
    """

    name: str
    address: str
    slots: int
    pools: tuple[str, ...] = ()


@dataclass(frozen=True)
class Slots:
    """The devices that trials are given.

    Attributes:
        kind: `cuda` or `cpu`.
        devices: What each slot is called: the names that `CUDA_VISIBLE_DEVICES` takes, or numbers; on a cluster
            `<node>/<number>`.
        nodes: The nodes of a cluster; none on one machine.
        may_grow: Whether nodes come by themselves when they are needed.
    """

    kind: Literal["cuda", "cpu"]
    devices: tuple[str, ...]
    nodes: tuple[Node, ...] = ()
    may_grow: bool = False

    def __len__(self) -> int:
        return len(self.devices)

    @classmethod
    def of_nodes(cls, kind: Literal["cuda", "cpu"], nodes: Sequence[Node], grows_to: int = 0) -> Slots:
        """Return the slots of a cluster's nodes, and of those that it grows by until there are `grows_to`."""
        names = [f"{node.name}/{number}" for node in nodes for number in range(node.slots)]
        more = [f"{NEW_NODE}/{number}" for number in range(grows_to - len(names))]
        return cls(kind, (*names, *more), tuple(nodes), bool(more))

    def usable(self, pool: str = "", excluded: Collection[str] = ()) -> tuple[str, ...]:
        """Return the slots of a pool's nodes without the excluded nodes, and those of nodes that may come."""
        if not self.nodes:
            return self.devices
        fits = {node.name for node in self.nodes if node.name not in excluded and (not pool or pool in node.pools)}
        return tuple(name for name in self.devices if node_of(name) in fits or node_of(name) == NEW_NODE)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Slots:
        """Return the slots that `to_json` wrote."""
        nodes = tuple(Node(**{**node, "pools": tuple(node["pools"])}) for node in values["nodes"])
        return cls(values["kind"], tuple(values["devices"]), nodes, values["may_grow"])


def pool_of(resources: Mapping[str, Any]) -> str:
    """Return the resource pool that a config asks for; empty if any node will do, as in the pool `default` of old."""
    pool = str(resources.get("resource_pool") or "")
    return "" if pool == DEFAULT_POOL else pool


def node_of(slot: str) -> str:
    """Return the node that a slot of a cluster belongs to; empty for a slot of this machine."""
    return slot.rpartition("/")[0]


def pick(free: Sequence[str], wanted: int, *, is_single_node: bool = False) -> tuple[str, ...] | None:
    """Return so many slots, on one node if they fit, there with the least to spare; else on few nodes; else None.

    Example::

        pick(["a/0", "b/0", "b/1"], 1)  # ("a/0",)
        pick(["a/0", "b/0", "b/1"], 3)  # ("b/0", "b/1", "a/0")
    """
    of: dict[str, list[str]] = {}
    for slot in free:
        of.setdefault(node_of(slot), []).append(slot)
    whole = [slots for slots in of.values() if len(slots) >= wanted]
    if whole:
        return tuple(min(whole, key=len)[:wanted])
    if wanted == 0:
        return ()
    if is_single_node or wanted > len(free):
        return None
    largest_first = sorted(of.values(), key=len, reverse=True)
    return tuple(slot for slots in largest_first for slot in slots)[:wanted]


def detect(
    setting: int | None = None, *, gpus: Callable[[], list[str]] | None = None, cores: int | None = None
) -> Slots:
    """Return the slots of this machine: as many as were set, else one per visible CUDA device, else some for the CPU.

    Args:
        setting: How many; by default `DET_SLOTS`, if that is set.
        gpus: Finds the visible CUDA devices.
        cores: How many cores there are.

    Example::

        detect(2).devices  # ("0", "1")
    """
    setting = from_environment() if setting is None else setting
    devices = (gpus or visible_gpus)()
    if setting is not None and (setting < 0 or (devices and setting > len(devices))):
        raise ConfigError(
            f"{setting} slots were asked for, and this machine has {len(devices)} visible GPUs. "
            "Ask for at most that many, or hide the GPUs with CUDA_VISIBLE_DEVICES= to use CPU slots."
        )
    if devices:
        found = Slots("cuda", tuple(devices[:setting]))
    else:
        cores = cores or os.cpu_count() or 1
        count = max(1, min(MOST_CPU_SLOTS, cores // 2)) if setting is None else setting
        found = Slots("cpu", tuple(map(str, range(count))))
    logger.info("This machine has %d %s slots (%s).", len(found), found.kind, "found" if setting is None else "set")
    return found


def check(config: ExperimentConfig, available: Slots) -> list[str]:
    """Refuse an experiment whose trials would wait for ever; return what its user should know.

    Raises:
        ConfigError: A trial asks for more slots than there are, or for a pool that no node of the cluster belongs to.
    """
    resources = config.resources
    pool = pool_of({"resource_pool": resources.resource_pool})
    usable = available.usable(pool)
    if available.nodes and not usable:
        pools = sorted({pool for node in available.nodes for pool in node.pools})
        shown = (
            f"Known pools: {', '.join(pools)}." if pools else "Start nodes with: ray start --resources '{\"name\": 1}'"
        )
        reason = f"is {resources.resource_pool!r}, and no node of the cluster has that resource. {shown}"
        raise refusal([Problem("resources.resource_pool", reason)])
    wanted, most = resources.slots_per_trial, len(usable)
    where = ""
    if resources.is_single_node and available.nodes and not available.may_grow:
        counts = Counter(map(node_of, usable))
        most, where = max(counts.values()), " on the largest node, and is_single_node is true"
    if wanted > most:
        reason = f"is {wanted}, and there are {most} slots{where}. Ask for at most {most}."
        raise refusal([Problem("resources.slots_per_trial", reason)])
    if pool and not available.nodes:
        return [f"resources.resource_pool is {pool!r}; only the launcher ray has pools, local ignores it."]
    return []


def from_environment() -> int | None:
    """Return how many slots `DET_SLOTS` sets; None if it sets none."""
    text = os.environ.get("DET_SLOTS", "").strip()
    if text and not text.isdigit():
        raise ConfigError(f"DET_SLOTS is {text!r}, and has to be a number of slots, such as 2.")
    return int(text) if text else None


def visible_gpus() -> list[str]:
    """Return the names of the CUDA devices that a process started now would see."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        names = [name.strip() for name in chosen.split(",")]
        valid = []
        for name in names:  # as CUDA does: what follows an invalid name is hidden
            if not name or name.startswith("-"):
                break
            valid.append(name)
        return valid if valid and _all_gpus() else []
    return _all_gpus()


def _all_gpus() -> list[str]:
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in found.stdout.splitlines() if line.strip().isdigit()]
