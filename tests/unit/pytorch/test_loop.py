"""The order of training: what happens at which batch. Eight records in batches of two."""

from __future__ import annotations

import ast
import logging
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from determined import pytorch
from determined.pytorch import Batch, Epoch
from tests.trials import OneWeightTrial, Run, managed, train

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
        run = train(max_length=length, hooks={})
        assert {entry[0] for entry in run.log} == {"hook"}
        assert run.hooks() == ["on_trial_startup", "on_training_start", "on_trial_shutdown"]

    def test_a_validation_alone(self) -> None:
        """With max_length=Batch(0), step_zero_validation=True validates the model as it is, and trains nothing."""
        run = train(max_length=Batch(0), step_zero_validation=True)
        assert (run.at("validation"), run.batches, run.at("checkpoint")) == ([0], [], [])

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

    def test_a_length_in_epochs_that_never_end_is_refused(self) -> None:
        """max_length=Epoch(n) with a loader without len() is refused before the first batch, not trained for ever."""

        class Unmeasured(torch.utils.data.IterableDataset[torch.Tensor]):
            def __iter__(self) -> Any:
                return iter([torch.ones(1)] * 4)

        run = Run([])
        with pytest.raises(ValueError, match=r"max_length is Epoch\(2\).*no len\(\).*pytorch\.Batch\(1000\)"):
            train(
                OpenTrial,
                {"training_loader": lambda: torch.utils.data.DataLoader(Unmeasured())},
                run=run,
                max_length=Epoch(2),
            )
        assert not run.batches


class TestWithoutUpdates:
    """A trial that forgets to update its weights is told so once, at the end of the first window."""

    @staticmethod
    def warnings(caplog: pytest.LogCaptureFixture, step: Any, **fit: Any) -> list[str]:
        class Forgetful(OneWeightTrial):
            def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
                loss = self.model(batch).mean()
                step(self.context, loss, self.optimizer)
                return {"loss": loss.detach()}

        train(Forgetful, **{"max_length": Batch(6), "reporting_period": Batch(2), **fit})
        return [record.getMessage() for record in caplog.records if "no weight was changed" in record.getMessage()]

    def test_neither_backward_nor_step(self, caplog: pytest.LogCaptureFixture) -> None:
        """Both missing calls are named, once in three windows."""
        (said,) = self.warnings(caplog, lambda *_: None)
        assert said.startswith("Forgetful trained 2 batches")
        assert "context.backward(loss) nor context.step_optimizer(optimizer)" in said

    def test_steps_without_gradients(self, caplog: pytest.LogCaptureFixture) -> None:
        """step_optimizer() without backward() changes nothing either."""
        (said,) = self.warnings(caplog, lambda context, _, optimizer: context.step_optimizer(optimizer))
        assert "has not called context.backward(loss), so" in said

    def test_gradients_without_steps(self, caplog: pytest.LogCaptureFixture) -> None:
        """backward() without step_optimizer() changes nothing either."""
        assert len(self.warnings(caplog, lambda context, loss, _: context.backward(loss))) == 1

    def test_silent_while_no_update_is_due(self, caplog: pytest.LogCaptureFixture) -> None:
        """With gradients of four batches per update, a window of two batches alone says nothing."""

        def step(context: Any, loss: Any, optimizer: Any) -> None:
            context.backward(loss)
            context.step_optimizer(optimizer)

        assert not self.warnings(caplog, step, init={"aggregation_frequency": 4})

    def test_data_that_is_empty_is_said_before_training(self) -> None:
        """An empty training set is a ValueError that names it; hooks are shut down."""
        run = Run([])
        with pytest.raises(ValueError, match=r"without a single batch.*nothing to train on"):
            train(run=run, trial={"records": 0}, hooks={})
        assert run.hooks() == ["on_trial_startup", "on_trial_shutdown"]

    def test_a_batch_is_three_calls_below_fit(self) -> None:
        """train_batch runs three calls below fit(): train, train_window, train_batch. A traceback stays short."""
        depths: list[list[str]] = []
        train(trial={"does": lambda _: depths.append([f.name for f in traceback.extract_stack()])}, max_length=Batch(1))
        names = depths[0]
        inside = names[names.index("fit") + 1 : names.index("train_batch")]
        assert inside == ["train", "train_window"]

    @pytest.mark.parametrize("module", ["_loop", "_trainer", "_validate"])
    def test_the_loop_uses_public_methods_only(self, module: str) -> None:
        """Private stays private: what the loop needs of a context, a checkpointer or a service is a public method."""
        tree = ast.parse((Path(pytorch.__file__).parent / f"{module}.py").read_text())
        private = [
            ast.unparse(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
            if ast.unparse(node.value) not in ("self", "TrainUnit")  # the latter keeps names of older releases
        ]
        assert not private


class OpenTrial(OneWeightTrial):
    def __init__(self, context: Any, *args: Any, **options: Any) -> None:
        context.experimental.disable_dataset_reproducibility_checks()
        super().__init__(context, *args, **options)


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
