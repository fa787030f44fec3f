"""Training on several ranks and in mixed precision: gradients, DDP, and the process group."""
