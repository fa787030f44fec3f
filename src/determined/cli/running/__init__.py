"""What runs now: watch an experiment, look at its results, the queue, the slots and the controller."""
