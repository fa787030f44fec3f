"""Which rows a question means, and in which order: the first, by position in the view."""

from __future__ import annotations

import numpy as np

from determined.server.answers.tables import TableQuestion
from determined.server.run_index import condition
from determined.server.run_index.column import NAN, Mask, Whole
from determined.server.run_index.view import Values, View


def selected(view: View, question: TableQuestion) -> Whole:
    """Return the rows that fit, by id."""
    fits = placed(view, question.project_id, question.experiment_id)
    if not question.archived:
        archived = view.hidden("archived")
        if archived.codes is not None:
            fits &= ~archived.words.fitting(value is True for value in archived.words.values)[archived.codes]
    if question.ids is not None:
        fits &= np.isin(view.rows.ids, np.array(question.ids, np.int64))
    if question.search.strip():
        fits &= condition.searched(view, question.search.strip())
    if question.filter is not None:
        fits &= condition.fitting(view, question.filter)
    rows = np.flatnonzero(fits)
    return rows[np.argsort(view.rows.ids[rows], kind="stable")]


def placed(view: View, project_id: int | None, experiment_id: int | None) -> Mask:
    """Return the rows of a project or an experiment, or all."""
    fits: Mask = view.rows.is_there.copy()
    if project_id is not None:
        fits &= view.hidden("project_id").numbers == project_id
    if experiment_id is not None:
        fits &= view.experiment_ids() == experiment_id
    return fits


def ordered(view: View, rows: Whole, sort: list[str], group_by: str | None) -> Whole:
    """Return the rows in order: by the first key, then the next; ties by id. What has no value is last either way."""
    keys: list[np.ndarray] = []
    descending = {key.removeprefix("-"): key.startswith("-") for key in reversed(sort)}
    if group_by is not None:
        keys += _keys(condition.required(view, group_by), rows, descending.get(group_by, False))
    for key in sort:
        keys += _keys(condition.required(view, key.removeprefix("-")), rows, key.startswith("-"))
    return rows[np.lexsort(keys[::-1])] if keys else rows


def _keys(found: Values, rows: Whole, descending: bool) -> list[np.ndarray]:
    """Return arrays to sort by, the first one first: numbers before words; then NaN; then nothing."""
    numbers = found.numbers[rows]
    sign = -1.0 if descending else 1.0
    if found.codes is None:
        return [np.isnan(numbers), sign * np.nan_to_num(numbers, nan=0.0, posinf=np.inf, neginf=-np.inf)]
    codes = found.codes[rows]
    is_word = codes >= 0
    odd = found.words.kinds()[codes] == NAN
    kind = np.where(is_word, sign, 0.0)
    kind[odd] = 2.0
    kind[np.isnan(numbers) & ~is_word] = 3.0
    ranks = found.words.ranks() if len(found.words) else np.zeros(1, np.int32)
    place = np.where(is_word, ranks[codes], np.nan_to_num(numbers, nan=0.0, posinf=np.inf, neginf=-np.inf))
    return [kind, sign * place]
