"""Processes that go on without a terminal, such as TensorBoards: their records, how they start and how they end."""
