"""A trained trial back from its checkpoint, outside of training: to predict, to export, to look at."""

from __future__ import annotations

import contextlib
import copy
import importlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from determined import errors
from determined._import_path import import_from_path
from determined._redact import MASK, hidden_in
from determined.artifacts import documents, verify_in_place
from determined.core._context import _dummy_init
from determined.pytorch._context import PyTorchTrialContext
from determined.pytorch.checkpoint.older_layouts import modernise
from determined.pytorch.checkpoint.parts import CheckpointMismatch, Models
from determined.pytorch.checkpoint.saved import read_state, verify_without_manifest
from determined.pytorch.code import saved_script

logger = logging.getLogger("determined.pytorch")

# What a config says about the cluster it was for, and not about the trial: the defaults stand in its place.
_OF_THE_CLUSTER: dict[str, Any] = {
    "bind_mounts": [], "checkpoint_storage": {}, "environment": {}, "resources": {"slots_per_trial": 1},
    "optimizations": {"aggregation_frequency": 1, "average_aggregated_gradients": True, "gradient_compression": False},
}  # fmt: skip


class CheckpointLoadContext(PyTorchTrialContext):
    """A context for building a trial outside of training: on the CPU, in one process, recording nothing.

    Args:
        hparams: What `get_hparams()` answers.
        exp_conf: What `get_experiment_config()` answers.

    Example::

        trial = MyTrial(pytorch.CheckpointLoadContext(hparams={"lr": 0.1}))
    """

    def __init__(self, hparams: dict[str, Any] | None = None, exp_conf: dict[str, Any] | None = None) -> None:
        super().__init__(
            core_context=_dummy_init(),
            trial_seed=0,
            hparams=hparams,
            slots_per_trial=1,
            num_gpus=0,
            exp_conf=exp_conf,
            aggregation_frequency=1,
            steps_completed=0,
            managed_training=False,
            debug_enabled=False,
            enable_tensorboard_logging=False,
        )


def load_trial_from_checkpoint_path(
    path: str,
    trial_class: type[Any] | None = None,
    trial_kwargs: dict[str, Any] | None = None,
    torch_load_kwargs: dict[str, Any] | None = None,
    *,
    hparams: Mapping[str, Any] | None = None,
    exp_conf: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """Build the trial of a checkpoint and load its models' weights.

    Only tensors and plain values are read from the file; the trial's code is the copy in the checkpoint, which is
    imported and run, unless you pass the class. All files are verified first, if the directory lies in its storage or
    was downloaded with its checksums; otherwise the state file is, by the checksums that torch put into it.

    Args:
        path: The checkpoint's directory.
        trial_class: The trial's class. Needed if it was defined in a notebook, or in a script that trains without
            `if __name__ == "__main__":`.
        trial_kwargs: More arguments for its constructor.
        torch_load_kwargs: Passed to `torch.load`, for example `{"map_location": "cuda:0"}`. With
            `{"weights_only": False}` the file may run anything: that is for files you trust.
        hparams: Hyperparameters that go over the saved ones: above all the secrets, which are never saved.
        exp_conf: The same for the experiment config, for example `{"data": {"secrets": {"token": "..."}}}`.
        **kwargs: The older form of `torch_load_kwargs`.

    Returns:
        The trial. Of releases before 0.12.12, whose trials have a `build_model()`, the model.

    Raises:
        AssertionError: The directory says nothing about a trial.
        ValueError: The class cannot be imported from the checkpoint.
        InvalidCheckpointException: The weights do not fit, or the file holds what is not read.
        CheckpointDamaged: Its files are not the ones that were saved.

    Example::

        trial = pytorch.load_trial_from_checkpoint_path("checkpoints/4f1c22", trial_class=MyTrial)
        trial.model.eval()
    """
    load_kwargs = _load_kwargs(torch_load_kwargs, kwargs)
    home = Path(path)
    has_checksums = verify_in_place(home)
    saved = _description(home)
    if not has_checksums:
        verify_without_manifest(home)
    arguments = trial_kwargs or {}
    _add_from_caller(home, saved, {"hparams": hparams, "experiment_config": exp_conf})
    if saved.get("is_trainer"):
        context = CheckpointLoadContext(saved.get("hparams"), saved.get("experiment_config"))
    else:
        context = _legacy_context(home, saved)
    with _code(home, saved, trial_class) as cls:
        trial = cls(context, **arguments)
    checkpoint = read_state(home, **load_kwargs)
    if saved["is_old"] and callable(getattr(trial, "build_model", None)):
        model = trial.build_model()
        state = checkpoint.get("model_state_dict") or (checkpoint.get("models_state_dict") or [None])[0]
        _load_into([model], [state])
        return model
    if saved["is_old"] and "model_state_dict" in checkpoint:
        raise errors.InvalidCheckpointException(
            f"{home} is of a release before 0.12.12, and {type(trial).__name__} has no build_model() to load it into. "
            "Add one, or load model_state_dict of the file into your model yourself."
        )
    modernise(checkpoint, {"model": len(context.models), "optimizer": 0, "lr_scheduler": 0})
    _load_into(context.models, checkpoint.get("models_state_dict"))
    return trial


def _load_kwargs(named: dict[str, Any] | None, rest: dict[str, Any]) -> dict[str, Any]:
    if not rest:
        return dict(named or {})
    if named is not None:
        raise ValueError(
            f"load_trial_from_checkpoint_path() got torch_load_kwargs and also {sorted(rest)}. "
            "Put all of them into torch_load_kwargs."
        )
    warnings.warn(
        f"load_trial_from_checkpoint_path(): pass {sorted(rest)} in torch_load_kwargs={{...}}.",
        FutureWarning,
        stacklevel=3,
    )
    return rest


def _description(home: Path) -> dict[str, Any]:
    """Return the description of the trial, with `is_old` if the download step of 0.12 to 0.17 wrote it."""
    for name in ("load_data.json", "metadata.json"):
        saved = documents.read(home / name)
        if saved is None:
            continue
        saved["is_old"] = name == "metadata.json"
        kind = str(saved.get("framework", "torch") if saved["is_old"] else saved.get("trial_type"))
        if (saved["is_old"] and "torch" not in kind) or (not saved["is_old"] and kind != "PyTorchTrial"):
            logger.warning("%s is of a %s, not of a PyTorchTrial; it is loaded as if it were.", home, kind)
        return dict(saved)
    found = "has neither load_data.json nor metadata.json" if home.is_dir() else "is not a directory"
    raise AssertionError(
        f"{home} {found}, so there is no telling whose checkpoint it is. "
        "Pass the directory of a checkpoint that fit() wrote, or that was downloaded with its metadata."
    )


def _add_from_caller(home: Path, saved: dict[str, Any], given: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Overwrite saved values with those of the caller, and warn about secrets that are missing."""
    for key, values in given.items():
        if values is not None:
            saved[key] = _merged(saved.get(key) or {}, values)
    parameters = {"hparams": "hparams", "experiment_config": "exp_conf"}
    hidden = {key: hidden_in(saved.get(key)) for key in given}
    needed = [
        (key, name) for key, names in hidden.items() for name in names if name.split(".")[0] not in _OF_THE_CLUSTER
    ]
    missing = [f"{parameters[key]}.{name}" for key, name in needed]
    if missing:
        logger.warning(
            "Secrets are not saved, so in %s these read %r: %s. Where the trial needs them, pass them: "
            "load_trial_from_checkpoint_path(..., hparams={...}, exp_conf={...}).",
            home, MASK, ", ".join(missing),
        )  # fmt: skip


def _merged(saved: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(saved)
    for key, value in given.items():
        inner = found.get(key)
        is_deeper = isinstance(value, Mapping) and isinstance(inner, Mapping)
        found[key] = _merged(inner, value) if is_deeper and inner is not None else value
    return found


def _spec(saved: Mapping[str, Any]) -> tuple[str, str]:
    spec = saved.get("trial_cls_spec") or (saved.get("experiment_config") or {}).get("entrypoint") or ""
    module, _, name = str(spec).partition(":")
    if saved.get("trial_in_main"):
        if not module:
            raise ValueError(f"The checkpoint names its trial {spec!r}, without the module. Pass trial_class=.")
        logger.warning("The trial was defined in the script %r that was run, which is imported now.", module)
    return module, name


def _found(module: Any, name: str) -> type[Any]:
    for part in name.split("."):
        module = getattr(module, part)
    if not isinstance(module, type):
        raise TypeError(f"{name} is a {type(module).__name__}, not a class")
    return module


@contextlib.contextmanager
def _code(home: Path, saved: Mapping[str, Any], given: type[Any] | None) -> Iterator[type[Any]]:
    """The trial's class; imports inside the block find the checkpoint's code first, if it comes from there.

    A trial that was started by its class is imported from the directory of the code, as when it was trained.
    """
    if given is not None:
        yield given
        return
    before = None if saved.get("is_trainer") else Path.cwd()
    with contextlib.ExitStack() as stack:
        try:
            if before is not None and (home / "code").is_dir():
                os.chdir(home / "code")
            cls = _imported(home if before is None else before / home, saved, stack)
        except SystemExit as left:
            if before is not None:
                raise errors.InvalidExperimentException(
                    f"The code in {home / 'code'} called sys.exit({left.code!r}) while it was imported. "
                    "Put what it does when it is run under `if __name__ == '__main__':`."
                ) from left
            module, name = _spec(saved)
            raise ValueError(
                f"The trial class {module}:{name} cannot be imported from {home / 'code'}, whose code called "
                f"sys.exit({left.code!r}). Import it yourself, and pass trial_class={name}."
            ) from left
        finally:
            if before is not None:
                os.chdir(before)
        yield cls


def _imported(home: Path, saved: Mapping[str, Any], stack: contextlib.ExitStack) -> type[Any]:
    module, name = _spec(saved)
    try:
        if not (module and name):
            raise LookupError("the checkpoint does not name it")
        if module == "__main__":
            return _found(_main(home / "code", saved.get("script"), name, stack), name)
        stack.enter_context(import_from_path(home / "code"))
        return _found(importlib.import_module(module), name)
    except saved_script.ScriptTrains as refused:
        raise ValueError(
            f"The trial class {name} was not imported from {home / 'code'}. {refused} Put what trains under that line "
            f"in your own copy of the script, import {name} from there, and pass trial_class={name}."
        ) from refused
    except Exception as failed:
        raise ValueError(
            f"The trial class {module}:{name} cannot be imported from {home / 'code'} ({type(failed).__name__}: "
            f"{failed}). Import or define it yourself, and pass trial_class={name or '...'}."
        ) from failed


def _main(code: Path, recorded: str | None, name: str, stack: contextlib.ExitStack) -> Any:
    """Return the script as a module: the one that runs now if it is the same, else the copy, imported."""
    script = saved_script.find_script(code, recorded, name)
    running = sys.modules["__main__"]
    if script is None:
        if not hasattr(running, name.partition(".")[0]):
            raise LookupError(
                "it was defined in the program that was run, and of that the checkpoint has no copy, as of every "
                "notebook"
            )
        return running
    if saved_script.is_running(script):
        return running
    stack.enter_context(import_from_path(code))
    return saved_script.import_script(code, script)


def _legacy_context(home: Path, saved: Mapping[str, Any]) -> CheckpointLoadContext:
    for key in ("experiment_config", "hparams"):
        if saved.get(key) is None:
            raise AssertionError(f"{home} has no {key}, and a checkpoint of this kind cannot do without.")
    config = {**saved["experiment_config"], **copy.deepcopy(_OF_THE_CLUSTER)}
    context = CheckpointLoadContext(saved["hparams"], config)
    context.continue_with_seed(int((config.get("reproducibility") or {}).get("experiment_seed") or 0))
    return context


def _load_into(models: list[Any], states: Any) -> None:
    part = Models(models)
    if problems := list(part.mismatches(states)):
        raise CheckpointMismatch("The checkpoint does not fit this trial:\n  - " + "\n  - ".join(problems))
    part.load_state_dict(states)
