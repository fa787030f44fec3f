"""Metric reports as rows: checked, written, summarised, and read as curves."""
