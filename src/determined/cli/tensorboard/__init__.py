"""`det tensorboard`: TensorBoard on the event files of runs.

`command` holds what is typed, `event_files` finds the files, `server` runs TensorBoard until Ctrl-C, and `detached`
keeps account of those that go on without a terminal.
"""
