"""`det slot`: the devices that trials are given, which trial has each, and the nodes of a cluster."""

from __future__ import annotations

import click

from determined.cli import options
from determined.cli.connection import connect
from determined.cli.groups import Group
from determined.cli.output import terminal
from determined.cli.output.table import Column, Table

SLOT = [
    Column("Slot", "id"),
    Column("Device"),
    Column("Node", rank=3),
    Column("Experiment", "experiment_id"),
    Column("Trial", "trial_id"),
    Column("Attempt", rank=2),
    Column("State", rank=1),
]
NODE = [Column("Node"), Column("Address"), Column("Slots"), Column("In use"), Column("Pools", rank=1)]


@click.group(cls=Group, default="list")
def slot() -> None:
    """Slots: the devices that trials are given, of this machine or of a Ray cluster.

    DET_SLOTS=2 says how many this machine has.
    """


@slot.verb("list", "ls")
@options.forms
def list_slots(form: str) -> None:
    """List the slots, and what each is in use by; of a Ray cluster, its nodes, too."""
    found = connect().occupancy()
    rows = [[s.id, s.device, s.node, s.experiment_id, s.trial_id, s.attempt, s.state or "FREE"] for s in found.slots]
    Table(SLOT, rows).show(form)
    if form != "table":
        return
    if found.nodes:
        terminal.write("\n")
        nodes = [[n.name, n.address, n.slots, n.slots_used, ", ".join(n.pools) or None] for n in found.nodes]
        Table(NODE, nodes, "Nodes").show()
    used, count = sum(each.trial_id is not None for each in found.slots), len(found.slots)
    more = f" The cluster grows to {found.grows_to} slots." if found.grows_to else ""
    terminal.say(f"{used} of {count} {'slot' if count == 1 else 'slots'} in use.{more}")
