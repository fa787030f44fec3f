"""Commands that submit experiments: create, fork, continue, and templates for their files."""
