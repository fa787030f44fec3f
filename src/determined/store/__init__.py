"""Rows: the meeting point of training and platform. One module per noun, over transactions of `database.open_store`.

The words that training says are in `messages`, which needs no SQL.
"""
