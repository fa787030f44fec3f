"""The random streams of a process: saved, restored, and derived from keys."""
