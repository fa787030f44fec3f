"""The same promises on PostgreSQL: what the SDK does with rows, run against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.client import Determined, ExperimentSortBy, OrderBy, TrialSortBy
from tests.history import History
from tests.stores import PostgresServer
from tests.unit.client.test_checkpoint import test_metadata, test_metrics_of_a_checkpoint  # noqa: F401
from tests.unit.client.test_compare import test_two_runs_of_a_store  # noqa: F401
from tests.unit.client.test_experiment import (  # noqa: F401
    test_checkpoints_best_first,
    test_checkpoints_in_another_order,
    test_delete_and_undelete,
    test_edits,
    test_list_experiments,
    test_top_checkpoints_are_of_distinct_trials,
    test_trials,
    test_wait,
)
from tests.unit.client.test_logs import test_filters, test_following_a_running_trial, test_head_and_tail  # noqa: F401
from tests.unit.client.test_model import (  # noqa: F401
    test_list_models,
    test_registered_checkpoints_stay,
    test_versions_are_never_reused,
    test_workspaces_and_projects,
)
from tests.unit.client.test_retention import (  # noqa: F401
    test_vectors,
    test_what_a_trial_started_from_stays,
    test_what_would_be_resumed_stays,
)
from tests.unit.client.test_store import test_what_was_deleted_goes_for_good  # noqa: F401
from tests.unit.client.test_trial import (  # noqa: F401
    test_curve,
    test_metrics_in_order_of_steps,
    test_metrics_of_several_trials,
    test_stop_asks_the_process_to_leave,
)


@pytest.fixture
def history(postgres: PostgresServer, tmp_path: Path) -> Iterator[History]:
    url = postgres.database()
    with History(tmp_path, url) as made:
        yield made
    postgres.empty(url)


def test_every_order_works(history: History, runs: Determined) -> None:
    """7.6: each ExperimentSortBy and TrialSortBy is an order that the store has."""
    run = history.run()
    for order in ExperimentSortBy:
        (experiment,) = runs.list_experiments(sort_by=order, order_by=OrderBy.DESC)
    for by in TrialSortBy:
        assert [trial.id for trial in experiment.list_trials(by)] == [run.trial_id]
