"""What this process was told when it was started: `get_cluster_info()`. It is None in a plain `python train.py`."""

from __future__ import annotations

import dataclasses
import json
import os
import urllib.parse
from pathlib import Path
from typing import Any

DEFAULT_DIRECTORY = Path("/run/determined/info")


@dataclasses.dataclass(frozen=True)
class RendezvousInfo:
    """All machines of a task, by rank."""

    container_addrs: list[str]
    container_rank: int
    container_slot_counts: list[int]


@dataclasses.dataclass(frozen=True)
class ResourcesInfo:
    """The devices assigned to this machine's part of a task."""

    gpu_uuids: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class TrialInfo:
    """The trial that this process trains."""

    trial_id: int
    experiment_id: int
    trial_seed: int
    hparams: dict[str, Any]
    _config: dict[str, Any] = dataclasses.field(default_factory=dict)
    _steps_completed: int = 0
    _trial_run_id: int = 0
    _debug: bool = False
    _inter_node_network_interface: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterInfo:
    """What a managed process knows about its task.

    Example::

        info = determined.get_cluster_info()
        if info is not None and info.task_type == "TRIAL":
            print(info.trial.hparams, info.latest_checkpoint)
    """

    master_url: str = ""
    cluster_id: str = ""
    agent_id: str = ""
    slot_ids: list[int] = dataclasses.field(default_factory=list)
    task_id: str = ""
    allocation_id: str = ""
    session_token: str = dataclasses.field(default="", repr=False)
    task_type: str = "TRIAL"
    master_cert_name: str | None = None
    master_cert_file: str | None = None
    _latest_checkpoint: str | None = None
    _trial_info: TrialInfo | None = None
    _rendezvous_info: RendezvousInfo | None = None
    _resources_info: ResourcesInfo | None = None

    def __post_init__(self) -> None:
        if self.master_url:
            object.__setattr__(self, "master_url", _canonical(self.master_url))

    @classmethod
    def from_directory(cls, path: os.PathLike[str] | str) -> ClusterInfo:
        """Read `cluster.json`, and `trial.json`, `rendezvous.json`, `resources.json` where they are there."""
        root = Path(path)
        told = _read(root / "cluster.json") or {}
        trial, rendezvous, resources = (_read(root / f"{n}.json") for n in ("trial", "rendezvous", "resources"))
        known = {f.name for f in dataclasses.fields(cls) if not f.name.startswith("_")}
        return cls(
            **{name: value for name, value in told.items() if name in known},
            _latest_checkpoint=told.get("latest_checkpoint"),
            _trial_info=None if trial is None else _trial(trial),
            _rendezvous_info=None if rendezvous is None else RendezvousInfo(**rendezvous),
            _resources_info=None if resources is None else ResourcesInfo(**resources),
        )

    @property
    def trial(self) -> TrialInfo:
        """The trial; RuntimeError for tasks of another type."""
        if self.task_type != "TRIAL" or self._trial_info is None:
            raise RuntimeError(f"This task is a {self.task_type}, not a TRIAL, so it has no trial information.")
        return self._trial_info

    @property
    def latest_checkpoint(self) -> str | None:
        """The storage id to resume from; None for a new trial and for tasks of another type."""
        return self._latest_checkpoint if self.task_type == "TRIAL" else None

    @property
    def user_data(self) -> dict[str, Any]:
        """The `data` section of the experiment config; empty for tasks of another type."""
        if self.task_type != "TRIAL" or self._trial_info is None:
            return {}
        return dict(self._trial_info._config.get("data") or {})

    @property
    def container_addrs(self) -> list[str]:
        """Addresses of all machines, by rank."""
        return self._rendezvous.container_addrs

    @property
    def container_rank(self) -> int:
        """Which of the machines this is."""
        return self._rendezvous.container_rank

    @property
    def container_slot_counts(self) -> list[int]:
        """Slots of each machine, by rank."""
        return self._rendezvous.container_slot_counts

    @property
    def gpu_uuids(self) -> list[str]:
        """The GPUs assigned to this machine's part of the task."""
        return self._resources_info.gpu_uuids if self._resources_info else []

    @property
    def _rendezvous(self) -> RendezvousInfo:
        if self._rendezvous_info is not None and self.task_type == "TRIAL":
            return self._rendezvous_info
        return RendezvousInfo(["127.0.0.1"], 0, [len(self.slot_ids)])


_UNREAD = object()
_cached: Any = _UNREAD


def get_cluster_info() -> ClusterInfo | None:
    """What this process was told when it was started, or None in a plain `python train.py`.

    Read once per process from `DET_INFO_DIR`, by default `/run/determined/info`; the answer then stays, None included.

    Example::

        info = determined.get_cluster_info()
        latest = None if info is None else info.latest_checkpoint
    """
    global _cached
    if _cached is _UNREAD:
        root = Path(os.environ.get("DET_INFO_DIR") or DEFAULT_DIRECTORY)
        _cached = ClusterInfo.from_directory(root) if (root / "cluster.json").is_file() else None
    answer: ClusterInfo | None = _cached
    return answer


def set_cluster_info(info: ClusterInfo | None) -> None:
    """Make `get_cluster_info()` answer with this object from now on, in this process."""
    global _cached
    _cached = info


def reset_cluster_info() -> None:
    """Forget the answer, so that the next `get_cluster_info()` reads the files again."""
    set_cluster_info(_UNREAD)  # type: ignore[arg-type]  # the marker is ours alone


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as broken:
        raise ValueError(
            f"{path} is not valid JSON ({broken}). It is written when a task starts; start it again."
        ) from broken
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds a {type(value).__name__}, expected a mapping.")
    return value


def _trial(told: dict[str, Any]) -> TrialInfo:
    known = {f.name.lstrip("_"): f.name for f in dataclasses.fields(TrialInfo)}
    return TrialInfo(**{known[k.lstrip("_")]: v for k, v in told.items() if k.lstrip("_") in known})


def _canonical(url: str) -> str:
    """With scheme and port, without a trailing slash: no scheme means http on 8080."""
    text = url.strip().rstrip("/")
    explicit = "://" in text
    parts = urllib.parse.urlsplit(text if explicit else f"http://{text}")
    port = parts.port or (8080 if not explicit else 443 if parts.scheme == "https" else 80)
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path}"
