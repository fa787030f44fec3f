"""The front door: light to open, complete, and true to the checked-in list of public names."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import determined
from determined import core, pytorch

NAMES = Path(__file__).with_name("public_names.json")
HEAVY = ("torch", "numpy", "sqlalchemy", "sqlite3", "fsspec", "pydantic", "psutil", "rich", "yaml", "alembic", "http")


def loaded_after(code: str) -> set[str]:
    """The modules that a new interpreter has after running `code`."""
    program = f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_loads_next_to_nothing() -> None:
    """Decision 8: `import determined` loads no torch, numpy, SQL or HTTP, and only a handful of modules of its own."""
    before = loaded_after("pass")
    new = loaded_after("import determined") - before
    assert [name for name in HEAVY if name in new] == []
    assert len([name for name in new if name.split(".")[0] == "determined"]) <= 3
    assert len(new) <= 40


def test_importing_the_training_room_loads_only_its_menu() -> None:
    """Decision 8: `import determined.pytorch` costs next to nothing over torch; each name is imported on first use."""
    new = loaded_after("import torch, determined.pytorch") - loaded_after("import torch")
    assert len(new) <= 6
    code = "import torch, determined.pytorch as p; p.PyTorchTrial, p.DataLoader, p.init, p.Trainer"
    rare = {"_load", "_compat", "_pytorch_context"}  # what training itself has no use for
    assert {f"determined.pytorch.{name}" for name in rare} & loaded_after(code) == set()


def test_importing_collects_no_garbage() -> None:
    """A full collection over torch's objects takes longer than our imports, so none falls into them; it is on again
    afterwards, unless the script had turned it off."""
    code = (
        "import gc, torch, determined.pytorch\n"
        "seen = []\n"
        "gc.callbacks.append(lambda phase, info: seen.append(phase))\n"
        "gc.set_threshold(10)\n"
        "determined.pytorch.Trainer\n"
        "during = len(seen)\n"
        "assert gc.isenabled()\n"
        "gc.disable(); determined.pytorch.CheckpointLoadContext; assert not gc.isenabled()\n"
        "print(during)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 2  # the one that begins as it is turned on again has a start and a stop


def test_rooms_work_without_importing_them_first() -> None:
    """style.md 8: `det.core.X` works after `import determined as det` alone, and torch is still not loaded."""
    code = "import determined as det\nassert det.core.init and det.core.PreemptMode and det.errors.CheckpointNotFound"
    assert "torch" not in loaded_after(code)


@pytest.mark.parametrize("tracking", ["on", "off"])
def test_a_run_loads_what_it_needs(tracking: str) -> None:
    """Core alone, reporting and storing a checkpoint, needs no torch; one that records nothing loads no SQL either."""
    code = (
        f"import os, tempfile; os.environ |= {{'DET_HOME': tempfile.mkdtemp(), 'DET_TRACKING': {tracking!r}}}\n"
        "import determined as det\n"
        "with det.core.init(tensorboard_mode=det.core.TensorboardMode.MANUAL) as c:\n"
        "    c.train.report_training_metrics(1, {'loss': 1.0})\n"
        "    with c.checkpoint.store_path({'steps_completed': 1}) as (path, _):\n"
        "        (path / 'f').write_text('x')\n"
    )
    loaded = loaded_after(code)
    assert {"torch", "numpy", "alembic", "pydantic"} & loaded == set()
    assert ("sqlalchemy" in loaded) == ("sqlite3" in loaded) == (tracking == "on")


@pytest.mark.parametrize(
    "room", ["determined", "determined.client", "determined.core", "determined.errors", "determined.pytorch"]
)
def test_public_names_are_the_promised_ones(room: str) -> None:
    """The checked-in list is the API: a name that comes or goes is a decision, not an accident."""
    module = importlib.import_module(room)
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert sorted(names) == json.loads(NAMES.read_text())[room]
    for name in names:
        assert getattr(module, name) is not None
        assert name in dir(module)


def test_every_public_name_has_a_docstring() -> None:
    """Everything in the menus of core and pytorch says what it is."""
    named = [(name, getattr(room, name)) for room in (core, pytorch) for name in room.__all__ if name != "TorchData"]
    silent = [name for name, thing in named if not thing.__doc__]  # an alias of types cannot have one
    assert silent == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A typo is told as Python tells it."""
    with pytest.raises(AttributeError, match="module 'determined' has no attribute 'pytorhc'"):
        determined.pytorhc  # noqa: B018 - looking is the point


@pytest.mark.parametrize("statement", ["import {}", "from {} import Anything", "from {0} import {1}"])
@pytest.mark.parametrize(
    "module",
    [
        *("determined.common", "determined.exec", "determined.horovod", "determined.keras", "determined.lightning"),
        *("determined.launch.horovod", "determined.launch.deepspeed", "determined.transformers", "determined.util"),
        *("determined.pytorch.deepspeed", "determined.pytorch.experimental"),
    ],
)
def test_what_is_left_out_says_what_to_use(module: str, statement: str) -> None:
    """Decision 9: importing what is left out, or not here yet, is an ImportError with a sentence, no missing name."""
    room, _, name = module.rpartition(".")
    code = statement.format(module) if "{0}" not in statement else statement.format(room, name)
    with pytest.raises(ImportError, match=f"{module} is left out: .*(torchrun|core.init|launch|client|library)"):
        exec(code)  # noqa: S102 - each way to write an import


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import determined.exec.harness", "launch.torch_distributed --trial module:Class"),
        ("from determined.common.experimental import Session", "determined.client"),
        ("import determined as det; det.ExperimentConfig({})", "context.get_experiment_config()"),
        ("from determined import EnvContext", "get_cluster_info()"),
        ("from determined.client import whoami", "getpass.getuser()"),
        ("from determined.pytorch import _TrainBoundary", r"pytorch.Batch\(n\)"),
        ("from determined import pytorch; pytorch._TrialState", "get_initial_batch"),
    ],
)
def test_a_name_that_is_left_out_says_what_to_use(code: str, sentence: str) -> None:
    """A class or function of 0.38 that is not here is an ImportError that says what to use, however it is reached."""
    with pytest.raises(ImportError, match=f"is left out: .*{sentence}"):
        exec(code)  # noqa: S102 - each way to write an import


@pytest.mark.parametrize("name", ["Determined", "Checkpoint", "Experiment", "Model", "ModelVersion", "Trial"])
def test_the_sdk_is_where_earlier_releases_had_it(name: str) -> None:
    """`from determined.experimental import Determined` and its like are the classes of determined.client."""
    assert getattr(determined.experimental, name) is getattr(determined.client, name)
    with pytest.raises(AttributeError, match="has no attribute 'Determind'"):
        determined.experimental.Determind  # noqa: B018 - looking is the point


def test_the_context_under_its_older_names() -> None:
    """Type hints of old trials name the context in three ways; each is the class that init() gives."""
    from determined.pytorch._pytorch_context import PyTorchTrialContext

    assert determined.TrialContext is PyTorchTrialContext is pytorch.PyTorchTrialContext


def test_older_names_are_where_they_were() -> None:
    """pytorch.md 1.2, 2: batch samplers of 0.12 are on the package, and a trial class knows its context's class."""
    for name in ("RepeatBatchSampler", "DistributedBatchSampler", "SkipBatchSampler"):
        assert getattr(pytorch, name) is getattr(pytorch.samplers, name)
    assert pytorch.PyTorchTrial.trial_context_class is pytorch.PyTorchTrialContext


def test_log_format() -> None:
    """core.md 0: the format of log lines is the known one."""
    assert determined.LOG_FORMAT == "%(levelname)s: [%(process)s] %(name)s: %(message)s"


def test_invalid_hp_takes_text() -> None:
    """core.md 1.3: the message must be a str."""
    assert str(determined.InvalidHP("too big")) == "too big"
    with pytest.raises(TypeError, match="not int"):
        determined.InvalidHP(5)  # type: ignore[arg-type]
