"""Decides what runs next, and starts it: configuration, search spaces, search methods, and the life of trials."""
