"""Every way out of training: a stop, an error, an exit, on one rank or on all. Eight records in batches of two."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from determined import core, errors
from determined.pytorch import Batch, DataLoader, ShouldExit, _loop
from tests.ranks import run_threads
from tests.trials import HOOKS, OneWeightTrial, Recorder, Run, stored_state, train

pytestmark = pytest.mark.usefixtures("elsewhere")


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

    @pytest.mark.parametrize("where", ["reading", "train_batch", "on_training_epoch_start"])
    def test_random_numbers_of_the_batch_that_left_are_drawn_again(self, where: str, home: Path) -> None:
        """Decision 5: whatever it drew before it raised, in reading too, is drawn again after a resume."""

        def go(at: int | None = None, **fit: Any) -> Run:
            run = Run([])

            def draw(place: str, batch_idx: int) -> None:
                random.random(), np.random.randn(), torch.rand(1)
                if (place, batch_idx) == (where, at):
                    raise ShouldExit

            class Drawing(torch.utils.data.Dataset[torch.Tensor]):
                def __len__(self) -> int:
                    return 8

                def __getitem__(self, index: int) -> torch.Tensor:
                    draw("reading", len(run.batches))
                    return torch.full((1,), index + random.random() + np.random.rand()) + torch.rand(1)

            options = {
                "does": lambda batch_idx: draw("train_batch", batch_idx),
                "training_loader": lambda: DataLoader(Drawing(), 2),
            }
            hooks = {"on_training_epoch_start": lambda epoch_idx: draw("on_training_epoch_start", epoch_idx * 4)}
            return train(run=run, trial=options, hooks=hooks, max_length=Batch(6), **fit)

        straight, first = go(), go(at=4)
        assert first.at("checkpoint") == [4]
        second = go(latest_checkpoint=first.checkpoint)
        assert second.batches == [4, 5]
        assert second.data == straight.data[4:]
        one, other = (stored_state(home, run.checkpoint)["rng_state"] for run in (straight, second))
        assert torch.equal(one["cpu_rng_state"], other["cpu_rng_state"])
        assert str(one["np_rng_state"]) == str(other["np_rng_state"])
        assert one["random_rng_state"] == other["random_rng_state"]

    def test_gradients_of_the_batch_that_left_do_not_count_twice(self) -> None:
        """T19: raised between backward and step, the batch is trained anew and counts once."""
        straight = train(max_length=Batch(4))
        first = train(LeavesAfterBackward, max_length=Batch(4))
        second = train(max_length=Batch(4), latest_checkpoint=first.checkpoint)
        assert second.batches == [2, 3]
        assert second.trial.weight == straight.trial.weight

    def test_should_exit_without_a_checkpoint(self) -> None:
        """T20: ShouldExit(skip_exit_checkpoint=True) ends training without a checkpoint."""
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

    @pytest.mark.parametrize("hook", HOOKS[HOOKS.index("on_training_start") :])
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
        """W28: event files are uploaded once more before leaving, after ShouldExit too."""
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
