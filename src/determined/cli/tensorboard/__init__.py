"""`det tensorboard`: TensorBoard on the event files of runs.

`command` holds what is typed, `foreground` runs TensorBoard until Ctrl-C; those that go on without a terminal are the
business of `determined.client.background`.
"""
