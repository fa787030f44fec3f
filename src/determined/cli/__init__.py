"""The `det` command."""
