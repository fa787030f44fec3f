"""Checkpoints of a trial: save, read, load; in the background too, and in the layouts of older releases."""
