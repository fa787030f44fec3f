"""Care of a whole store: checks, export and import, and removal of what is no longer kept."""
