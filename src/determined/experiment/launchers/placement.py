"""What to ask Ray for: bundles of resources for the slots of an attempt, on which nodes. Pure: Ray is not needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from determined.experiment.slots import Node, pick

KIND_OF = {"cuda": "GPU", "cpu": "CPU"}
"""What Ray calls the devices of each kind of slot."""
NO_POOL = ("CPU", "GPU", "memory", "object_store_memory", "bundle")
SHARE = 0.001
"""How much an attempt takes of a resource that only says where it may run."""


@dataclass(frozen=True)
class RayNode:
    """One node, as Ray describes it.

    Attributes:
        id: Ray's own id.
        name: What people call it: unique among the nodes.
        address: How other nodes reach it.
        machine: The name of the machine.
        slots: How many slots it has.
        free: How many of them Ray has not given away.
        pools: Its custom resources.
    """

    id: str
    name: str
    address: str
    machine: str
    slots: int
    free: int
    pools: tuple[str, ...]

    def shown(self) -> Node:
        """Return the node as people see it."""
        return Node(self.name, self.address, self.slots, self.pools)


@dataclass(frozen=True)
class Request:
    """A placement group.

    Attributes:
        bundles: Resources, one bundle for each node.
        sizes: Slots of each bundle.
        strategy: How Ray places the bundles.
        excluded: Ids of nodes that must not be used.
    """

    bundles: list[dict[str, float]]
    sizes: list[int]
    strategy: Literal["STRICT_PACK", "PACK", "STRICT_SPREAD"]
    excluded: tuple[str, ...] = ()

    def selectors(self) -> list[dict[str, str]]:
        """Return the labels that nodes must have, for each bundle."""
        selector = {"ray.io/node-id": f"!in({','.join(self.excluded)})"} if self.excluded else {}
        return [selector for _ in self.bundles] if selector else []


def kind_of(rows: Iterable[Mapping[str, Any]]) -> Literal["cuda", "cpu"]:
    """Return the kind of a cluster's slots: its GPUs if it has any, else its CPUs."""
    return "cuda" if any(row["Resources"].get("GPU") for row in rows) else "cpu"


def nodes_of(rows: Sequence[Mapping[str, Any]], available: Mapping[str, Mapping[str, float]]) -> list[RayNode]:
    """Return the nodes that live, ordered by name.

    Args:
        rows: What `ray.nodes()` returned.
        available: The resources of each node that are not given away.
    """
    alive = [row for row in rows if row["Alive"]]
    resource = KIND_OF[kind_of(alive)]
    names = Counter(_name(row) for row in alive)
    found = []
    for row in alive:
        name = _name(row)
        found.append(
            RayNode(
                id=row["NodeID"],
                name=name if names[name] == 1 else f"{name}-{row['NodeID'][:6]}",
                address=row["NodeManagerAddress"],
                machine=row["NodeManagerHostname"],
                slots=int(row["Resources"].get(resource, 0)),
                free=int(available.get(row["NodeID"], {}).get(resource, 0)),
                pools=tuple(sorted(key for key in row["Resources"] if key not in NO_POOL and ":" not in key)),
            )
        )
    return sorted(found, key=lambda node: node.name)


def request(
    nodes: Sequence[RayNode],
    slots: int,
    kind: str,
    *,
    pool: str = "",
    is_single_node: bool = False,
    excluded: Sequence[str] = (),
) -> Request:
    """Return what to ask for: one bundle if the slots fit on one node, else one for each of few nodes.

    What fits on the slots that are free now is preferred; else what fits when others are given back; else one bundle
    of all, for which a cluster that grows may start a node.
    """
    fit = [node for node in nodes if node.name not in excluded and (not pool or pool in node.pools)]
    sizes = _sizes(fit, "free", slots, is_single_node) or _sizes(fit, "slots", slots, is_single_node) or [slots]
    share = {pool: SHARE} if pool else {}
    resource = KIND_OF[kind]
    bundles = [{resource: float(size), **share} if size else {"CPU": SHARE, **share} for size in sizes]
    several: Literal["PACK", "STRICT_SPREAD"] = "PACK" if len(sizes) == 1 else "STRICT_SPREAD"
    barred = tuple(node.id for node in nodes if node.name in excluded)
    return Request(bundles, sizes, "STRICT_PACK" if is_single_node else several, barred)


def _sizes(nodes: Sequence[RayNode], attribute: str, slots: int, is_single_node: bool) -> list[int]:
    """Return how many slots each node gives, largest first; none if they do not fit."""
    names = [f"{node.id}/{number}" for node in nodes for number in range(getattr(node, attribute))]
    picked = pick(names, slots, is_single_node=is_single_node)
    return sorted(Counter(name.rpartition("/")[0] for name in picked or ()).values(), reverse=True)


def _name(row: Mapping[str, Any]) -> str:
    return str(row.get("NodeName") or row["NodeManagerAddress"])
