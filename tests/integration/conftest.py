"""Fixtures for tests with real processes."""

from tests.browsers import browser, open_page, page_server  # noqa: F401  fixtures for tests of the page
from tests.launching import bench  # noqa: F401  a fixture for tests of launchers
from tests.lifecycles import lab  # noqa: F401  a fixture for everybody here
