"""How many slots this machine has, and whether an experiment fits. Nothing here loads torch."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from determined.errors import ConfigError
from determined.experiment.config.problems import Problem, refusal

if TYPE_CHECKING:
    from determined.experiment.config.experiment_config import ExperimentConfig

logger = logging.getLogger("determined.experiment")
MOST_CPU_SLOTS = 4


@dataclass(frozen=True)
class Slots:
    """The devices that trials are given.

    Attributes:
        kind: `cuda` or `cpu`.
        devices: What each slot is called: the names that `CUDA_VISIBLE_DEVICES` takes, or numbers.
    """

    kind: Literal["cuda", "cpu"]
    devices: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.devices)


def detect(
    setting: int | None = None, *, gpus: Callable[[], list[str]] | None = None, cores: int | None = None
) -> Slots:
    """Return the slots of this machine: as many as were set, else one per visible CUDA device, else some for the CPU.

    Args:
        setting: How many; by default `DET_SLOTS`, if that is set.
        gpus: Finds the visible CUDA devices.
        cores: How many cores there are.

    Example::

        detect(2).devices  # ("0", "1")
    """
    setting = _from_environment() if setting is None else setting
    devices = (gpus or visible_gpus)()
    if setting is not None and (setting < 0 or (devices and setting > len(devices))):
        raise ConfigError(
            f"{setting} slots were asked for, and this machine has {len(devices)} visible GPUs. "
            "Ask for at most that many, or hide the GPUs with CUDA_VISIBLE_DEVICES= to use CPU slots."
        )
    if devices:
        found = Slots("cuda", tuple(devices[:setting]))
    else:
        cores = cores or os.cpu_count() or 1
        count = max(1, min(MOST_CPU_SLOTS, cores // 2)) if setting is None else setting
        found = Slots("cpu", tuple(map(str, range(count))))
    logger.info("This machine has %d %s slots (%s).", len(found), found.kind, "found" if setting is None else "set")
    return found


def check(config: ExperimentConfig, available: int) -> None:
    """Refuse an experiment whose trials would wait for ever.

    Raises:
        ConfigError: A trial asks for more slots than there are.
    """
    wanted = config.resources.slots_per_trial
    if wanted > available:
        reason = f"is {wanted}, and there are {available} slots. Ask for at most {available}."
        raise refusal([Problem("resources.slots_per_trial", reason)])


def _from_environment() -> int | None:
    text = os.environ.get("DET_SLOTS", "").strip()
    if text and not text.isdigit():
        raise ConfigError(f"DET_SLOTS is {text!r}, and has to be a number of slots, such as 2.")
    return int(text) if text else None


def visible_gpus() -> list[str]:
    """Return the names of the CUDA devices that a process started now would see."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        names = [name.strip() for name in chosen.split(",")]
        valid = []
        for name in names:  # as CUDA does: what follows an invalid name is hidden
            if not name or name.startswith("-"):
                break
            valid.append(name)
        return valid if valid and _all_gpus() else []
    return _all_gpus()


def _all_gpus() -> list[str]:
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in found.stdout.splitlines() if line.strip().isdigit()]
