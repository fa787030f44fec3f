"""fit(): what it checks before the first batch, which checkpoint is best, and what a managed trial gets by itself."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import errors, pytorch
from determined.pytorch import Batch, Epoch, ShouldExit, Trainer, TrainUnit
from tests.trials import OneWeight, OneWeightTrial, Recorder, Run, managed, train

pytestmark = pytest.mark.usefixtures("elsewhere")


class TestChecks:
    def test_a_length_is_needed(self) -> None:
        """T12: fit() without max_length is a ValueError that says what to type."""
        with pytest.raises(ValueError, match=r"max_length=pytorch.Epoch\(10\)"):
            train(max_length=None)

    @pytest.mark.parametrize("length", [Batch([1]), TrainUnit(3), 3])
    def test_a_length_is_a_number_of_batches_or_epochs(self, length: Any) -> None:
        """T12: a max_length that is neither a number of batches nor of epochs is a TypeError."""
        with pytest.raises(TypeError, match="max_length is"):
            train(max_length=length)

    @pytest.mark.parametrize("period", ["validation_period", "checkpoint_period", "reporting_period"])
    @pytest.mark.parametrize("value", [3, TrainUnit(3), "epoch"])
    def test_a_period_is_counted_in_batches_or_epochs(self, period: str, value: Any) -> None:
        """W21: a period that would silently never be reached is a TypeError that names it, before any hook."""
        run = Run([])
        with pytest.raises(TypeError, match=f"{period} is .*pytorch.Batch"):
            train(run=run, hooks={}, **{period: value})
        assert run.log == []

    @pytest.mark.parametrize("value", [2.0, "2", None, True])
    def test_a_unit_is_a_whole_number_or_a_schedule(self, value: Any) -> None:
        """W21: wrong values are found when the unit is made."""
        with pytest.raises(TypeError, match="expected a whole number"):
            Batch(value)

    @pytest.mark.parametrize("which", ["closed", "loaded"])
    def test_a_context_is_open(self, which: str) -> None:
        """Issue 4: a context that has ended, or that a checkpoint was loaded into, is refused with what to do."""
        context = train(max_length=Batch(1)).context if which == "closed" else pytorch.CheckpointLoadContext(hparams={})
        trial = OneWeightTrial(context, [])
        with pytest.raises(RuntimeError, match=r"outside of `with pytorch.init\(\)"):
            Trainer(trial, context).fit(max_length=Batch(2))

    def test_checkpoints_have_somewhere_to_go(self, tmp_path: Path) -> None:
        """Issue 4: a storage that cannot be written to is said before the first batch, not after an hour."""
        run = Run([])
        (tmp_path / "file").touch()
        storage = {"type": "directory", "container_path": str(tmp_path / "file" / "checkpoints")}
        with pytest.raises(errors.StorageConfigError, match=r"file/checkpoints.* does not work"):
            train(run=run, hooks={}, init={"exp_conf": {"checkpoint_storage": storage}})
        assert run.log == []

    def test_units_are_values(self) -> None:
        """W22: equal units compare equal and hash alike, and print as `Batch(100)`."""
        assert (Batch(3), repr(Epoch([1, 2])), len({Batch(3), Batch(3)})) == (Batch(3), "Epoch([1, 2])", 1)
        assert Batch(3) != Epoch(3)

    def test_parameters_of_no_wrapped_model(self, caplog: pytest.LogCaptureFixture) -> None:
        """3.3: they are trained, as before, but it is said that no checkpoint will hold them."""

        class Headed(OneWeightTrial):
            def __init__(self, context: Any, log: Any) -> None:
                super().__init__(context, log)
                self.optimizer.add_param_group({"params": torch.nn.Linear(1, 1).parameters()})

        train(max_length=Batch(1))
        assert "no wrapped model" not in caplog.text
        train(Headed, max_length=Batch(1))
        assert "Headed trains parameters that belong to no wrapped model (2 of SGD)" in caplog.text

    def test_policy_best_without_a_metric(self, caplog: pytest.LogCaptureFixture) -> None:
        """T13: a warning, and every validation saves."""
        run = train(checkpoint_policy="best", validation_period=Batch(2), max_length=Batch(4))
        assert run.at("checkpoint") == [2, 4]
        assert "checkpoint_policy='best' needs to know which metric" in caplog.text

    def test_an_unknown_policy(self) -> None:
        """T14, W25: a ValueError that says what there is."""
        with pytest.raises(ValueError, match="expected 'best', 'all' or 'none'"):
            train(checkpoint_policy="bogus")

    def test_a_trial_is_a_trial(self) -> None:
        """2.2: something else is a TypeError at fit()."""
        with pytorch.init(seed=1) as context:
            trainer = Trainer(object(), context)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"Trainer got <object object at .*, a object; expected"):
                trainer.fit(max_length=Batch(1))

    def test_a_class_is_no_trial(self) -> None:
        """The class in place of an instance is named, with what to write instead."""
        with pytorch.init(seed=1) as context:
            trainer = Trainer(OneWeightTrial, context)  # type: ignore[arg-type]
            with pytest.raises(
                TypeError, match=r"the class OneWeightTrial itself.*Trainer\(OneWeightTrial\(context\), "
            ):
                trainer.fit(max_length=Batch(1))

    def test_without_a_model_or_an_optimizer(self) -> None:
        """T65, appendix B: an InvalidExperimentException that says what to call; it is an Exception (W1)."""

        class NoModel(OneWeightTrial):
            def __init__(self, context: Any, log: Any) -> None:
                self.callbacks = {"hook": Recorder(log)}

        class NoOptimizer(NoModel):
            def __init__(self, context: Any, log: Any) -> None:
                super().__init__(context, log)
                context.wrap_model(OneWeight())

        class OfZeroTwelve(NoModel):
            def build_model(self) -> Any:
                return OneWeight()

        run = Run([])
        with pytest.raises(errors.InvalidExperimentException, match=r"context.wrap_model\(\)"):
            train(NoModel, run=run)
        with pytest.raises(errors.InvalidExperimentException, match=r"context.wrap_model\(self.build_model\(\)\)"):
            train(OfZeroTwelve, run=run)
        with pytest.raises(errors.InvalidExperimentException, match=r"no optimizer.*context.wrap_optimizer\(\)"):
            train(NoOptimizer, run=run)
        assert issubclass(errors.InvalidExperimentException, Exception)
        assert run.hooks() == []

    def test_evaluation_is_one_of_two(self) -> None:
        """T69: both or neither evaluation method is an InvalidExperimentException."""

        class Both(OneWeightTrial):
            def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
                return {}

        class Neither(OneWeightTrial):
            evaluate_batch = pytorch.PyTorchTrial.evaluate_batch

        with pytest.raises(errors.InvalidExperimentException, match="Both overrides both"):
            train(Both)
        with pytest.raises(errors.InvalidExperimentException, match="Neither overrides neither"):
            train(Neither)

    def test_a_trial_of_any_name_counts_as_overriding(self) -> None:
        """W7: a class literally called PyTorchTrial overrides what it overrides."""
        named = type("PyTorchTrial", (OneWeightTrial,), {})
        assert train(named, max_length=Batch(1)).at("validation") == [1]

    def test_an_abstract_method_is_missed_at_once(self) -> None:
        """2.1: a trial without one of its methods cannot be made."""

        class Half(pytorch.PyTorchTrial):
            def __init__(self, context: Any) -> None:
                pass

        with pytest.raises(TypeError, match="build_training_data_loader"):
            Half(None)  # type: ignore[abstract, arg-type]

    @pytest.mark.parametrize("result", [None, 1.0, [1], "loss"])
    def test_train_batch_returns_metrics(self, result: Any) -> None:
        """W5: something else is a TypeError that names the method and the type."""
        with pytest.raises(TypeError, match=r"train_batch\(\).*(None|float|list|str)"):
            train(trial={"returns": lambda _: result})

    @pytest.mark.parametrize("result", [None, 1.0])
    def test_evaluate_batch_returns_metrics(self, result: Any) -> None:
        """W5: evaluate_batch that returns no dict is a TypeError that names the method and the type."""
        with pytest.raises(TypeError, match=r"evaluate_batch\(\).*(None|float)"):
            train(trial={"evaluates": lambda _: result})

    def test_callbacks_are_callbacks(self) -> None:
        """5: something else in build_callbacks is a TypeError that names it."""
        with pytest.raises(TypeError, match=r"'mine'.*PyTorchCallback"):
            train(trial={"callbacks": {"mine": object()}})

    def test_the_older_profiler_call(self, caplog: pytest.LogCaptureFixture) -> None:
        """T107: configure_profiler(True, True, 0, 5) works anywhere, and samples are taken by the next fit."""
        with pytorch.init(seed=1) as context:
            trainer = Trainer(OneWeightTrial(context), context)
            trainer.configure_profiler(True, True, 0, 5)
            began: list[int] = []
            on = context.core_context.profiler.on
            context.core_context.profiler.on = lambda: began.append(1) or on()  # type: ignore[method-assign, func-returns-value]
            trainer.fit(max_length=Batch(1))
        assert began == [1]
        assert "profiling_enabled=True" in caplog.text

    def test_the_exit_has_two_names(self) -> None:
        """T108: ShouldExit and _ShouldExit are one class."""
        assert pytorch.ShouldExit is pytorch._ShouldExit
        assert ShouldExit().skip_exit_checkpoint is False

    def test_arguments_may_be_positional(self) -> None:
        """4.4: in the order of the table."""
        with pytorch.init(seed=1) as context:
            log: list[Any] = []
            Trainer(OneWeightTrial(context, log), context).fit(
                Batch(1), Batch(2), Batch(4), Batch(100), "none", None, False, False, False
            )
        assert len([entry for entry in log if entry[0] == "batch"]) == 4


class TestManaged:
    """A trial that an experiment started: `get_cluster_info()` says so."""

    def test_the_length_of_an_older_config(self) -> None:
        """T103: searcher.max_length={"records": 6} with a global batch size of 2 is 3 batches."""
        with (
            managed(searcher={"max_length": {"records": 6}}, hparams={"global_batch_size": 2}),
            pytest.warns(FutureWarning, match="max_length"),
        ):
            assert train(max_length=None).batches == [0, 1, 2]

    def test_the_length_in_records_needs_a_batch_size(self) -> None:
        """T103: without global_batch_size it is a ValueError that names it."""
        with (
            managed(searcher={"max_length": {"records": 6}}),
            pytest.warns(FutureWarning),
            pytest.raises(ValueError, match="global_batch_size"),
        ):
            train(max_length=None)

    @pytest.mark.parametrize(
        ("searcher", "batches"),
        [
            ({"max_length": {"epochs": 1}}, 4),
            ({"max_length": {"batches": 3}}, 3),
            ({"max_length": 1, "unit": "epochs"}, 4),
            ({"max_length": 5}, 5),
        ],
    )
    def test_other_lengths_of_older_configs(
        self, searcher: dict[str, Any], batches: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        """W52: a number without a unit counts batches, with a warning."""
        with managed(searcher=searcher), pytest.warns(FutureWarning):
            assert len(train(max_length=None).batches) == batches
        assert ("without a unit" in caplog.text) == (searcher == {"max_length": 5})

    @pytest.mark.parametrize("searcher", [{}, {"max_length": 0}])
    def test_no_length_at_all(self, searcher: dict[str, Any]) -> None:
        """4.4: none, or zero, is a ValueError."""
        with managed(searcher=searcher), pytest.raises(ValueError, match="needs max_length"):
            train(max_length=None)

    def test_trying_is_local(self) -> None:
        """T104: test_mode of a managed trial is a ValueError."""
        with managed(), pytest.raises(ValueError, match="test_mode"):
            train(test_mode=True)

    def test_a_search_and_its_time_metric(self, caplog: pytest.LogCaptureFixture) -> None:
        """4.4: time_metric without max_time is an AssertionError; one that differs from the length is a warning."""
        with managed(searcher={"time_metric": "batches"}), pytest.raises(AssertionError, match=r"searcher\.max_time"):
            train(max_length=Batch(1))
        with managed(searcher={"time_metric": "batches", "max_time": 9}):
            train(max_length=Batch(1))
        assert "max_time is 9 batches" in caplog.text

    def test_it_goes_on_where_it_was(self) -> None:
        """T28: saved at 3 and restarted: batch 3 with the fourth data, startup(3, id), no second epoch start."""
        with managed():
            first = train(max_length=Batch(3), hooks={})
        with managed(latest_checkpoint=first.checkpoint, steps_completed=3):
            second = train(max_length=Batch(5), hooks={})
        assert second.of("batch")[0] == (3, 0, (7.0, 8.0))
        hooks = second.of("hook")
        assert hooks[0] == ("on_trial_startup", 3, first.checkpoint)
        epochs = [hook for hook in hooks if hook[0].startswith("on_training_epoch")]
        assert epochs == [("on_training_epoch_end", 0), ("on_training_epoch_start", 1)]

    def test_a_restart_goes_on_by_itself(self) -> None:
        """W24: without latest_checkpoint a restarted trial continues; "none" prevents it."""
        with managed():
            first = train(max_length=Batch(3))
        with managed(latest_checkpoint=first.checkpoint, steps_completed=3):
            assert train(max_length=Batch(5)).batches == [3, 4]
            fresh = train(max_length=Batch(2), latest_checkpoint="none")
        assert fresh.batches == [0, 1]
        assert fresh.trial.weight == -5

    def test_another_trials_checkpoint_is_a_warm_start(self) -> None:
        """T30: weights, optimizer, scheduler, random and callback state are restored; counters and data begin at 0."""
        with managed(trial_id=1):
            first = train(max_length=Batch(5), hooks={}, trial={"decays": True})
        with managed(trial_id=2, latest_checkpoint=first.checkpoint):
            second = train(max_length=Batch(1), hooks={}, trial={"decays": True})
        assert second.of("batch")[0] == (0, 0, (1.0, 2.0))
        assert second.of("hook")[0] == ("on_trial_startup", 0, first.checkpoint)
        assert ("load_state_dict",) in second.of("hook")
        assert second.trial.weight == first.trial.weight - 0.5 * 1.5  # the rate was halved at the first epoch's end

    def test_a_restart_with_nothing_left(self) -> None:
        """T31: length reached and validated: nothing is trained, validated or saved."""
        with managed():
            first = train(max_length=Batch(4))
        with managed(latest_checkpoint=first.checkpoint, steps_completed=4):
            second = train(max_length=Batch(4), hooks={})
        assert {entry[0] for entry in second.log} == {"hook"}
        assert "on_training_start" in second.hooks()

    def test_a_restart_with_only_the_validation_left(self) -> None:
        """T32: length reached and not validated: exactly one validation."""
        first = train(max_length=Batch(9), hooks={"on_training_epoch_end": ShouldExit()})
        assert (first.at("checkpoint"), first.at("validation")) == ([4], [])
        second = train(max_length=Batch(4), latest_checkpoint=first.checkpoint)
        assert (second.batches, second.at("validation"), second.at("checkpoint")) == ([], [4], [])

    def test_policy_best_needs_its_metric(self) -> None:
        """T88: missing or no number under `best` is a RuntimeError with a hint; under `all` training continues."""
        searcher = {"metric": "los"}
        with managed(searcher=searcher), pytest.raises(RuntimeError, match="Did you mean 'loss'"):
            train(checkpoint_policy="best")
        with managed(searcher={"metric": "text"}), pytest.raises(RuntimeError, match="needs one number"):
            train(FullTrial, checkpoint_policy="best")
        with managed(searcher=searcher):
            assert train(checkpoint_policy="all", max_length=Batch(1)).at("checkpoint") == [1]

    @pytest.mark.parametrize("policy", ["best", "all", "none"])
    def test_a_local_run_goes_on_without_its_metric(self, policy: str, caplog: pytest.LogCaptureFixture) -> None:
        """Issue 12: locally, one warning at the first validation names the metrics that there are; training ends well.
        Under `best` every validation is saved, since nobody can say which is."""
        options = {"init": {"exp_conf": {"searcher": {"metric": "los"}}}, "checkpoint_policy": policy}
        run = train(validation_period=Batch(1), max_length=Batch(3), **options)
        assert run.at("validation") == [1, 2, 3]
        assert run.at("checkpoint") == ([3] if policy == "none" else [1, 2, 3])
        (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert "searcher.metric is 'los'" in warning
        assert "['loss']" in warning
        assert "Did you mean 'loss'?" in warning


class FullTrial(OneWeightTrial):
    evaluate_batch = pytorch.PyTorchTrial.evaluate_batch

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        self.log.append(("evaluated all", len(list(data_loader))))
        return {"loss": 1.0, "text": "fine", "curve": torch.ones(3)}


def _validations(*values: float) -> Any:
    """An `evaluates` that gives these values one validation after another; each has two batches."""
    given = iter([value for value in values for _ in range(2)])
    return lambda _: {"loss": next(given)}


CONFIG = {"searcher": {"metric": "loss", "smaller_is_better": True}}


class TestBest:
    def test_strictly_better_saves(self) -> None:
        """T89, decision 3: 0.5 saves since none is known, 0.5 does not, 0.4 does; the end saves anyway."""
        run = train(
            trial={"evaluates": _validations(0.5, 0.5, 0.4, 0.6)},
            init={"exp_conf": CONFIG},
            checkpoint_policy="best",
            validation_period=Batch(1),
            max_length=Batch(4),
        )
        assert run.at("checkpoint") == [1, 3, 4]

    def test_the_direction(self) -> None:
        """T89: with smaller_is_better false, larger saves."""
        run = train(
            trial={"evaluates": _validations(0.5, 0.4, 0.6, 0.1)},
            init={"exp_conf": {"searcher": {"metric": "loss", "smaller_is_better": False}}},
            checkpoint_policy="best",
            validation_period=Batch(1),
            max_length=Batch(4),
        )
        assert run.at("checkpoint") == [1, 3, 4]

    def test_a_restart_knows_the_best(self) -> None:
        """T89: what was best before a restart has to be beaten after it."""
        options: dict[str, Any] = {
            "init": {"exp_conf": CONFIG},
            "checkpoint_policy": "best",
            "validation_period": Batch(1),
        }
        first = train(trial={"evaluates": _validations(0.5, 0.7)}, max_length=Batch(2), **options)
        second = train(
            trial={"evaluates": _validations(0.6, 0.3, 0.9)},
            max_length=Batch(5),
            latest_checkpoint=first.checkpoint,
            **options,
        )
        assert second.at("checkpoint") == [4, 5]

    def test_latest_and_best_of_the_own_history(self) -> None:
        """Issue 4: "latest" is the newest checkpoint of this trial, "best" that of the best metric."""
        options: dict[str, Any] = {"init": {"exp_conf": CONFIG}, "hooks": {}}
        first = train(
            trial={"evaluates": _validations(0.5, 0.2, 0.8)},
            validation_period=Batch(1),
            checkpoint_policy="all",
            max_length=Batch(3),
            **options,
        )
        best = dict(first.of("checkpoint"))[2]
        resumed = train(latest_checkpoint="best", max_length=Batch(3), **options)
        assert resumed.of("hook")[0] == ("on_trial_startup", 2, best)
        assert resumed.batches == [2]
        newest = train(latest_checkpoint="latest", max_length=Batch(4), **options)
        assert newest.of("hook")[0] == ("on_trial_startup", 3, resumed.checkpoint)
        assert newest.batches == [3]

    def test_latest_is_the_trials_own(self) -> None:
        """Issue 4: of managed trials, each has its own history."""
        with managed(trial_id=1):
            train(max_length=Batch(2))
        with managed(trial_id=2):
            assert train(max_length=Batch(1), latest_checkpoint="latest").batches == [0]
        with managed(trial_id=1):
            assert train(max_length=Batch(3), latest_checkpoint="latest").batches == [2]

    def test_latest_of_nothing_is_a_fresh_start(self, caplog: pytest.LogCaptureFixture) -> None:
        """Issue 4: without a checkpoint of this trial "latest" starts afresh and says so."""
        caplog.set_level(logging.INFO)
        assert train(latest_checkpoint="latest", max_length=Batch(1)).batches == [0]
        assert "no checkpoint of OneWeightTrial" in caplog.text

    def test_the_best_is_asked_for_only_by_best(self) -> None:
        """W57: another policy asks nobody for the best value."""

        class Counting(OneWeightTrial):
            def __init__(self, context: Any, log: Any, **options: Any) -> None:
                ask = context.core_context.train.get_experiment_best_validation
                context.core_context.train.get_experiment_best_validation = lambda: log.append(("asked",)) or ask()
                super().__init__(context, log, **options)

        for policy, asks in (("all", False), ("none", False), ("best", True)):
            run = train(Counting, init={"exp_conf": CONFIG}, checkpoint_policy=policy, validation_period=Batch(2))
            assert bool(run.of("asked")) is asks
