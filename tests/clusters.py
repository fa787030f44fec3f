"""A controller of a Ray cluster, as its row in the store: nothing runs."""

from __future__ import annotations

from collections.abc import Mapping

from determined.experiment.slots import Node, Slots
from determined.store import schema
from determined.store.control import controllers
from tests.history import History

NODES = (Node("one", "10.0.0.1", 2, ("fast",)), Node("two", "10.0.0.2", 1), Node("three", "10.0.0.3", 0))
ENVIRONMENT = {"DET_LAUNCHER": "ray", "RAY_ADDRESS": "10.0.0.1:6379"}
NOBODY = 2**30  # no process has this id


def drive(
    history: History, found: Slots | None = None, *, waiting: Mapping[int, str] | None = None, is_alive: bool = True
) -> Slots:
    """Write the row of a controller that drives a cluster of three nodes; one of them has no slot."""
    found = found or Slots.of_nodes("cpu", NODES)
    reasons = {str(trial): reason for trial, reason in (waiting or {}).items()}
    info = {"slots": len(found), "cluster": found.to_json(), "waiting": reasons, "environment": ENVIRONMENT}
    with history.store.write() as conn:
        assert controllers.take(conn, "me", launcher="ray", info=info)
        if not is_alive:
            conn.execute(schema.controllers.update().values(pid=NOBODY))
    return found
