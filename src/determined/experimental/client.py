"""The older way to `determined.client`: the same names."""

from determined import client as _client
from determined.client import *  # noqa: F403 - the same names

__all__ = _client.__all__
