"""Lets the shared contract's assertions explain themselves."""

import pytest

pytest.register_assert_rewrite("tests.contracts.storage")
