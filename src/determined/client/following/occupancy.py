"""Slots and nodes, and which trial holds each: of this machine, or of the cluster that the controller drives."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

from determined import _process, store
from determined.client._session import Session
from determined.store.control import controllers

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
        launches = store.overview.running.holding_slots(conn)
        controller = controllers.current(conn)
    waiting = controller.waiting if controller else {}
    holding = [launch for launch in launches if launch.trial_id not in waiting]  # those that wait have nothing yet
    slots = _slots(found, holding)
    used = Counter(slot.node for slot in slots if slot.trial_id is not None)
    nodes = [NodeUse(n.name, n.address, n.slots, used[n.name], list(n.pools)) for n in found.nodes]
    return Occupancy(slots, nodes, len(found) if found.may_grow else None)


def _slots(found: Slots, holding: list[Launch]) -> list[Slot]:
    from determined.experiment.slots import NEW_NODE, node_of

    here = _process.this_node()
    known = {each: Slot(each, _device(found.kind, each), node_of(each) or here) for each in found.devices}
    free = {each: slot for each, slot in known.items() if slot.node != NEW_NODE}
    held = []
    pairs = [(str(ident), launch) for launch in holding for ident in launch.slot_ids]
    for ident, launch in sorted(pairs, key=lambda pair: pair[0] not in known):
        node = node_of(ident) or launch.node or here
        # A slot of another machine may have a number of ours; a cluster may number a slot past those of its node.
        name = ident if ident in free else next((each for each in free if node_of(each) == node), ident)
        slot = free.pop(name) if name in free and free[name].node == node else Slot(ident, ident, node)
        whose = (launch.experiment_id, launch.trial_id, launch.attempt, launch.state)
        held.append(Slot(slot.id, slot.device, node, *whose))
    order = {device: place for place, device in enumerate(found.devices)}
    return sorted([*held, *free.values()], key=lambda slot: (order.get(slot.id, len(order)), slot.id))


def _device(kind: str, ident: str) -> str:
    return f"GPU {ident.rpartition('/')[2]}" if kind == "cuda" else "CPU"
