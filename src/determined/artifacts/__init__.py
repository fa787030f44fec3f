"""Bytes of checkpoints: publish, verify, fetch. One interface over a local directory and fsspec's file systems."""
