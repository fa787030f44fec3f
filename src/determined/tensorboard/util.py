"""Names of profiler files, which every rank would write alike."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TypeVar

P = TypeVar("P", str, PurePath)

_TOOLS = (
    "dcn_collective_stats", "framework_op_stats", "hlo_proto", "input_pipeline", "input_pipeline_analyzer",
    "kernel_stats", "memory_profile", "memory_viewer", "op_profile", "overview_page", "pod_viewer",
    "tensorflow_stats", "tf_data_bottleneck_analysis", "trace", r"pt\.trace", "xplane",
)  # fmt: skip
_PROFILE = re.compile(rf"(?P<host>.+?)(?P<rest>(\.\d+)?\.({'|'.join(_TOOLS)})\.(pb|json)(\.gz)?)")


def get_rank_aware_path(path: P, rank: int) -> P:
    """`a/host.pt.trace.json` is `a/host#3.pt.trace.json` for rank 3; files that no profiler wrote keep their name.

    Example::

        get_rank_aware_path(Path("a/host.input_pipeline.pb"), 3)
    """
    known = PurePath(path)
    found = _PROFILE.fullmatch(known.name)
    if found is None:
        return path
    return type(path)(known.with_name(f"{found['host']}#{rank}{found['rest']}"))
