"""One trial process becomes one per slot: `python -m determined.launch.torch_distributed`."""
