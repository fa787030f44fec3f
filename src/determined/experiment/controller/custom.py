"""The method of a custom search: a class in the experiment's own copy of the code, or one in another process."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from determined.experiment.attempt import working_directory
from determined.experiment.search import guarded
from determined.experiment.search.base import SearchMethod
from determined.experiment.search.outside import OutsideMethod, is_outside
from determined.store.control import code
from determined.store.experiments import ExperimentRow

if TYPE_CHECKING:
    import sqlalchemy as sa


def method_of(conn: sa.Connection, row: ExperimentRow) -> SearchMethod | None:
    """Return the method of an experiment's custom search; None for any other search.

    What the user's code raises, an event of the search raises later. Importing it takes as long as it likes, so call
    this outside of transactions that write.
    """
    section = (row.config or {}).get("searcher") or {}
    if section.get("name") != "custom":
        return None
    if is_outside(section):
        return OutsideMethod()
    with tempfile.TemporaryDirectory(prefix="determined-search-") as directory:
        place = Path(directory) / "code"
        if row.code_snapshot_id is None:
            place.mkdir()
        else:
            working_directory.unpack(code.content(conn, row.code_snapshot_id), place)
        return guarded.load(section, place)
