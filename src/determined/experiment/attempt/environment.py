"""What the processes of an attempt find around them: environment variables, and the files of `get_cluster_info()`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from determined import _process
from determined.experiment.launchers.base import Place, TaskSpec

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
# What the controller may have inherited from a trial or a launcher that it was started in.
NOT_INHERITED = {
    "DET_EXPERIMENT_ID", "DET_TRIAL_ID", "DET_TRIAL_RUN_ID", "DET_TRIAL_SEED", "DET_HPARAMS",
    "DET_EXPERIMENT_CONFIG", "DET_TASK_TYPE", "DET_STEPS_COMPLETED", "DET_LATEST_CHECKPOINT", "DET_TASK_ID",
    "DET_ALLOCATION_ID", "DET_SLOT_IDS", "DET_CLUSTER_ID", "DET_MASTER", "DET_INFO_DIR", "DET_TRACKING",
    "DET_CHIEF_IP", "DET_JOB_SECRET", "DET_LAUNCH_DIR", "USE_TORCH_DISTRIBUTED", "C10D_PORT",
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES",
}  # fmt: skip
LAUNCHER_PREFIXES = ("TORCHELASTIC_", "PET_")
LONGEST_VARIABLE = 120_000  # bytes; Linux refuses to start a program with one of 128 KiB
NO_MASTER = "http://127.0.0.1:8080"  # there is none; scripts that print or parse an address find one


def variables(task: TaskSpec, info: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an attempt: what was inherited, then the config's variables, then the platform's."""
    found = {
        name: value
        for name, value in inherited.items()
        if name not in NOT_INHERITED and not name.startswith(LAUNCHER_PREFIXES)
    }
    chosen = _configured(task)
    found.update(chosen)
    for name in THREADS:
        found.setdefault(name, str(max(1, task.threads // max(1, task.slots))))
    found.setdefault("PYTHONUNBUFFERED", "1")
    own_programs = str(Path(sys.executable).parent)
    found["PATH"] = os.pathsep.join([own_programs, found.get("PATH") or os.defpath])
    found.update({name: text for name, text in _platform(task, info).items() if len(text) <= LONGEST_VARIABLE})
    return found


def write_info(task: TaskSpec, directory: Path, gpu_uuids: list[str] | None = None) -> None:
    """Write the files that `determined.get_cluster_info()` reads. Only this user may: the config has its secrets."""
    cluster = {
        "master_url": NO_MASTER,
        "cluster_id": task.store_id,
        "agent_id": _process.this_node() if task.place is None else task.place.node,
        "slot_ids": _slot_ids(task),
        "task_id": task.task_id,
        "allocation_id": task.allocation_id,
        "task_type": "TRIAL",
        "latest_checkpoint": task.latest_checkpoint,
    }
    trial = {
        "trial_id": task.trial_id,
        "experiment_id": task.experiment_id,
        "trial_seed": task.trial_seed,
        "hparams": task.hparams,
        "config": task.config,
        "steps_completed": task.steps_completed,
        "trial_run_id": task.attempt,
        "debug": bool(task.config.get("debug")),
    }
    place = task.place or Place(0, [_process.this_node()], ["127.0.0.1"], [task.slot_ids])
    rendezvous = {
        "container_addrs": place.addresses,
        "container_rank": place.rank,
        "container_slot_counts": [len(ids) for ids in place.slot_ids],
    }
    resources = {"gpu_uuids": _gpu_uuids(task) if gpu_uuids is None else gpu_uuids}
    for name, values in {
        "cluster": cluster, "trial": trial, "rendezvous": rendezvous, "resources": resources
    }.items():  # fmt: skip
        file = directory / f"{name}.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps(values), encoding="utf-8")


def _configured(task: TaskSpec) -> dict[str, str]:
    """Return the variables that the config sets for this kind of slot."""
    section: Any = (task.config.get("environment") or {}).get("environment_variables") or {}
    entries = section.get(task.slot_kind) or [] if isinstance(section, dict) else section
    return {name: value for name, _, value in (entry.partition("=") for entry in entries)}


def _platform(task: TaskSpec, info: Path) -> dict[str, str]:
    latest = {} if task.latest_checkpoint is None else {"DET_LATEST_CHECKPOINT": task.latest_checkpoint}
    meeting = {}
    if task.place is not None and len(task.place.nodes) > 1:
        meeting = {"C10D_PORT": str(task.place.port), "DET_JOB_SECRET": task.place.secret}
    return {
        **meeting,
        "DET_EXPERIMENT_ID": str(task.experiment_id),
        "DET_TRIAL_ID": str(task.trial_id),
        "DET_TRIAL_RUN_ID": str(task.attempt),
        "DET_TRIAL_SEED": str(task.trial_seed),
        "DET_HPARAMS": json.dumps(task.hparams),
        "DET_EXPERIMENT_CONFIG": json.dumps(task.config),
        "DET_STEPS_COMPLETED": str(task.steps_completed),
        **latest,
        "DET_TASK_TYPE": "TRIAL",
        "DET_TASK_ID": task.task_id,
        "DET_ALLOCATION_ID": task.allocation_id,
        "DET_SLOT_IDS": json.dumps(_slot_ids(task)),
        "DET_CLUSTER_ID": task.store_id,
        "DET_MASTER": NO_MASTER,
        "DET_INFO_DIR": str(info),
        "DET_HOME": task.home,
        "DET_STORE": task.store,
        "CUDA_VISIBLE_DEVICES": ",".join(task.slot_ids) if task.slot_kind == "cuda" else "",
    }


def _slot_ids(task: TaskSpec) -> list[int | str]:
    """Return the slots as scripts know them, as numbers; a GPU may be named by its uuid, too."""
    return [int(name) if name.isdigit() else name for name in map(str, task.slot_ids)]


def _gpu_uuids(task: TaskSpec) -> list[str]:
    if task.slot_kind != "cuda" or not task.slot_ids:
        return []
    command = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return list(task.slot_ids)
    known = dict(line.replace(" ", "").split(",", 1) for line in listed.splitlines() if "," in line)
    return [known.get(name, name) for name in task.slot_ids]
