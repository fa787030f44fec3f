"""`det preview-search`: what a search would train, as a report and as curves."""
