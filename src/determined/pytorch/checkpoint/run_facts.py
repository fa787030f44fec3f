"""What a checkpoint says about its run: `load_data.json`, the metadata, and the copy of the code."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from determined import core, errors
from determined._home import data_directory
from determined._redact import redacted
from determined._version import __version__
from determined.artifacts import SharedFile, documents
from determined.core.recording.values import plain as json_value
from determined.pytorch.code.copying import CodeCopy

if TYPE_CHECKING:
    from determined.pytorch._context import PyTorchTrialContext
    from determined.pytorch._plan import Progress
    from determined.pytorch._trial import PyTorchTrial

logger = logging.getLogger("determined.pytorch")


class RunFacts:
    """What the checkpoints of one run say about it; by default they copy the script and what it has imported."""

    def __init__(
        self, core_context: core.Context, context: PyTorchTrialContext, trial: PyTorchTrial, code: CodeCopy | None
    ) -> None:
        self._context = context
        self._trial_class = f"{type(trial).__module__}:{type(trial).__qualname__}"
        own = [Path(core_context.checkpoint.location), data_directory()]
        self._code = code or CodeCopy(without=[place for place in own if place.is_absolute()])
        if context.distributed.rank == 0:
            self._code.read()  # now, because a person may go on editing while the run trains
        self._described: tuple[str | None, SharedFile] | None = None  # load_data.json, and the script it names
        self._kept_as_text: set[str] = set()
        self._about_the_run = _about_the_run(core_context)
        try:
            self.seed: int | None = context.get_trial_seed()
        except errors.InternalException:  # the context was made without one
            self.seed = None
        self.newest = ""
        """When the checkpoint that training goes on from was saved, and later the last of this run's own."""

    def shared_files(self) -> dict[str, SharedFile]:
        """Return the files that all checkpoints of the run have in common, so that they are written only once."""
        files = self._code.read()
        self._code.say()
        if self._described is None or self._described[0] != self._code.script:
            self._described = (self._code.script, self._describe())
        return {**{f"code/{path}": file for path, file in files.items()}, "load_data.json": self._described[1]}

    def _describe(self) -> SharedFile:
        load_data = {
            "trial_type": "PyTorchTrial",
            "experiment_config": self._as_json("experiment_config", self._context.get_experiment_config),
            "hparams": self._as_json("hparams", self._context.get_hparams),
            "trial_cls_spec": self._trial_class,
            "script": self._code.script,
            "is_trainer": True,
        }
        described = json.dumps(load_data, indent=2).encode()
        if len(described) > documents.LARGEST:
            logger.warning(
                "load_data.json takes %d bytes, and load_trial_from_checkpoint_path() reads %d at most. "
                "Keep what is large in hparams or config in a file of its own.",
                len(described),
                documents.LARGEST,
            )
        return SharedFile(described)

    def metadata(self, progress: Progress, extra: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the metadata of a checkpoint that is saved now."""
        self.newest = _later_than(self.newest)
        return {
            "determined_version": __version__,
            "steps_completed": progress.batches_trained,
            "framework": f"torch-{torch.__version__}",
            "format": "pickle",
            "trial_class": self._trial_class,
            "trial_id": progress.trial_id,
            "trial_seed": self.seed,
            "saved_at": self.newest,
            **self._about_the_run,
            **(extra or {}),
        }

    def _as_json(self, name: str, get: Callable[[], Any]) -> Any:
        try:
            found = get()
        except ValueError:
            return None
        return redacted(_lenient(found, name, self._kept_as_text))


def _about_the_run(core_context: core.Context) -> dict[str, Any]:
    """Return by what "latest" recognizes the checkpoint, also where nothing is recorded."""
    description = core_context.description
    if description is None:
        return {}
    script, hparams = description.script, description.hparams
    about: dict[str, Any] = {"script": script, "script_sha256": script_checksum(script)}
    if len(json.dumps(hparams, default=str)) < documents.LARGEST // 2:  # more would not be read back
        about["hparams"] = hparams
    return about


def script_checksum(script: str | None) -> str | None:
    """Return the SHA-256 of a script; None if it cannot be read, or is a notebook, whose file changes as it runs."""
    if script is None or script.endswith(".ipynb"):
        return None
    try:
        return hashlib.sha256(Path(script).read_bytes()).hexdigest()
    except OSError:
        return None


def _later_than(moment: str) -> str:
    """Return the time now; or just after `moment` if the clock was set back since, so that the order is right."""
    now = datetime.datetime.now(datetime.timezone.utc)
    with contextlib.suppress(ValueError, TypeError):  # unknown, or not written by us
        now = max(now, datetime.datetime.fromisoformat(moment) + datetime.timedelta(microseconds=1))
    return now.isoformat()


def _lenient(value: Any, name: str, said: set[str]) -> Any:
    """Return a value as JSON; what JSON cannot hold as text, with one warning for each name."""
    if isinstance(value, Mapping):
        return {str(key): _lenient(item, f"{name}.{key}", said) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_lenient(item, name, said) for item in value]
    try:
        return json_value(value, name)
    except (TypeError, ValueError):
        if name not in said:
            said.add(name)
            logger.warning("load_data.json: %s is of type %s, and is kept as text.", name, type(value).__name__)
        return repr(value)
