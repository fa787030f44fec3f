"""A run's name and directories, and what is recorded about it beside its reports: script, arguments, machine, packages.

Secrets are left out."""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import hashlib
import os
import platform
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from determined._home import data_directory
from determined._info import ClusterInfo
from determined._notebook import is_kernel, notebook_path
from determined._redact import by_shape, is_secret, redacted, redacted_arguments
from determined._types import Json
from determined._version import __version__
from determined.core.recording.values import plain
from determined.store.messages import now

GIT_SECONDS = 5.0
# Names that do not tell one project from another.
ORDINARY_SCRIPTS = {
    *("train", "training", "trainer", "trial", "main", "__main__", "run", "script", "model", "model_def", "notebook")
}
ORDINARY_DIRECTORIES = {"src", "scripts", "code", "bin"}


@dataclasses.dataclass(frozen=True)
class Run:
    """The name of one training process, and its directories."""

    name: str
    home: Path

    @property
    def directory(self) -> Path:
        """The run's own directory, which exists only while something in it waits for the store."""
        return self.home / "runs" / self.name

    @property
    def tensorboard(self) -> Path:
        """The directory of the run's event files."""
        return self.home / "tensorboard" / self.name


def new_run() -> Run:
    """Return a run with a name of its own; names sort by time."""
    return Run(f"{now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}", data_directory())


@dataclasses.dataclass(frozen=True)
class RunDescription:
    """What is known about a run at its start without asking anybody. Everything in it is plain JSON."""

    name: str
    owner: str = ""
    script: str | None = None
    """What was started, by absolute path; None with `python -c`, or in a notebook that does not know its path."""
    arguments: list[str] = dataclasses.field(default_factory=list)
    directory: str = ""
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    hparams: dict[str, Any] = dataclasses.field(default_factory=dict)
    seed: int = 0
    storage: dict[str, Any] | None = None
    """The storage's config, without credentials."""
    slots: int = 1
    host: str = ""
    pid: int = 0
    started: str = ""
    """When, in ISO 8601; "" is unknown. The store may be reached only later."""
    store: str = ""
    """A hash of the address of the store that it is recorded in: what it leaves is delivered to that store only."""
    is_detached: bool = False
    told_trial_id: int | None = None
    told_experiment_id: int | None = None
    told_allocation_id: str = ""
    told_attempt: int = 0

    @property
    def script_name(self) -> str:
        """The script's name, for people."""
        return Path(self.script).name if self.script else "this script"

    @property
    def is_managed(self) -> bool:
        """Whether the process was told which trial it is. Whether the store knows that trial is another question."""
        return self.told_trial_id is not None and not self.is_detached

    def environment(self) -> dict[str, Json]:
        """Return what is known about the process without a search."""
        return {
            "arguments": list(self.arguments),
            "directory": self.directory,
            "host": self.host,
            "user": self.owner,
            "python": platform.python_version(),
            "resolute": __version__,
        }


def describe(
    *,
    config: Mapping[str, Any] | None = None,
    hparams: Mapping[str, Any] | None = None,
    seed: int | None = None,
    storage: Mapping[str, Any] | None = None,
    slots: int = 1,
    info: ClusterInfo | None = None,
    is_detached: bool = False,
) -> RunDescription:
    """Describe this process as it will be recorded."""
    script = _script()
    trial = info.trial if info is not None and info.task_type == "TRIAL" else None
    told = trial if not is_detached else None
    config = config or {}
    # A notebook that does not know its path is named after the directory that its kernel works in.
    named_by = script if script or not is_kernel() else str(Path(_directory() or "/", "notebook.ipynb"))
    name = config.get("name") or run_name(named_by)
    return RunDescription(
        name=by_shape(str(name)),
        owner=_user(),
        script=script,
        arguments=[] if is_kernel() else redacted_arguments(sys.argv[1:]),  # a kernel's are Jupyter's
        directory=_directory(),
        config=_recordable(config),
        hparams=_recordable(hparams if hparams is not None else trial.hparams if trial else {}),
        seed=int(seed if seed is not None else trial.trial_seed if trial else 0),
        storage=None if storage is None else _recordable(storage),
        slots=slots,
        host=platform.node(),
        pid=os.getpid(),
        started=now().isoformat(),
        store=store_hash(os.environ.get("DET_STORE", "")),
        is_detached=is_detached,
        told_trial_id=told.trial_id if told else None,
        told_experiment_id=told.experiment_id if told else None,
        told_allocation_id=info.allocation_id if told and info else "",
        told_attempt=told._trial_run_id if told else 0,
    )


def store_hash(address: str) -> str:
    """Return what a run keeps of the address of its store, `DET_STORE`; a new password makes it no other store."""
    return hashlib.sha256(by_shape(address).encode()).hexdigest()[:16]


def _script() -> str | None:
    if is_kernel():
        return notebook_path()
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None) or (sys.argv[0] if sys.argv else None)
    if not path or path == "-c" or hasattr(sys, "ps1"):
        return None
    return os.path.abspath(path)  # noqa: PTH100 - links stay: two names of one file are two scripts


def run_name(script: str | None) -> str:
    """Name a run after its script's directory, and after the script too if that is not an ordinary name.

    Example::

        assert run_name("/home/ada/digits/train.py") == "digits"
        assert run_name("/home/ada/digits/ablation.py") == "digits/ablation"
        assert run_name("/train.py") == "train"
    """
    if script is None:
        return "python"
    path = Path(script)
    place = next((each for each in path.parents if each.name not in ORDINARY_DIRECTORIES), path.parent)
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - where nobody has a home, pathlib raises
    if place in (Path(place.anchor), home, Path(tempfile.gettempdir())):
        return path.stem
    return place.name if path.stem in ORDINARY_SCRIPTS else f"{place.name}/{path.stem}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return str(os.getuid()) if hasattr(os, "getuid") else ""


def _directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # removed under us
        return ""


def _recordable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as plain JSON without secrets; what JSON cannot hold becomes its `repr`."""
    found = redacted(_plain(dict(values)))
    assert isinstance(found, dict)
    return found


def _plain(value: Any) -> Json:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    try:
        return plain(value, "")
    except (TypeError, ValueError):
        return repr(value)[:200]


def storage_config(chosen: Any, default_root: Path) -> dict[str, Any] | None:
    """Return the config that opens the same storage in a later process, which has to bring credentials itself.

    Args:
        chosen: The user's `checkpoint_storage`, already checked.
        default_root: The directory that is used for None.
    """
    if isinstance(chosen, Mapping):
        kept = ("save_experiment_best", "save_trial_best", "save_trial_latest", "temp_dir")
        found = {key: value for key, value in chosen.items() if key not in kept and not is_secret(key)}
        if not found:  # it says only how many to keep
            return storage_config(None, default_root)
        if found.get("type") == "directory":  # a later process may be anywhere
            found["container_path"] = str(Path(found["container_path"]).absolute())
        return found
    if isinstance(chosen, str) and "://" in chosen and not chosen.startswith("file:"):
        scheme, _, rest = chosen.partition("://")
        bucket, _, prefix = rest.partition("/")
        kind = {"s3": "s3", "gs": "gcs"}.get(scheme)
        return None if kind is None else {"type": kind, "bucket": bucket, "prefix": prefix.strip("/")}
    path = default_root if chosen is None else Path(str(chosen).removeprefix("file:"))
    return {"type": "directory", "container_path": str(path.absolute())}


# What takes up to some seconds to find out.


def find_environment(description: RunDescription) -> dict[str, Json]:
    """Return versions, packages and git state of this process. Takes up to some seconds; no part of it can fail."""
    packages = _packages()
    environment = description.environment()
    environment["executable"] = sys.executable
    environment["platform"] = platform.platform()
    environment["cpus"] = os.cpu_count() or 0
    for name in ("torch", "numpy"):
        if name in packages:
            environment[name] = packages[name]
    environment["packages"] = dict(packages)
    place = str(Path(description.script).parent) if description.script else description.directory
    if git := _git(place):
        environment["git"] = git
    return environment


_known_packages: dict[str, str] = {}


def _packages() -> dict[str, str]:
    """Return name -> version of all installed distributions, looked up once per process."""
    if not _known_packages:
        import importlib.metadata

        with contextlib.suppress(Exception):  # a broken installation is not ours to complain about
            for distribution in importlib.metadata.distributions():
                name = distribution.metadata["Name"]
                if name:
                    _known_packages.setdefault(str(name), str(distribution.version))
    return dict(sorted(_known_packages.items(), key=lambda item: item[0].lower()))


def _git(directory: str) -> dict[str, Json] | None:
    """Return commit, branch and whether there are changes; None without git or a repository."""
    try:
        commit = _ask_git(directory, "rev-parse", "HEAD")
        if not commit:
            return None
        branch = _ask_git(directory, "rev-parse", "--abbrev-ref", "HEAD")
        changes = _ask_git(directory, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "branch": branch or "", "dirty": None if changes is None else bool(changes)}


def _ask_git(directory: str, *words: str) -> str | None:
    done = subprocess.run(
        ["git", "-C", directory, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=GIT_SECONDS,
        check=False,
        env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
    )
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None
