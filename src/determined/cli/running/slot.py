"""`det slot`: the devices of this machine that trials are given, and which trial has each."""

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


@click.group(cls=Group, default="list")
def slot() -> None:
    """Slots: the devices of this machine that trials are given. DET_SLOTS=2 says how many there are."""


@slot.verb("list", "ls")
@options.forms
def list_slots(form: str) -> None:
    """List the slots, and what each is in use by."""
    found = connect().list_slots()
    rows = [[s.id, s.device, s.node, s.experiment_id, s.trial_id, s.attempt, s.state or "FREE"] for s in found]
    Table(SLOT, rows).show(form)
    used = sum(each.trial_id is not None for each in found)
    if form == "table":
        terminal.say(f"{used} of {len(found)} {'slot' if len(found) == 1 else 'slots'} in use.")
