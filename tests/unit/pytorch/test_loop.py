"""The order of training: what happens at which batch, and every way out of it. Eight records in batches of two."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from determined import core, errors, pytorch
from determined.pytorch import Batch, Epoch, ShouldExit, _loop
from tests.ranks import run_threads
from tests.trials import OneWeightTrial, Recorder, Run, managed, stored_state, train

pytestmark = pytest.mark.usefixtures("elsewhere")


class TestBoundaries:
    def test_batches_are_counted_from_the_beginning(self) -> None:
        """T1: six batches have indices 0 to 5, in epochs 0,0,0,0,1,1; the weight falls by what can be worked out."""
        run = train(max_length=Batch(6))
        assert [entry[:2] for entry in run.of("batch")] == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (5, 1)]
        assert run.data[:4] == [(1, 2), (3, 4), (5, 6), (7, 8)]
        assert run.trial.weight == -(1.5 + 3.5 + 5.5 + 7.5 + 1.5 + 3.5)

    def test_periods(self) -> None:
        """T2: a period of 2 validates at 2, 4, 6; one of 3 saves at 3, 6."""
        run = train(max_length=Batch(6), validation_period=Batch(2), checkpoint_period=Batch(3))
        assert run.at("validation") == [2, 4, 6]
        assert run.at("checkpoint") == [3, 6]

    def test_order_within_a_stop(self) -> None:
        """T3: metrics, then the hook, progress, the validation, the checkpoint."""
        run = train(max_length=Batch(6), validation_period=Batch(2), checkpoint_period=Batch(3), hooks={})
        named = ("training", "progress", "validation", "checkpoint")
        last = run.log[max(i for i, entry in enumerate(run.log) if entry[0] == "batch") :]
        order = [e[0] for e in last if e[0] in named] + [e[1] for e in last if e[1] == "on_training_workload_end"]
        assert order == [*named, "on_training_workload_end"]
        where = {e[0] if e[0] != "hook" else e[1]: i for i, e in enumerate(last)}
        assert where["training"] < where["on_training_workload_end"] < where["progress"] < where["on_validation_start"]
        assert where["validation"] < where["on_checkpoint_save_start"] < where["checkpoint"]
        assert run.at("progress")[-1] == 1.0

    def test_metrics_at_every_stop_progress_where_asked_for(self) -> None:
        """T4: metrics at 2, 4, 6; progress at 4 and at the end only."""
        run = train(max_length=Batch(6), reporting_period=Batch(4), validation_period=Batch(2))
        assert run.at("training") == [2, 4, 6]
        assert run.at("progress") == [4 / 6, 1.0]

    def test_one_checkpoint_where_two_are_due(self) -> None:
        """T5: VALIDATE and CHECKPOINT at one batch, policy all: one checkpoint, after the validation."""
        run = train(
            max_length=Batch(4), validation_period=Batch(4), checkpoint_period=Batch(4), checkpoint_policy="all"
        )
        assert [entry[0] for entry in run.log if entry[0] in ("validation", "checkpoint")] == [
            "validation",
            "checkpoint",
        ]

    def test_the_end_validates_and_saves(self) -> None:
        """T6: without periods there is one validation and one checkpoint, at the end."""
        run = train(max_length=Batch(3))
        assert (run.at("validation"), run.at("checkpoint")) == ([3], [3])

    def test_a_schedule(self) -> None:
        """T7: Batch([1, 3]) validates at 1 and 3, and the end at 4."""
        assert train(max_length=Batch(4), validation_period=Batch([1, 3])).at("validation") == [1, 3, 4]

    def test_zero_is_every_batch(self) -> None:
        """T8: Batch(0) validates after every batch."""
        assert train(max_length=Batch(3), validation_period=Batch(0)).at("validation") == [1, 2, 3]

    def test_periods_of_epochs(self) -> None:
        """T9: Epoch(1) validates at 4, and the end at 6."""
        assert train(max_length=Batch(6), validation_period=Epoch(1)).at("validation") == [4, 6]

    def test_an_epoch_in_which_nothing_is_due_is_no_stop(self) -> None:
        """4.5: a window ends where a boundary is reached, not at every epoch because some unit counts epochs."""
        run = train(max_length=Batch(17), validation_period=Epoch(2))
        assert run.at("training") == [8, 16, 17]

    def test_a_container_that_can_only_be_asked_is_no_stop_at_every_batch(self) -> None:
        """4.1, 4.5: a user's own schedule ends windows where it says so, and nowhere else."""

        class Squares:
            def __contains__(self, count: object) -> bool:
                return count in (1, 4)

        run = train(max_length=Batch(6), validation_period=Batch(Squares()))  # type: ignore[arg-type]
        assert run.at("training") == [1, 4, 6]

    def test_a_length_in_epochs(self) -> None:
        """T10: Epoch(2) trains 8 batches, and progress ends at 1.0."""
        run = train(max_length=Epoch(2))
        assert len(run.batches) == 8
        assert run.at("progress")[-1] == 1.0

    @pytest.mark.parametrize("length", [Batch(0), Epoch(0), Batch(-1)])
    def test_nothing_to_train(self, length: Any) -> None:
        """T11: nothing is trained, validated or saved; startup, training-start and shutdown hooks run."""
        run = train(max_length=length, hooks={}, step_zero_validation=True)
        assert {entry[0] for entry in run.log} == {"hook"}
        assert run.hooks() == ["on_trial_startup", "on_training_start", "on_trial_shutdown"]

    def test_validation_before_the_first_batch(self) -> None:
        """T15: step-zero validation is at count 0, before training, and is not saved, whatever the policy."""
        run = train(max_length=Batch(2), step_zero_validation=True, checkpoint_policy="all")
        assert run.at("validation") == [0, 2]
        assert run.at("checkpoint") == [2]
        first = [entry[0] for entry in run.log if entry[0] in ("validation", "batch")]
        assert first == ["validation", "batch", "batch", "validation"]

    def test_trying_a_trial(self) -> None:
        """T16: test mode trains one batch, evaluates one, and saves, whatever the length."""
        run = train(max_length=Epoch(5), test_mode=True, checkpoint_policy="best")
        assert run.batches == [0]
        assert run.at("evaluated") == [0]
        assert (run.at("progress"), run.at("checkpoint")) == ([0.0], [1])

    @pytest.mark.parametrize("length", [1, 5])
    def test_counters_are_added_to_reports(self, length: int) -> None:
        """T79: reports say how many batches and epochs are trained."""
        run = train(max_length=Batch(length))
        for what in ("training", "validation"):
            metrics = run.of(what)[-1][1]
            assert (metrics["batches"], metrics["epochs"]) == (length, length // 4)

    def test_metrics_of_these_names_are_the_users(self) -> None:
        """T79: `batches` and `epochs` that the user returns stand."""
        mine = {"batches": 70.0, "epochs": 7.0}
        run = train(max_length=Batch(2), trial={"returns": lambda _: mine, "evaluates": lambda _: mine})
        assert run.of("training")[-1][1] == mine
        assert run.of("validation")[-1][1] == mine


class TestData:
    def test_a_finite_loader_is_started_again(self) -> None:
        """T25: a torch loader of two batches trains five batches (W26)."""
        run = train(
            OpenTrial,
            {"training_loader": lambda: torch.utils.data.DataLoader(torch.ones(4, 1), 2)},
            max_length=Batch(5),
        )
        assert run.batches == [0, 1, 2, 3, 4]
        assert [entry[1] for entry in run.of("batch")] == [0, 0, 1, 1, 2]

    @pytest.mark.parametrize("which", ["training_loader", "validation_loader"])
    def test_other_loaders_are_refused(self, which: str) -> None:
        """T26: a plain torch loader without the opt-out is a RuntimeError that says what to do."""
        with pytest.raises(
            RuntimeError, match=f"build_{which[:-7]}_data_loader.*disable_dataset_reproducibility_checks"
        ):
            train(trial={which: lambda: torch.utils.data.DataLoader(torch.ones(4, 1))})

    @pytest.mark.parametrize("which", ["training_loader", "validation_loader"])
    def test_no_loader_at_all(self, which: str) -> None:
        """T26: with the opt-out, a forgotten return is a TypeError that names the method, before the first batch."""
        run = Run([])
        with pytest.raises(TypeError, match=rf"build_{which[:-7]}_data_loader\(\) returned None"):
            train(OpenTrial, {which: lambda: None}, run=run)
        assert not run.batches

    def test_a_stream_without_end_is_one_epoch(self, caplog: pytest.LogCaptureFixture) -> None:
        """T27: a loader without length has an epoch start, and no end; a period in epochs is said to be never."""

        class Endless(torch.utils.data.IterableDataset[torch.Tensor]):
            def __iter__(self) -> Any:
                while True:
                    yield torch.ones(1)

        run, ends = Run([]), []
        train(
            OpenTrial,
            {
                "training_loader": lambda: torch.utils.data.DataLoader(Endless(), batch_size=2),
                "does": lambda _: ends.append(run.context.is_epoch_end()),
            },
            run=run,
            hooks={},
            max_length=Batch(5),
            validation_period=Epoch(1),
        )
        assert [entry for entry in run.of("hook") if "epoch" in entry[0] and "training" in entry[0]] == [
            ("on_training_epoch_start", 0)
        ]
        assert ends == [False] * 5
        assert run.at("validation") == [5]
        assert "validation_period=Epoch(1) will never be reached" in caplog.text

    def test_data_that_is_empty_is_said_before_training(self) -> None:
        """An empty training set is a ValueError that names it; hooks are shut down."""
        run = Run([])
        with pytest.raises(ValueError, match=r"without a single batch.*nothing to train on"):
            train(run=run, trial={"records": 0}, hooks={})
        assert run.hooks() == ["on_trial_startup", "on_trial_shutdown"]

    def test_a_batch_is_a_few_calls_below_fit(self) -> None:
        """Style 2: fit() -> run -> train -> train_window -> train_batch; a traceback stays short."""
        depths: list[list[str]] = []
        train(trial={"does": lambda _: depths.append([f.name for f in traceback.extract_stack()])}, max_length=Batch(1))
        names = depths[0]
        inside = names[names.index("fit") + 1 : names.index("train_batch")]
        assert inside == ["_run", "run", "train", "train_window"]


class OpenTrial(OneWeightTrial):
    def __init__(self, context: Any, *args: Any, **options: Any) -> None:
        context.experimental.disable_dataset_reproducibility_checks()
        super().__init__(context, *args, **options)


class TestWaysOut:
    def test_a_stop_is_a_stop_at_the_next_boundary(self) -> None:
        """T17: asked for in batch 2 with a reporting period of 5: a checkpoint at 5, and no validation."""
        run = Run([])
        train(
            run=run,
            trial={"does": lambda b: run.context.set_stop_requested(True) if b == 2 else None},
            max_length=Batch(9),
            reporting_period=Batch(5),
        )
        assert run.batches == [0, 1, 2, 3, 4]
        assert (run.at("checkpoint"), run.at("validation")) == ([5], [])

    def test_a_stop_at_the_last_batch_still_validates(self) -> None:
        """T18, W27: what is due at the last batch happens, whoever asks for a stop."""
        run = Run([])
        train(run=run, trial={"does": lambda b: run.context.set_stop_requested(b == 3)}, max_length=Batch(4))
        assert (run.at("validation"), run.at("checkpoint")) == ([4], [4])

    def test_a_stop_leaves_nothing_of_its_boundary_undone(self) -> None:
        """W27: a stop that is seen at a boundary comes after the validation and the checkpoint that are due there."""
        run = Run([])
        train(
            run=run,
            trial={"does": lambda b: run.context.set_stop_requested(b == 1)},
            max_length=Batch(6),
            validation_period=Batch(2),
            checkpoint_period=Batch(2),
        )
        assert (run.at("validation"), run.at("checkpoint"), run.batches) == ([2], [2], [0, 1])

    def test_preemption_is_seen_after_every_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """W47: not at boundaries only; the checkpoint is of that very batch, and there is no final validation."""
        run = Run([])

        def ask(batch_idx: int) -> None:
            if batch_idx == 2:
                monkeypatch.setattr(run.context.core_context.preempt._signals, "received", True)

        train(run=run, trial={"does": ask}, max_length=Batch(1000))
        assert run.batches == [0, 1, 2]
        assert (run.at("training"), run.at("checkpoint"), run.at("validation")) == ([3], [3], [])

    def test_should_exit_saves_what_was_trained(self, home: Path) -> None:
        """T19, W56: raised at index 2: the checkpoint has 2 batches, the open window is reported, fit returns."""
        run = train(trial={"does": _raises(2, ShouldExit())}, hooks={})
        assert run.at("checkpoint") == [2]
        assert [(steps, len(batches)) for steps, _, batches in run.of("training")] == [(2, 2)]
        assert run.hooks()[-1] == "on_trial_shutdown"
        assert run.at("validation") == []

    def test_the_batch_of_should_exit_is_not_lost(self) -> None:
        """T19, decision 5: after the exit, the next run begins with the batch that raised."""
        straight = train(max_length=Batch(6), trial={"loader": {"shuffle": True}})
        first = train(max_length=Batch(6), trial={"loader": {"shuffle": True}, "does": _raises(2, ShouldExit())})
        second = train(max_length=Batch(6), trial={"loader": {"shuffle": True}}, latest_checkpoint=first.checkpoint)
        assert second.batches == [2, 3, 4, 5]
        assert first.data[:2] + second.data == straight.data
        assert second.trial.weight == straight.trial.weight

    def test_gradients_of_the_batch_that_left_do_not_count_twice(self) -> None:
        """T19: raised between backward and step, the batch is trained anew and counts once."""
        straight = train(max_length=Batch(4))
        first = train(LeavesAfterBackward, max_length=Batch(4))
        second = train(max_length=Batch(4), latest_checkpoint=first.checkpoint)
        assert second.batches == [2, 3]
        assert second.trial.weight == straight.trial.weight

    def test_should_exit_without_a_checkpoint(self) -> None:
        """T20: skip_exit_checkpoint saves nothing."""
        run = train(trial={"does": _raises(2, ShouldExit(skip_exit_checkpoint=True))}, hooks={})
        assert run.at("checkpoint") == []
        assert run.hooks()[-1] == "on_trial_shutdown"

    def test_should_exit_at_the_very_first_batch(self) -> None:
        """4.7: at batch 0 there is nothing to save."""
        run = train(trial={"does": _raises(0, ShouldExit())})
        assert (run.batches, run.at("checkpoint")) == ([0], [])

    @pytest.mark.parametrize(
        "problem", [ValueError("mine"), KeyboardInterrupt(), SystemExit(3), torch.OutOfMemoryError()]
    )
    def test_other_errors_pass_through(self, problem: BaseException) -> None:
        """T21: no checkpoint, shutdown hooks ran, the error is the user's own."""
        run = Run([])
        with pytest.raises(type(problem)) as caught:
            train(run=run, trial={"does": _raises(2, problem)}, hooks={})
        assert caught.value is problem
        assert run.at("checkpoint") == []
        assert run.hooks()[-1] == "on_trial_shutdown"

    def test_invalid_hyperparameters(self) -> None:
        """T23: InvalidHP in train_batch saves; leaving init() reports it and exits with 0."""
        run = Run([])
        with pytest.raises(SystemExit) as caught:
            train(run=run, trial={"does": _raises(2, errors.InvalidHP("too large"))}, hooks={})
        assert caught.value.code == 0
        assert run.at("checkpoint") == [2]
        assert run.at("early exit") == [core.EarlyExitReason.INVALID_HP]
        assert run.hooks()[-1] == "on_trial_shutdown"

    def test_invalid_hyperparameters_before_fit(self) -> None:
        """4.8: InvalidHP in the trial's constructor is reported, and exits with 0."""

        class Refuses(OneWeightTrial):
            def __init__(self, *args: Any, **options: Any) -> None:
                raise errors.InvalidHP("no")

        run = Run([])
        with pytest.raises(SystemExit) as caught:
            train(Refuses, run=run)
        assert caught.value.code == 0
        assert run.at("early exit") == [core.EarlyExitReason.INVALID_HP]

    @pytest.mark.parametrize("asynchronous", [False, True])
    @pytest.mark.parametrize(
        "hook", ["on_checkpoint_upload_end", "on_checkpoint_write_end", "on_checkpoint_save_start"]
    )
    def test_invalid_hyperparameters_in_a_hook_of_a_checkpoint(self, hook: str, asynchronous: bool) -> None:
        """T24: the early exit is reported, nothing more is saved, and fit returns."""
        run = train(
            hooks={hook: errors.InvalidHP("found late")},
            checkpoint_period=Batch(2),
            max_length=Batch(6),
            checkpoint_async=asynchronous,
        )
        assert run.at("early exit") == [core.EarlyExitReason.INVALID_HP]
        assert run.at("checkpoint") == ([2] if hook == "on_checkpoint_upload_end" else [])
        assert run.hooks()[-1] == "on_trial_shutdown"
        assert asynchronous or run.batches == [0, 1]

    def test_invalid_twice(self) -> None:
        """4.8: InvalidHP in training, and again from a hook of the checkpoint that follows: still a clean exit."""
        run = Run([])
        with pytest.raises(SystemExit) as caught:
            train(
                run=run,
                trial={"does": _raises(2, errors.InvalidHP("a"))},
                hooks={"on_checkpoint_upload_end": errors.InvalidHP("b")},
            )
        assert caught.value.code == 0
        assert run.at("checkpoint") == [2]

    @pytest.mark.parametrize(
        ("hook", "saved"),
        [
            ("on_training_start", []),
            ("on_training_epoch_start", []),
            ("on_training_epoch_end", [4]),
            ("on_training_workload_end", [2]),
            ("on_validation_start", [2]),
            ("on_validation_epoch_start", [2]),
            ("on_validation_epoch_end", [2]),
            ("on_validation_end", [2]),
            ("on_checkpoint_upload_end", [2]),
        ],
    )
    def test_should_exit_from_every_hook(self, hook: str, saved: list[int]) -> None:
        """4.8: ShouldExit raised in a hook saves what is not saved, and fit returns."""
        period = {} if hook == "on_training_epoch_end" else {"validation_period": Batch(2)}
        run = train(hooks={hook: ShouldExit()}, **period, checkpoint_policy="all")
        assert run.at("checkpoint") == saved
        assert run.hooks()[-1] == "on_trial_shutdown"

    @pytest.mark.parametrize("hook", ["state_dict", "on_checkpoint_save_start", "on_checkpoint_write_end"])
    def test_should_exit_from_within_a_checkpoint(self, hook: str, caplog: pytest.LogCaptureFixture) -> None:
        """4.8: a hook that leaves while a checkpoint is made, each time, leaves none, which is said; fit returns."""
        run = train(hooks={hook: ShouldExit()}, checkpoint_period=Batch(2))
        assert (run.batches, run.at("checkpoint")) == ([0, 1], [])
        assert "there is none of batch 2" in caplog.text

    def test_should_exit_once_from_within_a_checkpoint(self) -> None:
        """4.8: a hook that leaves only once does not lose the exit checkpoint."""
        left: list[int] = []

        def leave(_: Any) -> None:
            if not left:
                left.append(1)
                raise ShouldExit

        assert train(hooks={"on_checkpoint_save_start": leave}, checkpoint_period=Batch(2)).at("checkpoint") == [2]

    def test_a_hook_that_leaves_while_leaving(self) -> None:
        """4.8: ShouldExit in a batch, and again from the hook that sees the open window: saved all the same."""
        run = train(trial={"does": _raises(2, ShouldExit())}, hooks={"on_training_workload_end": ShouldExit(True)})
        assert run.at("checkpoint") == [2]

    def test_a_hook_that_leaves_when_the_last_checkpoint_is_stored(self) -> None:
        """4.8: so it is when the exit checkpoint is written in the background."""
        run = train(
            trial={"does": _raises(2, ShouldExit())},
            hooks={"on_checkpoint_upload_end": ShouldExit()},
            checkpoint_async=True,
        )
        assert run.at("checkpoint") == [2]

    def test_a_stop_of_one_rank_is_everybodys(self) -> None:
        """W19: any rank may ask; all learn of it at the same stop."""

        def body(distributed: core.DistributedContext) -> bool:
            wants = SimpleNamespace(distributed=distributed, get_stop_requested=lambda: distributed.rank == 1)
            preempt = core.PreemptContext(distributed)
            preempt._started = True  # without taking over the signals of the tests
            fit: Any = SimpleNamespace(context=wants, core=SimpleNamespace(preempt=preempt))
            return _loop.stop_requested(fit)

        assert run_threads(2, body) == [True, True]

    def test_counters_of_an_exit_at_an_epochs_end_agree(self, home: Path) -> None:
        """2.4: ShouldExit in on_training_epoch_end saves 4 batches and 1 epoch; a resume begins epoch 1."""
        run = train(hooks={"on_training_epoch_end": ShouldExit()})
        progress = stored_state(home, run.checkpoint)["progress"]
        assert (progress["batches_trained"], progress["epochs_trained"]) == (4, 1)
        again = train(hooks={}, latest_checkpoint=run.checkpoint)
        assert ("on_training_epoch_start", 1) in again.of("hook")
        assert again.trial.weight == -23

    @pytest.mark.parametrize(
        "hook",
        [
            "on_training_start",
            "on_training_epoch_start",
            "on_training_epoch_end",
            "on_training_workload_end",
            "on_validation_start",
            "on_validation_epoch_start",
            "on_validation_epoch_end",
            "on_validation_end",
            "state_dict",
            "on_checkpoint_save_start",
            "on_checkpoint_write_end",
            "on_checkpoint_upload_end",
            "on_trial_shutdown",
        ],
    )
    def test_errors_in_every_hook_pass_through(self, hook: str) -> None:
        """4.8: any other exception propagates as it is, without a further checkpoint, and others are shut down."""
        run, problem = Run([]), ZeroDivisionError("mine")
        callbacks = {"bad": Recorder(run.log, "bad", {hook: problem}), "good": Recorder(run.log, "good")}
        with pytest.raises(ZeroDivisionError) as caught:
            train(run=run, trial={"callbacks": callbacks}, validation_period=Batch(2), checkpoint_period=Batch(3))
        assert caught.value is problem
        assert run.hooks("good")[-1] == "on_trial_shutdown"
        assert run.hooks("bad")[-1] == "on_trial_shutdown"
        saved = {"on_training_epoch_end": [3], "on_checkpoint_upload_end": [3], "on_trial_shutdown": [3, 6]}
        assert run.at("checkpoint") == saved.get(hook, [])

    def test_a_second_problem_does_not_hide_the_first(self) -> None:
        """4.8: an error in a shutdown hook after an error in training: the first is the cause that is shown."""
        with pytest.raises(ZeroDivisionError) as caught:
            train(trial={"does": _raises(1, ValueError("first"))}, hooks={"on_trial_shutdown": ZeroDivisionError()})
        assert isinstance(caught.value.__context__, ValueError)

    def test_events_of_the_last_validation_are_uploaded(self) -> None:
        """W28: an upload follows the final validation and the final checkpoint."""
        assert _uploads_after_the_end(max_length=Batch(3)) == ["validation", "checkpoint", "upload"]

    def test_events_are_uploaded_after_an_exit(self) -> None:
        """W28: so it is after ShouldExit."""
        assert _uploads_after_the_end(trial={"does": _raises(2, ShouldExit())})[-1] == "upload"

    def test_without_tensorboard_nothing_is_uploaded(self, home: Path) -> None:
        """T87: logging off: no event file, no upload."""
        assert "upload" not in _uploads_after_the_end(init={"enable_tensorboard_logging": False})
        assert list(home.glob("tensorboard/**/*tfevents*")) == []

    def test_event_files_are_in_the_data_directory(self, home: Path) -> None:
        """Decision 3, W11: a plain run has event files, outside of the code."""
        train(max_length=Batch(2))
        assert list(home.glob("tensorboard/**/*tfevents*"))
        assert list(Path.cwd().iterdir()) == []


class LeavesAfterBackward(OneWeightTrial):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if batch_idx == 2:
            self.context.backward(self.model(batch).mean())
            raise ShouldExit
        return super().train_batch(batch, epoch_idx, batch_idx)


def _raises(at: int, problem: BaseException) -> Any:
    def does(batch_idx: int) -> None:
        if batch_idx == at:
            raise problem

    return does


def _uploads_after_the_end(**options: Any) -> list[str]:
    run = Run([])

    class Watched(OneWeightTrial):
        def __init__(self, context: Any, log: Any, **more: Any) -> None:
            upload = context.core_context.train.upload_tensorboard_files

            def uploading(*args: Any) -> None:
                log.append(("upload",))
                upload(*args)

            context.core_context.train.upload_tensorboard_files = uploading
            super().__init__(context, log, **more)

    train(Watched, run=run, **options)
    last = max(i for i, entry in enumerate(run.log) if entry[0] == "batch")
    found = [entry[0] for entry in run.log[last:] if entry[0] in ("validation", "checkpoint", "upload")]
    first = next((i for i, name in enumerate(found) if name != "upload"), 0)
    return found[first:]


class TestEqualCourses:
    """Decision 5: saving, validating and reporting never change the course of training."""

    @pytest.mark.parametrize(
        "schedule",
        [
            {"checkpoint_period": Batch(1)},
            {"checkpoint_period": Batch(1), "checkpoint_async": True},
            {"validation_period": Batch(1)},
            {"validation_period": Batch(1), "checkpoint_policy": "all"},
            {"reporting_period": Batch(1)},
            {"step_zero_validation": True},
        ],
        ids=lambda schedule: "+".join(schedule),
    )
    def test_bits_do_not_depend_on_the_schedule(self, schedule: dict[str, Any], home: Path) -> None:
        """T110, W59: the same weights, losses and random streams, even if every hook of a stop draws random numbers."""
        plain = _course({})
        busy = _course(schedule)
        assert plain["losses"] == busy["losses"]
        assert all(torch.equal(a, b) for a, b in zip(plain["weights"], busy["weights"], strict=True))
        assert torch.equal(plain["stream"], busy["stream"])

    def test_metrics_of_a_window_do_not_touch_the_users_dict(self) -> None:
        """W46: what train_batch returned stays the user's."""
        mine = {"loss": torch.ones(2)}
        train(max_length=Batch(3), trial={"returns": lambda _: mine})
        assert list(mine) == ["loss"]
        assert isinstance(mine["loss"], torch.Tensor)


class NoisyTrial(OneWeightTrial):
    """Dropout in training, and random numbers wherever a stop gives user code a chance."""

    def __init__(self, context: Any, log: Any, **options: Any) -> None:
        network = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        super().__init__(context, log, model=network, loader={"shuffle": True}, **options)
        self.losses: list[float] = []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = self.model(batch).square().mean() / 1000
        self.losses.append(loss.item())
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
        torch.rand(3)
        return {"loss": self.model(batch).mean()}


def _course(schedule: dict[str, Any]) -> dict[str, Any]:
    def draw(*_: Any, **__: Any) -> None:
        torch.rand(1)

    drawing = ["on_validation_start", "on_validation_end", "on_checkpoint_save_start", "on_checkpoint_write_end"]
    hooks = dict.fromkeys([*drawing, "on_checkpoint_upload_end", "on_validation_epoch_end"], draw)
    run = train(NoisyTrial, hooks=hooks, max_length=Batch(10), **schedule)
    weights = [parameter.detach().clone() for parameter in run.trial.model.parameters()]
    return {"losses": run.trial.losses, "weights": weights, "stream": torch.get_rng_state()}


class TestSpeed:
    def test_lengths_are_asked_for_only_if_somebody_looks(self) -> None:
        """W48: in training get_batch_length is called only for throughput, and may fail."""
        asked: list[str] = []

        class Counts(OneWeightTrial):
            def get_batch_length(self, batch: Any) -> int:
                asked.append("training" if self.model.training else "validation")
                raise TypeError("graphs have no length")

        train(Counts, max_length=Batch(2))
        assert set(asked) == {"validation"}
        run = train(Counts, max_length=Batch(2), profiling_enabled=True)
        assert "training" in asked
        assert run.at("checkpoint") == [2]

    def test_lines_for_those_who_wait(self, caplog: pytest.LogCaptureFixture) -> None:
        """8.4: a line per window and per validation; the schedule and the epoch's length at the start (W51)."""
        caplog.set_level(logging.INFO, "determined.pytorch")
        train(max_length=Batch(2), init={"exp_conf": {"records_per_epoch": 60}}, validation_period=Epoch(1))
        assert "Trained 2 batches" in caplog.text
        assert "Validated 8 records" in caplog.text
        assert "an epoch has 4 batches. Validation: Epoch(1)" in caplog.text
        assert "records_per_epoch has no effect" in caplog.text


class TestSeveralFits:
    def test_a_second_fit_counts_from_the_beginning(self) -> None:
        """W55: with the weights as they are, as documented."""
        with pytorch.init(seed=1) as context:
            log: list[Any] = []
            trial = OneWeightTrial(context, log)
            trainer = pytorch.Trainer(trial, context)
            trainer.fit(max_length=Batch(2), checkpoint_policy="none")
            trainer.fit(max_length=Batch(2), checkpoint_policy="none")
            assert [entry[1] for entry in log if entry[0] == "batch"] == [0, 1, 0, 1]
            assert trial.weight == -10

    def test_a_second_fit_goes_on_if_asked_to(self) -> None:
        """W55: latest_checkpoint="latest" continues in the same process."""
        with pytorch.init(seed=1) as context:
            log: list[Any] = []
            trial = OneWeightTrial(context, log)
            trainer = pytorch.Trainer(trial, context)
            trainer.fit(max_length=Batch(2))
            trainer.fit(max_length=Batch(4), latest_checkpoint="latest")
            assert [entry[1] for entry in log if entry[0] == "batch"] == [0, 1, 2, 3]
            assert trial.weight == -18

    def test_a_stop_of_the_first_fit(self) -> None:
        """3.8: the flag stays set until it is taken back, so a second fit stops at its first boundary."""
        with pytorch.init(seed=1) as context:
            log: list[Any] = []
            trial = OneWeightTrial(context, log)
            context.set_stop_requested(True)
            pytorch.Trainer(trial, context).fit(
                max_length=Batch(6), reporting_period=Batch(2), checkpoint_policy="none"
            )
            assert len([entry for entry in log if entry[0] == "batch"]) == 2

    def test_managed_or_not_the_loop_is_the_same(self) -> None:
        """Decision 3: a managed trial does what a plain one does."""
        options: dict[str, Any] = {"max_length": Batch(6), "validation_period": Batch(2), "hooks": {}}
        plain = train(**options)
        with managed():
            cluster = train(**options)

        def shape(run: Run) -> list[Any]:
            return [entry[:2] for entry in run.log if entry[0] != "hook" or entry[1] != "on_checkpoint_upload_end"]

        assert shape(plain) == shape(cluster)


def test_batches_can_be_left_as_the_loader_made_them() -> None:
    """T62, D-72: after disable_auto_to_device(), train_batch and evaluate_batch get the loader's own objects."""
    batches = [{"x": np.ones((2, 1), dtype=np.float32)}, {"x": np.zeros((2, 1), dtype=np.float32)}]
    seen: list[int] = []

    class Untouched(OneWeightTrial):
        def __init__(self, context: Any, log: Any = None) -> None:
            super().__init__(context, log, training_loader=lambda: batches, validation_loader=lambda: batches)
            context.experimental.disable_auto_to_device()
            context.experimental.disable_dataset_reproducibility_checks()

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            seen.append(id(batch))
            return {}

        def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
            seen.append(id(batch))
            return {}

    train(Untouched, max_length=Batch(2))
    assert seen == [id(batch) for batch in batches] * 2
