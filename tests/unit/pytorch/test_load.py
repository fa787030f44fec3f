"""A trial back from its checkpoint, outside of training."""

from __future__ import annotations

import collections
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from determined import errors
from determined.pytorch import CheckpointLoadContext, init, load_trial_from_checkpoint_path
from tests.unit.pytorch.checkpoints import make_run

CODE = """
import torch
import helper_of_the_trial

class MyTrial:
    class Inner:
        def __init__(self, context):
            self.context = context
            self.model = context.wrap_model(torch.nn.Linear(1, 1))

    def __init__(self, context, width=helper_of_the_trial.WIDTH):
        from helper_of_the_trial import WIDTH  # also while it is being built
        self.context, self.width = context, width
        self.model = context.wrap_model(torch.nn.Linear(2, 3))
"""


class Trial:
    def __init__(self, context: Any, extra: str = "none") -> None:  # it need not keep the context
        self.extra = extra
        self.model = context.wrap_model(nn.Linear(2, 3))


def make_checkpoint(path: Path, state: dict[str, Any], code: bool = True, **load_data: Any) -> Path:
    """A trainer's checkpoint of MyTrial, whose weights are `state`."""
    path.mkdir(parents=True)
    torch.save(state, path / "state_dict.pth")
    described = {
        "trial_type": "PyTorchTrial", "experiment_config": {"name": "x"}, "hparams": {"lr": 0.5},
        "trial_cls_spec": "model_def_of_trial:MyTrial", "is_trainer": True, **load_data,
    }  # fmt: skip
    (path / "load_data.json").write_text(json.dumps(described))
    if code:
        (path / "code").mkdir()
        (path / "code" / "model_def_of_trial.py").write_text(CODE)
        (path / "code" / "helper_of_the_trial.py").write_text("WIDTH = 7\n")
    return path


def flip_a_weight(path: Path, weight: torch.Tensor) -> None:
    """Change one bit of it in the file, which torch does not notice."""
    content = bytearray(path.read_bytes())
    content[content.index(weight.detach().numpy().tobytes())] ^= 1
    path.write_bytes(content)


@pytest.fixture
def weights() -> dict[str, Any]:
    return nn.Linear(2, 3).state_dict()


def test_the_class_comes_from_the_checkpoint(tmp_path: Path, weights: dict[str, Any]) -> None:
    """T42, D-61, D-62: the class gets trial_kwargs, a context with the saved hparams and config, and the weights."""
    path = make_checkpoint(tmp_path / "c", {"models_state_dict": [weights], "optimizers_state_dict": [{}]})
    trial = load_trial_from_checkpoint_path(str(path))
    assert trial.width == 7
    assert torch.equal(trial.model.weight, weights["weight"])
    assert trial.context.get_hparams() == {"lr": 0.5}
    assert trial.context.get_experiment_config() == {"name": "x"}
    assert load_trial_from_checkpoint_path(str(path), trial_kwargs={"width": 9}).width == 9
    assert trial.model.training
    assert "model_def_of_trial" not in sys.modules
    assert not list(path.rglob("__pycache__"))


def test_each_checkpoint_has_its_own_code(tmp_path: Path, weights: dict[str, Any]) -> None:
    """D-66, D-67: modules of one name in two checkpoints stay apart, and nothing of a load stays in the process."""
    before = (list(sys.path), Path.cwd(), set(sys.modules))
    trials = []
    for width in (7, 8):
        path = make_checkpoint(tmp_path / str(width), {"models_state_dict": [weights]})
        (path / "code" / "helper_of_the_trial.py").write_text(f"WIDTH = {width}\n")
        trials.append(load_trial_from_checkpoint_path(str(path)))
    assert [trial.width for trial in trials] == [7, 8]
    assert (list(sys.path), Path.cwd()) == before[:2]
    assert {"model_def_of_trial", "helper_of_the_trial"} & set(sys.modules) == set()


def test_a_nested_class_is_found(tmp_path: Path) -> None:
    """6.3: the trial class is found by `<module>:<qualified class name>`, nested classes too."""
    state = {"models_state_dict": [nn.Linear(1, 1).state_dict()]}
    path = make_checkpoint(tmp_path / "c", state, trial_cls_spec="model_def_of_trial:MyTrial.Inner")
    assert type(load_trial_from_checkpoint_path(str(path))).__qualname__ == "MyTrial.Inner"


def test_the_class_can_be_given(tmp_path: Path, weights: dict[str, Any]) -> None:
    """T42: with trial_class, no code is imported."""
    path = make_checkpoint(tmp_path / "c", {"models_state_dict": [weights]}, code=False)
    trial = load_trial_from_checkpoint_path(str(path), Trial, {"extra": "more"})
    assert trial.extra == "more"
    assert torch.equal(trial.model.bias, weights["bias"])


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod."])
@pytest.mark.parametrize("place", ["state_dict.pth", "pedl/state_dict.pth", "checkpoint.pt"])
def test_wrapped_models_and_older_places(tmp_path: Path, weights: dict[str, Any], prefix: str, place: str) -> None:
    """T43, FIX W33: the same repair of names and the same places as in fit()."""
    state = collections.OrderedDict((prefix + name, value) for name, value in weights.items())
    path = make_checkpoint(tmp_path / "c", {"models_state_dict": [state]})
    (path / place).parent.mkdir(exist_ok=True)
    (path / "state_dict.pth").rename(path / place)
    trial = load_trial_from_checkpoint_path(str(path), Trial)
    assert torch.equal(trial.model.weight, weights["weight"])


def test_a_checkpoint_of_fit(tmp_path: Path) -> None:
    """T42, T46: what the Checkpointer wrote is loaded."""
    run = make_run(tmp_path / "checkpoints", hparams={"width": 3})
    run.train(2)
    path = tmp_path / "checkpoints" / run.save()

    class Digits:
        def __init__(self, context: Any) -> None:
            self.context = context
            width = context.get_hparam("width")
            self.model = context.wrap_model(nn.Sequential(nn.Linear(4, width), nn.Dropout(0.5), nn.Linear(width, 1)))

    trial = load_trial_from_checkpoint_path(str(path), trial_class=Digits)
    assert torch.equal(trial.model[0].weight, run.model[0].weight)  # type: ignore[index]

    flip_a_weight(path / "state_dict.pth", run.model[0].weight)  # type: ignore[index]
    with pytest.raises(errors.CheckpointDamaged, match=r"state_dict\.pth has other content"):  # decision 6
        load_trial_from_checkpoint_path(str(path), trial_class=Digits)


def test_secrets_come_from_the_caller(
    tmp_path: Path, weights: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 11, point 4: what was redacted is passed at load time; one warning names what is missing."""
    stars = "********"
    config = {"data": {"secrets": {"token": stars}, "path": "/d"}, "checkpoint_storage": {"secret_key": stars}}
    path = make_checkpoint(
        tmp_path / "c",
        {"models_state_dict": [weights]},
        experiment_config=config,
        hparams={"lr": 0.5, "net": {"api_key": stars, "url": stars}},
    )
    given = {"net": {"api_key": "real"}}
    trial = load_trial_from_checkpoint_path(str(path), hparams=given)
    assert trial.context.get_hparams() == {"lr": 0.5, "net": {"api_key": "real", "url": stars}}
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"these read '{stars}': hparams.net.url, exp_conf.data.secrets.token. " in line
    assert "hparams={...}, exp_conf={...}" in line
    caplog.clear()
    given["net"]["url"] = "real"
    trial = load_trial_from_checkpoint_path(str(path), hparams=given, exp_conf={"data": {"secrets": {"token": "real"}}})
    assert trial.context.get_data_config() == {"secrets": {"token": "real"}, "path": "/d"}
    assert caplog.records == []


def test_torch_load_kwargs(tmp_path: Path, weights: dict[str, Any]) -> None:
    """T44, D-64: both forms → ValueError; extra ones alone → FutureWarning."""
    path = make_checkpoint(tmp_path / "c", {"models_state_dict": [weights]})
    with pytest.raises(ValueError, match="map_location"):
        load_trial_from_checkpoint_path(str(path), Trial, torch_load_kwargs={}, map_location="cpu")
    with pytest.warns(FutureWarning, match="torch_load_kwargs"):
        load_trial_from_checkpoint_path(str(path), Trial, map_location="cpu")
    trial = load_trial_from_checkpoint_path(str(path), Trial, torch_load_kwargs={"mmap": True})
    assert torch.equal(trial.model.weight, weights["weight"])


def test_no_description_is_an_assertion_error(tmp_path: Path) -> None:
    """6.6, D-63: a directory with neither of the JSON files that describe a trial is an AssertionError."""
    with pytest.raises(AssertionError, match=r"neither load_data\.json nor metadata\.json"):
        load_trial_from_checkpoint_path(str(tmp_path))


def test_no_directory_is_an_assertion_error(tmp_path: Path) -> None:
    """6.6: nothing is there, and the message says so."""
    with pytest.raises(AssertionError, match="is not a directory"):
        load_trial_from_checkpoint_path(str(tmp_path / "absent"))


def test_no_state_is_a_file_not_found_error(tmp_path: Path) -> None:
    """8.3: a checkpoint without state_dict.pth is a FileNotFoundError."""
    path = make_checkpoint(tmp_path / "c", {})
    (path / "state_dict.pth").unlink()
    with pytest.raises(FileNotFoundError, match=r"state_dict\.pth"):
        load_trial_from_checkpoint_path(str(path), Trial)


def test_a_foreign_checkpoint_is_a_warning(
    tmp_path: Path, weights: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """6.6: a foreign trial_type is said, and loading continues."""
    path = make_checkpoint(tmp_path / "c", {"models_state_dict": [weights]}, trial_type="TFKerasTrial")
    load_trial_from_checkpoint_path(str(path), Trial)
    assert "TFKerasTrial" in caplog.text


@pytest.mark.parametrize("spec", ["no_such_module_here:MyTrial", "model_def_of_trial:Absent", "__main__:Absent", ""])
def test_a_class_that_is_not_there(tmp_path: Path, weights: dict[str, Any], spec: str) -> None:
    """6.6: a trial class that cannot be found is a ValueError that advises trial_class."""
    path = make_checkpoint(tmp_path / "c", {"models_state_dict": [weights]}, trial_cls_spec=spec)
    with pytest.raises(ValueError, match="pass trial_class=") as caught:
        load_trial_from_checkpoint_path(str(path))
    assert caught.value.__cause__ is not None


def test_code_that_exits_is_a_class_that_is_not_there(tmp_path: Path, weights: dict[str, Any]) -> None:
    """6.6: the caller's program goes on, with a ValueError that advises trial_class."""
    path = make_checkpoint(tmp_path / "c", {"models_state_dict": [weights]})
    (path / "code" / "model_def_of_trial.py").write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(ValueError, match=r"sys\.exit\(3\).*pass trial_class=MyTrial"):
        load_trial_from_checkpoint_path(str(path))


def test_a_description_that_is_none(tmp_path: Path, weights: dict[str, Any]) -> None:
    """8.5 Better: a file that holds something else is said to."""
    path = make_checkpoint(tmp_path / "c", {"models_state_dict": [weights]})
    (path / "load_data.json").write_text("[1]")
    with pytest.raises(errors.CheckpointDamaged, match=r"load_data\.json holds a list"):
        load_trial_from_checkpoint_path(str(path))


def test_a_class_of_the_running_script(
    tmp_path: Path, weights: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """6.3, D-65: a class of `__main__` is found only in the script that trained; elsewhere trial_class is asked for."""
    path = make_checkpoint(tmp_path / "c", {"models_state_dict": [weights]}, trial_cls_spec="__main__:Trial")
    with pytest.raises(ValueError, match="pass trial_class=Trial"):
        load_trial_from_checkpoint_path(str(path))
    assert type(load_trial_from_checkpoint_path(str(path), trial_class=Trial)) is Trial
    monkeypatch.setattr(sys.modules["__main__"], "Trial", Trial, raising=False)
    assert type(load_trial_from_checkpoint_path(str(path))) is Trial


SCRIPT = (
    CODE
    + """
import argparse

ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--lr", default=0.1)
LR = ARGUMENTS.parse_args().lr

def main():
    raise AssertionError("the main part was run")

if __name__ == "__main__":
    main()
"""
)


def make_script(path: Path, weights: dict[str, Any], text: str, name: str = "train.py", **load_data: Any) -> Path:
    """A checkpoint of a plain `python train.py`, whose trial is MyTrial."""
    described = {"trial_cls_spec": "__main__:MyTrial", "script": name, **load_data}
    made = make_checkpoint(path, {"models_state_dict": [weights]}, **described)
    (made / "code" / "model_def_of_trial.py").unlink()
    (made / "code" / name).parent.mkdir(exist_ok=True)
    (made / "code" / name).write_text(text)
    return made


@pytest.mark.parametrize("name", ["train.py", "my-train.py", "train", "pkg/train.py"])
def test_a_class_of_the_script_that_was_run(
    tmp_path: Path, weights: dict[str, Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Issue 12, 5: it is imported from the copied script; its main part is not run, nor are our arguments its own."""
    monkeypatch.setattr(sys, "argv", ["serve.py", "--port", "1"])
    monkeypatch.setattr(sys.modules["__main__"], "MyTrial", Trial, raising=False)  # another script's, of that name
    before = set(sys.modules)
    trial = load_trial_from_checkpoint_path(str(make_script(tmp_path / "c", weights, SCRIPT, name)))
    assert trial.width == 7
    assert torch.equal(trial.model.weight, weights["weight"])
    assert sys.argv == ["serve.py", "--port", "1"]
    assert not {module for module in set(sys.modules) - before if "train" in module or "script" in module}


def test_the_script_that_runs_is_not_imported_again(
    tmp_path: Path, weights: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the very script that trained, the class is the one that is there."""
    path = make_script(tmp_path / "c", weights, SCRIPT)
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "train.py"), raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "MyTrial", Trial, raising=False)
    assert type(load_trial_from_checkpoint_path(str(path))) is Trial


def test_checkpoints_that_do_not_name_the_script(tmp_path: Path, weights: dict[str, Any]) -> None:
    """Earlier releases did not: the only file of the copy that defines the class is the script."""
    path = make_script(tmp_path / "c", weights, SCRIPT, script=None)
    assert load_trial_from_checkpoint_path(str(path)).width == 7
    (path / "code" / "second.py").write_text("class MyTrial: pass\n")
    with pytest.raises(ValueError, match=r"no copy, as of every notebook.* pass trial_class=MyTrial"):
        load_trial_from_checkpoint_path(str(path))


@pytest.mark.parametrize(
    ("ending", "called"),
    [
        ("main()", "main"),
        ("with pytorch.init() as context:\n    pass", "pytorch.init"),
        ("if LR:\n    determined.pytorch.Trainer(1, 2).fit()", "determined.pytorch.Trainer"),
        ("if __name__ == '__main__':\n    pass\nelse:\n    outer()", "outer"),
    ],
)
def test_a_script_that_would_train_is_not_run(
    tmp_path: Path, weights: dict[str, Any], ending: str, called: str
) -> None:
    """Issue 12, 5: one that trains at the top level is refused before any of it runs, with the line and what to do."""
    functions = (
        "def main():\n    with determined.pytorch.init() as c:\n        Trainer(c)\n\ndef outer():\n    main()\n"
    )
    script = f"open({str(tmp_path / 'ran')!r}, 'w')\n{CODE}LR = 1\n{functions}{ending}\n"
    path = make_script(tmp_path / "c", weights, script)
    with pytest.raises(ValueError, match=rf"line \d+ calls {called}\(\) and is not under `if __name__") as caught:
        load_trial_from_checkpoint_path(str(path))
    assert "import MyTrial from there, and pass trial_class=MyTrial." in str(caught.value)
    assert not (tmp_path / "ran").exists()


def test_a_script_that_trains_through_another_module_stops_there(tmp_path: Path, weights: dict[str, Any]) -> None:
    """What reading the script cannot tell is refused by init(), while the script is imported and not after."""
    path = make_script(tmp_path / "c", weights, CODE + "import runner_of_the_trial\nrunner_of_the_trial.run()\n")
    (path / "code" / "runner_of_the_trial.py").write_text(
        "from determined import pytorch\ndef run():\n    with pytorch.init():\n        assert 0, 'trained'\n"
    )
    with pytest.raises(ValueError, match=r"calls pytorch\.init\(\).* pass trial_class=MyTrial"):
        load_trial_from_checkpoint_path(str(path))
    with init(tracking=False, seed=1):
        pass


def test_trial_in_main(tmp_path: Path, weights: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """8.3: the module must be named; the script is imported with a warning."""
    state = {"models_state_dict": [weights]}
    load_trial_from_checkpoint_path(str(make_checkpoint(tmp_path / "a", state, trial_in_main=True)))
    assert "is imported now" in caplog.text
    path = make_checkpoint(tmp_path / "b", state, trial_in_main=True, trial_cls_spec=":MyTrial")
    with pytest.raises(ValueError, match="without the module"):
        load_trial_from_checkpoint_path(str(path))


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    """One message with all of it."""
    path = make_checkpoint(tmp_path / "c", {"models_state_dict": [nn.Linear(2, 4).state_dict()]})
    with pytest.raises(errors.InvalidCheckpointException, match=r"weight: saved with shape \(4, 2\), here \(3, 2\)"):
        load_trial_from_checkpoint_path(str(path), Trial)


# Trials that were started by their class, up to 0.38.


def make_legacy(path: Path, state: dict[str, Any], code: str = CODE, **load_data: Any) -> Path:
    make_checkpoint(path, state, is_trainer=None, **load_data)
    (path / "code" / "model_def_of_trial.py").write_text(code)
    return path


def test_legacy(tmp_path: Path, weights: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """6.6, 8.3: class from code/ with that directory as cwd, the config's seed, defaults for the cluster's parts."""
    code = CODE + "\nimport pathlib\nSEEN = pathlib.Path('helper_of_the_trial.py').read_text()\n"
    config = {
        "name": "x", "resources": {"slots_per_trial": 8}, "bind_mounts": [{"host_path": "/x"}], "data": {"a": 1},
        "reproducibility": {"experiment_seed": 77}, "optimizations": {"aggregation_frequency": 4},
    }  # fmt: skip
    path = make_legacy(tmp_path / "c", {"models_state_dict": [weights]}, code, experiment_config=config)
    monkeypatch.chdir(tmp_path)
    for place in (str(path), "c"):
        trial = load_trial_from_checkpoint_path(place)
        assert type(trial).__name__ == "MyTrial"
        found = trial.context.get_experiment_config()
        assert (found["name"], found["data"], found["bind_mounts"]) == ("x", {"a": 1}, [])
        assert found["resources"]["slots_per_trial"] == found["optimizations"]["aggregation_frequency"] == 1
        assert trial.context.get_trial_seed() == 77
        assert torch.equal(trial.model.weight, weights["weight"])
        assert Path.cwd() == tmp_path


def test_legacy_with_a_given_class(tmp_path: Path, weights: dict[str, Any]) -> None:
    """Data contract 8.5 Better: trial_class counts for checkpoints of every age, and no code is imported."""
    path = make_legacy(tmp_path / "c", {"models_state_dict": [weights]}, "raise KeyError")
    assert type(load_trial_from_checkpoint_path(str(path), trial_class=Trial)) is Trial


def test_legacy_needs_config_and_hparams(tmp_path: Path, weights: dict[str, Any]) -> None:
    """6.6: an old checkpoint without hparams is an AssertionError that says so."""
    path = make_legacy(tmp_path / "c", {"models_state_dict": [weights]}, hparams=None)
    with pytest.raises(AssertionError, match="hparams"):
        load_trial_from_checkpoint_path(str(path))


def test_legacy_code_that_exits(tmp_path: Path, weights: dict[str, Any]) -> None:
    """6.6: sys.exit in user code → InvalidExperimentException."""
    path = make_legacy(tmp_path / "c", {"models_state_dict": [weights]}, "import sys\nsys.exit(3)\n")
    with pytest.raises(errors.InvalidExperimentException, match=r"sys\.exit\(3\)"):
        load_trial_from_checkpoint_path(str(path))


def make_oldest(path: Path, state: dict[str, Any], body: str) -> Path:
    """0.12: no load_data.json; a download wrote metadata.json."""
    make_legacy(path, state, f"import torch\nclass MyTrial:\n{body}")
    (path / "load_data.json").unlink()
    described = {
        "experiment_config": {"entrypoint": "model_def_of_trial:MyTrial"}, "hparams": {}, "framework": "torch-1.4",
    }  # fmt: skip
    (path / "metadata.json").write_text(json.dumps(described))
    return path


@pytest.mark.parametrize("form", ["single", "list"])
def test_oldest_with_build_model(tmp_path: Path, weights: dict[str, Any], form: str) -> None:
    """6.6, appendix B: a trial with build_model gives the bare module with weights."""
    state = {"model_state_dict": weights} if form == "single" else {"models_state_dict": [weights]}
    body = "    def __init__(self, context): pass\n    def build_model(self): return torch.nn.Linear(2, 3)\n"
    model = load_trial_from_checkpoint_path(str(make_oldest(tmp_path / "c", state, body)))
    assert type(model) is nn.Linear
    assert torch.equal(model.weight, weights["weight"])


def test_oldest_without_build_model(tmp_path: Path, weights: dict[str, Any]) -> None:
    """8.3: model_state_dict without build_model → InvalidCheckpointException; list keys load as ever."""
    body = (
        "    def __init__(self, context):\n        self.context = context\n"
        "        self.model = context.wrap_model(torch.nn.Linear(2, 3))\n"
    )
    with pytest.raises(errors.InvalidCheckpointException, match="build_model"):
        load_trial_from_checkpoint_path(str(make_oldest(tmp_path / "a", {"model_state_dict": weights}, body)))
    trial = load_trial_from_checkpoint_path(str(make_oldest(tmp_path / "b", {"models_state_dict": [weights]}, body)))
    assert torch.equal(trial.model.weight, weights["weight"])


def test_the_context(tmp_path: Path) -> None:
    """6.7: unmanaged, seed 0, one slot, CPU; ValueErrors where nothing is known."""
    context = CheckpointLoadContext()
    assert context.get_trial_seed() == 0
    assert context.device == torch.device("cpu")
    assert context.distributed.size == 1
    with pytest.raises(ValueError, match=r"hparams|hyperparameters"):
        context.get_hparams()
    model = nn.Linear(1, 1)
    assert context.wrap_model(model) is model
    assert CheckpointLoadContext({"global_batch_size": 4}).get_per_slot_batch_size() == 4
