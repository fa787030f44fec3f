"""Rows: the meeting point of training and platform. So far the words they exchange; see `messages`."""
