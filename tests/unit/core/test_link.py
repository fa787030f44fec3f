"""Links: the one that records nothing, the one to the store, and the one that tests use keep the same promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.core.recording.link import NullLink
from determined.core.recording.run_description import RunDescription, new_run
from determined.core.recording.store_link import StoreLink
from determined.store.messages import MetricReport
from tests import records
from tests.contracts.link import Arrived, LinkContract
from tests.fakes import MemoryLink


class TestNullLink(LinkContract):
    records = False

    @pytest.fixture
    def link(self) -> NullLink:
        return NullLink()

    @pytest.fixture
    def arrived(self) -> Arrived:
        return list


class TestMemoryLink(LinkContract):
    @pytest.fixture
    def link(self) -> MemoryLink:
        return MemoryLink()

    @pytest.fixture
    def arrived(self, link: MemoryLink) -> Arrived:
        return lambda: [report.steps_completed or 0 for report in link.of(MetricReport)]


class TestStoreLink(LinkContract):
    can_attach = True

    @pytest.fixture
    def place(self, tmp_path: Path) -> str:
        return str(tmp_path / "store.db")

    @pytest.fixture
    def link(self, place: str) -> Iterator[StoreLink]:
        link = StoreLink(new_run(), RunDescription("train.py", script="/code/train.py"), place=place)
        yield link
        link.close()

    @pytest.fixture
    def arrived(self, place: str) -> Arrived:
        return lambda: [row["steps"] for row in records.table("metrics", place) if row["metric_group"] == "training"]
