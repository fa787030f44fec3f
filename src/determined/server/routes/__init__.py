"""Routes under /api/v1, one module per noun."""

from __future__ import annotations

from determined.server.routes import (
    checkpoints,
    code,
    comparisons,
    curves,
    events,
    experiments,
    logs,
    overview,
    projects,
    registry,
    searches,
    submissions,
    tables,
    tensorboards,
    trials,
)

ROUTERS = [
    checkpoints.router,
    code.router,
    comparisons.router,
    curves.router,
    events.router,
    experiments.router,
    logs.router,
    overview.router,
    projects.router,
    registry.router,
    searches.router,
    submissions.router,
    tables.router,
    tensorboards.router,
    trials.router,
]
