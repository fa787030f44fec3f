"""An old import path whose subject, batch processing, is not here yet: it says what to use instead."""

raise ImportError(
    "determined.pytorch.experimental is not here yet: there is no torch_batch_process. Load the model with "
    "pytorch.load_trial_from_checkpoint_path(), iterate over pytorch.DataLoader(...).get_data_loader(skip=..., "
    "num_replicas=..., rank=...), and report and save through determined.core.init()."
)
