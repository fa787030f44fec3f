"""Home, the queue, slots, and what the search box finds."""

from __future__ import annotations

import datetime

from determined.server.answers.common import Answer, Number, Question


class About(Answer):
    """Which server and store this is."""

    version: str
    user: str
    store: str  # without a password
    is_read_only: bool
    is_empty: bool  # no experiment was ever recorded
    time: datetime.datetime


class RunningExperiment(Answer):
    """An experiment that has not ended."""

    id: int
    name: str
    state: str
    owner: str
    project_id: int
    progress: float | None
    seconds_left: float | None
    slots: int
    start_time: datetime.datetime
    trial_count: int
    counts: dict[str, int]  # trials per state
    searcher_metric: str | None
    best_metric: Number | None
    single_trial_id: int | None  # its only trial, if it cannot have more
    spark: list[float | None]  # searcher metric of its best trial, at most 60 points


class EndedExperiment(Answer):
    """An experiment that has ended lately."""

    id: int
    name: str
    state: str
    owner: str
    project_id: int
    start_time: datetime.datetime
    end_time: datetime.datetime | None
    seconds: float
    trial_count: int
    searcher_metric: str | None
    best_metric: Number | None
    reason: str
    last_line: str  # of a failed one: the last line that it printed


class RecentProject(Answer):
    """A project in which something was trained lately."""

    id: int
    name: str
    workspace: str
    experiments: int
    last_start: datetime.datetime | None


class Home(Answer):
    """What runs now, what ended since a moment, what failed."""

    running: list[RunningExperiment]
    ended: list[EndedExperiment]
    failed: list[EndedExperiment]
    projects: list[RecentProject]
    slots_used: int
    slots_total: int
    time: datetime.datetime


class QueuedJob(Answer):
    """An experiment in the queue."""

    id: int
    name: str
    ahead: int | None  # how many get slots before it; None: it waits for nobody
    priority: int
    weight: float
    submitted: datetime.datetime
    slots_used: int
    slots_asked: int
    max_slots: int | None
    state: str
    owner: str
    waiting: str  # why trials wait for nodes of the cluster; empty if none does


class SlotAnswer(Answer):
    """One slot, and the trial that holds it."""

    id: str
    device: str
    node: str
    experiment_id: int | None
    trial_id: int | None
    attempt: int | None
    state: str | None


class NodeAnswer(Answer):
    """One node of the cluster, and how many of its slots are in use."""

    name: str
    address: str
    slots: int
    slots_used: int
    pools: list[str]


class ControllerAnswer(Answer):
    """The process that drives experiments."""

    is_alive: bool
    node: str | None
    pid: int | None
    since: datetime.datetime | None
    last_beat: datetime.datetime | None
    launcher: str | None
    slots: int | None
    slots_used: int
    experiments: int
    trials: int
    pending: int


class Queue(Answer):
    """The queue, the slots and the controller."""

    jobs: list[QueuedJob]
    slots: list[SlotAnswer]
    nodes: list[NodeAnswer]  # of the cluster; none if trials run on one machine
    controller: ControllerAnswer


class QueueChange(Question):
    """New place in the queue; fields that are left out stay. `max_slots` 0 means no limit."""

    priority: int | None = None
    weight: float | None = None
    max_slots: int | None = None


class Hit(Answer):
    """Something that the search box found."""

    kind: str  # experiment, trial, model, project
    id: int
    name: str
    state: str | None
    detail: str


class Hits(Answer):
    """What the search box found, the nearest first."""

    hits: list[Hit]
