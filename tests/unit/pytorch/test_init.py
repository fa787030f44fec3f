"""init(): the seed, who trains together, and what the context knows."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import determined
from determined import core, errors, pytorch
from determined.experiment.config.fields import Fields
from determined.pytorch import _init
from tests.trials import OneWeightTrial, managed, train

pytestmark = pytest.mark.usefixtures("elsewhere")


def first_numbers(**options: Any) -> tuple[float, float, float]:
    """What a trial's constructor would draw first."""
    with pytorch.init(**options):
        return random.random(), float(np.random.rand()), float(torch.rand(()))


def unseed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not chosen a seed."""
    monkeypatch.setattr(torch, "initial_seed", lambda: _init._UNSEEDED)


class TestSeeds:
    def test_a_managed_trial_has_its_seed(self) -> None:
        """T106: the first random numbers are the same on every run with the same trial seed, and not with another."""
        with managed(seed=11):
            first, second = first_numbers(), first_numbers()
        with managed(seed=12):
            other = first_numbers()
        assert first == second != other

    def test_every_rank_has_the_same(self) -> None:
        """T106: on every rank; the seed is the chief's."""
        from tests.ranks import run_threads

        def body(distributed: core.DistributedContext) -> int:
            return _init._choose_seed(None, 5 if distributed.rank == 0 else 6, {}, distributed)

        assert run_threads(2, body) == [5, 5]

    @pytest.mark.parametrize("seed", ["seven", 2**70, float("inf"), [1]])
    def test_a_seed_is_a_number(self, seed: Any) -> None:
        """4.2: what no generator takes as a seed is a ValueError with the value."""
        with pytest.raises(ValueError, match=r"The seed is .*expected a whole number"):
            first_numbers(seed=seed)

    def test_a_plain_run_has_the_seed_it_is_given(self) -> None:
        """Decision 3: seeds work in a plain run, and are known afterwards."""
        assert first_numbers(seed=3) == first_numbers(seed=3) != first_numbers(seed=4)
        with pytorch.init(seed=3) as context:
            assert context.get_trial_seed() == 3

    def test_the_seed_of_a_config(self) -> None:
        """Decision 3: reproducibility.experiment_seed of the config is the seed."""
        config = {"reproducibility": {"experiment_seed": 3}}
        assert first_numbers(exp_conf=config) == first_numbers(seed=3)

    def test_a_drawn_seed_is_said(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        """Issue 4: without a seed one is drawn and printed, and giving it repeats the run."""
        caplog.set_level(logging.INFO, "determined.pytorch")
        unseed(monkeypatch)
        drawn = first_numbers()
        seed = int(caplog.text.split("init(seed=")[1].split(")")[0])
        assert first_numbers(seed=seed) == drawn

    def test_a_second_run_in_one_process_has_a_seed_of_its_own(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Issue 4: what init() itself has seeded is not taken for the script's choice."""
        caplog.set_level(logging.INFO, "determined.pytorch")
        with pytorch.init(seed=1):
            pass
        with pytorch.init() as context:
            assert context.get_trial_seed() != 1
        assert "No seed was given" in caplog.text

    def test_the_scripts_own_seed_stays(self) -> None:
        """Decision 5: a script that called torch.manual_seed() keeps its streams, and that seed orders the data."""
        torch.manual_seed(1234)
        expected = torch.rand(())
        torch.manual_seed(1234)
        with pytorch.init() as context:
            assert torch.rand(()) == expected
            assert context.get_trial_seed() == 1234


class TestContext:
    def test_values_of_the_cluster(self) -> None:
        """W12, W23: a managed trial has its hparams and config without repeating them; what is ignored is said."""
        with managed(hparams={"lr": 0.5}, data={"path": "/data"}), pytorch.init() as context:
            assert context.get_hparams() == {"lr": 0.5}
            assert context.get_data_config() == {"path": "/data"}
            assert (context.get_trial_id(), context.get_experiment_id()) == (1, 5)

    def test_hparams_that_are_given_win(self) -> None:
        """4.2: init(hparams=...) is used as given."""
        with managed(hparams={"lr": 0.5}), pytorch.init(hparams={"lr": 1}) as context:
            assert context.get_hparams() == {"lr": 1}

    def test_a_config_that_is_ignored_is_said(self, caplog: pytest.LogCaptureFixture) -> None:
        """W23: exp_conf of a managed trial is its own."""
        with managed(name="own"), pytorch.init(exp_conf={"name": "other"}) as context:
            assert context.get_experiment_config()["name"] == "own"
        assert "init(exp_conf=...) is ignored" in caplog.text

    @pytest.mark.parametrize(
        ("config", "said"),
        [
            ({"searchr": {"metric": "loss"}}, "'searchr' is no key of an experiment config. Did you mean 'searcher'?"),
            ({"searcher": {"metrc": "loss"}}, "'searcher.metrc' is no key of an experiment config. Did you mean"),
            ({"searcher": {"metric": "loss", "smaller_better": False}}, "Did you mean 'searcher.smaller_is_better'?"),
            ({"my_path": "/data"}, "'my_path' is no key of an experiment config. Put values of your own under 'data'."),
        ],
    )
    def test_an_unknown_key_of_the_config_is_said(
        self, config: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A key that nobody reads is named with the nearest one, and training goes on."""
        with pytorch.init(exp_conf=config, seed=1):
            pass
        assert said in caplog.text

    def test_every_key_of_an_experiment_file_is_known(self, caplog: pytest.LogCaptureFixture) -> None:
        """A config written for 0.38 or for an experiment file is taken without a word about its keys."""
        known = {**dict.fromkeys(Fields.model_fields), "searcher": {"name": "random", "metric": "x", "max_trials": 3}}
        _init.check_keys(known)
        assert known.keys() == _init.CONFIG_KEYS
        assert not caplog.records

    def test_ids_of_a_plain_run(self) -> None:
        """W10: a ValueError that says how to ask."""
        with pytorch.init(seed=1) as context:
            for ask in (context.get_trial_id, context.get_experiment_id):
                with pytest.raises(ValueError, match="get_cluster_info"):
                    ask()

    def test_event_files_have_a_place(self, home: Path) -> None:
        """W11: a real directory in the data directory."""
        with pytorch.init(seed=1) as context:
            assert home in context.get_tensorboard_path().parents

    @pytest.mark.parametrize("frequency", [0, -1, 1.5, True])
    def test_aggregation_is_a_whole_number(self, frequency: Any) -> None:
        """4.2: anything else is a ValueError before anything begins."""
        with pytest.raises(ValueError, match="aggregation_frequency"), pytorch.init(aggregation_frequency=frequency):
            pass

    @pytest.mark.parametrize("name", ["hparams", "exp_conf"])
    def test_names_and_values(self, name: str) -> None:
        """4.2: a config that is no dict, such as its file's name, is a TypeError with the value."""
        with pytest.raises(TypeError, match=rf"init\({name}='const.yaml'\)"), pytorch.init(**{name: "const.yaml"}):
            pass

    def test_arguments_are_named(self) -> None:
        """4.2: init() takes its arguments by keyword only."""
        with pytest.raises(TypeError):
            pytorch.init({"lr": 1})  # type: ignore[misc]

    def test_an_unmanaged_task_is_a_plain_run(self) -> None:
        """0.2: cluster info of another task type is local mode."""
        from determined import _info

        _info.set_cluster_info(_info.ClusterInfo(task_type="NOTEBOOK"))
        try:
            assert train(max_length=Batch1, test_mode=True).batches == [0]
        finally:
            _info.reset_cluster_info()

    def test_the_services_are_closed(self) -> None:
        """4.2: leaving the block gives signals back, also after an error."""
        import signal

        before = signal.getsignal(signal.SIGTERM)
        with pytest.raises(ValueError, match="mine"), pytorch.init(seed=1):
            assert signal.getsignal(signal.SIGTERM) is not before
            raise ValueError("mine")
        assert signal.getsignal(signal.SIGTERM) is before

    def test_getters_are_there_at_once(self) -> None:
        """T106: a trial's constructor can ask for everything it was given."""

        class Asks(OneWeightTrial):
            def __init__(self, context: Any, log: Any) -> None:
                super().__init__(context, log)
                assert context.get_per_slot_batch_size() == 4
                assert context.get_initial_batch() == 0

        train(Asks, init={"hparams": {"global_batch_size": 4}}, max_length=Batch1)


Batch1 = pytorch.Batch(1)


class TestRanks:
    def test_slots_without_a_launcher(self) -> None:
        """T105: several slots and one process is a ValueError that names the launcher."""
        with (
            managed(slots=2),
            pytest.raises(ValueError, match=r"2 slots.*determined\.launch\.torch_distributed"),
            pytorch.init(),
        ):
            pass

    @pytest.mark.parametrize(
        ("value", "is_on"), [("1", True), ("true", True), ("0", False), ("false", False), ("", False)]
    )
    def test_variables_are_read_as_yes_or_no(self, value: str, is_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """W2: "0" and "false" mean no; Horovod is refused with what to use instead."""
        monkeypatch.setenv("USE_HOROVOD", value)
        if is_on:
            with pytest.raises(RuntimeError, match="torchrun"), pytorch.init():
                pass
        else:
            with pytorch.init(seed=1) as context:
                assert context.distributed.size == 1

    def test_invalid_hyperparameters_end_the_process_well(self) -> None:
        """4.8: InvalidHP escaping the block is SystemExit with code 0."""
        with pytest.raises(SystemExit) as caught, pytorch.init(seed=1):
            raise errors.InvalidHP("no")
        assert caught.value.code == 0

    def test_get_cluster_info_stays_none(self) -> None:
        """Decision 4: get_cluster_info() stays None in a plain run, since scripts test for it."""
        with pytorch.init(seed=1):
            assert determined.get_cluster_info() is None
