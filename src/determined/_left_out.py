"""Names of earlier releases that are left out: importing one raises an ImportError that says what to use instead."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

_USE_CORE = "Keep the library's own loop, and report, save and stop through determined.core.init()."
_USE_DDP = "start the script with torchrun or python -m determined.launch.torch_distributed; wrap_model() makes it DDP."
_USE_CLIENT = "determined.client reads and changes what was recorded, with no server."

MODULES = {
    "determined.common": f"it spoke with a master, and there is none. {_USE_CLIENT}",
    "determined.estimator": f"what trains here is PyTorch. {_USE_CORE}",
    "determined.exec": (
        "nothing runs in containers. For a trial class without a script, type: "
        "python -m determined.launch.torch_distributed --trial module:Class"
    ),
    "determined.horovod": _USE_DDP,
    "determined.keras": f"what trains here is PyTorch. {_USE_CORE}",
    "determined.launch.deepspeed": _USE_DDP,
    "determined.launch.horovod": _USE_DDP,
    "determined.lightning": f"Lightning has a trainer of its own. {_USE_CORE}",
    "determined.pytorch.deepspeed": (f"there is no DeepSpeedTrial. Write a pytorch.PyTorchTrial, and {_USE_DDP}"),
    "determined.pytorch.experimental": (
        "there is no torch_batch_process yet. Load the model with pytorch.load_trial_from_checkpoint_path(), iterate "
        "over pytorch.DataLoader(...).get_data_loader(skip=..., num_replicas=..., rank=...), and report and save "
        "through determined.core.init()."
    ),
    "determined.pytorch.lightning": f"Lightning has a trainer of its own. {_USE_CORE}",
    "determined.transformers": (
        "there is no DetCallback. In a transformers.TrainerCallback of your own, call core_context.train.report_*() "
        "and core_context.preempt.should_preempt() of determined.core.init()."
    ),
    "determined.util": "its functions were not meant for scripts. Python's standard library has what they did.",
}

NAMES = {
    "determined.EnvContext": "it described a container. Ask determined.get_cluster_info() and the trial's context.",
    "determined.ExperimentConfig": "a config is a plain dict here. Ask context.get_experiment_config().",
    "determined.TrialController": "pytorch.Trainer(trial, context).fit() trains a trial.",
    "determined.client.whoami": "there are no accounts. Runs belong to the user of this machine: getpass.getuser().",
    "determined.pytorch._PyTorchTrialController": "pytorch.Trainer(trial, context).fit() trains a trial.",
    "determined.pytorch._TrainBoundary": "fit() takes pytorch.Batch(n) and pytorch.Epoch(n) as length and periods.",
    "determined.pytorch._TrialState": "ask the context, for example get_initial_batch() or current_train_batch().",
}


def refuse(name: str, instead: str) -> NoReturn:
    """Raise the ImportError that says what to use instead of `name`."""
    raise ImportError(f"{name} is left out: {instead}", name=name)


class _Finder:
    """The last finder that an import asks: no file of that name was found."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:  # noqa: ARG004
        if name in MODULES:
            refuse(name, MODULES[name])


def register() -> None:
    """Install the finder that refuses modules that are left out. `import determined` calls this."""
    sys.meta_path.append(_Finder)


_said_of_master = False


def ignored_master() -> str | None:
    """Return, once, a warning that DET_MASTER is ignored; None if it is not set, or was set for a managed trial."""
    global _said_of_master
    master = os.environ.get("DET_MASTER")
    if not master or _said_of_master or os.environ.get("DET_ALLOCATION_ID"):
        return None
    _said_of_master = True
    return (
        f"DET_MASTER={master} is ignored: there is no master, runs are kept in a store. Unset it, or name another "
        "store with DET_STORE."
    )
