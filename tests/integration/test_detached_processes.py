"""Many processes, started by somebody else's scheduler, report to one experiment at once."""

from __future__ import annotations

import json
import logging
import os
import traceback
from pathlib import Path
from typing import Any

import pytest

from determined.core.recording import run_rows  # noqa: F401  loaded once, before the processes are forked
from determined.experimental import core_v2
from tests import records

WORKERS = 8


def report(number: int) -> list[int]:
    """What a worker does; return what it was told: ids, attempt, steps."""
    config = core_v2.Config(
        name="rush",
        workspace="team",
        project="rush",
        labels=["x"],
        hparams={"number": number},
        searcher={"name": "single", "metric": "loss"},
        external_experiment_id="rush",
        external_trial_id=f"t{number}",
    )
    with core_v2.init_context(config=config) as context:
        assert context.info is not None
        trial, begun = context.info.trial, context.info.trial._steps_completed
        for step in range(begun + 1, begun + 4):
            context.train.report_validation_metrics(step, {"loss": number + 1 / step})
        with context.checkpoint.store_path({"steps_completed": begun + 3}) as (path, _):
            (path / "weights").write_text("x")
    return [trial.experiment_id, trial.trial_id, trial._trial_run_id, begun]


def work(number: int, gate: int, answer: Path) -> None:
    """Be a forked worker: wait for the gate, report, write down the answer and every warning, and exit."""
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("determined").addHandler(handler)
    try:
        os.read(gate, 1)  # returns when the parent opens the gate
        answer.write_text(json.dumps([report(number), warnings]))
    except BaseException:
        answer.write_text(json.dumps([[], [*warnings, traceback.format_exc()]]))
    finally:
        os._exit(0)


def rush(directory: Path) -> list[list[int]]:
    """Let all workers go at the same moment, and return what each was told. None has had to warn."""
    directory.mkdir()
    gate, opener = os.pipe()
    pids = []
    for number in range(WORKERS):
        if (pid := os.fork()) == 0:
            os.close(opener)
            work(number, gate, directory / str(number))
        pids.append(pid)
    os.close(opener)
    for pid in pids:
        os.waitpid(pid, 0)
    os.close(gate)
    answers: list[Any] = [json.loads((directory / str(number)).read_text()) for number in range(WORKERS)]
    assert [warnings for _, warnings in answers] == [[]] * WORKERS
    return [told for told, _ in answers]


def test_eight_processes_register_one_experiment(
    store_place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-70: eight workers that name one experiment at once are its eight trials; named again they go on, each its own.

    Without a warning, and the experiment has ended when the last of them has.
    """
    monkeypatch.setenv("DET_STORE", store_place)
    first = rush(tmp_path / "first")
    [experiment] = records.table("experiments", store_place)
    rows = {row["id"]: row for row in records.table("trials", store_place)}
    assert {ident for ident, *_ in first} == {experiment["id"]}
    assert [rows[trial_id]["external_trial_id"] for _, trial_id, _, _ in first] == [f"t{n}" for n in range(WORKERS)]
    assert [(attempt, begun) for _, _, attempt, begun in first] == [(1, 0)] * WORKERS
    assert (experiment["state"], experiment["best_trial_id"]) == ("COMPLETED", first[0][1])
    assert {row["name"] for row in records.table("projects", store_place)} == {"Uncategorized", "rush"}

    again = rush(tmp_path / "again")
    assert [told[:2] for told in again] == [told[:2] for told in first]
    assert [(attempt, begun) for _, _, attempt, begun in again] == [(2, 3)] * WORKERS
    rows = {row["id"]: row for row in records.table("trials", store_place)}
    assert {(row["state"], row["total_batches"]) for row in rows.values()} == {("COMPLETED", 6)}
    assert [row["state"] for row in records.table("experiments", store_place)] == ["COMPLETED"]
