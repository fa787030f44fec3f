"""Fixtures for tests with real processes."""

from tests.lifecycles import lab  # noqa: F401  a fixture for everybody here
