"""Slots and nodes, and which trial holds each: of this machine, or of the cluster that the controller drives."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

from determined import _process, store
from determined.client._session import Session

if TYPE_CHECKING:
    from determined.experiment.slots import Slots
    from determined.store.overview.running import Launch


@dataclasses.dataclass(frozen=True)
class Slot:
    """One slot, and the attempt that holds it, if one does."""

    id: str
    device: str
    node: str
    experiment_id: int | None = None
    trial_id: int | None = None
    attempt: int | None = None
    state: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class NodeUse:
    """One node of a cluster.

    Args:
        name: What people call it.
        address: How others reach it.
        slots: How many slots it has.
        slots_used: How many of them trials hold.
        pools: The resource pools that it belongs to.
    """

    name: str
    address: str
    slots: int
    slots_used: int
    pools: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Occupancy:
    """What there is, and what of it is in use.

    Args:
        slots: Every slot, and those that trials hold elsewhere.
        nodes: The nodes of the cluster; none if trials run on one machine.
        grows_to: How many slots a cluster that grows by itself may have; None if it does not.
    """

    slots: list[Slot]
    nodes: list[NodeUse]
    grows_to: int | None = None


def occupancy(session: Session, found: Slots | None = None) -> Occupancy:
    """Return the slots and nodes, and which trial holds each.

    Args:
        session: The store.
        found: The slots that there are, for those who ask often: finding out may start a program.
    """
    from determined.experiment.launchers import choice

    found = choice.shown_slots(session.store) if found is None else found
    with session.read() as conn:
        holding = store.overview.running.holding_slots(conn)
    slots = _slots(found, holding)
    used = Counter(slot.node for slot in slots if slot.trial_id is not None)
    nodes = [NodeUse(n.name, n.address, n.slots, used[n.name], list(n.pools)) for n in found.nodes]
    return Occupancy(slots, nodes, len(found) if found.may_grow else None)


def _slots(found: Slots, holding: list[Launch]) -> list[Slot]:
    from determined.experiment.slots import NEW_NODE, node_of

    here = _process.this_node()
    known = {each: Slot(each, _device(found.kind, each), node_of(each) or here) for each in found.devices}
    free = {each: slot for each, slot in known.items() if slot.node != NEW_NODE}
    held: list[Slot] = []
    for launch in holding:
        for ident in map(str, launch.slot_ids):
            node = node_of(ident) or launch.node or here
            device = ident
            if ident in known and known[ident].node == node:  # slots of another machine have the same numbers
                device = known[ident].device
                free.pop(ident, None)
            held.append(Slot(ident, device, node, launch.experiment_id, launch.trial_id, launch.attempt, launch.state))
    order = {device: place for place, device in enumerate(found.devices)}
    return sorted([*held, *free.values()], key=lambda slot: (order.get(slot.id, len(order)), slot.id))


def _device(kind: str, ident: str) -> str:
    return f"GPU {ident.rpartition('/')[2]}" if kind == "cuda" else "CPU"
