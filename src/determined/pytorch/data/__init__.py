"""From a dataset to the batches of a training run: `DataLoader`, the order of an epoch, and streams that resume."""
