"""The copy of the user's code in a checkpoint: which files it holds, and how they are imported again."""
