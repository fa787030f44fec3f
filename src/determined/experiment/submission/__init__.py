"""Submit experiments: pack the code, check what can be checked, and write the rows that a controller starts from."""
