"""The first page of a server that has just started: an index of the newest runs alone, made for one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from determined import store
from determined.client._session import Session
from determined.server.answers.tables import Kind, TableQuestion
from determined.server.run_index import answer, selection
from determined.server.run_index.runs import Runs
from determined.server.run_index.view import View
from determined.store.messages import now
from determined.store.overview import run_rows

if TYPE_CHECKING:
    import sqlalchemy as sa

MOST = 300
MOST_TRIALS = 3000  # of the newest experiments; with more, reading them is no quicker than waiting


def can_answer(question: TableQuestion) -> bool:
    """Return whether the newest runs are what is asked for."""
    is_plain = question.filter is None and not question.search.strip() and question.group_by is None
    is_all = question.ids is None and question.experiment_id is None
    return is_plain and is_all and question.sort == ["-run.id"] and question.offset + question.limit <= MOST


def rows(session: Session, kind: Kind, question: TableQuestion) -> dict[str, Any] | None:
    """Return a page of the newest rows; None if that takes more than a moment."""
    with session.read() as conn:
        runs = Runs()
        if not runs.read_newest(conn, kind, MOST, MOST_TRIALS):
            return None
        view = View(runs, kind, now().timestamp())
        found = selection.ordered(view, selection.selected(view, question), question.sort, None)
        total = _count(conn, kind, question)
        if len(found) < min(total, question.offset + question.limit):  # the newest are of other projects
            return None
        page = answer.page_of(found, question)
        runs.read_documents(conn, {ident for ident in view.trial_ids()[page].tolist() if ident})
    view = View(runs, kind, now().timestamp())
    return answer.table(view, found, question, is_rough=True) | {"total": total, "ranges": {}, "best": {}}


def columns(session: Session, kind: Kind) -> dict[str, Any] | None:
    """Return the columns of the newest runs."""
    with session.read() as conn:
        runs = Runs()
        if not runs.read_newest(conn, kind, MOST // 3, MOST_TRIALS):
            return None
        view = View(runs, kind, now().timestamp())
        shown = view.trial_ids()[view.rows.is_there]
        runs.read_documents(conn, {ident for ident in shown.tolist() if ident})
    return {"columns": answer.columns(View(runs, kind, now().timestamp()), None, None), "is_rough": True}


def _count(conn: sa.Connection, kind: Kind, question: TableQuestion) -> int:
    archived = None if question.archived else False
    if kind == "trials":
        return run_rows.count_trials(conn, project_id=question.project_id, archived=archived)
    which = store.experiments.ExperimentFilter(project_id=question.project_id, archived=archived)
    return store.experiments.count(conn, which)
