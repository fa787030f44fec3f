"""What runs now: an experiment as it goes on, its rungs, the queue, the slots and the controller."""
