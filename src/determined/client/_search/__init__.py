"""What a search found: its trials as a table, and how much each hyperparameter mattered."""
