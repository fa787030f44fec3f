"""Performs what the engine decides: takes pending events from the store, starts and ends processes. See `loop`."""
