"""Names of profiler files, which every rank would write alike."""

from determined.core.recording.tensorboard import rank_aware_path as get_rank_aware_path

__all__ = ["get_rank_aware_path"]
