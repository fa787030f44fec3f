"""Who can wait for the store waits for it."""

from __future__ import annotations

import pytest

from determined import errors
from determined.store.database import waiting
from determined.store.database.waiting import when_available


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PAUSE_SECONDS", (0.001,))


def test_work_is_done_when_the_store_is_back() -> None:
    """Work that the store is not there for is done again till it is; any other error comes out at once."""
    trouble: list[Exception] = [errors.StoreError("no"), *[errors.StoreUnavailable("not now")] * 3]

    def work() -> str:
        if trouble:
            raise trouble.pop()
        return "done"

    with pytest.raises(errors.StoreError, match="no"):
        when_available(work, 60)
    assert when_available(work, 60) == "done"


def test_waiting_ends() -> None:
    """When the time is over, what is wrong is raised."""

    def work() -> None:
        raise errors.StoreUnavailable("not now")

    with pytest.raises(errors.StoreUnavailable, match="not now"):
        when_available(work, 0.01)
