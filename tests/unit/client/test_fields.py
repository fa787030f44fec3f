"""What the classes of the SDK declare for editors and type checkers is what they have, which comes from a row."""

from __future__ import annotations

import dataclasses

import pytest

from determined.client import Checkpoint, Experiment, Trial
from determined.store.checkpoints import CheckpointRow
from determined.store.experiments import ExperimentRow
from determined.store.trials import TrialRow


@pytest.mark.parametrize(
    ("shown", "row", "renamed"),
    [
        (Experiment, ExperimentRow, {}),
        (Trial, TrialRow, {}),
        (Checkpoint, CheckpointRow, {"steps": "steps_completed"}),
    ],
)
def test_declared_fields_are_there(shown: type, row: type, renamed: dict[str, str]) -> None:
    """7.1: a field that is taken out of a row, or renamed there, may not stay behind as a promise."""
    there = {renamed.get(field.name, field.name) for field in dataclasses.fields(row)}
    assert set(shown.__annotations__) - there == set()
