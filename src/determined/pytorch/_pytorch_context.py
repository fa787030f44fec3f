"""Where earlier releases had the trial's context: the same class, under both of its names."""

from determined.pytorch._context import PyTorchTrialContext

TrialContext = PyTorchTrialContext  # whose base class was called so until 0.20

__all__ = ["PyTorchTrialContext", "TrialContext"]
