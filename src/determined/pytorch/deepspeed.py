"""An old import path whose subject is left out: it says what to use instead."""

raise ImportError(
    "determined.pytorch.deepspeed is left out: there is no DeepSpeedTrial here. Write a pytorch.PyTorchTrial and start "
    "it with torchrun; wrap_model() makes it DDP."
)
