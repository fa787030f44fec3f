"""Matches of log policies: the first line of a task that matched each pattern."""

from __future__ import annotations

import dataclasses
import datetime

import sqlalchemy as sa

from determined.store import trials
from determined.store.attempts import Attempt
from determined.store.messages import now
from determined.store.schema import log_policy_hits, tasks

EXCLUDE_NODE = "exclude_node"
SEPARATOR = "\n"  # between names of nodes


@dataclasses.dataclass(frozen=True)
class PolicyHit:
    """The first line that matched a pattern. `node` names all nodes where one did, if the policy excludes them."""

    task_id: str
    pattern: str
    name: str | None
    action: str | None
    node: str
    line: str
    time: datetime.datetime


def record(
    conn: sa.Connection,
    attempt: Attempt,
    *,
    pattern: str,
    line: str,
    name: str | None = None,
    action: str | None = None,
    node: str = "",
) -> bool:
    """Record a match, unless one of this pattern is known for the task. The trial's label is the newest match's name.

    Returns:
        Whether it is the first.
    """
    if name is not None:
        trials.update(conn, attempt.trial_id, log_policy_matched=name)
    same = sa.and_(log_policy_hits.c.task_id == attempt.task_id, log_policy_hits.c.pattern == pattern)
    nodes = conn.scalar(sa.select(log_policy_hits.c.node).where(same))
    if nodes is not None:
        if action == EXCLUDE_NODE and node not in nodes.split(SEPARATOR):
            conn.execute(log_policy_hits.update().where(same).values(node=f"{nodes}{SEPARATOR}{node}"))
        return False
    row = {
        "task_id": attempt.task_id,
        "pattern": pattern,
        "name": name,
        "action": action,
        "node": node,
        "line": line,
        "time": now(),
    }
    conn.execute(log_policy_hits.insert().values(row))
    return True


def excluded_nodes(conn: sa.Connection, task_id: str) -> list[str]:
    """Return the nodes that a policy bars from later attempts of a task."""
    hits = [hit for hit in of_task(conn, task_id) if hit.action == EXCLUDE_NODE]
    return sorted({node for hit in hits for node in hit.node.split(SEPARATOR)})


def of_task(conn: sa.Connection, task_id: str) -> list[PolicyHit]:
    """Return the matches of a task, oldest first."""
    return _hits(conn, log_policy_hits.c.task_id == task_id)


def of_trial(conn: sa.Connection, trial_id: int) -> list[PolicyHit]:
    """Return the matches of all tasks of a trial, oldest first."""
    mine = sa.select(tasks.c.task_id).where(tasks.c.trial_id == trial_id)
    return _hits(conn, log_policy_hits.c.task_id.in_(mine))


def _hits(conn: sa.Connection, which: sa.ColumnElement[bool]) -> list[PolicyHit]:
    query = sa.select(log_policy_hits).where(which).order_by(log_policy_hits.c.time)
    return [PolicyHit(**row) for row in conn.execute(query).mappings()]
